"""The manifest of a checkpoint: its files with their hashes, which classes lie where, and the small state as JSON.

A manifest is sealed: its last entry is the SHA-256 of all others, which reveals changed fields as hashes reveal changed
files. The seal protects against accidents; write access to the folder is enough to make a new seal.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, ValidationError, model_validator

from sphereface.contract import Record
from sphereface.errors import UserError
from sphereface.hashes import sha256_of

NAME, FORMAT, SEAL = "manifest.json", 1, "seal"

# A name without dots and slashes before its ending cannot point outside its folder.
FileName = Annotated[str, Field(pattern=r"^[a-z0-9_-]+\.safetensors$")]
GROUP = r"^[a-z][a-z0-9_]*$"
GroupName = Annotated[str, Field(pattern=GROUP)]


class CheckpointError(UserError):
    """A checkpoint that is damaged or unfinished, or that does not fit what it is loaded into."""


class NewerCheckpoint(CheckpointError):
    """A whole checkpoint in a format that this version does not know."""


class StoredFile(Record):
    """One file of a checkpoint."""

    name: FileName
    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class ClassFile(StoredFile):
    """The rows of classes first to last - 1."""

    first: int = Field(ge=0)
    last: int = Field(ge=0)


class Layout(Record):
    """Type and shape of one class's row in a tensor that is split by classes."""

    dtype: str
    row: tuple[Annotated[int, Field(ge=0)], ...]  # the shape without its first dimension


class CheckpointManifest(Record):
    """The content of a checkpoint except its tensors."""

    format: Literal[1] = 1
    step: int = Field(ge=0)
    time: str  # when it was saved; informative only
    state: dict[str, JsonValue]
    groups: dict[GroupName, StoredFile]
    classes: int = Field(ge=0)
    layout: dict[str, Layout]
    by_class: tuple[ClassFile, ...]  # in the order of their classes
    by_rank: tuple[StoredFile, ...]  # one for each process, or none

    @property
    def files(self) -> tuple[StoredFile, ...]:
        """Every file of the checkpoint."""
        return (*self.groups.values(), *self.by_class, *self.by_rank)

    @model_validator(mode="after")
    def _has_each_class_and_file_once(self) -> "CheckpointManifest":
        edges = [0, *(edge for file in self.by_class for edge in (file.first, file.last)), self.classes]
        joined = all(left == right for left, right in list(pairwise(edges))[::2])
        if self.layout and not (joined and edges == sorted(edges)):
            ranges = ", ".join(f"{file.first}-{file.last}" for file in self.by_class) or "none"
            raise UserError(f"class ranges are {ranges}; wanted each of {self.classes:,} classes once")
        if len({file.name for file in self.files}) < len(self.files):
            raise UserError("a file is named twice; wanted each once")
        return self


def seal(manifest: CheckpointManifest) -> bytes:
    """A manifest as the bytes of its file."""
    return _sealed(manifest.model_dump())


def unseal(data: bytes, source: Path) -> CheckpointManifest:
    """The manifest of sealed bytes; a difference of a single blank is an error."""
    body = _loaded(data)
    if body is None:
        raise CheckpointError(f"{source}: damaged, or changed by hand; restore it from a copy")
    if body.get("format") != FORMAT:
        raise NewerCheckpoint(
            f"{source}: a checkpoint of format {body.get('format')!r}; wanted {FORMAT}: update sphereface"
        )
    try:
        return CheckpointManifest.model_validate(body)
    except ValidationError as error:
        raise CheckpointError(f"{source}: {one_line(error)}") from error


def check_file(path: Path, file: StoredFile, *, verify: bool) -> None:
    """Raise unless a file exists with its manifest's size and, with `verify`, its hash."""
    try:
        size = path.stat().st_size
        damaged = size == file.size and verify and sha256_of(path) != file.sha256
    except OSError as error:
        raise unreadable(path, error) from error
    if size != file.size:
        raise CheckpointError(f"{path}: {size:,} bytes; wanted {file.size:,}, as its manifest says")
    if damaged:
        raise CheckpointError(f"{path}: damaged, its SHA-256 differs from its manifest's")


def unreadable(path: Path, error: Exception) -> CheckpointError:
    """The error for a file of a checkpoint that cannot be read."""
    return CheckpointError(f"{path}: cannot be read ({one_line(error)})")


def one_line(error: Exception) -> str:
    """The text of an error in one line; of a validation error, the first invalid field."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        text = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
    else:
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__


def _sealed(body: dict[str, Any]) -> bytes:
    return _text({**body, SEAL: sha256_of(_text(body))})


def _text(body: dict[str, Any]) -> bytes:
    return json.dumps(body, indent=2, allow_nan=False).encode() + b"\n"


def _loaded(data: bytes) -> dict[str, Any] | None:
    """The sealed fields, or None if sealing them again gives other bytes."""
    try:
        body = json.loads(data)
        if not isinstance(body, dict):
            return None
        body.pop(SEAL, None)
        return body if _sealed(body) == data else None
    except (ValueError, RecursionError):
        return None
