"""A set prepared for training, without excluded and unreadable images; a small set is kept decoded in memory."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sphereface.arrays import Bools, Int64, UInt8
from sphereface.choices import Missing
from sphereface.data.people import FaceSet
from sphereface.data.reading import Unreadable, read_face, refusal, require_missing
from sphereface.errors import Setting, UserError
from sphereface.loading.scan import Scan, face_shape, scan
from sphereface.loading.subset import Subset, fingerprint, without
from sphereface.loading.workers import START_METHOD, StartMethod
from sphereface.progress import Progress, silent

CACHE_BYTES = 3_000_000_000  # about 93,000 faces of 112x96, or 79,000 of 112x112
ADVICE = ("mend or remove them, or leave them out with ", Setting("missing", "skip"))


@dataclass(frozen=True, eq=False)
class ReadyFaces:
    """Faces that were readable when the run began; made by `prepare`."""

    images: Subset  # the images in use
    whole: FaceSet  # the set that they are from
    places: Int64  # of the images in use, in that set
    crop: str
    missing: Missing
    scan: Scan  # the scan that selected them
    not_found: tuple[str, ...]  # excluded names without a match in the set
    fingerprint: str  # of the images in use
    pixels: Tensor | None  # the decoded faces of all scanned images (N, H, W, 3), if kept
    decoded: Bools  # (N,) true for scanned images that are in `pixels`

    def __len__(self) -> int:
        return len(self.images.rows)

    @property
    def people(self) -> list[str]:
        """The names of people; a label is an index into this list."""
        return list(self.images.people)

    @property
    def labels(self) -> Int64:
        """The label of each face, (N,)."""
        return self.images.labels

    @property
    def skipped(self) -> tuple[Unreadable, ...]:
        """The images that were left out, with reasons."""
        return self.scan.unreadable

    @property
    def absent(self) -> list[str]:
        """The names of people with a label but without images."""
        counts = np.bincount(self.labels, minlength=len(self.images.people))
        return [name for name, count in zip(self.images.people, counts, strict=True) if not count]

    def read_into(self, index: int, out: UInt8) -> None:
        """Copy one face into `out` (H, W, 3), from memory or from its file; an error if that became unreadable."""
        row = int(self.images.rows[index])
        if self.pixels is not None and self.decoded[row]:
            out[:] = self.pixels[row].numpy()
        else:
            out[:] = read_face(self.images.faces, row, self.crop)

    def share(self) -> None:
        """Move kept faces into shared memory, one copy for all processes; forked workers do not need this."""
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
    missing: Missing = "fail",
    exclude: Collection[str] = frozenset(),
    cache_bytes: int = CACHE_BYTES,
    workers: int = 0,
    start_method: StartMethod = START_METHOD,
    known: Scan | None = None,
    progress: Progress = silent,
) -> ReadyFaces:
    """Decode every image once; an unreadable one is an error (`fail`) or is left out and listed (`skip`).

    `exclude` names people or paths to leave out. Faces are kept in memory if all of them fit `cache_bytes`; 0 keeps
    none. `known` is the scan of an earlier run on the same set: it selects the same images, so that a resumed run has
    the same batches, and images are read only to fill the memory. Each of several processes calls this: if no faces are
    kept, each reads its share of the images, and all select the same ones.

    >>> faces = prepare(PeopleFolder("faces/train"), workers=2)
    """
    require_missing(missing)
    chosen, not_found = without(faces, exclude)
    if known is not None and known.fingerprint != fingerprint(chosen):
        counts = f"{known.count:,} images, here {len(chosen.rows):,}, or other names"
        raise UserError(f"the known scan is of another set ({counts}); leave it out to scan again")
    shape = (len(chosen.rows), *face_shape(crop))
    pixels = torch.empty(shape, dtype=torch.uint8) if np.prod(shape) <= cache_bytes else None
    found = known
    if found is None or pixels is not None:
        into = None if pixels is None else pixels.numpy()
        found = scan(
            chosen, crop=crop, into=into, workers=workers, start_method=start_method, together=True, progress=progress
        )
    decided = known or found
    if missing == "fail" and (found.unreadable or decided.unreadable):
        raise refusal(found.unreadable or decided.unreadable, f"{found.count:,} images", *ADVICE)
    images = chosen.keep(_readable(decided, chosen))
    if not len(images.rows):
        raise refusal(decided.unreadable, f"{decided.count:,} images", *ADVICE)
    return ReadyFaces(
        images, faces, chosen.rows[images.rows], crop, missing, decided, not_found, fingerprint(images), pixels,
        _readable(found, chosen),
    )  # fmt: skip


def _readable(scan: Scan, images: Subset) -> Bools:
    bad = {image.path for image in scan.unreadable}
    return np.array([path not in bad for path in images.paths]) if bad else np.ones(len(images.rows), np.bool_)
