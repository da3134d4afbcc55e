"""The angular Fisher score of the paper's appendix."""

import numpy as np
from numpy.typing import ArrayLike

from sphereface.arrays import Float64
from sphereface.errors import UserError


def angular_fisher_score(features: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None) -> float:
    """S_w / S_b: scatter of features around class means over that of class means, in cosines; lower is better.

    S_w = sum_i sum_j (1 - cos<x_j, m_i>), S_b = sum_i n_i (1 - cos<m_i, m>). Means are of raw features, (N, D).
    `weights` (N,) are the numbers of times that each feature counts, as in a bootstrap.
    """
    x, label = np.asarray(features, dtype=np.float64), np.asarray(labels)
    weight = np.ones(len(x)) if weights is None else np.asarray(weights, dtype=np.float64)
    if x.ndim != 2 or label.shape != x.shape[:1] or weight.shape != label.shape:
        shapes = f"{x.shape}, {label.shape}, {weight.shape}"
        raise UserError(f"features, labels and weights have shapes {shapes}; wanted (N, D), (N,) and (N,)")
    _, place = np.unique(label, return_inverse=True)
    count = np.bincount(place, weights=weight)
    if (count > 0).sum() < 2:
        raise UserError("all features are of one person; the scatter between people needs at least 2 people")
    sums = np.zeros((len(count), x.shape[1]))
    np.add.at(sums, place, weight[:, None] * x)
    means = sums / np.maximum(count, 1e-300)[:, None]
    whole = (weight[:, None] * x).sum(0) / weight.sum()
    within = (weight * (1 - _cosines(x, means[place]))).sum()
    between = (count * (1 - _cosines(means, whole[None, :]))).sum()
    return float(within / between)


class PeopleScatter:
    """The scatters of all people, so that the angular Fisher score of many draws of people is fast.

    A draw counts all features of a person equally often: class means stay, and only the mean of all features moves.
    """

    def __init__(self, features: ArrayLike, labels: ArrayLike) -> None:
        """`labels` (N,) are whole numbers from 0; a person without features counts nothing."""
        x, label = np.asarray(features, dtype=np.float64), np.asarray(labels)
        self.counts = np.bincount(label).astype(np.float64)
        order = np.argsort(label, kind="stable")
        there = np.flatnonzero(self.counts)
        starts = np.searchsorted(label[order], there)
        self.sums = np.zeros((len(self.counts), x.shape[1]))
        self.sums[there] = np.add.reduceat(x[order], starts)
        means = self.sums / np.maximum(self.counts, 1.0)[:, None]
        self.within = np.bincount(label, weights=1 - _cosines(x, means[label]))
        self.directions = means / np.maximum(np.linalg.norm(means, axis=1), 1e-300)[:, None]

    def score(self, drawn: Float64 | None = None) -> float:
        """The angular Fisher score; `drawn` (people,) is the number of draws of each person."""
        drawn = np.ones(len(self.counts)) if drawn is None else drawn
        whole = drawn @ self.sums
        cosines = self.directions @ (whole / max(float(np.linalg.norm(whole)), 1e-300))
        return float((drawn @ self.within) / ((drawn * self.counts) @ (1 - cosines)))


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.asarray((a * b).sum(1) / np.maximum(lengths, 1e-300))
