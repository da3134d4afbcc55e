"""The result of a protocol: printed as text or as one JSON object, and with --out as result.json and report.html."""

import json
import math
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sphereface.errors import UserError

if TYPE_CHECKING:
    from sphereface.evaluation.groups.compare import GroupReport
    from sphereface.evaluation.pages import Result

RESULT = "result.json"


def check_out(out: Path | None) -> None:
    """Raise before the evaluation if --out is not a folder, or if matplotlib is missing for the report."""
    if out is None:
        return
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file; wanted a folder for {RESULT} and report.html")
    from sphereface.reports.figures import require_matplotlib

    require_matplotlib()


def tell(
    context: typer.Context,
    result: "Result",
    payload: dict[str, Any],
    text: str,
    *,
    title: str,
    out: Path | None,
    as_json: bool,
    groups: "GroupReport | None" = None,
) -> None:
    """Print a result, as the JSON of `payload` or as `text`, and write JSON and report into `out`."""
    content = json.dumps(finite(payload), indent=2, allow_nan=False)
    if out is not None:
        from sphereface.data.files.writing import whole_file
        from sphereface.evaluation.pages import write_report

        out.mkdir(parents=True, exist_ok=True)
        with whole_file(out / RESULT) as file:
            file.write(content.encode() + b"\n")
        page = write_report(result, out, title=title, command=command_line(context), groups=groups)
        text = f"{text}\n\nReport: {page}"
    typer.echo(content if as_json else text)


def command_line(context: typer.Context) -> str:
    """The command line as typed."""
    return shlex.join(["sphereface", *(context.find_root().obj or sys.argv[1:])])


def finite(value: Any) -> Any:
    """The same value with None for numbers that JSON does not have, such as an infinite threshold."""
    if isinstance(value, dict):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
