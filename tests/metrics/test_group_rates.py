"""Error rates of groups, their ratios and which stand out, from counts that are known."""

from itertools import combinations

import numpy as np
import pytest

from sphereface.metrics.group_rates import FalseMatches, GroupCounts, GroupRates
from sphereface.metrics.intervals import wilson


def test_a_draw_of_people_counts_each_pair_as_often_as_both_were_drawn():
    rng = np.random.default_rng(0)
    person, group = rng.integers(0, 6, 40), rng.integers(0, 2, 40)
    passes = np.triu(rng.random((40, 40)) < 0.2, 1)
    pairs = list(combinations(range(40), 2))
    photos, same, missed = np.zeros((3, 6, 2))
    np.add.at(photos, (person, group), 1)
    for a, b in pairs:
        if person[a] == person[b] and group[a] == group[b]:
            same[person[a], group[a]] += 1
            missed[person[a], group[a]] += not passes[a, b]
    a, b = np.array([pair for pair in pairs if passes[pair] and person[pair[0]] != person[pair[1]]]).T
    counts = GroupCounts(photos, same, missed, FalseMatches(person[a], person[b], group[a], group[b]))
    drawn = rng.integers(0, 4, (5, 6)).astype(float)
    counted = counts.counted(drawn)
    for k, weight in enumerate(drawn):
        for g, h in ((0, 0), (0, 1), (1, 0), (1, 1)):
            among = [p for p in pairs if person[p[0]] != person[p[1]] and sorted(group[list(p)]) == sorted((g, h))]
            times = [weight[person[p[0]]] * weight[person[p[1]]] for p in among]
            assert counted.different[k, g, h] == sum(times)
            assert counted.false[k, g, h] == sum(t * passes[p] for t, p in zip(times, among, strict=True))
        for g in (0, 1):
            among = [p for p in pairs if person[p[0]] == person[p[1]] and (group[list(p)] == g).all()]
            assert counted.same[k, g] == sum(weight[person[p[0]]] for p in among)
            assert counted.missed[k, g] == sum(weight[person[p[0]]] * (not passes[p]) for p in among)


def counts(false, missed, people=30):
    """Groups of people with ten photos each; so many pairs of people have one false match, so many people one miss."""
    groups = len(false)
    photos, same, wrong = np.zeros((3, groups * people, groups))
    matches = []
    for group in range(groups):
        mine = slice(group * people, (group + 1) * people)
        photos[mine, group], same[mine, group] = 10, 45
        wrong[group * people : group * people + missed[group], group] = 1
        pairs = list(combinations(range(group * people, (group + 1) * people), 2))
        matches += [
            (a, b, group, group) for a, b in pairs[:: max(1, len(pairs) // max(1, false[group]))][: false[group]]
        ]
    columns = np.array(matches, dtype=np.int64).reshape(-1, 4).T
    return GroupCounts(photos, same, wrong, FalseMatches(*columns))


def test_ratios_are_of_the_highest_rate_to_the_lowest_and_to_the_geometric_mean():
    rates = GroupRates(counts([40, 20, 10], [8, 8, 8]), rounds=200)
    ratio, mean = rates.max_over_min("FMR"), rates.max_over_mean("FMR")
    assert ratio.value == pytest.approx(4)
    assert mean.value == pytest.approx(2)  # 40 / (40 * 20 * 10) ** (1 / 3)
    assert (ratio.highest, ratio.lowest, mean.highest, mean.lowest) == (0, 2, 0, None)
    assert 0.5 < ratio.interval.low < 4 < ratio.interval.high < 100
    assert rates.max_over_min("FNMR").value == 1


def test_a_rate_of_0_makes_no_infinite_ratio_but_one_that_is_no_lower_than_what_the_interval_allows():
    rates = GroupRates(counts([40, 0], [6, 0]), rounds=200)
    ratio, mean = rates.max_over_min("FMR"), rates.max_over_mean("FMR")
    most = wilson(0, 30 * 29 / 2).high  # a pair of people is a trial
    low = rates.fmr()[0].interval.low
    assert (ratio.value, ratio.interval) == (mean.value, mean.interval) == (None, None)
    assert ratio.at_least == pytest.approx(low / most)
    assert mean.at_least == pytest.approx(low / np.sqrt(rates.fmr()[0].value * most))
    assert rates.fnmr()[1].interval == wilson(0, 30)  # a person is a trial


def test_where_every_rate_is_0_there_is_no_ratio_and_no_finding():
    rates = GroupRates(counts([0, 0, 0], [0, 0, 0]), rounds=50)
    assert rates.max_over_min("FMR") is rates.max_over_mean("FNMR") is None
    assert rates.standouts() == []


def test_a_small_group_without_an_error_is_not_said_to_have_more_than_a_large_one():
    small = counts([0, 3], [0, 1])
    small.same[:30] /= 1e6  # the half that is added to its 0 errors would be a huge rate
    assert rates_of(small, "FNMR") == []


def rates_of(counted, which):
    return [found for found in GroupRates(counted, rounds=50).standouts() if found.which == which]
