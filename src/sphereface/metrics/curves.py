"""The receiver operating characteristic (ROC) and the measures taken from it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sphereface.arrays import Bools, Float64
from sphereface.errors import UserError


class Roc(NamedTuple):
    """The shares of different and of same pairs with score >= threshold, for thresholds in descending order."""

    far: Float64
    tar: Float64
    thresholds: Float64  # the first is inf: no pair is accepted

    def auc(self) -> float:
        """Area under the curve: the probability that a same pair scores above a different one, ties counting half."""
        return float((np.diff(self.far) * (self.tar[1:] + self.tar[:-1]) / 2).sum())  # NumPy 1 has no np.trapezoid

    def eer(self) -> float:
        """Equal error rate: false accept rate = false reject rate, linearly interpolated between points."""
        excess = self.far - (1 - self.tar)  # from -1 to 1, never falling
        after = int(np.argmax(excess >= 0))
        share = -excess[after - 1] / (excess[after] - excess[after - 1])
        return float(self.far[after - 1] + share * (self.far[after] - self.far[after - 1]))

    def tar_at_far(self, far: float) -> float:
        """The share of same pairs accepted when at most `far` of the different pairs are, without interpolation."""
        return float(self.tar[_last_within(self.far, far)])


def roc(same: ArrayLike, scores: ArrayLike, *, weights: ArrayLike | None = None) -> Roc:
    """False and true accept rates at infinity and at every distinct score; tied scores are accepted together."""
    truth, score, weight = _checked(same, scores, weights)
    order = np.argsort(-score, kind="stable")
    score, truth, weight = score[order], truth[order], weight[order]
    last_of_tie = np.flatnonzero(np.append(np.diff(score) != 0, True))
    true_accepts = np.cumsum(np.where(truth, weight, 0.0))[last_of_tie]
    false_accepts = np.cumsum(np.where(truth, 0.0, weight))[last_of_tie]
    return Roc(
        np.append(0.0, false_accepts / false_accepts[-1]),
        np.append(0.0, true_accepts / true_accepts[-1]),
        np.append(np.inf, score[last_of_tie]),
    )


def auc(same: ArrayLike, scores: ArrayLike, *, weights: ArrayLike | None = None) -> float:
    """The probability that a same pair scores above a different one, ties counting half."""
    return roc(same, scores, weights=weights).auc()


def eer(same: ArrayLike, scores: ArrayLike, *, weights: ArrayLike | None = None) -> float:
    """The equal error rate: the false accept rate where it equals the false reject rate, interpolated on the ROC."""
    return roc(same, scores, weights=weights).eer()


def threshold_at_far(same: ArrayLike, scores: ArrayLike, *, far: float, weights: ArrayLike | None = None) -> float:
    """The lowest threshold, among the scores and infinity, at which at most `far` of the different pairs pass."""
    curve = roc(same, scores, weights=weights)
    return float(curve.thresholds[_last_within(curve.far, far)])


def tar_at_far(same: ArrayLike, scores: ArrayLike, *, far: float, weights: ArrayLike | None = None) -> float:
    """The share of same pairs accepted when at most `far` of the different pairs are, without interpolation."""
    return roc(same, scores, weights=weights).tar_at_far(far)


def best_threshold(same: ArrayLike, scores: ArrayLike, *, steps: int = 10_000) -> float:
    """The threshold of best accuracy on an even grid of 2 steps + 1 points over -1..1; the mean of equally good ones.

    By the authors' rule a pair is correct if it is same and strictly above, or different and strictly below.
    """
    truth, score, _ = _checked(same, scores, None)
    grid = np.arange(-steps, steps + 1) / steps
    positives, negatives = np.sort(score[truth]), np.sort(score[~truth])
    correct = len(positives) - np.searchsorted(positives, grid, side="right")
    correct += np.searchsorted(negatives, grid, side="left")
    return float(grid[correct == correct.max()].mean())


def _last_within(far: Float64, limit: float) -> int:
    if not 0 <= limit <= 1:
        raise UserError(f"far is {limit}; wanted a share between 0 and 1")
    return int(np.searchsorted(far, limit * (1 + 1e-12), side="right")) - 1  # for rounding: 0.3 includes 0.3


def _checked(same: ArrayLike, scores: ArrayLike, weights: ArrayLike | None) -> tuple[Bools, Float64, Float64]:
    truth, score = np.asarray(same), np.asarray(scores, dtype=np.float64)
    weight = np.ones_like(score) if weights is None else np.asarray(weights, dtype=np.float64)
    if truth.ndim != 1 or truth.shape != score.shape or weight.shape != score.shape:
        shapes = f"{truth.shape}, {score.shape}, {weight.shape}"
        raise UserError(f"same, scores and weights have shapes {shapes}; wanted the same (N,) for all")
    if not np.isfinite(score).all():
        raise UserError("a score is not finite; wanted cosines")
    truth = truth.astype(bool)
    if truth.all() or not truth.any():
        raise UserError(f"{truth.sum()} of {len(truth)} pairs are the same person; wanted pairs of both kinds")
    return truth, score, weight
