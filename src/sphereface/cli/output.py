"""Output of verbs: results on standard output and in files, progress lines on standard error."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer


def say(line: str) -> None:
    """Print a progress line on standard error."""
    typer.echo(line, err=True)


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table on standard output; in a file or pipe its lines are as wide as they need to be."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells, console = [list(head), *map(list, rows)], Console()
    if not console.is_terminal:
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            typer.echo("  ".join(map(str.ljust, row, widths)).rstrip())
        return
    table = Table(*head, box=None, header_style="bold", pad_edge=False)
    for row in cells[1:]:
        table.add_row(*map(Text, row))  # no markup in it
    console.print(table)


def write_result(out: Path, name: str, result: Mapping[str, Any], page: str) -> None:
    """Write a result as `name.json` and its page as `name.md` into a folder, which is made if needed."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.md").write_text(page)
    (out / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")
