"""Checkpoints: safetensors files and a manifest that is put in place last; without its manifest a checkpoint is none.

    step-00000500/net.safetensors                                  a group of tensors that all processes share
    step-00000500/classes-0000000000-0000100000.safetensors        rows of tensors that are split by classes
    step-00000500/rank-00000.safetensors                           what one process has for itself
    step-00000500/manifest.json

Nothing is ever unpickled, and no file of an earlier checkpoint is ever written to.
"""

import hashlib
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from pydantic import JsonValue, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from sphereface.contract import Record
from sphereface.data.writing import flush, whole_file
from sphereface.errors import SphereFaceError
from sphereface.training.manifest import (
    GROUP,
    NAME,
    CheckpointError,
    ClassFile,
    Layout,
    Manifest,
    NewerCheckpoint,
    StoredFile,
    reason,
    seal,
    unseal,
)

Tensors = Mapping[str, Tensor]
Gather = Callable[[Any], list[Any]]  # something for JSON in; what every process gave, in the order of ranks, out

NOTHING: Tensors = MappingProxyType({})
STEP = re.compile(r"step-(\d{8,})")
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
}


class CheckpointNotSaved(SphereFaceError, OSError):
    """A checkpoint that could not be written, on whichever process it was; the earlier ones are as they were."""


def alone(mine: Any) -> list[Any]:
    """What every process gave, where there is one."""
    return [mine]


def save_checkpoint(
    folder: Path,
    step: int,
    *,
    groups: Mapping[str, Tensors],
    by_class: Tensors = NOTHING,
    rows: tuple[int, int] = (0, 0),
    classes: int = 0,
    by_rank: Tensors = NOTHING,
    state: Mapping[str, JsonValue] = MappingProxyType({}),
    rank: int = 0,
    gather: Gather = alone,
) -> Path:
    """Save a checkpoint; when this returns, on any process, it is on the disk.

    All processes call it together and see the same folder. `groups` and `state` are taken from rank 0. Each process
    brings its rows (first, last) of the tensors that are split over `classes`, and in `by_rank` what it has for itself.
    A checkpoint of the same step is replaced, and what a killed run left behind is removed. If any process fails, all
    of them raise `CheckpointNotSaved`.
    """
    path = folder / f"step-{step:08d}"
    shared = groups if rank == 0 else {}
    save = _Save(path, _bytes(*shared.values(), by_class, by_rank), rank, gather)
    save.together(lambda: _prepare(path) if rank == 0 else None)
    shares = save.together(lambda: _write(path, shared, by_class, rows, classes, by_rank, rank).model_dump(mode="json"))
    save.together(lambda: _publish(path, step, classes, state, shares) if rank == 0 else None)
    return path


def newest_checkpoint(folder: Path, *, say: Callable[[str], None], verify: bool = True) -> "Checkpoint | None":
    """The newest whole checkpoint, or None where none was ever finished; `say` hears of each that is passed over.

    Where some were finished and none is whole any more, that is an error: nobody wants to start anew unasked.
    """
    broken: list[CheckpointError] = []
    for path in reversed(_steps(folder)):
        if not (path / NAME).exists():
            say(f"{path}: passed over, for it was never finished")
            continue
        try:
            return open_checkpoint(path, verify=verify)
        except NewerCheckpoint:
            raise
        except CheckpointError as error:
            broken.append(error)
            say(f"checkpoint passed over: {error}")
    if broken:
        raise CheckpointError(
            f"{folder}: none of {len(broken)} checkpoints is whole, the newest because of {broken[0]}; "
            "restore them from a copy, or begin a new run in another folder"
        )
    return None


def open_checkpoint(path: Path, *, verify: bool = True) -> "Checkpoint":
    """A checkpoint whose files are there; `verify` reads them all and compares their hashes.

    Of several processes only one needs to verify.
    """
    manifest = _read_manifest(path)
    if STEP.fullmatch(path.name) and _step(path) != manifest.step:
        raise CheckpointError(f"{path}: its manifest is of step {manifest.step:,}; give the folder its old name again")
    for file in manifest.files:
        _check(path / file.name, file, verify=verify)
    return Checkpoint(path, manifest)


def prune(folder: Path, *, keep: int, best: int | None = None) -> None:
    """Keep the last checkpoints that are whole, and the one of the best step; for rank 0 alone."""
    if keep < 1:
        raise ValueError(f"keep is {keep}; wanted at least 1")
    recent = [_step(path) for path in _steps(folder) if _is_whole(path)][-keep:]
    for path in _steps(folder):
        if recent and _step(path) < recent[0] and _step(path) != best:
            _remove(path)


def forget_after(folder: Path, step: int) -> None:
    """Remove every checkpoint after a step, newest first: the run went back there; for rank 0 alone."""
    for path in reversed(_steps(folder)):
        if _step(path) > step:
            _remove(path)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint to read; its tensors come on the CPU."""

    path: Path
    manifest: Manifest

    @property
    def step(self) -> int:
        """How many steps had been made."""
        return self.manifest.step

    @property
    def state(self) -> dict[str, JsonValue]:
        """What was given as `state`; treat it as read-only."""
        return self.manifest.state

    def group(self, name: str) -> dict[str, Tensor]:
        """A group of tensors."""
        if name not in self.manifest.groups:
            there = ", ".join(self.manifest.groups) or "none"
            raise CheckpointError(f"{self.path}: it has no group {name!r}; there are {there}")
        return self._read(self.manifest.groups[name])

    def of_rank(self, rank: int) -> dict[str, Tensor] | None:
        """What this process had for itself, or None where fewer processes saved it."""
        return self._read(self.manifest.by_rank[rank]) if rank < len(self.manifest.by_rank) else None

    def rows(self, first: int, last: int) -> dict[str, Tensor]:
        """Rows first to last - 1 of the tensors that are split by classes, from however many files they lie in."""
        if not 0 <= first <= last <= self.manifest.classes:
            raise ValueError(f"rows {first} to {last} of {self.manifest.classes:,} classes; wanted some of them")
        whole = {
            name: torch.empty((last - first, *layout.row), dtype=_dtype(layout.dtype, self.path))
            for name, layout in self.manifest.layout.items()
        }
        for file in self.manifest.by_class:
            low, high = max(first, file.first), min(last, file.last)
            if low < high:
                into = {name: tensor[low - first : high - first] for name, tensor in whole.items()}
                self._read_rows(file, low, high, into)
        return whole

    def _read(self, file: StoredFile) -> dict[str, Tensor]:
        try:
            return load_file(self.path / file.name)
        except (OSError, SafetensorError) as error:
            raise _unreadable(self.path / file.name, error) from error

    def _read_rows(self, file: ClassFile, low: int, high: int, into: Tensors) -> None:
        path = self.path / file.name
        try:
            with safe_open(path, "pt") as tensors:
                for name, rows in into.items():
                    found = tensors.get_slice(name)
                    if found.get_shape() != [file.last - file.first, *rows.shape[1:]]:
                        raise CheckpointError(
                            f"{path}: {name!r} has shape {found.get_shape()}; "
                            f"wanted {[file.last - file.first, *rows.shape[1:]]}, as its manifest says"
                        )
                    rows.copy_(_typed(found[low - file.first : high - file.first], rows.dtype, f"{path}: {name!r}"))
        except (OSError, SafetensorError) as error:
            raise _unreadable(path, error) from error


class _Report(Record):
    """How a process fared."""

    made: JsonValue = None
    error: str | None = None
    free: int | None = None  # bytes on the disk, where writing failed
    needed: int


@dataclass(frozen=True)
class _Save:
    """A save that succeeds on all processes or on none."""

    path: Path
    needed: int
    rank: int
    gather: Gather

    def together(self, work: Callable[[], JsonValue]) -> list[JsonValue]:
        """Do this process's part of the work, and hear how the others fared before anybody goes on."""
        failure = None
        try:
            mine = _Report(made=work(), needed=self.needed)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others must hear of it, or they wait for ever
            failure = error
            free = _free(self.path) if isinstance(error, OSError | SafetensorError) else None
            mine = _Report(error=_line(error), free=free, needed=self.needed)
        everyone = [_Report.model_validate(report) for report in self.gather(mine.model_dump())]
        failed = [(rank, report) for rank, report in enumerate(everyone) if report.error is not None]
        if failed:
            self._clean()
            raise CheckpointNotSaved(self._why(*failed[0], everyone)) from failure
        return [report.made for report in everyone]

    def _why(self, rank: int, report: _Report, everyone: list[_Report]) -> str:
        where = f" on process {rank} of {len(everyone)}" if len(everyone) > 1 else ""
        needed = sum(other.needed for other in everyone)
        room = f": {needed:,} bytes were needed, {report.free:,} are free" if report.free is not None else ""
        way_out = ", make room or keep fewer of them" if room else ""
        return f"{self.path}: checkpoint not saved, {report.error}{where}{room}; the earlier ones are intact{way_out}"

    def _clean(self) -> None:
        if self.rank == 0:
            with suppress(OSError):  # what cannot be removed now, the next save removes
                _tidy(self.path)


class _Share(Record):
    """What one process wrote."""

    groups: dict[str, StoredFile]
    layout: dict[str, Layout]
    classes: ClassFile | None
    own: StoredFile | None


def _prepare(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    for other in _steps(path.parent):
        _tidy(other)
    path.mkdir(exist_ok=True)
    flush(path.parent)
    flush(path.parent.parent)


def _write(
    path: Path,
    groups: Mapping[str, Tensors],
    by_class: Tensors,
    rows: tuple[int, int],
    classes: int,
    by_rank: Tensors,
    rank: int,
) -> _Share:
    for name in groups:
        if not re.fullmatch(GROUP, name):
            raise ValueError(f"a group is called {name!r}; wanted small letters, digits and _")
    first, last = rows
    for name, tensor in by_class.items():
        if not 0 <= first <= last <= classes or tensor.shape[:1] != (last - first,):
            raise ValueError(
                f"{name!r} of shape {tuple(tensor.shape)} for classes {first} to {last} of {classes}; wanted a row each"
            )
    layout = {name: Layout(dtype=_name(tensor), row=tuple(tensor.shape[1:])) for name, tensor in by_class.items()}
    own = None
    if by_class and first < last:
        file = _write_file(path, f"classes-{first:010d}-{last:010d}", by_class)
        own = ClassFile(**file.model_dump(), first=first, last=last)
    return _Share(
        groups={name: _write_file(path, name, tensors) for name, tensors in groups.items()},
        layout=layout,
        classes=own,
        own=_write_file(path, f"rank-{rank:05d}", by_rank) if by_rank else None,
    )


def _write_file(folder: Path, stem: str, tensors: Tensors) -> StoredFile:
    names = (f"{stem}.safetensors" if number == 1 else f"{stem}-{number}.safetensors" for number in count(1))
    path = next(folder / name for name in names if not (folder / name).exists())  # an older one keeps its files
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
        flush(path)
        return StoredFile(name=path.name, size=path.stat().st_size, sha256=_digest(path))
    except Exception:
        path.unlink(missing_ok=True)
        raise


def _publish(path: Path, step: int, classes: int, state: Mapping[str, JsonValue], shares: list[JsonValue]) -> None:
    made = [_Share.model_validate(share) for share in shares]
    for rank, share in enumerate(made):
        if share.layout != made[0].layout or bool(share.own) != bool(made[0].own):
            raise ValueError(
                f"process {rank} brought other tensors by class or by rank than process 0; wanted the same"
            )
    split = [share.classes for share in made if share.classes]
    manifest = Manifest(
        step=step,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        state=dict(state),
        groups=made[0].groups,
        classes=classes,
        layout=made[0].layout,
        by_class=tuple(sorted(split, key=lambda file: file.first)),
        by_rank=tuple(share.own for share in made if share.own),
    )
    for file in manifest.files:  # other machines may have another disk under this name
        _check(path / file.name, file, verify=False)
    flush(path)
    with whole_file(path / NAME) as out:
        out.write(seal(manifest))
    flush(path.parent)
    _tidy(path)  # of an older checkpoint of this step


def _tidy(path: Path) -> None:
    """Remove what a save left behind that did not come to its end; what somebody may want to look into stays."""
    if not (path / NAME).exists():
        shutil.rmtree(path)
        return
    try:
        listed = {file.name for file in _read_manifest(path).files}
    except CheckpointError:
        return
    for file in path.iterdir():
        if file.suffix in (".safetensors", ".part") and file.name not in listed:
            file.unlink()


def _remove(path: Path) -> None:
    """Remove a checkpoint, its manifest first: if this is cut short, what remains is none."""
    (path / NAME).unlink(missing_ok=True)
    flush(path)
    shutil.rmtree(path)
    flush(path.parent)


def _steps(folder: Path) -> list[Path]:
    """The folders of checkpoints, whole or not, oldest first."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if STEP.fullmatch(path.name) and path.is_dir() and not path.is_symlink()]
    return sorted(found, key=_step)


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _is_whole(path: Path) -> bool:
    try:
        open_checkpoint(path, verify=False)
    except CheckpointError:
        return False
    return True


def _read_manifest(path: Path) -> Manifest:
    try:
        return unseal((path / NAME).read_bytes(), path / NAME)
    except OSError as error:
        raise _unreadable(path / NAME, error) from error


def _check(path: Path, file: StoredFile, *, verify: bool) -> None:
    try:
        size = path.stat().st_size
        damaged = size == file.size and verify and _digest(path) != file.sha256
    except OSError as error:
        raise _unreadable(path, error) from error
    if size != file.size:
        raise CheckpointError(f"{path}: {size:,} bytes, its manifest says {file.size:,}")
    if damaged:
        raise CheckpointError(f"{path}: damaged, for its SHA-256 is not that of its manifest")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unreadable(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"{path}: it cannot be read ({_line(error)})")


def _line(error: Exception) -> str:
    """What went wrong, in one line."""
    if isinstance(error, ValidationError):
        return reason(error)
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__


def _free(path: Path) -> int:
    there = next(parent for parent in path.parents if parent.exists())
    return shutil.disk_usage(there).free


def _bytes(*groups: Tensors) -> int:
    return sum(tensor.nbytes for tensors in groups for tensor in tensors.values())


def _name(tensor: Tensor) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    _dtype(name, "a tensor that is split by classes")
    return name


def _dtype(name: str, source: object) -> torch.dtype:
    if name not in DTYPES:
        raise CheckpointError(f"{source}: type {name!r}; choose one of {', '.join(DTYPES)}")
    return DTYPES[name]


def _typed(tensor: Tensor, dtype: torch.dtype, source: str) -> Tensor:
    if tensor.dtype != dtype:
        raise CheckpointError(f"{source} has type {tensor.dtype}; wanted {dtype}, as its manifest says")
    return tensor
