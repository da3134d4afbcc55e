"""A set made ready for training: what is excluded or unreadable is left out, and a small set is kept decoded."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sphereface.data.people import FaceSet
from sphereface.errors import UnreadableImage
from sphereface.loading.scan import Scan, Unreadable, face_shape, read_face, scan
from sphereface.loading.subset import Subset, fingerprint, without
from sphereface.loading.workers import START_METHOD, StartMethod

OnUnreadable = Literal["fail", "skip"]
CACHE_BYTES = 2_000_000_000  # about 62,000 faces of 112x96
NAMED = 3  # how many unreadable images an error lists


@dataclass(frozen=True, eq=False)
class ReadyFaces:
    """Faces that were readable when the run began; made by `prepare`."""

    images: Subset  # those that take part
    crop: str
    on_unreadable: OnUnreadable
    scan: Scan  # what decided about them
    not_found: tuple[str, ...]  # excluded names that nothing answered to
    fingerprint: str  # of those that take part
    pixels: Tensor | None  # the decoded faces of all scanned images (N, H, W, 3), where they are kept
    decoded: NDArray[np.bool_]  # which of them are there

    def __len__(self) -> int:
        return len(self.images.rows)

    @property
    def people(self) -> list[str]:
        """Names; a label is a place in this list."""
        return list(self.images.people)

    @property
    def labels(self) -> NDArray[np.int64]:
        """Whose face each one is, (N,)."""
        return self.images.labels

    @property
    def skipped(self) -> tuple[Unreadable, ...]:
        """The images that were left out, and why."""
        return self.scan.unreadable

    @property
    def absent(self) -> list[str]:
        """People who have a label but no image left."""
        counts = np.bincount(self.labels, minlength=len(self.images.people))
        return [name for name, count in zip(self.images.people, counts, strict=True) if not count]

    def read_into(self, index: int, out: NDArray[np.uint8]) -> None:
        """Put one face into `out` (H, W, 3), from memory where it is kept; raises where its file broke since."""
        row = int(self.images.rows[index])
        if self.pixels is not None and self.decoded[row]:
            out[:] = self.pixels[row].numpy()
        else:
            out[:] = read_face(self.images.faces, row, self.crop)

    def share(self) -> None:
        """Move what is kept into shared memory, one copy for all processes; a forked one sees it anyway."""
        if self.pixels is None:
            return
        try:
            self.pixels.share_memory_()  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            raise MemoryError(
                f"{self.pixels.nbytes:,} bytes of faces do not fit this system's shared memory ({error}); "
                "start workers by fork, or keep no faces with cache_bytes=0"
            ) from error


def prepare(
    faces: FaceSet,
    *,
    crop: str = "112x96",
    on_unreadable: OnUnreadable = "fail",
    exclude: Collection[str] = frozenset(),
    cache_bytes: int = CACHE_BYTES,
    workers: int = 0,
    start_method: StartMethod = START_METHOD,
    known: Scan | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> ReadyFaces:
    """Decode every image once; an unreadable one ends this (`fail`) or is left out and listed (`skip`).

    `exclude` names people or paths that take no part. Faces stay in memory where all of them fit `cache_bytes`; 0 keeps
    none. `known` is the scan of an earlier run on the same set: it decides again who takes part, so that a resumed run
    sees the same batches, and nothing is read but what the memory wants.

    >>> faces = prepare(PeopleFolder("faces/train"), workers=2)
    """
    if on_unreadable not in ("fail", "skip"):
        raise ValueError(f"on_unreadable is {on_unreadable!r}; choose 'fail' or 'skip'")
    chosen, not_found = without(faces, exclude)
    if known is not None:
        _check_same_set(known, chosen)
    shape = (len(chosen.rows), *face_shape(crop))
    pixels = torch.empty(shape, dtype=torch.uint8) if np.prod(shape) <= cache_bytes else None
    found = known
    if found is None or pixels is not None:
        into = None if pixels is None else pixels.numpy()
        found = scan(chosen, crop=crop, into=into, workers=workers, start_method=start_method, progress=progress)
    decided = known or found
    if on_unreadable == "fail" and (found.unreadable or decided.unreadable):
        raise UnreadableImage(_refusal(found.unreadable or decided.unreadable, found.count))
    images = chosen.keep(_readable(decided, chosen))
    if not len(images.rows):
        raise UnreadableImage(_refusal(decided.unreadable, decided.count))
    return ReadyFaces(
        images, crop, on_unreadable, decided, not_found, fingerprint(images), pixels, _readable(found, chosen)
    )


def _readable(scan: Scan, images: Subset) -> NDArray[np.bool_]:
    bad = {image.path for image in scan.unreadable}
    return np.array([path not in bad for path in images.paths])


def _check_same_set(known: Scan, images: Subset) -> None:
    if known.fingerprint != fingerprint(images):
        raise ValueError(
            f"the known scan is of another set ({known.count:,} images, here {len(images.rows):,}, or other names); "
            "leave it out to scan again"
        )


def _refusal(unreadable: tuple[Unreadable, ...], count: int) -> str:
    first = ", ".join(f"{path} ({reason})" for path, reason in unreadable[:NAMED])
    more = f" and {len(unreadable) - NAMED:,} more" if len(unreadable) > NAMED else ""
    return (
        f"{len(unreadable):,} of {count:,} images cannot be read: {first}{more}; "
        "mend or remove them, or leave them out with on_unreadable='skip'"
    )
