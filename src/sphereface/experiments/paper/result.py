"""What an experiment found: tables whose rows name their source, figures, findings and numbers; and its files."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sphereface.choices import Scale
from sphereface.data.files.writing import whole_file
from sphereface.experiments import tables
from sphereface.reports.figures import Picture

Stamp = Literal["tiny", "small", "paper", "published", "derived"]  # derived: computed from formulas, at no scale
NOT_VERIFIED = "paper, not yet verified"


class Row(NamedTuple):
    """Cells of a table, and where their numbers come from."""

    cells: Sequence[str]
    stamp: Stamp


@dataclass(frozen=True)
class Table:
    """A table; `name` is that of its CSV file."""

    name: str
    title: str
    head: Sequence[str]
    rows: Sequence[Row]
    note: str = ""

    @property
    def stamped(self) -> list[list[str]]:
        """The rows, with the scale of each in the last column."""
        return [[*row.cells, row.stamp] for row in self.rows]

    @property
    def whole_head(self) -> list[str]:
        """The names of all columns."""
        return [*self.head, "scale"]

    def csv(self) -> str:
        """The table as CSV."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.whole_head, *self.stamped])
        return text.getvalue()

    def markdown(self) -> str:
        """The table in Markdown, with its title and note."""
        cells = [[cell.replace("|", "\\|") for cell in row] for row in self.stamped]
        parts = [f"### {self.title}", tables.table(self.whole_head, cells), self.note]
        return "\n\n".join(part for part in parts if part)


class Figure(NamedTuple):
    """A drawing; `name` is that of its PNG and PDF files; a wide one scrolls on a small screen."""

    name: str
    picture: Picture
    caption: str
    wide: bool = False


@dataclass
class Result:
    """All that one experiment shows; `numbers` is what `--json` prints beside the tables."""

    id: str
    title: str
    scale: Scale
    findings: list[str] = field(default_factory=list)  # plain sentences
    tables: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    pages: dict[str, str] = field(default_factory=dict)  # other files, as interactive pages: name -> text
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def markdown(self) -> str:
        """Findings and tables in Markdown, with links to the figures."""
        parts = [f"## {self.id}: {self.title}", *self.findings, *(table.markdown() for table in self.tables)]
        parts += [f"![{figure.picture.says}]({figure.name}.png)\n\n{figure.caption}" for figure in self.figures]
        parts += [f"[{name}]({name})" for name in self.pages]
        return "\n\n".join(parts) + "\n"

    def as_json(self) -> dict[str, Any]:
        """The result as a JSON object, without pictures and pages, which are files."""
        return {
            "id": self.id,
            "title": self.title,
            "scale": self.scale,
            "findings": self.findings,
            "tables": [
                {
                    "name": table.name, "title": table.title, "head": list(table.head), "note": table.note,
                    "rows": [{"cells": list(row.cells), "scale": row.stamp} for row in table.rows],
                }
                for table in self.tables
            ],
            "figures": [
                {"name": each.name, "caption": each.caption, "says": each.picture.says, "wide": each.wide}
                for each in self.figures
            ],
            "pages": list(self.pages),
            "numbers": dict(self.numbers),
        }  # fmt: skip

    def write(self, out: Path) -> Path:
        """Write all files of the result into the folder of its ID, `result.json` last; returns that folder."""
        folder = out / self.id
        folder.mkdir(parents=True, exist_ok=True)
        for table in self.tables:
            (folder / f"{table.name}.csv").write_text(table.csv())
        for figure in self.figures:
            (folder / f"{figure.name}.png").write_bytes(figure.picture.light)
            (folder / f"{figure.name}-dark.png").write_bytes(figure.picture.dark)
            if figure.picture.pdf:
                (folder / f"{figure.name}.pdf").write_bytes(figure.picture.pdf)
        for name, text in self.pages.items():
            (folder / name).write_text(text)
        (folder / "result.md").write_text(self.markdown())
        with whole_file(folder / RESULT) as file:
            file.write((json.dumps(self.as_json(), indent=1) + "\n").encode())
        return folder


RESULT = "result.json"


def read_result(folder: Path) -> Result:
    """The result that `Result.write` left in a folder."""
    found = json.loads((folder / RESULT).read_bytes())
    return Result(
        found["id"],
        found["title"],
        found["scale"],
        findings=found["findings"],
        tables=[
            Table(each["name"], each["title"], each["head"],
                  [Row(row["cells"], row["scale"]) for row in each["rows"]], each["note"])
            for each in found["tables"]
        ],
        figures=[
            Figure(each["name"], _picture(folder, each["name"], each["says"]), each["caption"], each["wide"])
            for each in found["figures"]
        ],
        pages={name: (folder / name).read_text() for name in found["pages"]},
        numbers=found["numbers"],
    )  # fmt: skip


def _picture(folder: Path, name: str, says: str) -> Picture:
    light, dark = (folder / f"{name}{theme}.png" for theme in ("", "-dark"))
    pdf = folder / f"{name}.pdf"
    return Picture(light.read_bytes(), dark.read_bytes(), says, pdf.read_bytes() if pdf.is_file() else b"")
