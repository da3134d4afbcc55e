"""Number of distractors that score at least as high as each mate."""

import numpy as np

from sphereface.arrays import Float32, Float64, Int64, Integers
from sphereface.evaluation.streaming.scores import Exact

SPAN = 4.0  # wider than the range of cosines: probe and score become one key, SPAN * probe + score
ROUNDING = 1e-8  # above the rounding error of a key, for up to a million probes


class MateCounts:
    """For each ordered pair (probe, mate), the number of distractors with at least the mate's score.

    Counts below `limit` are exact. A mate with `limit` such distractors is closed: scores below the lowest open mate
    change nothing, so most distractors are skipped.
    """

    def __init__(self, rows: Integers, scores: Float64, *, probes: int, limit: int, error: float, exact: Exact) -> None:
        order = np.lexsort((scores, rows))
        self.rows, self.scores = rows[order], scores[order]
        self.limit, self.margin, self._exact = limit, error + ROUNDING, exact
        self._first = np.searchsorted(self.rows, np.arange(probes + 1))  # first mate of each probe, lowest score first
        self._keys = SPAN * self.rows + self.scores
        self._above = np.append(self.scores, np.inf)  # sentinel after the last mate
        self._stopped = np.zeros(len(rows), dtype=np.int64)  # distractors, by the highest mate that they pass
        self.cuts = self._lowest_open()  # (P,): lower scores change nothing

    def add(self, approximate: Float32, rows: Integers, columns: Integers) -> None:
        """Count distractors `columns`, given approximate scores with probes `rows`."""
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
        """The end of the passed mates by exact scores, starting from those that are passed for certain."""
        while True:
            further = (passed < end) & (self._above[passed] <= scores)
            if not further.any():
                return passed
            passed = passed + further

    def counts(self) -> Int64:
        """Distractors at or above each mate, in the order of `rows` and `scores`; a lower bound from `limit` on."""
        passing = np.append(np.cumsum(self._stopped[::-1])[::-1], 0)  # passes of this mate or a later one
        return np.asarray(passing[:-1] - passing[self._first[self.rows + 1]])

    def _lowest_open(self) -> Float64:
        """The lowest score of an open mate for each probe; infinity if all are closed."""
        closed = np.append(0, np.cumsum(self.counts() >= self.limit))  # a probe's lowest mates come first
        first, end = self._first[:-1], self._first[1:]
        lowest = first + closed[end] - closed[first]
        return np.where(lowest < end, self._above[lowest], np.inf)
