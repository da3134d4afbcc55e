"""Bootstrap over people: pairs that share a person are not independent, people are."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sphereface.arrays import Float64
from sphereface.errors import UserError
from sphereface.metrics.intervals import Interval


class PeopleBootstrap:
    """Draws people with replacement; iterating yields how often each was drawn, (people,), the same draws each time."""

    def __init__(self, people: int, *, rounds: int = 1000, seed: int = 0) -> None:
        if people < 2 or rounds < 2:
            raise UserError(f"{people} people and {rounds} rounds; wanted at least 2 of either")
        self.people, self.rounds, self.seed = people, rounds, seed

    def __iter__(self) -> Iterator[Float64]:
        rng = np.random.default_rng(self.seed)
        for _ in range(self.rounds):
            yield np.bincount(rng.integers(self.people, size=self.people), minlength=self.people).astype(np.float64)


def pair_weights(drawn: Float64, left: ArrayLike, right: ArrayLike) -> Float64:
    """How often each pair is seen when people were drawn so often: once for each draw of a person, or of both."""
    a, b = np.asarray(left), np.asarray(right)
    return np.asarray(np.where(a == b, drawn[a], drawn[a] * drawn[b]))


def interval_over_people(statistic: Callable[[Float64], float], bootstrap: PeopleBootstrap) -> Interval:
    """The 95 % interval of a statistic, by percentiles; it maps how often each person counts to a number.

    >>> interval_over_people(lambda drawn: pairs.tar_at_far(1e-2, drawn), PeopleBootstrap(pairs.people))
    """
    return _middle([statistic(drawn) for drawn in bootstrap])


def _middle(draws: Sequence[float]) -> Interval:
    """What holds the middle 95 % of some draws."""
    low, high = np.percentile(draws, [2.5, 97.5])
    return Interval(float(low), float(high))


class Paired(NamedTuple):
    """A difference between two methods on the same people, and how sure it is."""

    difference: float
    standard_error: float
    interval: Interval  # 95 %, percentiles of the bootstrap

    @property
    def in_standard_errors(self) -> float:
        """The difference in units of its standard error."""
        return (
            self.difference / self.standard_error if self.standard_error else float(np.sign(self.difference)) * np.inf
        )


def paired_difference(
    ours: Sequence[Callable[[Float64], float]], theirs: Sequence[Callable[[Float64], float]], bootstrap: PeopleBootstrap
) -> Paired:
    """The mean over runs (seeds) of ours - theirs, both measured on the same draws of people.

    Each callable maps how often each person counts to a statistic; all ones is the plain statistic.
    """
    if len(ours) != len(theirs) or not ours:
        raise UserError(f"{len(ours)} runs against {len(theirs)}; wanted as many, and at least one")

    def difference(drawn: Float64) -> float:
        return float(np.mean([mine(drawn) - other(drawn) for mine, other in zip(ours, theirs, strict=True)]))

    draws = [difference(drawn) for drawn in bootstrap]
    return Paired(difference(np.ones(bootstrap.people)), float(np.std(draws, ddof=1)), _middle(draws))
