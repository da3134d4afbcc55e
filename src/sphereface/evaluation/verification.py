"""Verification over held-out folds: is this pair one person?"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sphereface.metrics import best_threshold

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
RuleName = Literal["authors"]


class Rule(NamedTuple):
    """Where scores and thresholds come from; every published accuracy has one."""

    scores: Callable[
        [Floats, Floats, Bools], Floats
    ]  # (left, right, which pairs may be looked at) -> scores of all pairs
    threshold: Callable[[Bools, Floats], float]  # (same, scores) of those pairs -> threshold


class Verification(NamedTuple):
    """Accuracy over held-out folds; `correct` says of each pair whether it was decided rightly."""

    accuracy: float
    accuracies: Floats  # one a fold, in the order of their numbers
    thresholds: Floats
    correct: Bools


def centred_cosine(left: Floats, right: Floats, fit_on: Bools) -> Floats:
    """Cosines after subtracting the mean feature of the pairs that may be looked at, both sides together."""
    mean = (left[fit_on].mean(0) + right[fit_on].mean(0)) / 2
    a, b = left - mean, right - mean
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.asarray((a * b).sum(1) / np.maximum(lengths, 1e-12))


# authors: mean and threshold from the other folds; 20,001 thresholds, the mean of the best; a tie is wrong either way.
RULES: dict[RuleName, Rule] = {"authors": Rule(centred_cosine, best_threshold)}


def verify_folds(
    left: ArrayLike, right: ArrayLike, same: ArrayLike, fold: ArrayLike, *, rule: RuleName = "authors"
) -> Verification:
    """Accuracy over held-out folds; the rule says where mean and threshold come from and what a tie is worth.

    left and right are features (N, D), not normalised; same is bool (N,), fold any integers (N,).
    """
    a, b = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    truth, folds = np.asarray(same).astype(bool), np.asarray(fold)
    if a.ndim != 2 or a.shape != b.shape or truth.shape != a.shape[:1] or folds.shape != a.shape[:1]:
        shapes = ", ".join(str(array.shape) for array in (a, b, truth, folds))
        raise ValueError(f"left, right, same, fold have shapes {shapes}; wanted (N, D), (N, D), (N,), (N,)")
    if rule not in RULES:
        raise ValueError(f"unknown rule {rule!r}; choose one of {', '.join(RULES)}")
    numbers = np.unique(folds)
    if len(numbers) < 2:
        raise ValueError(f"{len(numbers)} fold; wanted at least 2, so that one can be held out")
    correct, accuracies, thresholds = np.zeros(len(truth), dtype=bool), [], []
    for held_out in numbers:
        test, rest = folds == held_out, folds != held_out
        scores = RULES[rule].scores(a, b, rest)
        threshold = RULES[rule].threshold(truth[rest], scores[rest])
        correct[test] = np.where(truth[test], scores[test] > threshold, scores[test] < threshold)
        accuracies.append(correct[test].mean())
        thresholds.append(threshold)
    return Verification(float(np.mean(accuracies)), np.array(accuracies), np.array(thresholds), correct)
