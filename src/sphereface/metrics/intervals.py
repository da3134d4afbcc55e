"""Confidence intervals of shares."""

import math
from typing import NamedTuple

from sphereface.errors import UserError


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


def wilson(successes: float, trials: float, *, z: float = 1.96) -> Interval:
    """Wilson's interval for a share of independent trials; valid also at 0 and 1."""
    if not 0 <= successes <= trials or trials == 0:
        raise UserError(f"{successes} successes in {trials} trials; wanted 0 <= successes <= trials, trials > 0")
    share, squared = successes / trials, z * z / trials
    middle = (share + squared / 2) / (1 + squared)
    half = z * math.sqrt(share * (1 - share) / trials + squared / (4 * trials)) / (1 + squared)
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return Interval(0.0 if successes == 0 else low, 1.0 if successes == trials else high)  # exact at 0 and 1
