"""A table of the groups of people or images: `groups.csv` with a header, `person,sex,age` or `path,group`."""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from sphereface.data.files.lines import open_list
from sphereface.errors import DataFormatError

Key = Literal["person", "path"]
WANTED = "wanted a header `person,group` or `path,group`, with a column for each attribute"


@dataclass(frozen=True)
class Attributes:
    """Groups by attribute, for each person or each image; an empty cell is an unknown group and left out."""

    source: str
    key: Key
    names: tuple[str, ...]  # every line's person or path
    columns: Mapping[str, Mapping[str, str]]  # attribute -> name -> group

    def groups_of(self, column: str, people: Sequence[str], paths: Sequence[str]) -> list[str | None]:
        """The group of each image, from its person and path; a path may have another suffix than in the table."""
        groups = self.columns[column]
        return [None if line is None else groups.get(line) for line in self._lines_of(people, paths)]

    def lacking(self, people: Sequence[str], paths: Sequence[str]) -> list[str]:
        """The people or paths without a line."""
        asked = people if self.key == "person" else paths
        lines = self._lines_of(people, paths)
        return sorted({name for name, line in zip(asked, lines, strict=True) if line is None})

    def strangers(self, people: Sequence[str], paths: Sequence[str]) -> list[str]:
        """The lines that name no person or image of a set."""
        known = set(self._lines_of(people, paths))
        return [name for name in self.names if name not in known]

    def _lines_of(self, people: Sequence[str], paths: Sequence[str]) -> list[str | None]:
        """The line of each person, or of each path, matched exactly or without the suffix."""
        if self.key == "person":
            return [person if person in self._known else None for person in people]
        return [self._known.get(path) or self._known.get(stem(path)) for path in paths]

    @cached_property
    def _known(self) -> dict[str, str]:
        """Lines by name, and by stem where it is unique."""
        stems = [stem(name) for name in self.names] if self.key == "path" else []
        shared = Counter(stems)
        alone = {each: name for each, name in zip(stems, self.names, strict=False) if shared[each] == 1}
        return alone | {name: name for name in self.names}


def stem(path: str) -> str:
    """A path without its suffix, which alignment may change."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{name.rpartition('.')[0] or name}"


def read_attributes(path: str | Path) -> Attributes:
    """Read a table; an error names its line.

    >>> read_attributes("groups.csv").columns["sex"]["Ada_Lovelace"]
    'female'
    """
    path = Path(path)
    rows = _rows(path)
    line, header = next(rows, (0, []))
    if not header:
        raise DataFormatError(f"{path}: empty; {WANTED}")
    if header[0] not in ("person", "path") or len(header) < 2:
        raise DataFormatError(f"{path}:{line}: {','.join(header)[:120]!r}; {WANTED}")
    if "" in header or len(set(header)) < len(header):
        found = f"{','.join(header)[:120]!r} has a column without a name or one twice"
        raise DataFormatError(f"{path}:{line}: {found}; {WANTED}")
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
    """The lines that are not blank, with their numbers; cells without surrounding spaces."""
    with open_list(path) as file:
        reader = csv.reader(io.TextIOWrapper(file, encoding="utf-8-sig", newline=""), strict=True)
        try:
            for cells in reader:
                if any(cell.strip() for cell in cells):
                    yield reader.line_num, [cell.strip() for cell in cells]
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataFormatError(f"{path}:{reader.line_num + 1}: {error}; wanted a table in CSV and UTF-8") from error
