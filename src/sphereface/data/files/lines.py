"""Lists as numbered lines, so that an error can name its line, and the numbers in them."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from sphereface.data.names import LABELS
from sphereface.errors import DataFormatError

LIMIT = 1 << 30  # bytes: a list of five million images has a third of that


class Line(NamedTuple):
    """One line of a list, without its end."""

    path: Path
    number: int
    text: str

    @classmethod
    def decoded(cls, path: Path, number: int, raw: bytes) -> "Line":
        """A line from its bytes in UTF-8."""
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise DataFormatError(f"{path}:{number}: no UTF-8 text; save the list as UTF-8") from None
        return cls(path, number, text.removesuffix("\n").removesuffix("\r"))

    def wrong(self, *wanted: object) -> DataFormatError:
        """The error that names this line: what came, what was wanted."""
        return DataFormatError(f"{self}: {self.text[:120]!r}; wanted ", *wanted)

    def __str__(self) -> str:
        return f"{self.path}:{self.number}"


def read_lines(path: Path, *, limit: int = LIMIT) -> Iterator[Line]:
    r"""All lines that are not blank; only `\n` and `\r\n` end one, as names may hold rarer line ends."""
    with open_list(path, limit=limit) as file:
        for number, raw in enumerate(file, start=1):
            line = Line.decoded(path, number, raw)
            if line.text.strip():
                yield line


@contextmanager
def open_list(path: Path, *, limit: int = LIMIT) -> Iterator[BinaryIO]:
    """Open a list of at most `limit` bytes."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataFormatError(f"{path}: cannot be read ({error.strerror})") from error
    with file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise DataFormatError(f"{path}: {size:,} bytes; wanted a list, of at most {limit:,}")
        yield file


def whole_number(text: str) -> int | None:
    """A number of plain digits, or None; `int` itself takes signs, underscores and other scripts' digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def finite_number(text: str) -> float | None:
    """A finite number, or None; `float` itself takes underscores and other scripts' digits."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and text.isascii() and "_" not in text else None


def label_of(text: str) -> int | None:
    """A label, or None unless the text is a whole number below `LABELS`."""
    number = whole_number(text)
    return number if number is not None and number < LABELS else None
