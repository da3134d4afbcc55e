"""Feature stores: folders of features with a manifest, opened without reading the rows.

| file | what it is |
|---|---|
| `features.npy` | float32 (N, D), a standard file: `np.load(..., mmap_mode="r")` opens it as well |
| `paths.txt` | the image of each row, one a line |
| `people.txt`, `labels.npy` | the people of the set, and each row's index in that list |
| `journal.jsonl` | the images read and the rows written, chunk by chunk |
| `manifest.json` | card, model, data, part, sizes; written last, so that it marks a complete folder |

A set may be stored as several such folders, its parts, which open as one.
"""

import hashlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import AliasChoices, Field, ValidationError

from sphereface.arrays import Float32, Int64, Integers
from sphereface.contract import Card, Record, first_problem
from sphereface.errors import BadFeature, DataFormatError, UserError
from sphereface.hashes import sha256_of

FEATURES, PATHS, PEOPLE, LABELS = "features.npy", "paths.txt", "people.txt", "labels.npy"
JOURNAL, MANIFEST = "journal.jsonl", "manifest.json"
BLOCK = 4096  # rows that are checked at a time


class Part(Record):
    """One of several parts of a set, counted from 1."""

    number: int = Field(default=1, ge=1)
    of: int = Field(default=1, ge=1)

    @classmethod
    def parse(cls, text: str) -> "Part":
        """A part from its text, such as `2/8`."""
        found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
        number, of = (int(part) for part in found.groups()) if found else (0, 0)
        if not 1 <= number <= of:
            raise UserError(f"part {text!r}; wanted i/n with i from 1 to n, such as 1/8 ... 8/8")
        return cls(number=number, of=of)

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def positions(self, total: int, batch: int) -> range:
        """The positions of the part's images in the set: whole batches, the same in any division."""
        batches = -(-total // batch)
        first, last = ((place * batches // self.of) * batch for place in (self.number - 1, self.number))
        return range(first, min(last, total))


class FeatureManifest(Record):
    """The content and the origin of a folder of features."""

    format: Literal[1] = 1
    made_by: str
    card: Card  # with the feature rule that was used
    card_hash: str
    model: str  # SHA-256 of its file
    engine: str
    source: str  # folder of the faces, as information
    data: str  # fingerprint of the whole set: its paths and people
    total: int  # images of the whole set
    part: Part = Field(validation_alias=AliasChoices("part", "shard"))  # called `shard` before 0.2
    batch: int
    count: int  # rows
    dimension: int
    index: str  # SHA-256 of paths, people and labels
    unreadable: dict[str, str] = Field(default_factory=dict)  # images without a row, with the reason


class Rows(Protocol):
    """Features (N, D) that are read on access: a memory map, or several of them as one."""

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
    """Features with their images and people; `rows[a:b]` are read from the disk on access."""

    paths: list[str]
    people: list[str]
    labels: Int64  # (N,): indices into `people`
    rows: Rows
    card: Card
    manifests: tuple[FeatureManifest, ...]  # of each part

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def unreadable(self) -> dict[str, str]:
        """The images without features, with the reason."""
        return {path: why for manifest in self.manifests for path, why in manifest.unreadable.items()}

    def find(self, paths: Sequence[str]) -> Int64:
        """The row indices of images; a missing image is an error with the reason, if known."""
        missing = [path for path in paths if path not in self._places]
        if missing:
            why = self.unreadable.get(missing[0], "not in the set that was embedded")
            raise DataFormatError(
                f"{len(missing):,} of {len(paths):,} images have no features, such as {missing[0]} ({why}); embed them"
            )
        return np.array([self._places[path] for path in paths], np.int64)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {path: place for place, path in enumerate(self.paths)}


class RowsOnAccess:
    """Base of classes that read rows on access; a conversion to an array reads all rows."""

    ndim, dtype = 2, np.dtype(np.float32)

    def __init__(self, count: int, dimension: int) -> None:
        self.shape = count, dimension

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Float32:
        """Rows by an index, a slice, indices (M,) or a mask (N,), as of an array."""
        raise NotImplementedError

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise UserError("rows that are read on access have no array without a copy; use slices")
        return self[:].astype(dtype or self.dtype, copy=False)


class JoinedRows(RowsOnAccess):
    """The rows of several arrays (N_i, D) one after another, without a copy of all of them."""

    def __init__(self, parts: Sequence[Float32]) -> None:
        self._parts = list(parts)
        self._ends = np.cumsum([len(part) for part in parts])
        super().__init__(int(self._ends[-1]), parts[0].shape[1])
        self.dtype = parts[0].dtype

    def __getitem__(self, key: Any) -> Float32:
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            return self._between(start, stop) if step == 1 else self._chosen(np.arange(start, stop, step))
        places = np.asarray(key)
        if places.ndim == 0:
            return np.asarray(self._chosen(self._checked(places[None]))[0])
        if places.ndim != 1:
            raise IndexError(f"rows by an array {places.shape}; wanted indices (M,) or a mask (N,)")
        if places.dtype == np.bool_ and len(places) != len(self):
            raise IndexError(f"a mask ({len(places)},) for {len(self)} rows; wanted one entry for each row")
        return self._chosen(np.flatnonzero(places) if places.dtype == np.bool_ else self._checked(places))

    def _checked(self, places: NDArray[Any]) -> Int64:
        if places.size and (places.dtype.kind not in "iu" or places.min() < -len(self) or places.max() >= len(self)):
            raise IndexError(f"rows {places.min()} to {places.max()}; wanted integers within {len(self)} rows")
        return np.where(places < 0, places + len(self), places).astype(np.int64)

    def _between(self, start: int, stop: int) -> Float32:
        begins = self._ends - [len(part) for part in self._parts]
        pieces = [
            part[max(start - begin, 0) : stop - begin]
            for part, begin, end in zip(self._parts, begins.tolist(), self._ends.tolist(), strict=True)
            if max(start, begin) < min(stop, end)
        ]
        return pieces[0] if len(pieces) == 1 else np.concatenate([self._parts[0][:0], *pieces])

    def _chosen(self, places: Int64) -> Float32:
        rows = np.empty((len(places), self.shape[1]), self.dtype)
        owners = np.searchsorted(self._ends, places, side="right")
        for owner in np.unique(owners).tolist():
            mine, part = owners == owner, self._parts[owner]
            rows[mine] = part[places[mine] - (self._ends[owner] - len(part))]
        return rows


class RowsInOrder(RowsOnAccess):
    """Rows, or some of them, in another order, read on access."""

    def __init__(self, rows: Rows, order: Integers) -> None:
        super().__init__(len(order), rows.shape[1])
        self._rows, self._order = rows, order

    def __getitem__(self, key: Any) -> Float32:
        return np.asarray(self._rows[self._order[key]], dtype=np.float32)


def open_features(folder: str | Path | Sequence[str | Path], *, finite: bool = False) -> FeatureStore:
    """The features that `sphereface embed` wrote: in a folder, in a folder of parts, or in several folders.

    Only the index is read; `finite` also reads all rows and raises if a number is not finite.

    >>> features = open_features("lfw-features")
    >>> features.rows[:2].shape
    (2, 1024)
    """
    folders = _parts_in(Path(folder)) if isinstance(folder, str | Path) else [Path(each) for each in folder]
    if not folders:
        raise UserError("no folder of features; wanted at least one")
    manifests = [read_manifest(each) for each in folders]
    _check_parts(folders, manifests)
    parts = sorted(map(_open, folders, manifests), key=lambda store: store.manifests[0].part.number)
    features = parts[0]
    if len(parts) > 1:
        features = replace(
            features,
            paths=[path for part in parts for path in part.paths],
            labels=np.concatenate([part.labels for part in parts]),
            rows=JoinedRows([part.rows[:] for part in parts]),
            manifests=tuple(manifest for part in parts for manifest in part.manifests),
        )
    if finite:
        require_finite(features)
    return features


def holds_features(path: str | Path) -> bool:
    """True for a folder that `sphereface embed` wrote, or a folder of its parts; folders of faces have no journal."""
    path = Path(path)
    return path.is_dir() and ((path / JOURNAL).is_file() or any((each / JOURNAL).is_file() for each in path.iterdir()))


def require_finite(features: FeatureStore) -> None:
    """Raise if any number is NaN or infinite; reads all rows."""
    for start in range(0, len(features), BLOCK):
        wrong = np.flatnonzero(~np.isfinite(features.rows[start : start + BLOCK]).all(axis=1))
        if len(wrong):
            row = start + wrong[0]
            message = f"the feature of {features.paths[row]} (row {row:,}) is not finite; embed the set again"
            raise BadFeature("image", message)


def read_manifest(folder: Path) -> FeatureManifest:
    """The manifest of a folder of features."""
    path = folder / MANIFEST
    if not path.is_file():
        if (folder / JOURNAL).is_file():
            raise DataFormatError(f"{folder}: unfinished; run the same sphereface embed again to continue it")
        raise DataFormatError(f"{folder}: no features here; wanted a folder that sphereface embed wrote")
    try:
        return FeatureManifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        field, reason = first_problem(error, "content")
        raise DataFormatError(f"{path}: its {field}: {reason}; wanted the manifest of sphereface embed") from error


def card_hash(card: Card) -> str:
    """A hash of all fields of a card."""
    return sha256_of(card.model_dump_json())


def index_hash(paths: bytes, people: bytes, labels: bytes) -> str:
    """A hash of the three files of the index."""
    return sha256_of(b"".join(hashlib.sha256(part).digest() for part in (paths, people, labels)))


def lines(names: Sequence[str]) -> bytes:
    """Names as the lines of a file; names may be invalid UTF-8, but a line break in a name is an error."""
    text = "".join(f"{name}\n" for name in names)
    if text.count("\n") != len(names):
        raise DataFormatError(f"{next(name for name in names if chr(10) in name)!r} has a line break; rename it")
    return text.encode(errors="surrogateescape")


def header(count: int, dimension: int) -> bytes:
    """The header of a .npy file of float32 (count, dimension), of the same length for every count."""
    return _header("<f4", (count, dimension))


def label_bytes(labels: Int64) -> bytes:
    """The .npy file of labels (N,)."""
    return _header("<i8", labels.shape) + labels.astype("<i8").tobytes()


def _header(numbers: str, shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": numbers, "fortran_order": False, "shape": shape})
    return file.getvalue()


def _parts_in(folder: Path) -> list[Path]:
    """The folders of features in a folder; the folder itself if it is one, or if there are none."""
    if not folder.is_dir():
        raise DataFormatError(f"{folder}: no such folder")
    if _is_store(folder):
        return [folder]
    return sorted(filter(_is_store, folder.iterdir())) or [folder]


def _is_store(folder: Path) -> bool:
    return (folder / JOURNAL).is_file() or (folder / MANIFEST).is_file()


def _check_parts(folders: Sequence[Path], manifests: Sequence[FeatureManifest]) -> None:
    """Raise unless the folders are all parts of one set, each once, made by one command."""
    first, places = manifests[0], dict[int, list[Path]]()
    for folder, manifest in zip(folders, manifests, strict=True):
        for what in ("model", "card_hash", "data", "total", "batch", "dimension"):
            if getattr(manifest, what) != getattr(first, what):
                raise DataFormatError(
                    f"{folders[0]} and {folder} differ in their {what.replace('_', ' ')} "
                    f"({getattr(first, what)}, {getattr(manifest, what)}); parts of one set are made by one command"
                )
        if manifest.part.of != first.part.of:
            raise DataFormatError(
                f"{folders[0]} is part {first.part}, {folder} is part {manifest.part}; wanted parts of one division"
            )
        places.setdefault(manifest.part.number, []).append(folder)
    for number, found in places.items():
        if len(found) > 1:
            listed = " and ".join(map(str, found))
            raise DataFormatError(f"part {number}/{first.part.of} is there {len(found)} times, in {listed}; keep one")
    missing = [f"{number}/{first.part.of}" for number in range(1, first.part.of + 1) if number not in places]
    if missing:
        shown = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
        raise DataFormatError(
            f"{folders[0].parent}: {len(missing)} of {first.part.of} parts missing: {shown}; "
            "make them with sphereface embed --part, or give their folders, too"
        )


def _open(folder: Path, manifest: FeatureManifest) -> FeatureStore:
    index = [_read(folder / name) for name in (PATHS, PEOPLE, LABELS)]
    paths, people = _names(index[0]), _names(index[1])
    if len(paths) != manifest.count:
        raise DataFormatError(f"{folder / PATHS}: {len(paths):,} lines, wanted {manifest.count:,}; copy it again")
    if index_hash(*index) != manifest.index:
        raise DataFormatError(f"{folder}: {PATHS}, {PEOPLE} or {LABELS} is changed or cut off; copy the folder again")
    labels = _labels(index[2], len(paths))
    if labels is None or not ((labels >= 0) & (labels < len(people))).all():
        raise DataFormatError(f"{folder / LABELS}: wanted a label of {len(people):,} people for each of {len(paths):,}")
    return FeatureStore(paths, people, labels, _rows(folder, manifest), manifest.card, (manifest,))


def _labels(content: bytes, count: int) -> Int64 | None:
    """The labels (count,) in a .npy file, or None for other content."""
    begin = _header("<i8", (count,))
    if not content.startswith(begin) or len(content) != len(begin) + 8 * count:
        return None
    return np.frombuffer(content, "<i8", offset=len(begin)).astype(np.int64)


def _read(path: Path, size: int = -1) -> bytes:
    """The content of a file, or its first `size` bytes."""
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as error:
        raise DataFormatError(f"{path}: cannot be read ({error.strerror}); copy the whole folder") from error


def _names(content: bytes) -> list[str]:
    return content.decode(errors="surrogateescape").split("\n")[:-1]


def _rows(folder: Path, manifest: FeatureManifest) -> Float32:
    path = folder / FEATURES
    shape = manifest.count, manifest.dimension
    begin = header(*shape)
    wanted = len(begin) + 4 * manifest.count * manifest.dimension
    found, size = _read(path, len(begin)), path.stat().st_size
    if size != wanted:
        raise DataFormatError(f"{path}: {size:,} bytes, wanted {wanted:,}; it is cut off or changed: copy it again")
    if found != begin:
        raise DataFormatError(f"{path}: wanted the header of float32 {shape}; it is changed: copy it again")
    return np.memmap(path, np.float32, "r", len(begin), shape)
