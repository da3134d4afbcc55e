"""Near-duplicate photos: one picture cropped, scaled, compressed or mirrored.

A face becomes a thumbnail of 24 x 24 grey levels with mean zero and length one; two photos are near-duplicates if their
thumbnails correlate by 0.97 or more, which was not observed for different photos of real faces. All pairs are compared,
in blocks; the 8 x 8 means of the thumbnails, an orthogonal projection, rule out nearly all of them first:
|x - y|^2 = 2 - 2 x.y, and a projection never increases a distance, so no near-duplicate is lost.
"""

from collections.abc import Iterator
from typing import NamedTuple

import cv2
import numpy as np

from sphereface.arrays import Float32, Image, Int64, UInt8, unit_rows
from sphereface.audit.people import blocks
from sphereface.progress import Progress, silent

SIDE, COARSE = 24, 8
ALIKE = 0.97
BLOCK = 2048  # thumbnails of a block; two blocks are compared at a time
PAIRS = 1 << 12  # pairs of thumbnails that are correlated at a time
ROUNDING = 1e-4  # far above the rounding error of the distance of two projections


class Match(NamedTuple):
    """Two near-duplicate photos, by index."""

    first: int
    second: int
    correlation: float
    mirrored: bool


def thumbnail(face: Image) -> UInt8:
    """A face as 24 x 24 grey levels."""
    grey = cv2.cvtColor(face, cv2.COLOR_RGB2GRAY)
    return np.asarray(cv2.resize(grey, (SIDE, SIDE), interpolation=cv2.INTER_AREA), dtype=np.uint8)


def near_duplicates(
    thumbnails: UInt8,
    others: UInt8 | None = None,
    *,
    alike: float = ALIKE,
    block: int = BLOCK,
    progress: Progress = silent,
) -> list[Match]:
    """All near-duplicate pairs among thumbnails (N, 24, 24), each pair once; or between thumbnails and others.

    `block` changes memory only: 264 bytes a thumbnail for the projections, and block x block distances.
    `progress` counts the thumbnails that are compared.
    """
    second = thumbnails if others is None else others
    projections = np.empty((len(second), COARSE**2 + 2), np.float32)
    for part in blocks(len(second), block):
        small = _project(second[part])
        projections[part] = np.column_stack([small, np.ones(len(small)), _half_square(small)])
    best: dict[tuple[int, int], Match] = {}  # a symmetric face is its own mirror image: the higher correlation is kept
    for part in blocks(len(thumbnails), block):
        for flip in (False, True):
            sought = thumbnails[part, :, ::-1] if flip else thumbnails[part]
            small = _project(sought)
            sides = np.column_stack([small, _half_square(small), np.ones(len(small))]).astype(np.float32)
            start = part.start if others is None else 0
            for i, j in _near(sides, projections[start:], 1 - alike + ROUNDING, block):
                for row, column, value in _agreeing(sought, second[start:], i, j, alike):
                    match = Match(part.start + row, start + column, value, flip)
                    known = best.get(match[:2])
                    if (others is not None or match.first < match.second) and (known is None or value > known[2]):
                        best[match[:2]] = match
        progress(part.stop, len(thumbnails))
    return sorted(best.values())


def _near(a: Float32, b: Float32, limit: float, block: int) -> Iterator[tuple[Int64, Int64]]:
    """Index pairs of near projections: x.y - x.x / 2 - y.y / 2 = -|x - y|^2 / 2, one product of matrices."""
    for part in blocks(len(b), block):
        places = np.flatnonzero(a @ b[part].T >= np.float32(-limit))  # many times faster than np.nonzero in 2-D
        rows, columns = np.divmod(places, part.stop - part.start)
        for some in blocks(len(places), PAIRS):
            yield rows[some], columns[some] + part.start


def _agreeing(a: UInt8, b: UInt8, rows: Int64, columns: Int64, alike: float) -> Iterator[tuple[int, int, float]]:
    """The pairs of thumbnails with a correlation of at least `alike`, with their correlations."""
    values = np.einsum("nd,nd->n", _unit(a[rows]), _unit(b[columns]))
    for i, j, value in zip(rows.tolist(), columns.tolist(), values.tolist(), strict=True):
        if value >= alike:
            yield i, j, value


def _unit(thumbnails: UInt8) -> Float32:
    """Thumbnails as rows of mean zero and length one; a flat one as zeros, which correlate with no other row."""
    rows = thumbnails.reshape(len(thumbnails), -1).astype(np.float32)
    rows -= rows.mean(axis=1, keepdims=True)
    rows[np.abs(rows).max(axis=1) < 1] = 0  # less than a grey level: flat
    return unit_rows(rows, dtype=np.float32)


def _project(thumbnails: UInt8) -> Float32:
    """Sums over 3 x 3 pixels, divided by 3: coordinates along 64 orthonormal directions."""
    step = SIDE // COARSE
    rows = _unit(thumbnails).reshape(-1, COARSE, step, COARSE, step)
    return np.asarray(rows.sum(axis=(2, 4)).reshape(len(rows), -1) / step)


def _half_square(rows: Float32) -> Float32:
    return np.asarray(-(rows**2).sum(axis=1) / 2)
