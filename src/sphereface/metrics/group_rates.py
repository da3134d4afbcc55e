"""Error rates of groups of people at one threshold: how sure they are, how far apart, and which groups stand out.

FMR (false match rate) of a group: the share of pairs of different people, both photos of that group, that pass. FNMR
(false non-match rate): the share of pairs of one person, both photos of that group, that do not. People are drawn with
replacement, the threshold being kept; a pair of two people counts once for each draw of both.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from sphereface.arrays import Float64, Int64
from sphereface.metrics.bootstrap import PeopleBootstrap
from sphereface.metrics.intervals import Interval, wilson
from sphereface.metrics.rates import ROUNDS, Rate

Which = Literal["FMR", "FNMR"]

PIECE = 4_000_000  # products of weights that are held at a time
HALF = 0.5  # added to counts before a logarithm is taken: 0 has none
ERROR = 0.01  # the chance that anything is found where nothing is: a fair model is not to be accused lightly


class FalseMatches(NamedTuple):
    """Pairs of different people that passed: who, and of which groups the two photos are; each (F,)."""

    left: Int64
    right: Int64
    left_group: Int64
    right_group: Int64


class ErringCouples(NamedTuple):
    """Two people with false matches: in which two groups, who, and how many; each (C,), the cells rising."""

    cell: Int64  # the lower group x the number of groups + the upper one
    left: Int64
    right: Int64
    times: Int64


class Counted(NamedTuple):
    """Errors and pairs of each group, or each two groups, in B draws of people."""

    false: Float64  # (B, G, G), symmetric
    different: Float64  # (B, G, G)
    missed: Float64  # (B, G)
    same: Float64  # (B, G)


@dataclass(frozen=True, eq=False)
class GroupCounts:
    """What the rates of groups follow from, whoever is drawn; P people, G groups."""

    photos: Float64  # (P, G): of each person in each group
    same: Float64  # (P, G): pairs of photos of this person, both in the group
    missed: Float64  # (P, G): those of them that did not pass
    matches: FalseMatches

    @property
    def groups(self) -> int:
        """How many."""
        return int(self.photos.shape[1])

    def counted(self, drawn: Float64) -> Counted:
        """Errors and pairs where people count so often, (B, P)."""
        groups = self.groups
        sums = drawn @ self.photos
        own = (self.photos[:, :, None] * self.photos[:, None, :]).reshape(len(self.photos), -1)
        different = sums[:, :, None] * sums[:, None, :] - (drawn**2 @ own).reshape(-1, groups, groups)
        different[:, range(groups), range(groups)] /= 2  # within a group, a pair was counted from both its ends
        return Counted(self._false(drawn), different, drawn @ self.missed, drawn @ self.same)

    def _false(self, drawn: Float64) -> Float64:
        cell, left, right, times = self.erring_couples
        cells, starts = np.unique(cell, return_index=True)
        false = np.zeros((len(drawn), self.groups * self.groups))
        if len(cells):
            weights = times * drawn[:, left] * drawn[:, right]
            false[:, cells] = np.add.reduceat(weights, starts, axis=1)
        square = false.reshape(-1, self.groups, self.groups)
        return np.maximum(square, square.transpose(0, 2, 1))  # of two cells that mirror each other one is empty

    @cached_property
    def erring_couples(self) -> ErringCouples:
        """The false matches of the same two people in the same two groups as one: there may be far fewer of these."""
        left, right, one, two = self.matches
        people, groups = len(self.photos), self.groups
        cell = np.minimum(one, two) * groups + np.maximum(one, two)
        couple = np.minimum(left, right) * people + np.maximum(left, right)
        found, times = np.unique(cell * people**2 + couple, return_counts=True)
        cell, couple = np.divmod(found, people**2)
        return ErringCouples(cell, *np.divmod(couple, people), times)

    def couples(self, group: int, other: int) -> int:
        """How many pairs of two people can be seen, one photo in the first group, the other in the second."""
        here, there = self.photos[:, group] > 0, self.photos[:, other] > 0
        both = int((here & there).sum())
        if group == other:
            return both * (both - 1) // 2
        return int(here.sum() * there.sum()) - both * (both + 1) // 2

    def erring(self, which: Which) -> Int64:
        """How many people (FNMR) or pairs of people (FMR) any error of each group comes from, (G,)."""
        if which == "FNMR":
            return np.asarray((self.missed > 0).sum(0))
        couples = np.bincount(self.erring_couples.cell, minlength=self.groups**2).reshape(self.groups, self.groups)
        return np.asarray(couples.diagonal())


class Ratio(NamedTuple):
    """How many times as large one rate is as another; where the other is 0, only what it is at least can be said."""

    value: float | None
    interval: Interval | None  # 95 %, of these groups; an upper end may be infinite
    at_least: float | None  # where the value is not known
    highest: int  # the group whose rate is the highest
    lowest: int | None  # the group it is compared with; None for the geometric mean of all


class Standout(NamedTuple):
    """A group whose rate differs from that of the others."""

    group: int
    which: Which
    ratio: float  # its rate over that of the others
    interval: Interval  # 95 %, of this ratio alone
    p: float  # corrected for all that was looked at
    others: tuple[int, ...]


class GroupRates:
    """The rates of all groups, with their draws over people."""

    def __init__(self, counts: GroupCounts, *, rounds: int = ROUNDS, seed: int = 0) -> None:
        self.counts = counts
        people = len(counts.photos)
        self.plain = counts.counted(np.ones((1, people)))
        pieces = [counts.counted(piece) for piece in _pieces(people, rounds, seed, len(counts.erring_couples.cell))]
        self.draws = Counted(*(np.concatenate(parts) for parts in zip(*pieces, strict=True)))

    def matrix(self) -> list[list[Rate | None]]:
        """FMR of each group with each; None where there is no pair."""
        groups = range(self.counts.groups)
        return [[self._cell(one, two) for two in groups] for one in groups]

    def _cell(self, one: int, two: int) -> Rate | None:
        errors, trials = self.plain.false[0, one, two], self.plain.different[0, one, two]
        drawn = self.draws.false[:, one, two], self.draws.different[:, one, two]
        return _rate(errors, trials, *drawn, independent=self.counts.couples(one, two))

    def fmr(self) -> list[Rate | None]:
        """The false match rate within each group."""
        return [self._cell(group, group) for group in range(self.counts.groups)]

    def fnmr(self) -> list[Rate | None]:
        """The false non-match rate within each group."""
        people = (self.counts.same > 0).sum(0).tolist()
        return [
            _rate(
                self.plain.missed[0, group],
                self.plain.same[0, group],
                self.draws.missed[:, group],
                self.draws.same[:, group],
                independent=people[group],
            )
            for group in range(self.counts.groups)
        ]

    def max_over_min(self, which: Which) -> Ratio | None:
        """The highest rate over the lowest; the interval is of these two groups, and may hold 1. None if all are 0."""
        rates, values, draws = self._rates(which)
        highest, lowest = int(np.argmax(values)), int(np.argmin(values))
        if values[highest] == 0:
            return None
        if values[lowest] == 0:
            return Ratio(None, None, _end(rates[highest], "low") / _end(rates[lowest], "high"), highest, lowest)
        interval = _middle(draws[:, highest], draws[:, lowest])
        return Ratio(float(values[highest] / values[lowest]), interval, None, highest, lowest)

    def max_over_mean(self, which: Which) -> Ratio | None:
        """The highest rate over the geometric mean of all; None if all are 0."""
        rates, values, draws = self._rates(which)
        highest = int(np.argmax(values))
        if values[highest] == 0:
            return None
        if (values == 0).any():  # their mean is 0: each 0 is taken for the most it may be
            most = [_end(rate, "high") if value == 0 else value for rate, value in zip(rates, values, strict=True)]
            return Ratio(None, None, _end(rates[highest], "low") / float(_geometric(np.array(most))), highest, None)
        interval = _middle(draws[:, highest], _geometric(draws))
        return Ratio(float(values[highest] / _geometric(values)), interval, None, highest, None)

    def _rates(self, which: Which) -> tuple[list[Rate], Float64, Float64]:
        rates = [rate for rate in (self.fmr() if which == "FMR" else self.fnmr()) if rate is not None]
        assert len(rates) == self.counts.groups, "a group without pairs has no rate to compare"
        errors, trials = self._within(self.draws, which)
        with np.errstate(divide="ignore", invalid="ignore"):
            return rates, np.array([rate.value for rate in rates]), errors / trials

    def _within(self, counted: Counted, which: Which) -> tuple[Float64, Float64]:
        """Errors and pairs within each group, (B, G)."""
        if which == "FNMR":
            return counted.missed, counted.same
        groups = range(self.counts.groups)
        return counted.false[:, groups, groups], counted.different[:, groups, groups]

    def standouts(self, *, tests: int | None = None, error: float = ERROR) -> list[Standout]:
        """The groups whose FMR or FNMR differs from that of the others, the surest of each rate first; often none.

        The group furthest from the others, pooled, is named if p <= error / tests (Bonferroni); then it is left out,
        and the rest are compared without it: one bad group should not make all others look good. p is two-sided and
        normal: the logarithm of the ratio in standard errors of its bootstrap, which are taken no smaller than if
        errors of different people (FNMR) or pairs of people (FMR) were all that is independent. `tests` is how many
        comparisons are made in all: by default those of these groups.
        """
        tests = tests or comparisons(self.counts.groups)
        found = []
        for which in ("FMR", "FNMR"):
            remaining = list(range(self.counts.groups))
            while len(remaining) > 1:
                compared = [self._compare(group, remaining, which, tests) for group in remaining]
                surest = min(compared, key=lambda each: (each.p, -each.ratio))
                if surest.p > error:
                    break
                found.append(surest)
                remaining.remove(surest.group)
        return found

    def _compare(self, group: int, remaining: Sequence[int], which: Which, tests: int) -> Standout:
        others = [other for other in remaining if other != group]
        independent = self.counts.erring(which)
        plain, drawn = (self._logarithms(counted, which, group, others) for counted in (self.plain, self.draws))
        errors, trials = (part[0] for part in self._within(self.plain, which))
        floor = _least(errors[group] / trials[group], independent[group])
        floor += _least(errors[others].sum() / trials[others].sum(), independent[others].sum())
        spread = math.sqrt(max(float(np.var(drawn[np.isfinite(drawn)], ddof=1)), floor))
        raw = errors[group] * trials[others].sum() - errors[others].sum() * trials[group]
        agrees = raw * plain[0] > 0  # the half that was added must not decide on which side a group is
        p = math.erfc(abs(plain[0]) / spread / math.sqrt(2)) * tests if agrees else 1.0
        ends = np.exp(plain[0] + 1.96 * spread * np.array([-1, 1])).tolist()
        return Standout(group, which, float(np.exp(plain[0])), Interval(*ends), min(p, 1.0), tuple(others))

    def _logarithms(self, counted: Counted, which: Which, group: int, others: Sequence[int]) -> Float64:
        """The logarithm of a group's rate over that of others together, in each draw, (B,)."""
        errors, trials = self._within(counted, which)
        with np.errstate(divide="ignore", invalid="ignore"):
            mine = np.log((errors[:, group] + HALF) / trials[:, group])
            return np.asarray(mine - np.log((errors[:, others].sum(1) + HALF) / trials[:, others].sum(1)))


def _least(rate: float, independent: float) -> float:
    """The variance of a rate's logarithm if its errors came from so many that are independent: (1 - rate) / n."""
    return max(1 - rate, 1 / (independent + 1)) / (independent + HALF)


def comparisons(groups: int) -> int:
    """How many comparisons so many groups are: each with the others, of two only one, for either rate."""
    return 2 * (groups if groups > 2 else 1)


def _pieces(people: int, rounds: int, seed: int, couples: int) -> Iterator[Float64]:
    """Draws of people, as many at a time as their products of weights may be held."""
    size = max(1, PIECE // max(couples, people))
    drawn: list[Float64] = []
    for each in PeopleBootstrap(people, rounds=rounds, seed=seed):
        drawn.append(each)
        if len(drawn) == size:
            yield np.stack(drawn)
            drawn = []
    if drawn:
        yield np.stack(drawn)


def _rate(
    errors: float, trials: float, drawn_errors: Float64, drawn_trials: Float64, *, independent: int
) -> Rate | None:
    """A rate with its interval: of its draws, or Wilson's over what is independent where it is 0 or 1."""
    if not trials:
        return None
    value = float(errors / trials)
    if not 0 < value < 1:
        return Rate(value, wilson(value * independent, independent) if independent else None)
    drawn = drawn_errors[drawn_trials > 0] / drawn_trials[drawn_trials > 0]
    low, high = np.percentile(drawn, [2.5, 97.5]).tolist()
    return Rate(value, Interval(low, high))


def _end(rate: Rate, which: Literal["low", "high"]) -> float:
    """An end of a rate's interval; 0 or 1, which are always safe, where it has none."""
    if rate.interval is None:
        return 0.0 if which == "low" else 1.0
    return float(getattr(rate.interval, which))


def _geometric(rates: Float64) -> Float64:
    with np.errstate(divide="ignore"):
        return np.asarray(np.exp(np.log(rates).mean(-1)))


def _middle(above: Float64, below: Float64) -> Interval:
    """What holds the middle 95 % of ratios; some may be infinite, so nothing is interpolated."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = above / below
    low, high = np.percentile(ratios[~np.isnan(ratios)], [2.5, 97.5], method="nearest").tolist()
    return Interval(low, high)
