"""Rates over many pairs, sorted once and weighted often: what a bootstrap over people needs."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


class AllPairs:
    """Every pair of features (N, D), scored by cosine; `people` (N,) are whole numbers from 0.

    Sorting a million pairs takes long, weighting them does not: `tar_at_far` may be asked for many draws of people.
    """

    def __init__(self, features: ArrayLike, people: ArrayLike) -> None:
        x, who = np.asarray(features, dtype=np.float64), np.asarray(people)
        unit = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
        row, column = np.triu_indices(len(x), 1)
        scores = (unit @ unit.T)[row, column]
        same = who[row] == who[column]
        order = np.argsort(-scores[~same], kind="stable")
        self.different = scores[~same][order]  # falling
        self.left, self.right = who[row][~same][order], who[column][~same][order]
        self.same, self.whose = scores[same], who[row][same]
        self.people = int(who.max()) + 1

    def tar_at_far(self, far: float, drawn: Floats | None = None) -> float:
        """The share of same pairs accepted when at most `far` of the different ones are.

        `drawn` (people,) says how often each person counts; a pair of two counts for each pair of draws.
        """
        drawn = np.ones(self.people) if drawn is None else drawn
        passed = np.cumsum(drawn[self.left] * drawn[self.right])
        last_of_tie = np.append(self.different[1:] != self.different[:-1], True)
        within = np.flatnonzero((passed <= far * passed[-1] * (1 + 1e-12)) & last_of_tie)
        # At the lowest threshold allowed, same pairs pass that are above the best different pair that must not.
        refused = within[-1] + 1 if len(within) else 0
        limit = self.different[refused] if refused < len(self.different) else -np.inf
        weights = drawn[self.whose]
        return float(weights[self.same > limit].sum() / weights.sum())
