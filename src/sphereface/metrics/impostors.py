"""The highest scores among pairs of different people, and exact scores of any pairs.

A score is the cosine of two features: their unit rows, multiplied in float64 and summed in a fixed order, so that
copies of two photos score the same to the last bit at any place. A product of matrices sums in an order that depends on
the place of a row, but its error is bounded: it selects the candidates, and only these are scored exactly.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sphereface.arrays import Float64, Floating, Int64, Integers, unit_rows
from sphereface.errors import UserError
from sphereface.progress import Progress, silent

SCORES = 1 << 22  # scores of a product of matrices in memory at a time
PRODUCTS = 1 << 21  # products of numbers in memory at a time, for exact scores


class HighestDifferent(NamedTuple):
    """Pairs of features of different people, highest score first; each (K,), the places left < right."""

    scores: Float64
    left: Int64
    right: Int64
    total: int  # pairs of different people, kept or not


def scores_of(unit: Floating, left: Integers, right: Integers, *, products: int = PRODUCTS) -> Float64:
    """The exact scores of pairs of unit rows at the places left and right (M,), about `products` numbers at a time."""
    scores = np.empty(len(left))
    step = max(1, products // max(1, unit.shape[1]))
    for start in range(0, len(left), step):
        some = slice(start, start + step)
        scores[some] = np.multiply(unit[left[some]], unit[right[some]], dtype=np.float64).sum(1)
    return scores


def count_different(people: ArrayLike) -> int:
    """The number of pairs of images of two people; `people` (N,) is the person of each image."""
    photos = np.unique(np.asarray(people), return_counts=True)[1]
    return int((photos.sum() ** 2 - (photos**2).sum()) // 2)


def same_pairs(people: ArrayLike) -> tuple[Int64, Int64]:
    """The places of all pairs of photos of one person, left < right; `people` (N,) is the person of each photo."""
    labels = np.asarray(people)
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(labels) else np.arange(0)
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

    features (N, D) of any length; people (N,). Equal scores are in the order of their places. At most `block` rows of
    scores are in memory, beside three times the pairs to keep; the result is the same for any `block`. `progress` is
    called with the number of rows done.
    """
    given, labels = np.asarray(features), np.asarray(people)
    if block is not None and block < 1:
        raise UserError(f"block is {block}; wanted at least 1")
    unit = unit_rows(given, dtype=np.result_type(given, np.float32))
    if labels.shape != unit.shape[:1]:
        raise UserError(f"features and people have shapes {unit.shape}, {labels.shape}; wanted (N, D) and (N,)")
    # The error of a sum of D products in any order is at most D u sum |x_i y_i| to first order, u being half the
    # distance from 1 to the next number, and that sum is at most 1. The rest covers all other rounding.
    error = 1.1 * (unit.shape[1] + 8) * float(np.finfo(unit.dtype).eps) / 2
    block = block or max(1, SCORES // max(1, len(unit)))
    total = count_different(labels)
    kept = [HighestDifferent(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64), total)]
    for start in range(0, len(unit) if most != 0 else 0, block):
        scores = unit[start : start + block] @ unit[start:].T
        row, column = np.nonzero(scores >= floor - error)
        strangers = (row < column) & (labels[row + start] != labels[column + start])  # each pair once
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
    """The places of pairs that may be among the `most` highest, given the largest error of a score."""
    last_place = float(np.partition(approximate, -most)[-most])
    return np.flatnonzero(approximate >= last_place - 2 * error)


def _highest(parts: Sequence[HighestDifferent], most: int | None) -> HighestDifferent:
    """The `most` highest pairs of all parts, in descending order; equal scores in the order of their places."""
    scores, left, right = (np.concatenate([part[field] for part in parts]) for field in range(3))
    if most is not None and len(scores) > most > 0:  # to sort fewer; scores equal to the last one stay for now
        high = np.flatnonzero(scores >= np.partition(scores, -most)[-most])
        scores, left, right = scores[high], left[high], right[high]
    order = np.lexsort((right, left, -scores))[:most]
    return HighestDifferent(scores[order], left[order], right[order], parts[0].total)
