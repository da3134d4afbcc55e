"""Features of the images of a set, each embedded once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sphereface.contract import Card
from sphereface.data.people import FaceSet
from sphereface.errors import DataFormatError, JobFailed, UnreadableImage
from sphereface.faces.images import Image, decode
from sphereface.faces.warp import as_crop

PIECE = 256  # faces that are held as pixels at a time

Progress = Callable[[int, int], None]  # hears how many images of how many are done


def silent(_done: int, _whole: int) -> None:
    """Nobody listens."""


class Embeds(Protocol):
    """What turns faces into features: an `Embedder`, or anything with a card and such a method."""

    @property
    def card(self) -> Card:
        """What faces it wants, and what its features are of."""

    def embed(self, faces: NDArray[np.uint8], /) -> NDArray[np.float32]:
        """Features (N, D) of faces (N, H, W, 3) uint8 RGB."""


class NoneUsable(DataFormatError):
    """None of some images has a feature."""


class Gathered(NamedTuple):
    """Features of some images of a set, each once."""

    features: NDArray[np.float32]
    rows: dict[int, int]  # by the image's place in the set
    unreadable: dict[str, str]  # by its path


def gather(
    embedder: Embeds,
    faces: FaceSet,
    places: Iterable[int],
    *,
    skip: bool = False,
    progress: Progress = silent,
) -> Gathered:
    """Embed some images of a set, a few at a time; `skip` notes those that cannot be read, else they are errors."""
    wanted, crop = list(dict.fromkeys(places)), embedder.card.preprocessing.crop
    features = np.zeros((0, 0), np.float32)
    rows: dict[int, int] = {}
    unreadable: dict[str, str] = {}
    for start in range(0, len(wanted), PIECE):
        first, pixels = len(rows), list[Image]()
        for place in wanted[start : start + PIECE]:
            path = faces.paths[place]
            try:
                face = decode(faces.read(place), source=path)
            except UnreadableImage as error:
                if not skip:
                    raise
                unreadable[path] = str(error).split(f"{path}: ", 1)[-1]
                continue
            pixels.append(as_crop(face, crop, source=path))
            rows[place] = len(rows)
        if pixels:
            piece = embedder.embed(np.stack(pixels))
            _refuse_broken(piece, [faces.paths[place] for place in islice(rows, first, None)])
            if not first:  # room for all at once: to join pieces at the end would take the memory twice
                features = np.empty((len(wanted), piece.shape[1]), np.float32)
            features[first : len(rows)] = piece
        progress(min(start + PIECE, len(wanted)), len(wanted))
    refuse_none(rows, unreadable)
    return Gathered(features[: len(rows)], rows, unreadable)


def refuse_none(rows: Mapping[int, int], unreadable: Mapping[str, str]) -> None:
    """Raise if none of the listed images has a feature."""
    if not rows:
        why = "; ".join(f"{path}: {reason}" for path, reason in list(unreadable.items())[:1])
        raise NoneUsable(f"none of the listed images can be used ({why or 'none is there'}); nothing to score")


def _refuse_broken(features: NDArray[np.float32], paths: Sequence[str]) -> None:
    """Raise if a model's features are not finite: at once, not after hours of embedding."""
    broken = np.flatnonzero(~np.isfinite(features).all(1))
    if len(broken):
        raise JobFailed(
            f"{len(broken):,} of {len(features):,} features are not finite, such as that of {paths[broken[0]]}: "
            "the model is broken, or its card has a wrong mean or scale"
        )
