"""Photos that are the same, or nearly: one cut, scaled, compressed or mirrored anew.

A face becomes a thumbnail of 24 x 24 grey levels, its mean taken away, at length one; two photos are near-duplicates
where their thumbnails correlate by 0.97 or more. On real faces that are different photos this was not seen. All pairs
are compared, in blocks; the 8 x 8 means of the thumbnails, an orthogonal projection, rule out nearly all of them first:
a projection never makes two points farther apart, so nothing is missed.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from sphereface.faces.images import Image

SIDE, COARSE = 24, 8
ALIKE = 0.97
BLOCK = 2048


class Match(NamedTuple):
    """Two photos that are nearly the same, by their places."""

    first: int
    second: int
    correlation: float
    mirrored: bool


def thumbnail(face: Image) -> NDArray[np.uint8]:
    """A face as 24 x 24 grey levels."""
    grey = cv2.cvtColor(face, cv2.COLOR_RGB2GRAY)
    return np.asarray(cv2.resize(grey, (SIDE, SIDE), interpolation=cv2.INTER_AREA), dtype=np.uint8)


def near_duplicates(
    thumbnails: NDArray[np.uint8],
    others: NDArray[np.uint8] | None = None,
    *,
    alike: float = ALIKE,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Match]:
    """All pairs of thumbnails (N, 24, 24) that nearly agree, each pair once; or of thumbnails with others.

    `progress` hears how many of the first are compared.
    """
    matches: list[Match] = []
    for start in range(0, len(thumbnails), BLOCK):
        block = thumbnails[start : start + BLOCK]
        for flip in (False, True):
            sought = _unit(block[:, :, ::-1] if flip else block)
            for place, second in _blocks(thumbnails if others is None else others, start if others is None else 0):
                for i, j, value in _agreeing(sought, _unit(second), alike):
                    if others is not None or start + i < place + j:
                        matches.append(Match(start + i, place + j, value, flip))
        progress(start + len(block))
    best: dict[tuple[int, int], Match] = {}  # a symmetric face is its own mirror image: the better of both counts
    for match in matches:
        known = best.get((match.first, match.second))
        if known is None or match.correlation > known.correlation:
            best[match.first, match.second] = match
    return sorted(best.values())


def _blocks(thumbnails: NDArray[np.uint8], start: int) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    for place in range(start, len(thumbnails), BLOCK):
        yield place, thumbnails[place : place + BLOCK]


def _unit(thumbnails: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Thumbnails as rows of mean zero and length one; a flat one as zeros, which agree with nothing."""
    rows = thumbnails.reshape(len(thumbnails), -1).astype(np.float32)
    rows -= rows.mean(axis=1, keepdims=True)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(np.divide(rows, length, out=np.zeros_like(rows), where=length > 1))


def _agreeing(a: NDArray[np.float32], b: NDArray[np.float32], alike: float) -> Iterator[tuple[int, int, float]]:
    """Rows that correlate by at least so much: |x - y|^2 = 2 - 2 x.y, and no less than that of their projections."""
    small_a, small_b = _project(a), _project(b)
    half_lengths = ((small_a**2).sum(axis=1)[:, None] + (small_b**2).sum(axis=1)) / 2
    rows, columns = np.nonzero(small_a @ small_b.T >= half_lengths - (1 - alike) - 1e-5)
    values = np.einsum("nd,nd->n", a[rows], b[columns])
    for i, j, value in zip(rows.tolist(), columns.tolist(), values.tolist(), strict=True):
        if value >= alike:
            yield i, j, value


def _project(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Sums over 3 x 3 pixels, divided by 3: coordinates in 64 directions at right angles, each of length one."""
    step = SIDE // COARSE
    return np.asarray(rows.reshape(-1, COARSE, step, COARSE, step).sum(axis=(2, 4)).reshape(len(rows), -1) / step)
