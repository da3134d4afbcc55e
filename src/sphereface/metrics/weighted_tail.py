"""Thresholds from the highest scores of different people with a weight for each person, for a bootstrap over people."""

import numpy as np
from numpy.typing import ArrayLike

from sphereface.arrays import Float64
from sphereface.choices import Weigh

SLACK = 1 + 1e-9  # for the rounding of a long sum: a rate of 0.3 includes 0.3


def thresholds_at(scores: Float64, weights: Float64, rates: ArrayLike, *, total: float, is_whole: bool) -> Float64:
    """The lowest of descending scores (K,), for each rate, at which at most that share of the total weight passes.

    A score at the threshold passes. Infinity where even the highest must be refused; minus infinity where the rate
    needs more scores than were kept.
    """
    passed = np.cumsum(weights)
    refused = np.searchsorted(passed, np.asarray(rates, dtype=np.float64) * total * SLACK, side="right")
    beyond = refused == len(scores)
    refused_scores = scores[np.minimum(refused, len(scores) - 1)]
    accepted = np.where(beyond, len(scores), np.searchsorted(-scores, -refused_scores, side="left"))  # ties together
    found = np.where(accepted > 0, scores[np.maximum(accepted, 1) - 1], np.inf)
    return np.asarray(np.where(beyond & (not is_whole), -np.inf, found))


class WeightedTail:
    """The highest scores among all pairs of photos of different people.

    `weigh="people"`: every two people have the same weight, whatever their photo counts. `"pairs"`: every two photos.
    """

    def __init__(
        self, scores: ArrayLike, left: ArrayLike, right: ArrayLike, *, photos: ArrayLike, weigh: Weigh = "people"
    ) -> None:
        """`left` and `right` (K,) are the people of each score (K,), as indices into `photos`, each person's count."""
        value, a, b = np.asarray(scores, dtype=np.float64), np.asarray(left), np.asarray(right)
        order = np.argsort(-value, kind="stable")
        self.scores, self._left, self._right = value[order], a[order], b[order]
        count = np.asarray(photos, dtype=np.float64)
        self._mass = np.ones_like(count) if weigh == "people" else count
        each = self._mass / count
        self._weights = each[self._left] * each[self._right]
        self.pairs = round(_pairs(count))
        self.is_whole = len(self.scores) == self.pairs

    def covers(self, far: float) -> bool:
        """True if enough scores were kept for a rate, in the plain sample and in most draws of people."""
        return self.is_whole or float(self._weights.sum()) >= 2 * far * _pairs(self._mass)

    def thresholds(self, fars: ArrayLike, drawn: Float64 | None = None) -> Float64:
        """The threshold of each false accept rate, for a number of draws (people,) of each; nan without two people."""
        times = np.ones_like(self._mass) if drawn is None else drawn
        total = _pairs(times * self._mass)
        if total <= 0:
            return np.full(np.shape(fars), np.nan)
        weights = self._weights * times[self._left] * times[self._right]
        return thresholds_at(self.scores, weights, fars, total=total, is_whole=self.is_whole)

    def rates(self, scores: ArrayLike) -> Float64:
        """The share of pairs that reach each score; valid for scores above the lowest kept one."""
        passed = np.append(0.0, np.cumsum(self._weights))
        reached = np.searchsorted(-self.scores, -np.asarray(scores, dtype=np.float64), side="right")
        return np.asarray(passed[reached] / _pairs(self._mass))


def _pairs(mass: Float64) -> float:
    """The weight of all pairs of different people."""
    return float((mass.sum() ** 2 - (mass**2).sum()) / 2)
