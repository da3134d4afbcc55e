"""Verification rates from all positives and only the highest of very many negatives."""

import math
from dataclasses import dataclass

import numpy as np

from sphereface.arrays import Float64
from sphereface.errors import UserError
from sphereface.metrics.curves import Roc


def allowed(far: float, total: int) -> int:
    """How many of `total` negatives may pass at a rate; 0.3 means 0.3, whatever its last bit."""
    if not 0 <= far <= 1:
        raise UserError(f"far is {far}; wanted a share between 0 and 1")
    return min(total, math.floor(far * total * (1 + 1e-12)))


@dataclass(frozen=True)
class UpperTail:
    """What low false accept rates depend on; a rate that the kept negatives cannot decide is an error.

    A pair is accepted if its score is at least the threshold, so tied scores are accepted together.
    """

    positives: Float64  # (S,) falling, all of them
    negatives: Float64  # (K,) falling, the highest ones
    total: int  # negatives, kept or not

    @property
    def is_whole(self) -> bool:
        """Whether every negative was kept."""
        return len(self.negatives) == self.total

    def decides(self, far: float) -> bool:
        """Whether enough negatives were kept for a rate."""
        return self.is_whole or allowed(far, self.total) < len(self.negatives)

    def tar_at_far(self, far: float) -> float:
        """The share of positives accepted when at most `far` of the negatives are; nothing is interpolated."""
        return float(np.mean(self.positives > self._refused(far)))

    def threshold_at_far(self, far: float) -> float:
        """The lowest threshold, among the scores and infinity, at which at most `far` of the negatives pass."""
        refused = self._refused(far)
        accepted = (scores[scores > refused] for scores in (self.positives, self.negatives))
        return float(min((scores[-1] for scores in accepted if len(scores)), default=np.inf))

    def roc(self) -> Roc:
        """The exact curve at infinity and at every distinct positive that the kept negatives can judge.

        Between two of its points only the false accept rate grows, so no point of the curve is missing.
        """
        judged = self.positives if self.is_whole else self.positives[self.positives > self.negatives[-1]]
        last_of_tie = np.flatnonzero(np.append(judged[1:] != judged[:-1], True)) if len(judged) else np.arange(0)
        thresholds = judged[last_of_tie]
        passed = np.searchsorted(-self.negatives, -thresholds, side="right")
        return Roc(
            np.append(0.0, passed / self.total),
            np.append(0.0, (last_of_tie + 1) / len(self.positives)),
            np.append(np.inf, thresholds),
        )

    def _refused(self, far: float) -> float:
        """The highest score that must not pass."""
        count = allowed(far, self.total)
        if count < len(self.negatives):
            return float(self.negatives[count])
        if not self.is_whole:
            kept = len(self.negatives)
            raise UserError(f"FAR {far:g} of {self.total:,} negatives; the {kept:,} highest kept end before it")
        return -np.inf
