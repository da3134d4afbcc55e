"""Rates over many pairs, sorted once and weighted many times, for a bootstrap over people."""

import math

import numpy as np
from numpy.typing import ArrayLike

from sphereface.arrays import Float64, unit_rows
from sphereface.errors import UserError


class AllPairs:
    """Every pair of features (N, D), scored by cosine; `people` (N,) are whole numbers from 0.

    Sorting a million pairs is slow and done once, so that `tar_at_far` is fast for many draws of people. Small rates
    depend only on the highest scores of different pairs: `highest` is the share of them to keep. The others still
    count, and a rate that needs more than the kept ones is an error.
    """

    def __init__(self, features: ArrayLike, people: ArrayLike, *, highest: float = 1.0) -> None:
        if not 0 < highest <= 1:
            raise UserError(f"highest is {highest}; wanted a share above 0 and up to 1")
        x, labels = np.asarray(features, dtype=np.float64), np.asarray(people)
        unit = unit_rows(x)
        row, column = np.triu_indices(len(x), 1)
        scores = (unit @ unit.T)[row, column]
        same = labels[row] == labels[column]
        self.same, self.owner = scores[same], labels[row][same]
        scores, row, column = scores[~same], row[~same], column[~same]
        kept = math.ceil(highest * len(scores))
        top = np.argpartition(-scores, kept - 1)[:kept] if kept < len(scores) else np.arange(kept)
        order = top[np.argsort(-scores[top], kind="stable")]
        self.different = scores[order]  # descending
        self.left, self.right = labels[row[order]], labels[column[order]]
        self.is_whole = kept == len(scores)
        self.photos = np.bincount(labels).astype(np.float64)
        self.people = len(self.photos)

    def tar_at_far(self, far: float, drawn: Float64 | None = None) -> float:
        """The share of same pairs accepted when at most `far` of the different ones are.

        `drawn` (people,) is the number of draws of each person; a pair of two people has their product as its weight.
        """
        drawn = np.ones(self.people) if drawn is None else drawn
        passed = np.cumsum(drawn[self.left] * drawn[self.right])
        counts = drawn * self.photos
        everything = (counts.sum() ** 2 - (counts**2).sum()) / 2  # weight of all different pairs, kept or not
        last_of_tie = np.append(self.different[1:] != self.different[:-1], self.is_whole)
        within = np.flatnonzero((passed <= far * everything * (1 + 1e-12)) & last_of_tie)
        # At the lowest threshold allowed, same pairs pass if they score above the highest refused different pair.
        refused = within[-1] + 1 if len(within) else 0
        if not self.is_whole and passed[-1] <= far * everything:
            raise UserError(f"FAR {far:g} of {everything:,.0f} pairs; the {len(passed):,} highest kept end before it")
        limit = self.different[refused] if refused < len(self.different) else -np.inf
        weights = drawn[self.owner]
        return float(weights[self.same > limit].sum() / weights.sum())
