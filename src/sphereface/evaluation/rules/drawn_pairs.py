"""Pairs drawn from a set of people: equal numbers of same and different ones, in folds without common people."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sphereface.arrays import Bools, Int64
from sphereface.errors import UserError

PAIRS = 3_000  # of either kind, as in LFW
FOLDS = 10


class Pairs(NamedTuple):
    """Pairs of images, (P,) each: the places of the two images, True for one person, and the fold."""

    left: Int64
    right: Int64
    same: Bools
    fold: Int64


def draw_pairs(people: Int64, *, pairs: int = PAIRS, folds: int = FOLDS, seed: int = 0) -> Pairs:
    """Equal numbers of same and different pairs of images, at most `pairs` of either kind, each person in one fold.

    `people` (N,) has the person of each image. A pair is drawn once. A fold takes two people, so few people make few
    folds. The first pair of every person comes before the second of any, so people with many photos do not dominate.
    """
    names, counts = np.unique(people, return_counts=True)
    if len(names) < 2 or counts.max() < 2:
        raise UserError(f"{len(people)} photos of {len(names)} people; wanted 2 people, one of them with 2 photos")
    if pairs < 1 or folds < 1:
        raise UserError(f"{pairs} pairs in {folds} folds; wanted at least 1 pair of either kind, and 1 fold")
    rng = np.random.default_rng(seed)
    photos = np.split(np.argsort(people, kind="stable"), np.cumsum(counts)[:-1])  # the images of each person
    order = rng.permutation(len(names))
    order = order[np.argsort(-counts[order], kind="stable")]  # by number of photos, so that folds are alike
    folds = max(1, min(folds, len(names) // 2, pairs))
    chosen: list[tuple[int, int, bool, int]] = []
    for fold in range(folds):
        group = [photos[person] for person in order[fold::folds]]
        same, different = _pairs_of(group, pairs // folds, rng)
        chosen += [(*pair, True, fold) for pair in same] + [(*pair, False, fold) for pair in different]
    if not chosen:
        raise UserError(f"{len(people)} photos of {len(names)} people make no pairs of both kinds; wanted more people")
    left, right, truth, where = zip(*chosen, strict=True)
    return Pairs(np.array(left), np.array(right), np.array(truth), np.array(where))


def _pairs_of(
    group: Sequence[Int64], most: int, rng: np.random.Generator
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Equal numbers of same and different pairs among the images of some people."""
    counts = np.array([len(photos) for photos in group])
    own = counts * (counts - 1) // 2
    a, b = np.triu_indices(min(len(group), 2 * most), 1)  # `most` pairs involve no more people
    if len(group) > 2 * most:  # random people: the first of the group have the most photos
        order = rng.permutation(len(group))
        a, b = order[a], order[b]
    across = counts[a] * counts[b]
    count = min(most, int(own.sum()), int(across.sum()))
    same = [_couple(group[person], item) for person, item in _spread(own, count, rng)]
    different = []
    for couple, item in _spread(across, count, rng):
        one, two = group[a[couple]], group[b[couple]]
        different.append(_ordered(one[item // len(two)], two[item % len(two)]))
    return same, different


def _couple(photos: Int64, number: int) -> tuple[int, int]:
    """The number-th pair (i, j), i < j, of some photos: j (j - 1) / 2 pairs precede those that end in j."""
    j = (1 + math.isqrt(1 + 8 * number)) // 2
    return _ordered(photos[number - j * (j - 1) // 2], photos[j])


def _ordered(a: np.int64, b: np.int64) -> tuple[int, int]:
    return int(min(a, b)), int(max(a, b))


def _spread(sizes: Int64, count: int, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
    """`count` different places (group, item below its size); every group's first precedes any group's second."""
    assert count <= sizes.sum(), "count is above the number of places"
    taken = np.zeros_like(sizes)
    while (left := count - int(taken.sum())) > 0:
        taken[rng.permutation(np.flatnonzero(taken < sizes))[:left]] += 1
    for group in np.flatnonzero(taken).tolist():
        for item in rng.choice(sizes[group], taken[group], replace=False).tolist():
            yield group, item
