"""Files that are read at any place, by any process."""

import os
from pathlib import Path
from typing import Any

from sphereface.errors import DataFormatError


class ByteFile:
    """A file whose parts are read by offset and length; every length is checked before memory is asked for.

    It is opened at the first read and again in whatever process it is sent to. Reads share no position, so threads and
    forked workers may use one file at once. With `keep=False` it is opened for each read: for sets of very many files.
    """

    def __init__(self, path: str | Path, *, keep: bool = True) -> None:
        self.path = Path(path)
        self.keep = keep
        self._open: dict[int, int] = {}  # process -> handle
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
            data = self._pread(offset, length)
        except OSError as error:
            raise DataFormatError(f"{self.path}: cannot be read ({error.strerror})") from error
        if len(data) != length:
            raise DataFormatError(f"{self.path}: became shorter while it was read")
        return data

    def _pread(self, offset: int, length: int) -> bytes:
        if self.keep:
            return os.pread(self._handle(), length, offset)
        handle = os.open(self.path, os.O_RDONLY)
        try:
            return os.pread(handle, length, offset)
        finally:
            os.close(handle)

    def _handle(self) -> int:
        process = os.getpid()
        handle = self._open.get(process)
        if handle is None:
            new = os.open(self.path, os.O_RDONLY)
            handle = self._open.setdefault(process, new)
            if handle != new:  # another thread was quicker
                os.close(new)
        return handle

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}

    def __del__(self) -> None:
        for handle in self.__dict__.get("_open", {}).values():
            os.close(handle)
