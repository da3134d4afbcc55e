"""Reading every image once before a run, so that an unreadable one is found at the start."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from sphereface import parallel
from sphereface.arrays import UInt8
from sphereface.data.people import FaceSet
from sphereface.data.reading import Skipping, Unreadable, read_face
from sphereface.errors import ContractMismatch, UserError
from sphereface.faces.warp import CROPS
from sphereface.loading.subset import fingerprint
from sphereface.loading.workers import START_METHOD, StartMethod, Workers
from sphereface.progress import Progress, silent

CHUNK = 64  # images that a worker reads between two messages


@dataclass(frozen=True)
class Scan:
    """The result of reading every image of a set once."""

    fingerprint: str  # of the set that was scanned
    count: int
    unreadable: tuple[Unreadable, ...]

    def as_dict(self) -> dict[str, Any]:
        """The fields for JSON."""
        unreadable = [list(image) for image in self.unreadable]
        return {"fingerprint": self.fingerprint, "count": self.count, "unreadable": unreadable}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Scan":
        """The scan of the fields of `as_dict`."""
        unreadable = tuple(Unreadable(str(path), str(reason)) for path, reason in data["unreadable"])
        return cls(str(data["fingerprint"]), int(data["count"]), unreadable)


def face_shape(crop: str) -> tuple[int, int, int]:
    """Height, width and channels of a crop's faces."""
    if crop not in CROPS:
        raise UserError(f"unknown crop {crop!r}; choose one of {', '.join(CROPS)}")
    return CROPS[crop].height, CROPS[crop].width, 3


def scan(
    faces: FaceSet,
    *,
    crop: str = "112x96",
    into: UInt8 | None = None,
    workers: int = 0,
    start_method: StartMethod = START_METHOD,
    chunk: int = CHUNK,
    together: bool = False,
    progress: Progress = silent,
) -> Scan:
    """Decode every image once; `progress` is called after each chunk, and `into` (N, H, W, 3) receives the faces.

    Unreadable images are listed. A readable one of the wrong size ends the scan with an error: such sets are usually
    not aligned. With `together`, every process calls this; each reads its share of the images, or with `into` all of
    them, and all have the same result.
    """
    chunks = _Chunks(faces, crop, chunk, keep=into is not None)
    starts = range(0, chunks.count, chunk)
    if together and into is None:
        starts = starts[parallel.rank() :: parallel.ranks()]
    unreadable: dict[int, str] = {}
    misfit = None
    with closing(Workers(workers, start_method).run(chunks, starts)) as looks:
        try:
            for start, seen in zip(starts, looks, strict=True):
                if into is not None and seen.pixels is not None:
                    into[start : start + chunk] = seen.pixels.numpy()
                unreadable |= seen.unreadable
                progress(min(start + chunk, chunks.count), chunks.count)
        except ContractMismatch as error:
            if not together:
                raise
            misfit = str(error)  # raised below, in all processes
    if together:
        unreadable = _agreed(unreadable, misfit)
    found = tuple(Unreadable(faces.paths[place], unreadable[place]) for place in sorted(unreadable))
    return Scan(fingerprint(faces), chunks.count, found)


def _agreed(unreadable: Mapping[int, str], misfit: str | None) -> dict[int, str]:
    """The unreadable images of all processes; raises in each of them if any found a wrong size."""
    found = parallel.gather_json([list(unreadable.items()), misfit])
    for _, text in found:
        if text is not None:
            raise ContractMismatch(text)
    return {place: reason for pairs, _ in reversed(found) for place, reason in pairs}


class _Seen(NamedTuple):
    """A worker's result for a chunk."""

    pixels: Tensor | None  # (up to `chunk`, H, W, 3)
    unreadable: dict[int, str]  # index of the image in the set: reason


class _Chunks(Dataset[_Seen]):
    """The images of a set in chunks; the key of a chunk is the index of its first image."""

    def __init__(self, faces: FaceSet, crop: str, size: int, *, keep: bool) -> None:
        self.faces, self.crop, self.size, self.keep = faces, crop, size, keep
        self.count = len(faces.labels)

    def __getitem__(self, start: int) -> _Seen:
        images = range(start, min(start + self.size, self.count))
        pixels = torch.zeros((len(images), *face_shape(self.crop)), dtype=torch.uint8)
        rows, skipping = pixels.numpy(), Skipping("skip")
        for place, image in enumerate(images):
            with skipping.reading(image):
                rows[place] = read_face(self.faces, image, self.crop)
        reasons = {image: reason for image, (_, reason) in skipping.unreadable.items()}
        return _Seen(pixels if self.keep else None, reasons)
