"""Features of a set: from a model that embeds its faces now, or from the files that `sphereface embed` wrote."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol, cast

import numpy as np

from sphereface.arrays import Float32, Floating, Image, Int64, Integers, UInt8
from sphereface.choices import Missing
from sphereface.contract import Card
from sphereface.data.formats.sets import open_set
from sphereface.data.lists.megaface import MegaFaceImage
from sphereface.data.manifest import read_manifest, require_faces
from sphereface.data.people import FaceSet
from sphereface.data.reading import Skipping, read_face
from sphereface.embed.ensemble import join_features
from sphereface.embed.store import FeatureStore, RowsInOrder, holds_features, open_features, require_finite
from sphereface.errors import (
    BadFeature,
    ContractMismatch,
    DataFormatError,
    JobFailed,
    Setting,
    UnreadableImage,
    UserError,
)
from sphereface.evaluation.streaming.scores import map_features
from sphereface.progress import Progress, silent

PIECE = 256  # faces held as pixels at a time
ADVICE = ("; it was left out when the set was embedded: mend it and embed again, or ", Setting("missing", "skip"))

PathLike = str | Path


class Embeds(Protocol):
    """A model that makes features of faces, such as an `Embedder`."""

    @property
    def card(self) -> Card:
        """The model's card: the faces that it takes, and its features."""

    def embed(self, faces: UInt8, /) -> Float32:
        """Features (N, D) of faces (N, H, W, 3) uint8 RGB."""


class NoneUsable(DataFormatError):
    """No image of a list has a feature."""


class Gathered(NamedTuple):
    """Features of some images of a set, each once."""

    features: Float32
    rows: dict[int, int]  # by the image's place in the set
    unreadable: dict[str, str]  # reasons by path


def gather(
    embedder: Embeds,
    faces: FaceSet,
    places: Iterable[int],
    *,
    missing: Missing = "fail",
    piece: int = PIECE,
    progress: Progress = silent,
) -> Gathered:
    """Embed some images of a set, `piece` at a time; an unreadable one is an error (`fail`) or noted (`skip`)."""
    wanted, crop = list(dict.fromkeys(places)), embedder.card.preprocessing.crop
    features = np.zeros((0, 0), np.float32)
    rows: dict[int, int] = {}
    skipping = Skipping(missing)
    for start in range(0, len(wanted), piece):
        first, pixels = len(rows), list[Image]()
        for place in wanted[start : start + piece]:
            with skipping.reading(place):
                pixels.append(read_face(faces, place, crop))
                rows[place] = len(rows)
        if pixels:
            found = embedder.embed(np.stack(pixels))
            _refuse_broken(found, [faces.paths[place] for place in islice(rows, first, None)])
            if not first:  # memory for all at once: joining pieces at the end would take it twice
                features = np.empty((len(wanted), found.shape[1]), np.float32)
            features[first : len(rows)] = found
        progress(min(start + piece, len(wanted)), len(wanted))
    refuse_none(rows, skipping.reasons)
    return Gathered(features[: len(rows)], rows, skipping.reasons)


def refuse_none(rows: Mapping[int, int], unreadable: Mapping[str, str]) -> None:
    """Raise if none of the listed images has a feature."""
    if not rows:
        why = next((f"{path}: {reason}" for path, reason in unreadable.items()), "none is in the set")
        raise NoneUsable(f"none of the listed images can be used ({why}); wanted at least 1")


def _refuse_broken(features: Float32, paths: Sequence[str]) -> None:
    """Raise if a model's features are not finite, during embedding rather than after it."""
    broken = np.flatnonzero(~np.isfinite(features).all(1))
    if len(broken):
        raise JobFailed(
            f"{len(broken):,} of {len(features):,} features are not finite, such as that of {paths[broken[0]]}: "
            "the model is broken, or its card has a wrong mean or scale"
        )


@dataclass(frozen=True, eq=False)
class Fresh:
    """Faces and the model that embeds them on demand."""

    name: str  # of the set
    embedder: Embeds
    faces: FaceSet
    notes: tuple[str, ...] = ()  # on the set, for results

    @property
    def card(self) -> Card:
        """The model's card."""
        return self.embedder.card

    @property
    def paths(self) -> Sequence[str]:
        """All images of the set, unreadable ones included."""
        return self.faces.paths

    def gather(self, places: Iterable[int], /, *, missing: Missing = "fail", progress: Progress = silent) -> Gathered:
        """Embed some images; unreadable ones are errors (`fail`) or noted (`skip`)."""
        return gather(self.embedder, self.faces, places, missing=missing, progress=progress)


@dataclass(frozen=True, eq=False)
class Stored:
    """Stored features; the images that were unreadable follow the others, without a feature."""

    features: FeatureStore
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the embedded set."""
        return Path(self.features.manifests[0].source).name if self.features.manifests else "features"

    @property
    def card(self) -> Card:
        """The card of the model that made the features."""
        return self.features.card

    @cached_property
    def paths(self) -> list[str]:
        """All images of the embedded set, unreadable ones included."""
        return [*self.features.paths, *self.features.unreadable]

    def gather(self, places: Iterable[int], /, *, missing: Missing = "fail", progress: Progress = silent) -> Gathered:
        """Read the features of some images; unreadable ones are errors (`fail`) or noted (`skip`)."""
        wanted = list(dict.fromkeys(places))
        kept = [place for place in wanted if place < len(self.features)]
        skipping, why = Skipping(missing, ADVICE), self.features.unreadable
        for place in wanted:
            with skipping.reading(place):
                if place >= len(self.features):
                    raise UnreadableImage(self.paths[place], why[self.paths[place]])
        rows = {place: row for row, place in enumerate(kept)}
        refuse_none(rows, skipping.reasons)
        found = np.asarray(self.features.rows[np.array(kept)], np.float32)
        broken = np.flatnonzero(~np.isfinite(found).all(1))
        if len(broken):
            path = self.features.paths[kept[broken[0]]]
            raise BadFeature("image", f"the feature of {path} is not finite; embed the set again")
        progress(len(wanted), len(wanted))
        return Gathered(found, rows, skipping.reasons)


Source = Fresh | Stored


def open_source(given: Embeds | FeatureStore, folder: Path | None) -> Source:
    """A model with the set of faces in `folder`, aligned as its card states; or stored features.

    Features need no faces; a `folder` with another alignment than theirs is an error.
    """
    if isinstance(given, FeatureStore):
        if folder is not None:
            _require_alignment(folder, given.card)
        return Stored(given)
    if folder is None:
        raise UserError("a model without faces; name a set of aligned faces, or give stored features instead")
    faces = open_set(folder)
    note = require_faces(folder, faces, given.card.preprocessing.alignment)
    return Fresh(folder.name, given, faces, (note,) if note else ())


def _require_alignment(folder: Path, card: Card) -> None:
    """Raise if the manifest of a set of faces has another alignment than every model of the features."""
    manifest = read_manifest(folder)
    if manifest is None:
        return
    made, wanted = manifest.alignment, card.preprocessing
    crops = set(wanted.crop.split("+"))  # an ensemble of patches has several
    crops |= {"112x112"} if "112x96" in crops else set()
    if made.template != wanted.template or made.crop not in crops:
        raise ContractMismatch(
            f"{folder}: faces aligned to template {made.template}, crop {made.crop}; the features are of template "
            f"{wanted.template}, crop {wanted.crop}: name the embedded set, or its lists only"
        )


@dataclass(frozen=True, eq=False)
class WholeSet:
    """Features (N, D) of a set's images, not normalised, with their paths and people."""

    data: str  # name of the set
    features: Float32
    labels: Int64  # (N,): places in `people`
    people: list[str]
    paths: list[str]
    card: Card
    unreadable: dict[str, str]
    notes: tuple[str, ...] = ()

    @property
    def gathered(self) -> Gathered:
        """The features with the images' places as rows."""
        return Gathered(self.features, {place: place for place in range(len(self.paths))}, self.unreadable)


def embed_whole(
    source: Embeds | FeatureStore,
    faces: str | Path | None = None,
    *,
    missing: Missing = "fail",
    progress: Progress = silent,
) -> WholeSet:
    """The features of a set of aligned faces; a `FeatureStore` is read, without `faces`.

    An unreadable image is an error (`fail`) or noted (`skip`).
    """
    if isinstance(source, FeatureStore):
        for path, reason in source.unreadable.items() if missing == "fail" else ():
            raise UnreadableImage(path, reason, *ADVICE)
        require_finite(source)
        rows, paths = np.asarray(source.rows[0 : len(source)]), list(source.paths)
        name, people = Stored(source).name, list(source.people)
        return WholeSet(name, rows, source.labels, people, paths, source.card, source.unreadable)
    if faces is None:
        raise UserError("no set of faces is named; wanted a folder with a folder for each person, or a feature store")
    folder = Path(faces)
    found = open_set(folder)
    note = require_faces(folder, found, source.card.preprocessing.alignment)
    gathered = gather(source, found, range(len(found.paths)), missing=missing, progress=progress)
    places = np.array(list(gathered.rows), dtype=np.int64)
    return WholeSet(
        data=folder.name,
        features=gathered.features,
        labels=np.asarray(found.labels)[places],
        people=list(found.people),
        paths=[found.paths[place] for place in places.tolist()],
        card=source.card,
        unreadable=gathered.unreadable,
        notes=(note,) if note else (),
    )


def find_images(names: Iterable[str], paths: Sequence[str], *, anywhere: bool = False) -> dict[str, int]:
    """The places of listed images among paths, with any suffix; absent images are left out.

    A list may have `.jpg` where a face is `.png`; with `anywhere`, also `5.jpg` where it is `loose_crop/5.png`. A name
    that matches two images is an error, and so are two names for one image.
    """
    exact = {path: place for place, path in enumerate(paths)}
    alike: dict[str, list[int]] = {}
    for path, place in exact.items():
        alike.setdefault(_key(path, anywhere=anywhere), []).append(place)
    found: dict[str, int] = {}
    owners: dict[int, str] = {}
    for name in names:
        places = [exact[name]] if name in exact else alike.get(_key(name, anywhere=anywhere), [])
        if anywhere:
            places = [place for place in places if f"/{_bare(paths[place])}".endswith(f"/{_bare(name)}")]
        if len(places) > 1:
            raise DataFormatError(f"{name} may be {' and '.join(paths[place] for place in places)}; keep one of them")
        for place in places:
            found[name] = place
            if owners.setdefault(place, name) != name:
                raise DataFormatError(
                    f"{paths[place]} may be {owners[place]} and {name}; wanted one name for each image"
                )
    return found


def _key(path: str, *, anywhere: bool) -> str:
    bare = _bare(path)
    return bare.rpartition("/")[2] if anywhere else bare


def _bare(path: str) -> str:
    """A path without its suffix."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{name.rpartition('.')[0] or name}"


def open_listed(features: PathLike | Sequence[PathLike], images: Sequence[MegaFaceImage], listed: PathLike) -> Floating:
    """Features (N, D) of the images of a list, in its order, as memory maps.

    The source is a `.npy` or a devkit's `.bin` in that order; or folders that `embed` wrote, one for each model, where
    images are found by name, with any suffix. Features of several models are joined.
    """
    paths = [Path(features)] if isinstance(features, str | Path) else [Path(path) for path in features]
    if len(paths) == 1 and not paths[0].is_dir():
        found = map_features(paths[0])
        if len(found) != len(images):
            raise DataFormatError(
                f"{paths[0]}: {len(found):,} features; wanted {len(images):,}, one for each image of {listed}"
            )
        return found
    files = [path for path in paths if not path.is_dir()]
    if files:
        raise DataFormatError(f"{files[0]}: no folder; features of several models are joined from folders of embed")
    stored = open_stored(paths)
    order = _places(images, stored, " and ".join(map(str, paths)), listed)
    rows = stored.rows if np.array_equal(order, np.arange(len(stored))) else RowsInOrder(stored.rows, order)
    return cast(Floating, rows)  # callers only slice and index it, as an array


def open_stored(folders: Sequence[PathLike]) -> FeatureStore:
    """The features that `embed` wrote, those of several models joined; errors name the folders."""
    for folder in folders:
        if Path(folder).is_dir() and not holds_features(folder):
            raise DataFormatError(
                f"{folder}: no features here; if it holds aligned faces, embed them with sphereface embed {folder} "
                "FEATURES --model FILE, and name FEATURES instead"
            )
    parts = [open_features(folder) for folder in folders]
    if len(parts) == 1:
        return parts[0]
    try:
        return join_features(parts)
    except UserError as error:
        raise DataFormatError(f"{' and '.join(map(str, folders))}: {error}") from error


def _places(images: Sequence[MegaFaceImage], stored: FeatureStore, where: str, listed: PathLike) -> Integers:
    """The row of each listed image; raises if one is absent."""
    names = [image.path for image in images]
    try:
        found = find_images(names, stored.paths)
    except DataFormatError as error:
        raise DataFormatError(f"{where}: {error}") from error
    absent = [name for name in names if name not in found]
    if absent:
        why = stored.unreadable.get(absent[0], "not in the embedded set")
        raise DataFormatError(
            f"{where}: {len(absent):,} of {len(names):,} images of {listed} have no features, such as {absent[0]} "
            f"({why}); align with --misses centre and embed again"
        )
    return np.array([found[name] for name in names], dtype=np.int64)
