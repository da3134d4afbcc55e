"""Differences of methods over people and seeds, and their correction."""

import numpy as np
import pytest

from sphereface.experiments.paper.comparison import against, cell, difference
from sphereface.metrics import PeopleBootstrap, angular_fisher_score
from sphereface.metrics.bootstrap import draws_over_runs, holm, two_sided
from sphereface.metrics.fisher import PeopleScatter

RNG = np.random.default_rng(0)


def found(means, spread=0.01, rounds=400):
    """Outcomes of some seeds whose draws of people move all seeds alike."""
    people = np.random.default_rng(1).normal(size=rounds) * spread
    return [{"lfw": {"statistics": {"tar": mean}, "draws": {"tar": (mean + people).tolist()}}} for mean in means]


def test_a_difference_that_people_share_has_only_the_noise_of_seeds():
    same = difference(found([0.5]), found([0.4]), "tar")
    assert same.paired.difference == pytest.approx(0.1)
    assert same.paired.standard_error == pytest.approx(0, abs=1e-12)
    apart = difference(found([0.4, 0.6]), found([0.4, 0.4]), "tar")
    assert apart.paired.difference == pytest.approx(0.1)
    assert apart.paired.standard_error == pytest.approx(0.1 / np.sqrt(2), rel=0.1)  # of a mean of two, 0.1 from it
    assert apart.paired.interval.low == pytest.approx(0, abs=1e-9)


def test_draws_over_runs_of_equal_runs_are_those_of_each():
    draws = np.tile(RNG.normal(size=50), (3, 1))
    assert draws_over_runs(draws, seed=3) == pytest.approx(draws[0])


def test_a_p_value_counts_the_smaller_side_and_is_never_zero():
    assert two_sided(np.linspace(-1, 1, 100)) == 1
    assert two_sided(np.ones(99)) == pytest.approx(2 / 100)
    assert two_sided(-np.ones(99)) == two_sided(np.ones(99))
    assert two_sided([*np.ones(95), *-np.ones(4)]) == pytest.approx(2 * 5 / 100)


def test_holm_multiplies_by_what_is_left_and_never_falls():
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06})
    assert holm({"a": 0.5, "b": 0.9}) == pytest.approx({"a": 1.0, "b": 1.0})


def test_rivals_are_corrected_together():
    each = {"a_softmax": found([0.9]), "softmax": found([0.5]), "triplet": found([0.4])}
    result = against(each, "a_softmax", ["softmax", "triplet"], "tar")
    alone = difference(each["a_softmax"], each["softmax"], "tar").p
    assert result["softmax"].p == pytest.approx(2 * alone)
    assert result["triplet"].paired.difference == pytest.approx(0.5)


def test_a_cell_shows_the_mean_and_its_ends_or_that_nothing_was_measured():
    assert cell(found([0.5, 0.7]), "lfw", "tar") == "60.00 (50.00 to 70.00)"
    assert cell(found([0.5]), "lfw", "tar", unit=1, form="{:.4f}") == "0.5000"
    assert cell(found([0.5]), "ytf", "accuracy") == "-"


@pytest.mark.parametrize("seed", range(3))
def test_the_fisher_score_of_a_draw_is_that_of_the_repeated_people(seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 8, 60)
    features = rng.normal(size=(60, 5)) + rng.normal(size=(8, 5))[labels]
    scatter = PeopleScatter(features, labels)
    assert scatter.score() == pytest.approx(angular_fisher_score(features, labels))
    drawn = next(iter(PeopleBootstrap(8, rounds=2, seed=seed)))
    repeated = [
        (features[labels == person], np.full((labels == person).sum(), 100 * person + copy))
        for person in range(8) for copy in range(int(drawn[person]))
    ]  # fmt: skip
    expected = angular_fisher_score(*(np.concatenate(parts) for parts in zip(*repeated, strict=True)))
    assert scatter.score(drawn) == pytest.approx(expected)
