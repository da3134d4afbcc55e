"""Checkpoints on the disk: finding, checking, reading and removing them.

    step-00000500/net.safetensors                                  a group of tensors, the same on all processes
    step-00000500/classes-0000000000-0000100000.safetensors        rows of tensors that are split by classes
    step-00000500/rank-00000.safetensors                           tensors of one process
    step-00000500/manifest.json                                    written last: without it a checkpoint is unfinished

`saving.py` writes them. Nothing is unpickled.
"""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import JsonValue
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from sphereface.data.files.writing import flush
from sphereface.errors import UserError
from sphereface.progress import Say
from sphereface.training.checkpoints.manifest import (
    NAME,
    CheckpointError,
    CheckpointManifest,
    ClassFile,
    NewerCheckpoint,
    StoredFile,
    check_file,
    unreadable,
    unseal,
)

Tensors = Mapping[str, Tensor]

STEP = re.compile(r"step-(\d{8,})")
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
}


def newest_checkpoint(folder: Path, *, say: Say, verify: bool = True) -> "Checkpoint | None":
    """The newest whole checkpoint, or None if none was ever finished; `say` gets a note for each that is skipped.

    If some were finished and all of these are damaged, that is an error: a run must not restart unasked.
    """
    broken: list[CheckpointError] = []
    for path in reversed(steps_in(folder)):
        if not (path / NAME).exists():
            say(f"{path}: skipped, because it was never finished")
            continue
        try:
            return open_checkpoint(path, verify=verify)
        except NewerCheckpoint:
            raise
        except CheckpointError as error:
            broken.append(error)
            say(f"checkpoint skipped: {error}")
    if broken:
        raise CheckpointError(
            f"{folder}: none of {len(broken)} checkpoints is whole, the newest because of {broken[0]}; "
            "restore them from a copy, or begin a new run in another folder"
        )
    return None


def open_checkpoint(path: Path, *, verify: bool = True) -> "Checkpoint":
    """A checkpoint with all its files; `verify` reads them all and compares their hashes.

    With several processes, one that verifies is enough.
    """
    manifest = _read_manifest(path)
    if STEP.fullmatch(path.name) and _step(path) != manifest.step:
        raise CheckpointError(f"{path}: its manifest is of step {manifest.step:,}; give the folder its old name back")
    for file in manifest.files:
        check_file(path / file.name, file, verify=verify)
    return Checkpoint(path, manifest)


def prune(folder: Path, *, keep: int, best: int | None = None) -> None:
    """Remove the checkpoints before the last `keep` whole ones, except that of the best step; for rank 0 only."""
    if keep < 1:
        raise UserError(f"keep is {keep}; wanted at least 1")
    recent = [_step(path) for path in steps_in(folder) if _is_whole(path)][-keep:]
    for path in steps_in(folder):
        if recent and _step(path) < recent[0] and _step(path) != best:
            _remove(path)


def forget_after(folder: Path, step: int) -> None:
    """Remove every checkpoint after a step, newest first; for rank 0 only."""
    for path in reversed(steps_in(folder)):
        if _step(path) > step:
            _remove(path)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint to read; its tensors are loaded to the CPU."""

    path: Path
    manifest: CheckpointManifest

    @property
    def step(self) -> int:
        """The number of completed steps."""
        return self.manifest.step

    @property
    def state(self) -> dict[str, JsonValue]:
        """The `state` passed to `save_checkpoint`; treat it as read-only."""
        return self.manifest.state

    def group(self, name: str) -> dict[str, Tensor]:
        """A group of tensors."""
        if name not in self.manifest.groups:
            there = ", ".join(self.manifest.groups) or "none"
            raise CheckpointError(f"{self.path}: no group {name!r}; there are {there}")
        return self._read(self.manifest.groups[name])

    def of_rank(self, rank: int) -> dict[str, Tensor] | None:
        """The `by_rank` tensors of a rank, or None if fewer processes saved the checkpoint."""
        return self._read(self.manifest.by_rank[rank]) if rank < len(self.manifest.by_rank) else None

    def rows(self, first: int, last: int) -> dict[str, Tensor]:
        """Rows first to last - 1 of the tensors that are split by classes, from any number of files."""
        if not 0 <= first <= last <= self.manifest.classes:
            raise UserError(f"rows {first} to {last} of {self.manifest.classes:,} classes; wanted a range inside them")
        whole = {
            name: torch.empty((last - first, *layout.row), dtype=dtype_called(layout.dtype, self.path))
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
            raise unreadable(self.path / file.name, error) from error

    def _read_rows(self, file: ClassFile, low: int, high: int, into: Tensors) -> None:
        path = self.path / file.name
        try:
            with safe_open(path, "pt") as tensors:
                for name, rows in into.items():
                    found, wanted = tensors.get_slice(name), [file.last - file.first, *rows.shape[1:]]
                    if found.get_shape() != wanted:
                        raise CheckpointError(
                            f"{path}: {name!r} has shape {found.get_shape()}; wanted {wanted}, as its manifest says"
                        )
                    values = found[low - file.first : high - file.first]
                    if values.dtype != rows.dtype:
                        raise CheckpointError(
                            f"{path}: {name!r} has type {values.dtype}; wanted {rows.dtype}, as its manifest says"
                        )
                    rows.copy_(values)
        except (OSError, SafetensorError) as error:
            raise unreadable(path, error) from error


def tidy(path: Path) -> None:
    """Remove the files of an unfinished save; other files stay, also those of a damaged checkpoint."""
    if not (path / NAME).exists():
        shutil.rmtree(path)
        return
    try:
        listed = {file.name for file in _read_manifest(path).files}
    except CheckpointError:
        return
    for file in path.iterdir():
        unfinished = file.suffix == ".safetensors" or file.name.startswith((f".{NAME}.", ".tmp"))  # as of safetensors
        if unfinished and file.name not in listed:
            file.unlink()


def _remove(path: Path) -> None:
    """Remove a checkpoint, its manifest first: interrupted, it leaves an unfinished one."""
    (path / NAME).unlink(missing_ok=True)
    flush(path)
    shutil.rmtree(path)
    flush(path.parent)


def steps_in(folder: Path) -> list[Path]:
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


def _read_manifest(path: Path) -> CheckpointManifest:
    try:
        return unseal((path / NAME).read_bytes(), path / NAME)
    except OSError as error:
        raise unreadable(path / NAME, error) from error


def dtype_called(name: str, source: object) -> torch.dtype:
    """The torch type of a name in DTYPES; others are an error."""
    if name not in DTYPES:
        raise CheckpointError(f"{source}: type is {name!r}; choose one of {', '.join(DTYPES)}")
    return DTYPES[name]
