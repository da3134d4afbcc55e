"""The most alike of all pairs of different people, and exact scores of any pairs.

A score is the cosine of two features: their rows at length one, multiplied in float64 and summed in a fixed order, so
that copies of two photos score the same to the last bit wherever they stand. A product of matrices sums in an order
that depends on the place of a row, but its error is bounded: it finds the pairs that may matter, and only these are
scored exactly.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sphereface.arrays import Float64, Floating, Int64, Integers, unit_rows
from sphereface.errors import UserError
from sphereface.progress import Progress, silent

SCORES = 1 << 22  # of a product of matrices, held at a time
PRODUCTS = 1 << 21  # of numbers, of pairs that are scored exactly in one go


class HighestDifferent(NamedTuple):
    """Pairs of features of different people, the most alike first; each (K,), the places left < right."""

    scores: Float64
    left: Int64
    right: Int64
    total: int  # pairs of different people, kept or not


def scores_of(unit: Floating, left: Integers, right: Integers, *, products: int = PRODUCTS) -> Float64:
    """The exact scores of pairs of unit rows, at the places left and right (M,); few `products` are held at a time."""
    scores = np.empty(len(left))
    step = max(1, products // max(1, unit.shape[1]))
    for start in range(0, len(left), step):
        some = slice(start, start + step)
        scores[some] = np.multiply(unit[left[some]], unit[right[some]], dtype=np.float64).sum(1)
    return scores


def count_different(people: ArrayLike) -> int:
    """How many pairs of images show two people; `people` (N,) says whose each image is."""
    photos = np.unique(np.asarray(people), return_counts=True)[1]
    return int((photos.sum() ** 2 - (photos**2).sum()) // 2)


def same_pairs(people: ArrayLike) -> tuple[Int64, Int64]:
    """The places of all pairs of photos of one person, left < right; `people` (N,) says whose they are."""
    who = np.asarray(people)
    order = np.argsort(who, kind="stable")
    starts = np.flatnonzero(np.append(True, who[order][1:] != who[order][:-1])) if len(who) else np.arange(0)
    left, right = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for photos in np.split(order, starts[1:]):
        a, b = np.triu_indices(len(photos), 1)
        left.append(photos[a])
        right.append(photos[b])
    return np.concatenate(left), np.concatenate(right)


def highest_different(
    features: ArrayLike,
    people: ArrayLike,
    *,
    most: int | None = None,
    floor: float = -np.inf,
    block: int | None = None,
    progress: Progress = silent,
) -> HighestDifferent:
    """The highest cosines among all pairs of different people: at most `most` of them, and none below `floor`.

    features (N, D) need no length of one; people (N,). Of equal scores, those of earlier places come first. Never are
    more than `block` rows of scores in memory, beside three times the pairs to keep; it changes no result. `progress`
    hears how many rows are done.
    """
    given, who = np.asarray(features), np.asarray(people)
    if block is not None and block < 1:
        raise UserError(f"block is {block}; wanted at least 1")
    unit = unit_rows(given, dtype=np.result_type(given, np.float32))
    if who.shape != unit.shape[:1]:
        raise UserError(f"features {unit.shape} show people {who.shape}; wanted (N, D) and (N,)")
    # A sum of D products in any order is off by at most D u sum |x_i y_i| to first order, u being half the distance
    # from 1 to the next number, and that sum is at most 1. The rest leaves room for all other rounding.
    error = 1.1 * (unit.shape[1] + 8) * float(np.finfo(unit.dtype).eps) / 2
    block = block or max(1, SCORES // max(1, len(unit)))
    total = count_different(who)
    kept = [HighestDifferent(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64), total)]
    for start in range(0, len(unit) if most != 0 else 0, block):
        scores = unit[start : start + block] @ unit[start:].T
        row, column = np.nonzero(scores >= floor - error)
        strangers = (row < column) & (who[row + start] != who[column + start])  # each pair once
        row, column = row[strangers], column[strangers]
        if most is not None and len(row) > most:
            near = _near_the_top(scores[row, column], most, error)
            row, column = row[near], column[near]
        left, right = row + start, column + start
        exact = scores_of(unit, left, right)
        high = exact >= floor
        kept.append(HighestDifferent(exact[high], left[high], right[high], total))
        if most is not None and sum(len(part.scores) for part in kept) >= 2 * most:
            kept = [_highest(kept, most)]
            floor = float(kept[0].scores[-1])
        progress(min(start + block, len(unit)), len(unit))
    return _highest(kept, most)


def _near_the_top(approximate: Floating, most: int, error: float) -> Int64:
    """Which pairs may be among the `most` highest, if each score is off by at most an error."""
    last_place = float(np.partition(approximate, -most)[-most])
    return np.flatnonzero(approximate >= last_place - 2 * error)


def _highest(parts: Sequence[HighestDifferent], most: int | None) -> HighestDifferent:
    """The `most` highest pairs of all parts, falling; of equal ones the earlier."""
    scores, left, right = (np.concatenate([part[field] for part in parts]) for field in range(3))
    if most is not None and len(scores) > most > 0:  # a sort of few: equal scores at the last place stay for now
        high = np.flatnonzero(scores >= np.partition(scores, -most)[-most])
        scores, left, right = scores[high], left[high], right[high]
    order = np.lexsort((right, left, -scores))[:most]
    return HighestDifferent(scores[order], left[order], right[order], parts[0].total)
