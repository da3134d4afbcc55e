"""Output of verbs: results on standard output and in files, progress lines on standard error."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer


def say(line: str) -> None:
    """Print a progress line on standard error."""
    typer.echo(line, err=True)


def write_result(out: Path, name: str, result: Mapping[str, Any], page: str) -> None:
    """Write a result as `name.json` and its page as `name.md` into a folder, which is made if needed."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.md").write_text(page)
    (out / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")
