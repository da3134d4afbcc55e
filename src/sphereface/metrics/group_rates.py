"""Error rates of groups of people at one threshold: their intervals, their ratios, and the groups that differ.

FMR (false match rate) of a group: the share of pairs of different people, both photos of that group, that pass. FNMR
(false non-match rate): the share of pairs of one person, both photos of that group, that fail. The bootstrap draws
people with replacement at a fixed threshold; a pair of two people has the product of their draws as its weight.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np

from sphereface.arrays import Float64, Int64
from sphereface.metrics.bootstrap import PeopleBootstrap, middle_95
from sphereface.metrics.intervals import Interval, wilson
from sphereface.metrics.rates import ROUNDS, Rate

Which = Literal["FMR", "FNMR"]

PIECE = 4_000_000  # products of weights in memory at a time
HALF = 0.5  # added to counts before a logarithm is taken: 0 has none
ERROR = 0.01  # the probability of any finding for a model without differences: low, as a finding is an accusation


class FalseMatches(NamedTuple):
    """Pairs of different people that passed: the people and the groups of the two photos; each (F,)."""

    left: Int64
    right: Int64
    left_group: Int64
    right_group: Int64


class ErringCouples(NamedTuple):
    """Pairs of people with false matches: their two groups, the people, the count; each (C,), in ascending cells."""

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
    """The counts from which the rates of G groups follow in any draw of the P people."""

    photos: Float64  # (P, G): photos of each person in each group
    same: Float64  # (P, G): pairs of photos of this person, both in the group
    missed: Float64  # (P, G): those of them that failed
    matches: FalseMatches

    @property
    def groups(self) -> int:
        """The number of groups."""
        return int(self.photos.shape[1])

    def counted(self, drawn: Float64) -> Counted:
        """Errors and pairs in B draws; `drawn` (B, P) is the number of draws of each person."""
        groups = self.groups
        sums = drawn @ self.photos
        own = (self.photos[:, :, None] * self.photos[:, None, :]).reshape(len(self.photos), -1)
        different = sums[:, :, None] * sums[:, None, :] - (drawn**2 @ own).reshape(-1, groups, groups)
        different[:, range(groups), range(groups)] /= 2  # within a group each pair was counted twice
        return Counted(self._false(drawn), different, drawn @ self.missed, drawn @ self.same)

    def _false(self, drawn: Float64) -> Float64:
        cell, left, right, times = self.erring_couples
        cells, starts = np.unique(cell, return_index=True)
        false = np.zeros((len(drawn), self.groups * self.groups))
        if len(cells):
            weights = times * drawn[:, left] * drawn[:, right]
            false[:, cells] = np.add.reduceat(weights, starts, axis=1)
        square = false.reshape(-1, self.groups, self.groups)
        return np.maximum(square, square.transpose(0, 2, 1))  # one of two mirrored cells is empty

    @cached_property
    def erring_couples(self) -> ErringCouples:
        """The false matches, merged where both people and both groups agree: often far fewer than the matches."""
        left, right, one, two = self.matches
        people, groups = len(self.photos), self.groups
        cell = np.minimum(one, two) * groups + np.maximum(one, two)
        couple = np.minimum(left, right) * people + np.maximum(left, right)
        found, times = np.unique(cell * people**2 + couple, return_counts=True)
        cell, couple = np.divmod(found, people**2)
        return ErringCouples(cell, *np.divmod(couple, people), times)

    def couples(self, group: int, other: int) -> int:
        """The number of pairs of two people with a photo in the first group and one in the second."""
        here, there = self.photos[:, group] > 0, self.photos[:, other] > 0
        both = int((here & there).sum())
        if group == other:
            return both * (both - 1) // 2
        return int(here.sum() * there.sum()) - both * (both + 1) // 2

    def erring(self, which: Which) -> Int64:
        """The number of people (FNMR) or pairs of people (FMR) with an error in each group, (G,)."""
        if which == "FNMR":
            return np.asarray((self.missed > 0).sum(0))
        couples = np.bincount(self.erring_couples.cell, minlength=self.groups**2).reshape(self.groups, self.groups)
        return np.asarray(couples.diagonal())


class Ratio(NamedTuple):
    """The ratio of two rates, or a lower bound on it where the lower rate is 0."""

    value: float | None
    interval: Interval | None  # 95 %, of these groups; the upper end may be infinite
    at_least: float | None  # lower bound where the value is unknown
    highest: int  # the group with the highest rate
    lowest: int | None  # the group it is compared with; None for the geometric mean of all


class Standout(NamedTuple):
    """A group with a rate that differs from the rate of the other groups."""

    group: int
    which: Which
    ratio: float  # its rate over that of the others
    interval: Interval  # 95 %, of this ratio alone
    p: float  # corrected for all comparisons
    others: tuple[int, ...]


class GroupRates:
    """The rates of all groups, with a bootstrap over people."""

    def __init__(self, counts: GroupCounts, *, rounds: int = ROUNDS, seed: int = 0) -> None:
        self.counts = counts
        people = len(counts.photos)
        self.plain = counts.counted(np.ones((1, people)))
        pieces = [counts.counted(piece) for piece in _pieces(people, rounds, seed, len(counts.erring_couples.cell))]
        self.draws = Counted(*(np.concatenate(parts) for parts in zip(*pieces, strict=True)))

    def matrix(self) -> list[list[Rate | None]]:
        """FMR between each two groups; None without pairs."""
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
        plain, draws = self.plain, self.draws
        return [
            _rate(plain.missed[0, g], plain.same[0, g], draws.missed[:, g], draws.same[:, g], independent=people[g])
            for g in range(self.counts.groups)
        ]

    def max_over_min(self, which: Which) -> Ratio | None:
        """The highest rate over the lowest, and the interval of these two groups; it may hold 1. None if all are 0."""
        return self._max_over(which, mean=False)

    def max_over_mean(self, which: Which) -> Ratio | None:
        """The highest rate over the geometric mean of all; None if all are 0."""
        return self._max_over(which, mean=True)

    def _max_over(self, which: Which, *, mean: bool) -> Ratio | None:
        rates, values, draws = self._rates(which)
        highest, lowest = int(np.argmax(values)), None if mean else int(np.argmin(values))
        base = _geometric if lowest is None else lambda rates: rates[..., lowest]
        if values[highest] == 0:
            return None
        if base(values) == 0:  # each 0 is replaced by its upper bound
            bounds = [_end(rate, "high") if value == 0 else value for rate, value in zip(rates, values, strict=True)]
            return Ratio(None, None, _end(rates[highest], "low") / float(base(np.array(bounds))), highest, lowest)
        interval = _middle(draws[:, highest], base(draws))
        return Ratio(float(values[highest] / base(values)), interval, None, highest, lowest)

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
        """The groups with an FMR or FNMR that differs from that of the others, lowest p of each rate first; often none.

        The group furthest from the others, pooled, is named if p <= error / tests (Bonferroni); then it is left out,
        and the rest are compared without it, so that one bad group does not make all others look good. p is two-sided
        and normal: the logarithm of the ratio over its bootstrap standard error, which is at least the standard error
        of as many independent errors as people (FNMR) or pairs of people (FMR) have one. `tests` is the number of all
        comparisons, by default those of these groups.
        """
        tests = tests or comparisons(self.counts.groups)
        found = []
        for which in ("FMR", "FNMR"):
            remaining = list(range(self.counts.groups))
            while len(remaining) > 1:
                compared = [self._compare(group, remaining, which, tests) for group in remaining]
                best = min(compared, key=lambda each: (each.p, -each.ratio))
                if best.p > error:
                    break
                found.append(best)
                remaining.remove(best.group)
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
        agrees = raw * plain[0] > 0  # the sign must not come from the added half
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
    """The variance (1 - rate) / n of a rate's logarithm for n independent errors."""
    return max(1 - rate, 1 / (independent + 1)) / (independent + HALF)


def comparisons(groups: int) -> int:
    """The number of comparisons among groups for both rates: each with the others, or one for two groups."""
    return 2 * (groups if groups > 2 else 1)


def _pieces(people: int, rounds: int, seed: int, couples: int) -> Iterator[Float64]:
    """Draws of people in pieces (B, P) with at most PIECE products of weights."""
    size = max(1, PIECE // max(couples, people))
    draws = iter(PeopleBootstrap(people, rounds=rounds, seed=seed))
    while piece := list(islice(draws, size)):
        yield np.stack(piece)


def _rate(
    errors: float, trials: float, drawn_errors: Float64, drawn_trials: Float64, *, independent: int
) -> Rate | None:
    """A rate with the interval of its draws, or, for a rate of 0 or 1, Wilson's over the independent trials."""
    if not trials:
        return None
    value = float(errors / trials)
    if not 0 < value < 1:
        return Rate(value, wilson(value * independent, independent) if independent else None)
    return Rate(value, middle_95(drawn_errors[drawn_trials > 0] / drawn_trials[drawn_trials > 0]))


def _end(rate: Rate, which: Literal["low", "high"]) -> float:
    """An end of a rate's interval; without one, the safe bounds 0 and 1."""
    return float(getattr(rate.interval or Interval(0.0, 1.0), which))


def _geometric(rates: Float64) -> Float64:
    with np.errstate(divide="ignore"):
        return np.asarray(np.exp(np.log(rates).mean(-1)))


def _middle(above: Float64, below: Float64) -> Interval:
    """The interval of the middle 95 % of ratios, without interpolation, as some may be infinite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = above / below
    return Interval(*np.percentile(ratios[~np.isnan(ratios)], [2.5, 97.5], method="nearest").tolist())
