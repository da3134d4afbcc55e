"""The log of a run, which survives a kill, and TensorBoard on request.

docs/reference/training-log.md describes the lines of `log.jsonl`.
"""

import json
import math
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

import cv2
import numpy as np
import torch

import sphereface
from sphereface.data.files.writing import sync
from sphereface.errors import DataFormatError, UserError
from sphereface.progress import Say

LOG, BOARD = "log.jsonl", "tensorboard"
Kind = Literal["start", "resume", "step", "validation", "checkpoint", "rollback", "note", "end"]
KINDS: tuple[Kind, ...] = get_args(Kind)
EVENTS = ("resume", "rollback", "note")  # kept when a rollback voids the steps around them
Entry = dict[str, Any]


def versions(device: str | torch.device = "cpu") -> dict[str, str]:
    """Versions of the software, system and device, for the first line of a log."""
    device = torch.device(device)
    found = {
        "sphereface": sphereface.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "opencv": cv2.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "device": str(device),
    }
    if device.type == "cuda":
        found |= {"cuda": str(torch.version.cuda), "gpu": torch.cuda.get_device_name(device)}
    return found


def to_stderr(text: str) -> None:
    """Write a line to standard error, apart from results."""
    sys.stderr.write(f"{text}\n")


class RunLog:
    """The log of a run, one JSON object a line in its folder's `log.jsonl`; one process writes it.

    Lines are unbuffered, so a killed run loses none, and a half-written one is cut off when the log is opened again.
    `resume` is the step at which a run continues: lines of later steps are void; `fields` go into the line of the
    resume. A full disk leaves a gap in the log and does not stop the run: `say` gets one note.

    >>> with RunLog(run) as log:
    ...     log.write("step", 100, {"loss": 3.2, "lr": 0.1, "lambda": 76.9})
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        tensorboard: bool = False,
        resume: int | None = None,
        fields: Mapping[str, Any] | None = None,
        say: Say = to_stderr,
    ) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / LOG
        self._say, self._failed = say, False
        self._board: Board | None = None
        self._size = _cut_half_line(self.path)
        self._file = self.path.open("ab", buffering=0)
        if resume is not None:
            self.write("resume", resume, fields)
        if tensorboard:
            self._board = self._open_board(resume)

    def _open_board(self, resume: int | None) -> "Board | None":
        try:
            return Board(self.folder / BOARD, purge=(resume or 0) + 1)  # hides also the steps of an earlier run
        except ImportError:
            reason = "tensorboard is not installed: pip install 'sphereface[train]'"
        except OSError as error:
            reason = f"tensorboard cannot write to {error.filename} ({error.strerror})"
        text = f"{reason}; log.jsonl has the same numbers"
        self.write("note", resume or 0, {"text": text})
        self._say(text)
        return None

    def write(self, kind: Kind, step: int, values: Mapping[str, Any] | None = None) -> None:
        """Append a line; numbers that are not finite become null. `step` counts completed steps: the first is 1."""
        if kind not in KINDS:
            raise UserError(f"unknown kind {kind!r}; choose one of {', '.join(KINDS)}")
        head = {"kind": kind, "step": step, "time": datetime.now(UTC).isoformat(timespec="milliseconds")}
        entry = {**head, **_plain(values or {}), **head}  # head comes first, and values cannot replace it
        line = json.dumps(entry, ensure_ascii=False, allow_nan=False).encode(errors="backslashreplace") + b"\n"
        self._append(line, to_disk=kind in ("checkpoint", "rollback", "end"))
        if self._board is not None:
            self._write_to_board(kind, step, entry)

    def _append(self, line: bytes, *, to_disk: bool) -> None:
        try:
            written = 0
            while written < len(line):
                written += self._file.write(line[written:])
            self._size += len(line)
            if to_disk:
                sync(self._file.fileno())
            self._failed = False
        except OSError as error:
            self._file.truncate(self._size)  # half a line would damage the next
            if not self._failed:
                self._say(f"{self.path}: cannot be written ({error.strerror}); the run continues, its log has a gap")
            self._failed = True

    def _write_to_board(self, kind: Kind, step: int, entry: Entry) -> None:
        assert self._board is not None
        try:
            if kind == "rollback":
                self._board.close()
                self._board = Board(self._board.folder, purge=step + 1)
            self._board.tell(kind, step, entry)
        except OSError as error:
            reason = f"{self._board.folder}: cannot be written ({error.strerror})"
            self._say(f"{reason}; the run continues without TensorBoard")
            self._board = None

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._board is not None:
            self._board.close()

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _cut_half_line(path: Path) -> int:
    """Cut a half-written last line off a log; returns its size."""
    if not path.exists():
        return 0
    with path.open("r+b") as file:
        size = file.read().rfind(b"\n") + 1
        file.truncate(size)
    return size


def _plain(value: Any) -> Any:
    """A value for JSON: arrays and tuples become lists, paths text, numbers that are not finite null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray | np.generic | torch.Tensor):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value


def read_log(folder: str | Path) -> list[Entry]:
    """The valid entries of a run's log, oldest first.

    A resume at step S voids earlier entries of later steps, because these steps are repeated; a rollback does too, but
    keeps the EVENTS. A `start` voids all entries before it. A half-written last line is left out.
    """
    history: list[Entry] = []
    for entry in _entries(Path(folder) / LOG):
        kind, step = entry["kind"], entry["step"]
        if kind == "start":
            history = []
        elif kind in ("resume", "rollback"):
            kept = EVENTS if kind == "rollback" else ()
            history = [old for old in history if old["step"] <= step or old["kind"] in kept]
        history.append(entry)
    return history


def last_rollback(folder: str | Path, step: int) -> Entry | None:
    """The last rollback before a run that resumes at a step; None if there is none, or no valid log."""
    try:
        history = read_log(folder)
    except DataFormatError:
        return None
    return next((old for old in reversed(history) if old["kind"] == "rollback" and old["step"] <= step), None)


def _entries(path: Path) -> list[Entry]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataFormatError(f"{path}: cannot be read ({error.strerror}); wanted the folder of a run") from error
    found = []
    for number, line in enumerate(data.split(b"\n")[:-1], 1):  # the text after the last newline is half a line
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict) or entry.get("kind") not in KINDS or not isinstance(entry.get("step"), int):
            raise DataFormatError(f"{path}: line {number} is not a line of a log; remove it, the others stay valid")
        found.append(entry)
    return found


class Board:
    """The numbers of a run for TensorBoard; an ImportError if it is not installed.

    Numbers that an earlier part of the run wrote from step `purge` on are no longer shown.
    """

    def __init__(self, folder: Path, *, purge: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.folder = folder
        self._writer = SummaryWriter(str(folder), purge_step=purge)

    def tell(self, kind: Kind, step: int, values: Mapping[str, Any]) -> None:
        """Write the numbers of a step or a validation."""
        if kind in ("step", "validation"):
            for name, value in _scalars(values):
                self._writer.add_scalar(f"{kind}/{name}", value, step)
        if kind in ("validation", "checkpoint", "end"):
            self._writer.flush()

    def close(self) -> None:
        """Write the remaining numbers, and close the file."""
        self._writer.close()


def _scalars(values: Mapping[str, Any], above: str = "") -> list[tuple[str, float]]:
    """The numbers among some values; nested ones are named by their path."""
    found = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            found += _scalars(value, f"{above}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and name != "step":
            found.append((f"{above}{name}", float(value)))
    return found
