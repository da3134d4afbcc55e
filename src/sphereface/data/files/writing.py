"""Atomic writing: a file or folder appears complete or not at all, with the right mode.

A new file gets 0666 less the umask, as from any program; a private one, which holds features or weights of a run, gets
0600. The kernel applies the mode when it makes the file, so that it is never more open, not even while it is written.
"""

import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from sphereface.errors import UserError

if sys.platform != "win32":
    import fcntl

PUBLIC, PRIVATE = 0o666, 0o600


@contextmanager
def whole_file(path: str | Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """A file to write, moved to its path, over an older file, once all of it is on the disk.

    It gets the older file's mode; the mode of a new file depends on `private`.
    """
    path = Path(path)
    older = path.stat().st_mode & 0o777 if path.exists() else None
    opened = _new_part(path, PUBLIC if older is None and not private else PRIVATE)
    part = Path(opened.name)
    try:
        with opened as file:
            yield file
        if older is not None:
            part.chmod(older)
        flush(part)
        part.replace(path)
        flush(path.parent)
    finally:
        part.unlink(missing_ok=True)


def _new_part(path: Path, mode: int) -> BinaryIO:
    """A new hidden file beside a path, open for writing."""
    while True:
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        with suppress(FileExistsError):
            return open(part, "xb", opener=lambda name, flags: os.open(name, flags, mode))


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    """Write a list of lines in UTF-8, atomically."""
    with whole_file(path) as file:
        file.writelines(f"{line}\n".encode() for line in lines)


def open_private(path: Path) -> BinaryIO:
    """A file to read and write from its beginning; a missing one is created as private."""
    return open(path, "r+b", opener=lambda name, flags: os.open(name, flags | os.O_CREAT, PRIVATE))


def flush(path: Path) -> None:
    """Wait until a file's bytes, or a folder's entries, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        sync(handle)
    finally:
        os.close(handle)


def sync(handle: int) -> None:
    """Wait until what was written through a handle is on the disk; macOS's own fsync stops at the drive's cache."""
    whole = None if sys.platform == "win32" else getattr(fcntl, "F_FULLFSYNC", None)
    if whole is not None:
        with suppress(OSError):  # a file system without it, such as a network's
            fcntl.fcntl(handle, whole)
            return
    os.fsync(handle)


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """A folder to fill, moved to its path after the block; the path must be free or an empty folder."""
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
    """A temporary folder to write a file and its companions in; they move beside the path after the block.

    All of their paths must be free. The file itself moves last: where it is, the others are.
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
    """A hidden temporary folder beside a path, and so on the same disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    room = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
    try:
        yield room
    finally:
        shutil.rmtree(room)


def _refuse(path: Path, *, unless: bool = False) -> None:
    if os.path.lexists(path) and not unless:
        raise UserError(f"{path} exists already and is not overwritten; choose a new name or an empty folder")
