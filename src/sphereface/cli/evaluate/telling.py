"""Results told: as text or as one JSON object, and with --out as result.json and report.html."""

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
    """Refuse a folder that cannot be one, or a report that cannot be drawn, before the long part."""
    if out is None:
        return
    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: no folder; wanted one for {RESULT} and report.html")
    from sphereface.reports.figures import require_matplotlib

    require_matplotlib()


def tell(
    context: typer.Context,
    result: "Result",
    told: dict[str, Any],
    text: str,
    *,
    title: str,
    out: Path | None,
    as_json: bool,
    groups: "GroupReport | None" = None,
) -> None:
    """Print a result, `told` for programs or `text` for people, and write it down where that is asked for."""
    content = json.dumps(finite(told), indent=2, allow_nan=False)
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
    """What was typed."""
    return shlex.join(["sphereface", *(context.find_root().obj or sys.argv[1:])])


def finite(told: Any) -> Any:
    """The same without numbers that JSON does not have: an infinite threshold is null."""
    if isinstance(told, dict):
        return {name: finite(value) for name, value in told.items()}
    if isinstance(told, list | tuple):
        return [finite(value) for value in told]
    return None if isinstance(told, float) and not math.isfinite(told) else told
