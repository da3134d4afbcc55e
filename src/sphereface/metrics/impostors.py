"""The most alike of all pairs of different people."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SCORES = 1 << 22  # that are held at a time


class HighestDifferent(NamedTuple):
    """Pairs of features of different people, the most alike first; each (K,), the places left < right."""

    scores: Floats
    left: Ints
    right: Ints
    total: int  # pairs of different people, kept or not


def unit_rows(features: ArrayLike) -> Floats:
    """Features (N, D) brought to length one."""
    rows = np.asarray(features, dtype=np.float64)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))


def count_different(people: ArrayLike) -> int:
    """How many pairs of images show two people; `people` (N,) says whose each image is."""
    photos = np.unique(np.asarray(people), return_counts=True)[1]
    return int((photos.sum() ** 2 - (photos**2).sum()) // 2)


def highest_different(
    features: ArrayLike, people: ArrayLike, *, most: int | None = None, floor: float = -np.inf, block: int | None = None
) -> HighestDifferent:
    """The `most` highest cosines among all pairs of different people, or all those from `floor` upwards.

    features (N, D) need no length of one; people (N,). Of equal scores, those of earlier places come first. Never are
    more than `block` rows of scores in memory, beside those that are kept.
    """
    unit, who = unit_rows(features), np.asarray(people)
    kept = HighestDifferent(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64), count_different(who))
    block = block or max(1, SCORES // max(1, len(unit)))
    for start in range(0, len(unit) if most != 0 else 0, block):
        scores = unit[start : start + block] @ unit[start:].T
        wanted = (who[start : start + block, None] != who[None, start:]) & (scores >= floor)
        left, right = np.nonzero(np.triu(wanted, 1))  # within a block, place k on the left is place k on the right
        merged = HighestDifferent(
            np.concatenate([kept.scores, scores[left, right]]),
            np.concatenate([kept.left, left + start]),
            np.concatenate([kept.right, right + start]),
            kept.total,
        )
        kept = _highest(merged, most)
        if most is not None and len(kept.scores) == most:
            floor = float(kept.scores[-1])
    return kept


def _highest(pairs: HighestDifferent, most: int | None) -> HighestDifferent:
    scores, left, right, total = pairs
    if most is not None and len(scores) > most:  # a sort of few: equal scores at the last place stay for now
        high = np.flatnonzero(scores >= np.partition(scores, -most)[-most])
        scores, left, right = scores[high], left[high], right[high]
    order = np.lexsort((right, left, -scores))[:most]
    return HighestDifferent(scores[order], left[order], right[order], total)
