"""Files that appear whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

Progress = Callable[[int], None]


def silent(_: int) -> None:
    """Progress that nobody watches."""


@contextmanager
def whole_file(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write, which takes its place, and the place of an older one, only when all of it is on the disk.

    Who may read the older one may read the new one, and nobody else.
    """
    path = Path(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        part.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        flush(part)
        part.replace(path)
        flush(path.parent)
    finally:
        part.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Wait until a file's bytes, or a folder's entries, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """A folder to fill, which takes its place when the block is done; the place must be free or an empty folder."""
    path = Path(path)
    _refuse(path, unless=path.is_dir() and not any(path.iterdir()))
    with beside(path) as room:
        folder = room / path.name
        folder.mkdir()
        yield folder
        if path.is_dir():
            path.rmdir()  # which fails if it is no longer empty
        folder.rename(path)


@contextmanager
def new_files(path: Path, *others: Path) -> Iterator[Path]:
    """A folder to make a file in, and others that belong to it: they move to the path's folder when the block is done.

    None of their places may be taken. The file itself comes last: where it is, the others are.
    """
    for place in (path, *others):
        _refuse(place)
    with beside(path) as room:
        yield room
        made = sorted(room.iterdir(), key=lambda file: file.name == path.name)
        for file in made:
            flush(file)
            _refuse(path.with_name(file.name))
        for file in made:
            file.rename(path.with_name(file.name))
        flush(path.parent)


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A hidden folder beside a path, and so on the same disk; it is gone after the block."""
    path.parent.mkdir(parents=True, exist_ok=True)
    room = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
    try:
        yield room
    finally:
        shutil.rmtree(room)


def _refuse(path: Path, *, unless: bool = False) -> None:
    if os.path.lexists(path) and not unless:
        raise ValueError(f"{path} is there already, and nothing is written over; choose a new name or an empty folder")
