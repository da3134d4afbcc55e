"""Look at every image once before a run, so that none can end it at hour 30."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from sphereface.data.people import FaceSet
from sphereface.errors import ContractMismatch, SphereFaceError
from sphereface.faces.images import Image, decode
from sphereface.faces.warp import CROPS, as_crop
from sphereface.loading.subset import fingerprint
from sphereface.loading.workers import START_METHOD, StartMethod, Workers

UNREADABLE = (SphereFaceError, OSError)  # what a set's `read` and the decoder raise for a bad image
CHUNK = 64  # images that a worker looks at between two messages


class Unreadable(NamedTuple):
    """An image that cannot be read, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class Scan:
    """What reading every image of a set once found."""

    fingerprint: str  # of the set that was scanned
    count: int
    unreadable: tuple[Unreadable, ...]

    def as_dict(self) -> dict[str, Any]:
        """The scan as JSON takes it."""
        return {
            "fingerprint": self.fingerprint,
            "count": self.count,
            "unreadable": [list(image) for image in self.unreadable],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Scan":
        """The scan that `as_dict` wrote down."""
        unreadable = tuple(Unreadable(str(path), str(reason)) for path, reason in data["unreadable"])
        return cls(str(data["fingerprint"]), int(data["count"]), unreadable)


def face_shape(crop: str) -> tuple[int, int, int]:
    """Height, width and colours of a crop's faces."""
    if crop not in CROPS:
        raise ValueError(f"unknown crop {crop!r}; choose one of {', '.join(CROPS)}")
    return CROPS[crop].height, CROPS[crop].width, 3


def read_face(faces: FaceSet, index: int, crop: str) -> Image:
    """One face of a set, decoded and cut."""
    path = faces.paths[index]
    return as_crop(decode(faces.read(index), source=path), crop, source=path)


def unreadable_image(faces: FaceSet, index: int, error: Exception) -> Unreadable:
    """An image with what reading it raised; the reason does not name it again."""
    path = faces.paths[index]
    return Unreadable(path, str(error).split(f"{path}: ", 1)[-1])


def scan(
    faces: FaceSet,
    *,
    crop: str = "112x96",
    into: NDArray[np.uint8] | None = None,
    workers: int = 0,
    start_method: StartMethod = START_METHOD,
    progress: Callable[[int], None] = lambda _: None,
) -> Scan:
    """Decode every image once; `progress` hears how many are done, and `into` (N, H, W, 3) receives the faces.

    An unreadable image is noted. A readable one of the wrong size ends the scan with an error: where one photo is not
    aligned, few are.
    """
    chunks = _Chunks(faces, crop, keep=into is not None)
    starts = range(0, chunks.count, CHUNK)
    unreadable: list[Unreadable] = []
    with closing(Workers(workers, start_method).run(chunks, starts)) as looks:
        for start, seen in zip(starts, looks, strict=True):
            if seen.misfit is not None:
                raise ContractMismatch(seen.misfit)
            if into is not None and seen.pixels is not None:
                into[start : start + CHUNK] = seen.pixels.numpy()
            unreadable += seen.unreadable
            progress(min(start + CHUNK, chunks.count))
    return Scan(fingerprint(faces), chunks.count, tuple(unreadable))


class _Seen(NamedTuple):
    """What a worker found in a chunk; errors travel as text, for torch would wrap them in a traceback."""

    pixels: Tensor | None  # (up to CHUNK, H, W, 3)
    unreadable: tuple[Unreadable, ...] = ()
    misfit: str | None = None


class _Chunks(Dataset[_Seen]):
    """The images of a set, CHUNK at a time, each chunk named by its first image."""

    def __init__(self, faces: FaceSet, crop: str, *, keep: bool) -> None:
        self.faces, self.crop, self.keep = faces, crop, keep
        self.count = len(faces.labels)

    def __getitem__(self, start: int) -> _Seen:
        images = range(start, min(start + CHUNK, self.count))
        pixels = torch.zeros((len(images), *face_shape(self.crop)), dtype=torch.uint8)
        rows, unreadable = pixels.numpy(), []
        for place, image in enumerate(images):
            try:
                rows[place] = read_face(self.faces, image, self.crop)
            except ContractMismatch as misfit:
                return _Seen(None, misfit=str(misfit))
            except UNREADABLE as error:
                unreadable.append(unreadable_image(self.faces, image, error))
        return _Seen(pixels if self.keep else None, tuple(unreadable))
