"""Saving a checkpoint: on all processes or on none, its files first, its manifest last.

The files of earlier checkpoints are never written to.
"""

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

from pydantic import JsonValue
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from sphereface.contract import Record
from sphereface.data.files.writing import flush, open_private, whole_file
from sphereface.errors import SphereFaceError, UserError
from sphereface.hashes import sha256_of
from sphereface.training.checkpoints.manifest import (
    GROUP,
    NAME,
    CheckpointManifest,
    ClassFile,
    Layout,
    StoredFile,
    check_file,
    one_line,
    seal,
)
from sphereface.training.checkpoints.reading import Tensors, dtype_called, steps_in, tidy

Gather = Callable[[Any], list[Any]]  # a value for JSON in; the values of all ranks, in order, out

NOTHING: Tensors = MappingProxyType({})


class CheckpointNotSaved(SphereFaceError, OSError):
    """A checkpoint could not be written by one of the processes; the earlier ones are intact."""


def alone(mine: Any) -> list[Any]:
    """Gather of a single process."""
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

    All processes call it together, with the same folder. `groups` and `state` are taken from rank 0. Each process
    passes its rows (first, last) of the tensors that are split over `classes`, and in `by_rank` its own tensors.
    A checkpoint of the same step is replaced, and unfinished files of a killed run are removed. If any process fails,
    all of them raise `CheckpointNotSaved`.
    """
    path = folder / f"step-{step:08d}"
    shared = groups if rank == 0 else {}
    needed = sum(tensor.nbytes for tensors in (*shared.values(), by_class, by_rank) for tensor in tensors.values())
    save = _Save(path, needed, rank, gather)
    save.together(lambda: _prepare(path) if rank == 0 else None)
    shares = save.together(lambda: _write(path, shared, by_class, rows, classes, by_rank, rank).model_dump(mode="json"))
    save.together(lambda: _publish(path, step, classes, state, shares) if rank == 0 else None)
    return path


class _Report(Record):
    """The result of one process's work, or its error."""

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
        """Do this process's part of the work; returns all results, or raises on all processes if one failed."""
        failure = None
        try:
            mine = _Report(made=work(), needed=self.needed)
        except Exception as error:  # noqa: BLE001 - any error must reach the other processes, or they wait forever
            failure = error
            free = _free(self.path) if isinstance(error, OSError | SafetensorError) else None
            mine = _Report(error=one_line(error), free=free, needed=self.needed)
        reports = [_Report.model_validate(report) for report in self.gather(mine.model_dump())]
        failed = [(rank, report) for rank, report in enumerate(reports) if report.error is not None]
        if failed:
            if self.rank == 0:
                with suppress(OSError):  # the next save tries again
                    tidy(self.path)
            raise CheckpointNotSaved(self._why(*failed[0], reports)) from failure
        return [report.made for report in reports]

    def _why(self, rank: int, report: _Report, reports: list[_Report]) -> str:
        where = f" on process {rank} of {len(reports)}" if len(reports) > 1 else ""
        needed = sum(other.needed for other in reports)
        room = f": {needed:,} bytes were needed, {report.free:,} are free" if report.free is not None else ""
        way_out = ", free some space or keep fewer of them" if room else ""
        return f"{self.path}: checkpoint not saved, {report.error}{where}{room}; the earlier ones are intact{way_out}"


class _Share(Record):
    """The files that one process wrote."""

    groups: dict[str, StoredFile]
    layout: dict[str, Layout]
    classes: ClassFile | None
    own: StoredFile | None


def _prepare(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    for other in steps_in(path.parent):
        tidy(other)
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
            raise UserError(f"group name is {name!r}; wanted small letters, digits and _")
    first, last = rows
    for name, tensor in by_class.items():
        if not 0 <= first <= last <= classes or tensor.shape[:1] != (last - first,):
            raise UserError(
                f"{name!r} of shape {tuple(tensor.shape)} for classes {first} to {last} of {classes}; "
                "wanted one row a class"
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
    path = next(folder / name for name in names if not (folder / name).exists())  # files of an older checkpoint stay
    open_private(path).close()  # save_file replaces it by a file of mode 0600; older safetensors write into it
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
        flush(path)
        return StoredFile(name=path.name, size=path.stat().st_size, sha256=sha256_of(path))
    except Exception:
        path.unlink(missing_ok=True)
        raise


def _publish(path: Path, step: int, classes: int, state: Mapping[str, JsonValue], shares: list[JsonValue]) -> None:
    made = [_Share.model_validate(share) for share in shares]
    for rank, share in enumerate(made):
        if share.layout != made[0].layout or bool(share.own) != bool(made[0].own):
            raise UserError(f"process {rank} has other tensors by class or by rank than process 0; wanted the same")
    split = [share.classes for share in made if share.classes]
    manifest = CheckpointManifest(
        step=step,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        state=dict(state),
        groups=made[0].groups,
        classes=classes,
        layout=made[0].layout,
        by_class=tuple(sorted(split, key=lambda file: file.first)),
        by_rank=tuple(share.own for share in made if share.own),
    )
    for file in manifest.files:  # on several machines, the path may lead to different disks
        check_file(path / file.name, file, verify=False)
    flush(path)
    with whole_file(path / NAME, private=True) as out:
        out.write(seal(manifest))
    flush(path.parent)
    tidy(path)  # of an older checkpoint of this step


def _free(path: Path) -> int:
    return shutil.disk_usage(next(parent for parent in path.parents if parent.exists())).free


def _name(tensor: Tensor) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    dtype_called(name, "a tensor that is split by classes")
    return name
