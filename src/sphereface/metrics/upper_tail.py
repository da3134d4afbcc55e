"""Verification rates from all positives and only the highest of many negatives."""

import math
from dataclasses import dataclass

import numpy as np

from sphereface.arrays import Float64
from sphereface.errors import UserError
from sphereface.metrics.curves import Roc


def allowed(far: float, total: int) -> int:
    """The number of `total` negatives that may pass at a rate; a rate of 0.3 includes 0.3 in spite of rounding."""
    if not 0 <= far <= 1:
        raise UserError(f"far is {far}; wanted a share between 0 and 1")
    return min(total, math.floor(far * total * (1 + 1e-12)))


@dataclass(frozen=True)
class UpperTail:
    """The scores that low false accept rates depend on; a rate that needs more than the kept negatives is an error.

    A pair is accepted if its score is at least the threshold, so tied scores are accepted together.
    """

    positives: Float64  # (S,) descending, all of them
    negatives: Float64  # (K,) descending, the highest ones
    total: int  # negatives, kept or not

    @property
    def is_whole(self) -> bool:
        """True if every negative was kept."""
        return len(self.negatives) == self.total

    def decides(self, far: float) -> bool:
        """True if enough negatives were kept for a rate."""
        return self.is_whole or allowed(far, self.total) < len(self.negatives)

    def tar_at_far(self, far: float) -> float:
        """The share of positives accepted when at most `far` of the negatives are, without interpolation."""
        return float(np.mean(self.positives > self._refused(far)))

    def threshold_at_far(self, far: float) -> float:
        """The lowest threshold, among the scores and infinity, at which at most `far` of the negatives pass."""
        refused = self._refused(far)
        accepted = (scores[scores > refused] for scores in (self.positives, self.negatives))
        return float(min((scores[-1] for scores in accepted if len(scores)), default=np.inf))

    def roc(self) -> Roc:
        """The exact curve at infinity and at every distinct positive above the lowest kept negative.

        Between two of these points only the false accept rate grows, so the curve is complete.
        """
        covered = self.positives if self.is_whole else self.positives[self.positives > self.negatives[-1]]
        last_of_tie = np.flatnonzero(np.append(covered[1:] != covered[:-1], True)) if len(covered) else np.arange(0)
        thresholds = covered[last_of_tie]
        passed = np.searchsorted(-self.negatives, -thresholds, side="right")
        return Roc(
            np.append(0.0, passed / self.total),
            np.append(0.0, (last_of_tie + 1) / len(self.positives)),
            np.append(np.inf, thresholds),
        )

    def _refused(self, far: float) -> float:
        """The highest score that must be refused."""
        count, kept = allowed(far, self.total), len(self.negatives)
        if count < kept:
            return float(self.negatives[count])
        if not self.is_whole:
            raise UserError(f"FAR {far:g} of {self.total:,} negatives; the {kept:,} highest kept end before it")
        return -np.inf
