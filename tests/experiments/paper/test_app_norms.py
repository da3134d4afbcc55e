"""Lengths of class weights against sizes of classes."""

import numpy as np
import pytest

from sphereface.experiments.paper.app_norms import class_sizes, mean_ranks, rank_correlation, shown
from sphereface.experiments.paper.runs import Runs
from sphereface.experiments.paper.splits import LONG_TAILED, WHOLE


def test_a_rank_correlation_is_that_of_the_formula_with_squared_differences():
    rng = np.random.default_rng(0)
    a, b = rng.permutation(20).astype(float), rng.permutation(20).astype(float)
    assert rank_correlation(a**3, np.exp(b)) == pytest.approx(1 - 6 * ((a - b) ** 2).sum() / (20 * (20**2 - 1)))


def test_equal_values_share_their_mean_rank_and_sizes_that_are_all_equal_have_none():
    assert mean_ranks(np.array([5.0, 1.0, 5.0, 7.0])).tolist() == [1.5, 0.0, 1.5, 3.0]
    assert shown(rank_correlation(np.ones(4), np.arange(4.0))) == "-"


def test_class_sizes_are_those_that_a_split_leaves(small_plan, setting):
    runs = Runs(setting)
    assert class_sizes(runs, WHOLE).tolist() == [20] * 12
    assert sorted(class_sizes(runs, LONG_TAILED)) == [4] * 10 + [20] * 2
