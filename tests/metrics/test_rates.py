"""Equal error rates, and rates with intervals."""

import numpy as np
import pytest
from hypothesis import given
from scipy.interpolate import interp1d
from scipy.optimize import brentq

from sphereface.metrics import eer, rates_over_people, roc, wilson
from sphereface.metrics.rates import is_supported
from tests.metrics.test_curves import problems


@given(problems())
def test_the_equal_error_rate_is_where_the_roc_crosses_the_other_diagonal(problem):
    same, scores = problem
    far, tar, _ = roc(same, scores)
    along = np.linspace(0, 1, len(far))  # the curve as a path: steps straight up have no tar as a function of far
    far_at, tar_at = interp1d(along, far), interp1d(along, tar)
    crossing = brentq(lambda place: far_at(place) - (1 - tar_at(place)), 0, 1, xtol=1e-14)
    assert eer(same, scores) == pytest.approx(float(far_at(crossing)), abs=1e-9)


def test_perfect_and_blind_scores_have_equal_error_rates_of_0_and_one_half():
    same = np.arange(10) % 2 == 0
    assert eer(same, same) == 0
    assert eer(same, np.zeros(10)) == 0.5
    assert eer(same, ~same) == 1


@pytest.mark.parametrize(("far", "different", "known"), [(1e-3, 1000, True), (1e-3, 999, False), (0.1, 10, True)])
def test_a_rate_needs_one_pair_that_may_pass(far, different, known):
    assert is_supported(far, different) == known


def share_of(correct):
    return lambda weights: np.array([(weights * correct).sum() / weights.sum()])


def test_a_rate_over_people_is_less_sure_than_its_pairs_pretend():
    """Each person has 10 pairs that are all right or all wrong: there are 40 trials, not 400."""
    right = np.repeat(np.random.default_rng(0).random(40) < 0.7, 10)
    people = np.repeat([f"person {k}" for k in range(40)], 10)
    (rate,) = rates_over_people(share_of(right), people, people)
    wide, narrow = wilson(right.mean() * 40, 40), wilson(right.sum(), 400)
    assert rate.value == right.mean()
    assert rate.interval.high - rate.interval.low == pytest.approx(wide.high - wide.low, rel=0.15)
    assert rate.interval.high - rate.interval.low > 2 * (narrow.high - narrow.low)


def test_a_perfect_rate_is_as_sure_as_its_number_of_people_allows():
    people = np.repeat(np.arange(50), 3)
    (rate,) = rates_over_people(share_of(np.ones(150)), people, people, rounds=10)
    assert (rate.value, rate.interval) == (1, wilson(50, 50))


def test_too_few_people_have_no_interval():
    (rate,) = rates_over_people(share_of(np.array([1, 0])), [0, 0], [0, 0], rounds=10)
    assert (rate.value, rate.interval) == (0.5, None)


def test_a_rate_that_most_draws_cannot_tell_has_no_interval():
    def only_the_whole(weights):
        return np.array([0.5 if (weights == 1).all() else np.nan])

    (rate,) = rates_over_people(only_the_whole, [0, 1, 2, 3], [0, 1, 2, 3], rounds=50)
    assert (rate.value, rate.interval) == (0.5, None)


def test_a_rate_shows_its_interval_in_percent():
    (rate,) = rates_over_people(share_of(np.ones(4)), [0, 1, 2, 3], [0, 1, 2, 3], rounds=10)
    assert rate.percent() == "100.00 [51.01, 100.00]"  # wilson(4, 4): 1 / (1 + 1.96^2 / 4) = 0.5101
    assert rate.as_dict() == {"value": 1.0, "interval": [pytest.approx(0.5101, abs=1e-4), 1.0]}
