"""Files read by offset and length, from any thread or process."""

import os
import threading
from io import FileIO
from pathlib import Path
from typing import Any

from sphereface.errors import DataFormatError

_seeking = threading.Lock()


class ByteFile:
    """A file read by offset and length; every length is checked before memory is allocated.

    It is opened at the first read in each process. Reads share no position, so threads and forked workers may use one
    file at once. With `keep=False` it is opened for each read: for sets of very many files.
    """

    def __init__(self, path: str | Path, *, keep: bool = True) -> None:
        self.path = Path(path)
        self.keep = keep
        self._open: dict[int, FileIO] = {}  # by process
        try:
            self.size = self.path.stat().st_size
        except OSError as error:
            raise self.wrong(f"cannot be read ({error.strerror})") from error

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset` on."""
        self.require(offset, length)
        try:
            data = self._read(offset, length)
        except OSError as error:
            raise self.wrong(f"cannot be read ({error.strerror})") from error
        if len(data) != length:
            raise self.wrong("became shorter while it was read; copy or download it again")
        return data

    def require(self, offset: int, length: int) -> None:
        """Raise unless the file has `length` bytes from `offset` on."""
        if offset < 0 or length < 0 or offset + length > self.size:
            found = f"{length:,} bytes wanted at {offset:,}, the file has {self.size:,}"
            raise self.wrong(f"cut off: {found}; copy or download it again")

    def wrong(self, problem: str) -> DataFormatError:
        """The error that names this file."""
        return DataFormatError(f"{self.path}: {problem}")

    def _read(self, offset: int, length: int) -> bytes:
        if self.keep:
            return _read_at(self._file(), offset, length)
        with FileIO(self.path) as file:
            return _read_at(file, offset, length)

    def _file(self) -> FileIO:
        process = os.getpid()
        file = self._open.get(process)
        if file is None:
            new = FileIO(self.path)
            file = self._open.setdefault(process, new)
            if file is not new:  # another thread opened it first
                new.close()
        return file

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}

    def __del__(self) -> None:
        for file in self.__dict__.get("_open", {}).values():
            file.close()


def _read_at(file: FileIO, offset: int, length: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(file.fileno(), length, offset)
    with _seeking:  # threads share the position
        file.seek(offset)
        return file.read(length)
