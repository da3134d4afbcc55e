"""Files that are read at any place, by any process."""

import os
import threading
from io import FileIO
from pathlib import Path
from typing import Any

from sphereface.errors import DataFormatError

_seeking = threading.Lock()


class ByteFile:
    """A file whose parts are read by offset and length; every length is checked before memory is asked for.

    It is opened at the first read and again in whatever process it is sent to. Reads share no position, so threads and
    forked workers may use one file at once. With `keep=False` it is opened for each read: for sets of very many files.
    """

    def __init__(self, path: str | Path, *, keep: bool = True) -> None:
        self.path = Path(path)
        self.keep = keep
        self._open: dict[int, FileIO] = {}  # by process
        try:
            self.size = self.path.stat().st_size
        except OSError as error:
            raise DataFormatError(f"{self.path}: cannot be read ({error.strerror})") from error

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset` on."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise DataFormatError(
                f"{self.path}: cut off: {length:,} bytes wanted at {offset:,}, the file has {self.size:,}; "
                "copy or download it again"
            )
        try:
            data = self._read(offset, length)
        except OSError as error:
            raise DataFormatError(f"{self.path}: cannot be read ({error.strerror})") from error
        if len(data) != length:
            raise DataFormatError(f"{self.path}: became shorter while it was read")
        return data

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
            if file is not new:  # another thread was quicker
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
