"""Rates with 95 % intervals: from a bootstrap over people where these are known, else Wilson's."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sphereface.arrays import Float64
from sphereface.metrics.bootstrap import PeopleBootstrap, pair_weights
from sphereface.metrics.intervals import Interval, wilson

FARS = (1e-1, 1e-2, 1e-3, 1e-4)  # false accept rates at which true accept rates are reported
ROUNDS = 1000


class Rate(NamedTuple):
    """A number between 0 and 1 with its 95 % interval, if known."""

    value: float
    interval: Interval | None = None

    def as_dict(self) -> dict[str, float | list[float] | None]:
        """For JSON."""
        return {"value": self.value, "interval": None if self.interval is None else list(self.interval)}

    def percent(self) -> str:
        """For a table: `98.20 [97.90, 98.51]`."""
        shown = f"{100 * self.value:.2f}"
        if self.interval is None:
            return shown
        return f"{shown} [{100 * self.interval.low:.2f}, {100 * self.interval.high:.2f}]"


def is_supported(far: float, different: int) -> bool:
    """True if a false accept rate allows at least one of `different` pairs to pass."""
    return far * different * (1 + 1e-12) >= 1


def wilson_rate(share: float, trials: float) -> Rate:
    """A share of independent trials, with Wilson's interval."""
    return Rate(share, wilson(min(share, 1.0) * trials, trials))


def rates_over_people(
    measure: Callable[[Float64], Float64], left: ArrayLike, right: ArrayLike, *, rounds: int = ROUNDS, seed: int = 0
) -> list[Rate]:
    """Several rates with intervals from one bootstrap over the people of pairs, named by left and right (N,).

    `measure` maps the weight of each pair, (N,), to the rates; nan where a kind of pairs has no weight, and such a draw
    is skipped. If more than half of the draws are skipped, there is no interval. A rate of exactly 0 or 1 is the same
    in every draw: it gets Wilson's interval with one trial for each person.
    """
    names, place = np.unique(np.concatenate([np.asarray(left), np.asarray(right)]), return_inverse=True)
    a, b = place.reshape(2, -1)
    values = measure(np.ones(len(a))).tolist()
    if len(names) < 2:
        return [Rate(value) for value in values]
    drawn = PeopleBootstrap(len(names), rounds=rounds, seed=seed)
    draws = np.array([measure(pair_weights(each, a, b)) for each in drawn])
    draws = draws[np.isfinite(draws).all(1)]
    if 2 * len(draws) < rounds:
        return [Rate(value) for value in values]
    low, high = np.percentile(draws, [2.5, 97.5], axis=0).tolist()
    return [
        Rate(value, Interval(*ends)) if 0 < value < 1 else wilson_rate(value, len(names))
        for value, *ends in zip(values, low, high, strict=True)
    ]
