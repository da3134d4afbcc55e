"""The journal of a feature store: the finished chunks, so that another run can continue after them."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pydantic import Field

from sphereface.contract import Record
from sphereface.data.files.writing import flush, open_private, sync
from sphereface.embed.store import JOURNAL
from sphereface.errors import DataFormatError, UserError

Job = Mapping[str, str | int]  # the inputs that determine the features


class Noted(Record):
    """The journal's line for a chunk."""

    rows: int
    seen: str  # SHA-256 of the hashes of its readable images
    unreadable: dict[int, str] = Field(default_factory=dict)  # by position


class Journal:
    """The journal of a folder, locked by one process: its first line is the job, each other line a chunk."""

    def __init__(self, file: BinaryIO, job: Job, folder: Path) -> None:
        self._file = file
        whole, _, _ = file.read().rpartition(b"\n")  # drops the incomplete line of a killed run
        first, *others = whole.split(b"\n")
        self.chunks: list[Noted] = []
        if not first:
            file.seek(0)
            file.truncate()
            self._write(json.dumps(dict(job)))
            flush(folder)
            return
        try:
            known = json.loads(first)
            self.chunks = [Noted.model_validate_json(line) for line in others]
        except ValueError as error:
            raise DataFormatError(f"{folder / JOURNAL}: changed or damaged; remove {folder}") from error
        _require_same(known, job, folder)
        file.seek(len(whole) + 1)
        file.truncate()

    def note(self, chunk: Noted) -> None:
        """Write a chunk; it is on the disk when this returns."""
        self._write(chunk.model_dump_json())
        self.chunks.append(chunk)

    @property
    def rows(self) -> int:
        """The number of rows written."""
        return sum(chunk.rows for chunk in self.chunks)

    @property
    def unreadable(self) -> dict[int, str]:
        """The images without rows, by position."""
        return {position: why for chunk in self.chunks for position, why in chunk.unreadable.items()}

    def _write(self, line: str) -> None:
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        sync(self._file.fileno())


@contextmanager
def open_journal(folder: Path, job: Job) -> Iterator[Journal]:
    """The journal of a folder, locked; raises if the folder belongs to another job or another process works on it."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / JOURNAL).exists():
        for other in folder.iterdir():
            raise UserError(f"{folder} holds something else ({other.name}); choose a new or empty folder")
    with open_private(folder / JOURNAL) as file:
        _lock(file, folder)
        yield Journal(file, job, folder)


def _require_same(found: object, job: Job, folder: Path) -> None:
    known = found if isinstance(found, dict) else {}
    different = [key for key, value in job.items() if known.get(key) != value]
    if different:
        changes = [f"{key} {_shown(known.get(key))} (now {_shown(job[key])})" for key in different if key != "card"]
        raise UserError(
            f"{folder} holds features of another job: {', '.join(changes) or 'another card'}; "
            "choose a new folder, or remove this one"
        )


def _shown(value: object) -> str:
    return " ".join(str(value).split())[:16]  # on one line, also for a damaged journal


def _lock(file: BinaryIO, folder: Path) -> None:
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{folder}: another process is embedding into it; wait for it, or end it") from None
