"""How many distractors stand before each mate."""

import numpy as np

from sphereface.arrays import Float32, Float64, Int64, Integers
from sphereface.evaluation.streaming.scores import Exact

SPAN = 4.0  # wider than the range of cosines: probe and score become one number to search for
ROUNDING = 1e-8  # more than such a number loses, for up to a million probes


class MateCounts:
    """For each ordered pair (probe, mate): how many distractors score at least as high with the probe as the mate.

    Counts below `limit` are exact. A mate that `limit` distractors have passed stays passed, and is looked at no more:
    so most of the distractors need not be looked at either.
    """

    def __init__(self, rows: Integers, scores: Float64, *, probes: int, limit: int, error: float, exact: Exact) -> None:
        order = np.lexsort((scores, rows))
        self.rows, self.scores = rows[order], scores[order]
        self.limit, self.margin, self._exact = limit, error + ROUNDING, exact
        self._first = np.searchsorted(self.rows, np.arange(probes + 1))  # of each probe's mates, lowest score first
        self._keys = SPAN * self.rows + self.scores
        self._above = np.append(self.scores, np.inf)  # what follows the last mate is out of reach
        self._stopped = np.zeros(len(rows), dtype=np.int64)  # distractors whose highest mate passed is this one
        self.cuts = self._lowest_open()  # (P,) distractors that score less change nothing

    def add(self, approximate: Float32, rows: Integers, columns: Integers) -> None:
        """Count distractors `columns`, whose scores with probes `rows` are approximately known."""
        if not len(rows):
            return
        near = approximate.astype(np.float64)
        end = self._first[rows + 1]
        passed = np.searchsorted(self._keys, SPAN * rows + (near - self.margin), side="right")
        unsure = np.flatnonzero((passed < end) & (self._above[passed] <= near + self.margin))
        passed[unsure] = self._settle(passed[unsure], end[unsure], self._exact(rows[unsure], columns[unsure]))
        passed = passed[passed > self._first[rows]]
        self._stopped += np.bincount(passed - 1, minlength=len(self.scores))
        self.cuts = self._lowest_open()

    def _settle(self, passed: Int64, end: Integers, scores: Float64) -> Int64:
        """Go on from the mates that were surely passed to all that were, by exact scores."""
        while True:
            further = (passed < end) & (self._above[passed] <= scores)
            if not further.any():
                return passed
            passed = passed + further

    def counts(self) -> Int64:
        """Distractors at or above each mate, in the order of `rows` and `scores`; from `limit` on, at least so many."""
        passing = np.append(np.cumsum(self._stopped[::-1])[::-1], 0)  # those that pass a mate of this or a later probe
        return np.asarray(passing[:-1] - passing[self._first[self.rows + 1]])

    def _lowest_open(self) -> Float64:
        """The lowest score, for each probe, of a mate that has not been passed too often; infinity if all have."""
        closed = np.append(0, np.cumsum(self.counts() >= self.limit))  # a probe's lowest mates come first
        first, end = self._first[:-1], self._first[1:]
        lowest = first + closed[end] - closed[first]
        return np.where(lowest < end, self._above[lowest], np.inf)
