"""Features on disk: a folder that says what it holds, opened without being read.

| file | what it is |
|---|---|
| `features.npy` | float32 (N, D), a standard file: `np.load(..., mmap_mode="r")` opens it as well |
| `paths.txt` | whose features they are: one image a line, in the rows' order |
| `people.txt`, `labels.npy` | the people of the set, and each row's place in that list |
| `journal.jsonl` | what was read and written, chunk by chunk |
| `manifest.json` | card, model, data, part, sizes; written last: where it is, the others are whole |

A set may lie in several such folders, its parts, which open as one.
"""

import hashlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import AliasChoices, Field, ValidationError

from sphereface.arrays import Float32, Int64, Integers
from sphereface.contract import Card, Record
from sphereface.errors import BadFeature, DataFormatError, UserError
from sphereface.hashes import sha256_of

FEATURES, PATHS, PEOPLE, LABELS = "features.npy", "paths.txt", "people.txt", "labels.npy"
JOURNAL, MANIFEST = "journal.jsonl", "manifest.json"
BLOCK = 4096  # rows that are looked at in one go


class Part(Record):
    """One of several parts of a set, counted from 1."""

    number: int = Field(default=1, ge=1)
    of: int = Field(default=1, ge=1)

    @classmethod
    def parse(cls, text: str) -> "Part":
        """A part as one writes it: `2/8`."""
        found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        number, of = (int(part) for part in found.groups()) if found else (0, 0)
        if not 1 <= number <= of:
            raise UserError(f"part {text!r}; wanted i/n with i from 1 to n, such as 1/8 ... 8/8")
        return cls(number=number, of=of)

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def positions(self, total: int, batch: int) -> range:
        """Which images of a set are its own: whole batches of the whole set, so that no batch is made of others."""
        batches = -(-total // batch)
        first, last = ((place * batches // self.of) * batch for place in (self.number - 1, self.number))
        return range(first, min(last, total))


class FeatureManifest(Record):
    """What a folder of features holds, and what they were made of."""

    format: Literal[1] = 1
    made_by: str
    card: Card  # with the feature rule that was used
    card_hash: str
    model: str  # SHA-256 of its file
    engine: str
    source: str  # where the faces lay: for people to read
    data: str  # fingerprint of the whole set: its paths and people
    total: int  # images of the whole set
    part: Part = Field(validation_alias=AliasChoices("part", "shard"))  # called `shard` before 0.2
    batch: int
    count: int  # rows
    dimension: int
    index: str  # SHA-256 of paths, people and labels
    unreadable: dict[str, str] = Field(default_factory=dict)  # images without a row, and why


class Rows(Protocol):
    """Features (N, D) that are read when asked for: a memory map, or several of them as one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """N and D."""

    @property
    def ndim(self) -> int:
        """2."""

    def __len__(self) -> int: ...
    def __getitem__(self, key: Any, /) -> Any: ...


@dataclass(frozen=True, eq=False)
class FeatureStore:
    """Features with their images and people; `rows[a:b]` are read from the disk when asked for."""

    paths: list[str]
    people: list[str]
    labels: Int64  # (N,): places in `people`
    rows: Rows
    card: Card
    manifests: tuple[FeatureManifest, ...]  # of each part

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def unreadable(self) -> dict[str, str]:
        """The images without features, and why."""
        return {path: why for manifest in self.manifests for path, why in manifest.unreadable.items()}

    def find(self, paths: Sequence[str]) -> Int64:
        """The rows of images; one that is not there is an error that says why, if that is known."""
        missing = [path for path in paths if path not in self._places]
        if missing:
            why = self.unreadable.get(missing[0], "not in the set that was embedded")
            raise DataFormatError(
                f"{len(missing):,} of {len(paths):,} images have no features, such as {missing[0]} ({why})"
            )
        return np.array([self._places[path] for path in paths], np.int64)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {path: place for place, path in enumerate(self.paths)}


class JoinedRows:
    """The rows of several arrays (N_i, D) one after another, without a copy of them all."""

    def __init__(self, parts: Sequence[Float32]) -> None:
        self._parts = list(parts)
        self._ends = np.cumsum([len(part) for part in parts])
        self.shape, self.ndim, self.dtype = (int(self._ends[-1]), parts[0].shape[1]), 2, parts[0].dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Float32:
        """Rows by a number, a slice, numbers (M,) or marks (N,), as of an array."""
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            return self._between(start, stop) if step == 1 else self._chosen(np.arange(start, stop, step))
        places = np.asarray(key)
        if places.ndim == 0:
            return np.asarray(self._chosen(self._checked(places[None]))[0])
        if places.ndim != 1:
            raise IndexError(f"rows by an array {places.shape}; wanted numbers (M,) or marks (N,)")
        if places.dtype == np.bool_ and len(places) != len(self):
            raise IndexError(f"{len(places)} marks for {len(self)} rows")
        return self._chosen(np.flatnonzero(places) if places.dtype == np.bool_ else self._checked(places))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise UserError("rows in several files have no array without a copy; take slices")
        return self._between(0, len(self)).astype(dtype or self.dtype, copy=False)

    def _checked(self, places: NDArray[Any]) -> Int64:
        if places.size and (places.dtype.kind not in "iu" or places.min() < -len(self) or places.max() >= len(self)):
            raise IndexError(f"no row {places.min()} or {places.max()} among {len(self)}")
        return np.where(places < 0, places + len(self), places).astype(np.int64)

    def _between(self, start: int, stop: int) -> Float32:
        begins = self._ends - [len(part) for part in self._parts]
        pieces = [
            part[max(start - begin, 0) : stop - begin]
            for part, begin, end in zip(self._parts, begins.tolist(), self._ends.tolist(), strict=True)
            if max(start, begin) < min(stop, end)
        ]
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate([self._parts[0][:0], *pieces])

    def _chosen(self, places: Int64) -> Float32:
        rows = np.empty((len(places), self.shape[1]), self.dtype)
        owners = np.searchsorted(self._ends, places, side="right")
        for owner in np.unique(owners).tolist():
            mine, part = owners == owner, self._parts[owner]
            rows[mine] = part[places[mine] - (self._ends[owner] - len(part))]
        return rows


class RowsInOrder:
    """Rows in another order, or some of them, read when they are asked for."""

    def __init__(self, rows: Rows, order: Integers) -> None:
        self._rows, self._order = rows, order
        self.shape, self.ndim, self.dtype = (len(order), rows.shape[1]), 2, np.dtype(np.float32)

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, key: Any) -> Float32:
        """Rows by a number, a slice, numbers (M,) or marks (N,), as of an array."""
        return np.asarray(self._rows[self._order[key]], dtype=np.float32)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise UserError("rows in another order have no array without a copy; take slices")
        return self[:].astype(dtype or self.dtype, copy=False)


def open_features(folder: str | Path | Sequence[str | Path], *, finite: bool = False) -> FeatureStore:
    """The features that `sphereface embed` wrote: in a folder, in a folder of parts, or in several folders.

    Nothing but the index is read; `finite` also reads every row and refuses numbers that are not finite.

    >>> features = open_features("lfw-features")
    >>> features.rows[:2].shape
    (2, 1024)
    """
    folders = _shards_in(Path(folder)) if isinstance(folder, str | Path) else [Path(each) for each in folder]
    if not folders:
        raise UserError("no folder of features is named")
    manifests = [read_manifest(each) for each in folders]
    _check_shards(folders, manifests)
    order = sorted(range(len(folders)), key=lambda place: manifests[place].part.number)
    parts = [_open(folders[place], manifests[place]) for place in order]
    features = parts[0]
    if len(parts) > 1:
        features = FeatureStore(
            paths=[path for part in parts for path in part.paths],
            people=features.people,
            labels=np.concatenate([part.labels for part in parts]),
            rows=JoinedRows([part.rows[:] for part in parts]),
            card=features.card,
            manifests=tuple(manifest for part in parts for manifest in part.manifests),
        )
    if finite:
        require_finite(features)
    return features


def holds_features(path: str | Path) -> bool:
    """Whether a path is a folder that `sphereface embed` wrote to, or one of its parts did; faces have no journal."""
    path = Path(path)
    return path.is_dir() and ((path / JOURNAL).is_file() or any((each / JOURNAL).is_file() for each in path.iterdir()))


def require_finite(features: FeatureStore) -> None:
    """Raise if any number is NaN or infinite; reads all rows."""
    for start in range(0, len(features), BLOCK):
        wrong = np.flatnonzero(~np.isfinite(features.rows[start : start + BLOCK]).all(axis=1))
        if len(wrong):
            raise BadFeature(
                "image",
                f"the feature of {features.paths[start + wrong[0]]} (row {start + wrong[0]:,}) is not finite; "
                "embed the set again",
            )


def read_manifest(folder: Path) -> FeatureManifest:
    """The manifest of a folder of features."""
    path = folder / MANIFEST
    if not path.is_file():
        if (folder / JOURNAL).is_file():
            raise DataFormatError(f"{folder}: unfinished; run the same sphereface embed again, and it goes on")
        raise DataFormatError(f"{folder}: no features here; wanted a folder that sphereface embed wrote")
    try:
        return FeatureManifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "content"
        reason = re.sub(r"\s+", " ", first["msg"])
        raise DataFormatError(f"{path}: its {where}: {reason}; wanted the manifest of sphereface embed") from error


def card_hash(card: Card) -> str:
    """A hash that changes with every field of a card."""
    return sha256_of(card.model_dump_json())


def index_hash(paths: bytes, people: bytes, labels: bytes) -> str:
    """A hash of the three files that say whose features they are."""
    return sha256_of(b"".join(hashlib.sha256(part).digest() for part in (paths, people, labels)))


def lines(names: Sequence[str]) -> bytes:
    """Names as a file of lines; a file's name may be no text, but a line break in it is refused."""
    text = "".join(f"{name}\n" for name in names)
    if text.count("\n") != len(names):
        raise DataFormatError(f"{next(name for name in names if chr(10) in name)!r} has a line break; rename it")
    return text.encode(errors="surrogateescape")


def header(count: int, dimension: int) -> bytes:
    """The beginning of a .npy file of float32 (count, dimension); as long for every count."""
    return _header("<f4", (count, dimension))


def _header(numbers: str, shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": numbers, "fortran_order": False, "shape": shape})
    return file.getvalue()


def _shards_in(folder: Path) -> list[Path]:
    """A folder of features itself, or the folders of features in it."""
    if not folder.is_dir():
        raise DataFormatError(f"{folder}: no such folder")
    if (folder / MANIFEST).is_file() or (folder / JOURNAL).is_file():
        return [folder]
    return sorted(path for path in folder.iterdir() if (path / JOURNAL).is_file() or (path / MANIFEST).is_file()) or [
        folder
    ]


def _check_shards(folders: Sequence[Path], manifests: Sequence[FeatureManifest]) -> None:
    """Raise unless folders are all the parts of one set, each once, made alike."""
    first = manifests[0]
    for folder, manifest in zip(folders, manifests, strict=True):
        for what in ("model", "card_hash", "data", "total", "batch", "dimension"):
            if getattr(manifest, what) != getattr(first, what):
                raise DataFormatError(
                    f"{folders[0]} and {folder} differ in their {what.replace('_', ' ')} "
                    f"({getattr(first, what)}, {getattr(manifest, what)}); parts of one set are made by one command"
                )
        if manifest.part.of != first.part.of:
            raise DataFormatError(
                f"{folders[0]} is part {first.part}, {folder} is part {manifest.part}; wanted one division"
            )
    places: dict[int, list[Path]] = {}
    for folder, manifest in zip(folders, manifests, strict=True):
        places.setdefault(manifest.part.number, []).append(folder)
    for number, found in places.items():
        if len(found) > 1:
            raise DataFormatError(
                f"part {number}/{first.part.of} is there {len(found)} times, in {' and '.join(map(str, found))}; "
                "name it once"
            )
    missing = [f"{number}/{first.part.of}" for number in range(1, first.part.of + 1) if number not in places]
    if missing:
        shown = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
        raise DataFormatError(
            f"{folders[0].parent}: {len(missing)} of {first.part.of} parts missing: {shown}; "
            "make them with sphereface embed --part, or name their folders too"
        )


def _open(folder: Path, manifest: FeatureManifest) -> FeatureStore:
    contents = {}
    for name in (PATHS, PEOPLE, LABELS):
        try:
            contents[name] = (folder / name).read_bytes()
        except OSError as error:
            raise _unread(folder / name, error) from error
    paths = _names(contents[PATHS])
    if len(paths) != manifest.count:
        raise DataFormatError(
            f"{folder / PATHS}: {len(paths):,} lines for {manifest.count:,} features; copy the folder again"
        )
    if index_hash(contents[PATHS], contents[PEOPLE], contents[LABELS]) != manifest.index:
        raise DataFormatError(
            f"{folder}: {PATHS}, {PEOPLE} or {LABELS} was changed or is cut off; copy the folder again"
        )
    people = _names(contents[PEOPLE])
    labels = _labels(contents[LABELS], len(paths))
    if labels is None or not ((labels >= 0) & (labels < len(people))).all():
        raise DataFormatError(f"{folder / LABELS}: wanted a label of {len(people):,} people for each of {len(paths):,}")
    return FeatureStore(paths, people, labels, _rows(folder, manifest), manifest.card, (manifest,))


def _labels(content: bytes, count: int) -> Int64 | None:
    """The labels in a .npy file, or None for anything else."""
    begin = _header("<i8", (count,))
    if not content.startswith(begin) or len(content) != len(begin) + 8 * count:
        return None
    return np.frombuffer(content, "<i8", offset=len(begin)).astype(np.int64)


def _unread(path: Path, error: OSError) -> DataFormatError:
    return DataFormatError(f"{path}: cannot be read ({error.strerror}); copy the whole folder")


def _names(content: bytes) -> list[str]:
    return content.decode(errors="surrogateescape").split("\n")[:-1]


def _rows(folder: Path, manifest: FeatureManifest) -> Float32:
    path = folder / FEATURES
    begin = header(manifest.count, manifest.dimension)
    wanted = len(begin) + 4 * manifest.count * manifest.dimension
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            found = file.read(len(begin))
    except OSError as error:
        raise _unread(path, error) from error
    if size != wanted:
        raise DataFormatError(f"{path}: {size:,} bytes, wanted {wanted:,}; it is cut off or changed: copy it again")
    if found != begin:
        raise DataFormatError(
            f"{path}: does not begin as float32 ({manifest.count}, {manifest.dimension}); copy it again"
        )
    return np.memmap(path, np.float32, "r", len(begin), (manifest.count, manifest.dimension))
