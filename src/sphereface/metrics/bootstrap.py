"""Bootstrap over people, which are independent; pairs that share a person are correlated."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sphereface.arrays import Float64
from sphereface.errors import UserError
from sphereface.metrics.intervals import Interval


class PeopleBootstrap:
    """Draws of people with replacement: iterating yields each person's number of draws, (people,); repeatable."""

    def __init__(self, people: int, *, rounds: int = 1000, seed: int = 0) -> None:
        if people < 2 or rounds < 2:
            raise UserError(f"{people} people and {rounds} rounds; wanted at least 2 of each")
        self.people, self.rounds, self.seed = people, rounds, seed

    def __iter__(self) -> Iterator[Float64]:
        rng = np.random.default_rng(self.seed)
        for _ in range(self.rounds):
            yield np.bincount(rng.integers(self.people, size=self.people), minlength=self.people).astype(np.float64)


def pair_weights(drawn: Float64, left: ArrayLike, right: ArrayLike) -> Float64:
    """The weight of each pair: the draws of its person, or the product of the draws of its two people."""
    a, b = np.asarray(left), np.asarray(right)
    return np.asarray(np.where(a == b, drawn[a], drawn[a] * drawn[b]))


def interval_over_people(statistic: Callable[[Float64], float], bootstrap: PeopleBootstrap) -> Interval:
    """The 95 % percentile interval of a statistic, a function of the number of draws of each person.

    >>> interval_over_people(lambda drawn: pairs.tar_at_far(1e-2, drawn), PeopleBootstrap(pairs.people))
    """
    return middle_95([statistic(drawn) for drawn in bootstrap])


def middle_95(draws: Sequence[float] | Float64) -> Interval:
    """The interval of the middle 95 % of some draws."""
    return Interval(*np.percentile(draws, [2.5, 97.5]).tolist())


class Paired(NamedTuple):
    """A difference between two methods on the same people, with its uncertainty."""

    difference: float
    standard_error: float
    interval: Interval  # 95 %, percentiles of the bootstrap

    @property
    def in_standard_errors(self) -> float:
        """The difference in units of its standard error."""
        if self.standard_error:
            return self.difference / self.standard_error
        return float(np.sign(self.difference)) * np.inf


def paired_difference(
    ours: Sequence[Callable[[Float64], float]], theirs: Sequence[Callable[[Float64], float]], bootstrap: PeopleBootstrap
) -> Paired:
    """The mean over runs (seeds) of ours - theirs, both measured on the same draws of people.

    Each callable maps the number of draws of each person to a statistic; all ones give the plain statistic.
    """
    if len(ours) != len(theirs) or not ours:
        raise UserError(f"{len(ours)} runs against {len(theirs)}; wanted equal counts of at least 1")

    def difference(drawn: Float64) -> float:
        return float(np.mean([mine(drawn) - other(drawn) for mine, other in zip(ours, theirs, strict=True)]))

    draws = [difference(drawn) for drawn in bootstrap]
    return paired_of_draws(difference(np.ones(bootstrap.people)), draws)


def paired_of_draws(difference: float, draws: Sequence[float] | Float64) -> Paired:
    """A difference with its uncertainty, from the same difference in each draw of people."""
    return Paired(float(difference), float(np.std(draws, ddof=1)), middle_95(draws))


def draws_over_runs(draws: Float64, *, seed: int) -> Float64:
    """The mean over runs in each draw of people, (R,), where the runs are drawn with replacement, too.

    draws (S, R) has a row for each run; all rows have the same draws of people.
    """
    drawn = np.random.default_rng(seed).integers(len(draws), size=draws.shape)
    return np.asarray(np.take_along_axis(draws, drawn, axis=0).mean(axis=0))


def two_sided(draws: Sequence[float] | Float64) -> float:
    """The p-value of no difference: twice the smaller share of draws on one side of 0, and never 0 itself."""
    found = np.asarray(draws)
    side = min(np.count_nonzero(found <= 0), np.count_nonzero(found >= 0))
    return min(1.0, 2 * (side + 1) / (len(found) + 1))


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """p-values corrected for their number by Holm's steps: the chance of any false finding is limited."""
    corrected, highest = dict[str, float](), 0.0
    for place, name in enumerate(sorted(p, key=p.__getitem__)):
        highest = max(highest, min(1.0, (len(p) - place) * p[name]))
        corrected[name] = highest
    return {name: corrected[name] for name in p}
