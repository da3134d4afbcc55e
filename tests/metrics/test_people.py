"""Fisher score, identification, intervals and the bootstrap, each by a loop."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphereface.metrics import (
    AllPairs,
    PeopleBootstrap,
    angular_fisher_score,
    cmc,
    interval_over_people,
    mate_ranks,
    paired_difference,
    wilson,
)
from sphereface.metrics.bootstrap import pair_weights


def cosine(a, b):
    return a @ b / (np.linalg.norm(a) * np.linalg.norm(b))


@given(st.integers(0, 999))
def test_the_angular_fisher_score_equals_its_printed_sums(seed):
    rng = np.random.default_rng(seed)
    x, labels = rng.normal(size=(20, 4)) + 1, rng.integers(0, 4, 20)
    labels[:2] = [0, 1]
    whole = x.mean(0)
    within = between = 0.0
    for label in set(labels.tolist()):
        mine = x[labels == label]
        mean = mine.mean(0)
        within += sum(1 - cosine(each, mean) for each in mine)
        between += len(mine) * (1 - cosine(mean, whole))
    assert angular_fisher_score(x, labels) == pytest.approx(within / between, rel=1e-10)


def test_the_fisher_score_weighs_a_feature_as_often_as_it_is_told():
    rng = np.random.default_rng(0)
    x, labels, weights = rng.normal(size=(12, 3)), np.repeat(np.arange(4), 3), np.repeat([0, 1, 2, 3], 3)
    repeated = np.repeat(np.arange(12), weights)
    expected = angular_fisher_score(x[repeated], labels[repeated])
    assert angular_fisher_score(x, labels, weights=weights) == pytest.approx(expected, rel=1e-12)


def test_tighter_people_have_a_lower_fisher_score():
    rng = np.random.default_rng(0)
    means, labels = rng.normal(size=(10, 16)), np.repeat(np.arange(10), 8)
    noise = rng.normal(size=(80, 16))
    scores = [angular_fisher_score(means[labels] + spread * noise, labels) for spread in (0.1, 0.3, 0.9)]
    assert scores == sorted(scores)


def test_one_person_has_no_scatter_between():
    with pytest.raises(ValueError, match="at least 2"):
        angular_fisher_score(np.ones((3, 2)), [0, 0, 0])


@given(st.integers(0, 999))
def test_cmc_equals_sorting_the_gallery(seed):
    rng = np.random.default_rng(seed)
    scores, same = rng.permutation(60).reshape(5, 12) / 60, rng.random((5, 12)) < 0.2
    same[:, 0] = True
    curve = cmc(same, scores, ranks=12)
    for rank in range(1, 13):
        found = 0
        for probe in range(5):
            best = scores[probe][same[probe]].max()
            found += (scores[probe][~same[probe]] > best).sum() + 1 <= rank
        assert curve[rank - 1] == found / 5


def test_a_tie_with_a_distractor_counts_against_the_mate():
    assert mate_ranks([0.5, 0.5, 0.5], [[0.5, 0.1], [0.4, 0.1], [0.9, 0.5]]).tolist() == [2, 1, 3]


def test_a_probe_without_mate_is_refused():
    with pytest.raises(ValueError, match="probe 1 has no mate"):
        cmc([[True, False], [False, False]], [[0.1, 0.2], [0.3, 0.4]])


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.97, 1.0])
def test_wilsons_interval_solves_its_own_equation(share):
    low, high = wilson(share * 200, 200)
    assert 0 <= low <= share <= high <= 1
    for end in {low, high} - {0.0, 1.0}:
        assert abs(share - end) == pytest.approx(1.96 * math.sqrt(end * (1 - end) / 200), rel=1e-6)


@pytest.mark.parametrize("trials", range(1, 400, 7))
def test_none_and_all_end_at_zero_and_at_one_to_the_last_bit(trials):
    assert wilson(0, trials).low == 0.0
    assert wilson(trials, trials).high == 1.0
    assert wilson(0, trials).high == pytest.approx(1.96**2 / (trials + 1.96**2))
    assert wilson(trials, trials).low == pytest.approx(trials / (trials + 1.96**2))


def test_the_bootstrap_finds_the_standard_error_of_a_mean():
    values = np.random.default_rng(0).normal(size=400)
    paired = paired_difference(
        [lambda drawn: float(np.average(values, weights=drawn))], [lambda _: 0.0], PeopleBootstrap(400, rounds=2000)
    )
    assert paired.difference == pytest.approx(values.mean())
    assert paired.standard_error == pytest.approx(values.std() / 20, rel=0.05)
    assert paired.interval.low < paired.difference < paired.interval.high


def test_the_interval_of_a_true_accept_rate_covers_the_truth_about_as_often_as_it_says():
    """Two normal clouds of scores per person; the truth is known from a large sample."""
    rng = np.random.default_rng(0)

    def sample(people):
        names = np.repeat(np.arange(people), 4)
        return AllPairs(
            np.repeat(rng.normal(size=(people, 8)), 4, axis=0) + 0.6 * rng.normal(size=(4 * people, 8)), names
        )

    truth = np.mean([sample(60).tar_at_far(0.1) for _ in range(40)])
    hits = 0
    for seed in range(30):
        pairs = sample(60)
        bootstrap = PeopleBootstrap(60, rounds=100, seed=seed)
        low, high = interval_over_people(lambda drawn, pairs=pairs: pairs.tar_at_far(0.1, drawn), bootstrap)
        assert low < pairs.tar_at_far(0.1) < high
        hits += low < truth < high
    assert hits >= 24


def test_methods_are_compared_on_the_same_draws():
    values = np.random.default_rng(0).normal(size=50)
    mean = lambda drawn: float(np.average(values, weights=drawn))  # noqa: E731
    paired = paired_difference([lambda drawn: mean(drawn) + 0.1], [mean], PeopleBootstrap(50, rounds=50))
    assert paired.standard_error == pytest.approx(0, abs=1e-12)
    assert paired.difference == pytest.approx(0.1)


def test_a_pair_is_seen_once_for_each_draw_of_its_people():
    assert pair_weights(np.array([2.0, 3.0, 0.0]), [0, 0, 1], [0, 1, 2]).tolist() == [2, 6, 0]
