"""A table of who belongs to which groups: `groups.csv` with a header, `person,sex,age` or `path,group`."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sphereface.data.lines import open_list
from sphereface.errors import DataFormatError

Key = Literal["person", "path"]
WANTED = "wanted a header `person,group` or `path,group`, with a column for each attribute"


@dataclass(frozen=True)
class Attributes:
    """Groups by attribute, for each person or each image; an empty cell is not there: nobody knows."""

    source: str
    key: Key
    names: tuple[str, ...]  # every line's person or path
    columns: Mapping[str, Mapping[str, str]]  # attribute -> name -> group

    def groups_of(self, column: str, people: Sequence[str], paths: Sequence[str]) -> list[str | None]:
        """The group of each image, given whose it is and its path; a path may have another suffix than in the table."""
        groups = self.columns[column]
        if self.key == "person":
            return [groups.get(person) for person in people]
        stems = {stem(path): group for path, group in groups.items()}
        return [groups.get(path, stems.get(stem(path))) for path in paths]

    def lacking(self, people: Sequence[str], paths: Sequence[str]) -> list[str]:
        """The people or paths without a line."""
        if self.key == "person":
            return sorted(set(people) - set(self.names))
        listed = {stem(name) for name in self.names}
        return [path for path in paths if stem(path) not in listed]

    def strangers(self, people: Sequence[str], paths: Sequence[str]) -> list[str]:
        """The lines that name nobody and nothing of a set."""
        if self.key == "person":
            known = set(people)
            return [name for name in self.names if name not in known]
        known = {stem(path) for path in paths}
        return [name for name in self.names if stem(name) not in known]


def stem(path: str) -> str:
    """A path without its suffix: photos that were aligned may have got another."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{name.rpartition('.')[0] or name}"


def read_attributes(path: str | Path) -> Attributes:
    """Read a table; whatever is wrong with a line is an error that names it.

    >>> read_attributes("groups.csv").columns["sex"]["Ada_Lovelace"]
    'female'
    """
    path = Path(path)
    rows = _rows(path)
    first = next(rows, None)
    if first is None:
        raise DataFormatError(f"{path}: nothing in it; {WANTED}")
    _, header = first
    if header[0] not in ("person", "path") or len(header) < 2:
        raise DataFormatError(f"{path}:1: {','.join(header)[:120]!r}; {WANTED}")
    if "" in header or len(set(header)) < len(header):
        raise DataFormatError(
            f"{path}:1: {','.join(header)[:120]!r} has a column without a name or one twice; {WANTED}"
        )
    names: dict[str, int] = {}
    columns: dict[str, dict[str, str]] = {name: {} for name in header[1:]}
    for number, cells in rows:
        if len(cells) != len(header) or not cells[0]:
            raise DataFormatError(f"{path}:{number}: {','.join(cells)[:120]!r}; wanted {','.join(header)}")
        if cells[0] in names:
            raise DataFormatError(f"{path}:{number}: {cells[0]} stands in line {names[cells[0]]} already; keep one")
        names[cells[0]] = number
        for column, group in zip(header[1:], cells[1:], strict=True):
            if group:
                columns[column][cells[0]] = group
    return Attributes(path.name, "person" if header[0] == "person" else "path", tuple(names), columns)


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Lines that hold something, with their numbers; cells without spaces around them."""
    with open_list(path) as file:
        reader = csv.reader(io.TextIOWrapper(file, encoding="utf-8-sig", newline=""), strict=True)
        try:
            for cells in reader:
                if any(cell.strip() for cell in cells):
                    yield reader.line_num, [cell.strip() for cell in cells]
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataFormatError(f"{path}:{reader.line_num + 1}: {error}; wanted a table in CSV and UTF-8") from error
