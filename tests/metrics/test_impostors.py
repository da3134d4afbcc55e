"""The most alike of all pairs of different people."""

from itertools import combinations

import numpy as np
import pytest

from sphereface.arrays import unit_rows
from sphereface.metrics.impostors import count_different, highest_different, same_pairs, scores_of


@pytest.mark.parametrize("most", [0, 1, 7, 10_000])
@pytest.mark.parametrize("block", [1, 5, 64])
def test_the_highest_pairs_are_those_of_a_full_sort_whatever_the_block(most, block):
    rng = np.random.default_rng(0)
    features = rng.choice([-1.0, 1.0], (30, 4)) * rng.choice([1, 2, 4], (30, 1))  # few cosines, all exact: many ties
    people = rng.integers(0, 9, 30)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    pairs = [(-(unit[a] @ unit[b]), a, b) for a, b in combinations(range(30), 2) if people[a] != people[b]]
    found = highest_different(features, people, most=most, block=block)
    rows = [(-score, a, b) for score, a, b in zip(found.scores, found.left, found.right, strict=True)]
    assert rows == sorted(pairs)[:most]
    assert found.total == count_different(people) == len(pairs)


def test_a_floor_keeps_all_that_reach_it():
    features, people = np.random.default_rng(1).normal(size=(40, 6)), np.arange(40) // 3
    unit = unit_rows(features)
    cosines = {(a, b): unit[a] @ unit[b] for a, b in combinations(range(40), 2) if people[a] != people[b]}
    found = highest_different(features, people, floor=0.4, block=16)
    assert {*zip(found.left.tolist(), found.right.tolist(), strict=True)} == {
        pair for pair, cosine in cosines.items() if cosine >= 0.4
    }
    assert (np.diff(found.scores) <= 0).all()


def test_of_those_that_reach_a_floor_at_most_so_many_are_kept():
    features, people = np.random.default_rng(1).normal(size=(40, 6)), np.arange(40) // 3
    every = highest_different(features, people, floor=0.4)
    few = highest_different(features, people, floor=0.4, most=5)
    assert len(every.scores) > 5
    for whole, part in zip(every[:3], few[:3], strict=True):
        np.testing.assert_array_equal(part, whole[:5])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_copies_tie_to_the_last_bit_whatever_the_block(dtype):
    """A product of matrices alone gives copies of a pair other last bits at other places."""
    looks = np.random.default_rng(2).normal(size=(40, 512)).astype(dtype)
    features, people = np.concatenate([looks] * 5), np.arange(200)
    found = [highest_different(features, people, most=2000, block=block) for block in (7, 64, 200)]
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))
    scores = {}
    for score, a, b in zip(found[0].scores, found[0].left % 40, found[0].right % 40, strict=True):
        scores.setdefault((min(a, b), max(a, b)), set()).add(score)
    assert len(scores) > 100
    assert all(len(each) == 1 for each in scores.values())


def test_pairs_that_are_dropped_on_the_way_change_nothing():
    features, people = np.random.default_rng(3).normal(size=(90, 5)), np.arange(90) // 2
    unit = unit_rows(features)
    cosines = sorted((unit[a] @ unit[b] for a, b in combinations(range(90), 2) if people[a] != people[b]), reverse=True)
    done = []
    found = highest_different(features, people, most=30, block=4, progress=lambda count, _: done.append(count))
    assert found.scores == pytest.approx(cosines[:30])
    assert done == [*range(4, 90, 4), 90]


@pytest.mark.parametrize("products", [1, 20, 10_000])
def test_scores_of_pairs_are_their_cosines_piece_by_piece(products):
    features = np.random.default_rng(4).normal(size=(12, 6))
    left, right = same_pairs(np.arange(12) // 4)
    expected = [
        features[a] @ features[b] / np.linalg.norm(features[a]) / np.linalg.norm(features[b])
        for a, b in zip(left, right, strict=True)
    ]
    assert scores_of(unit_rows(features), left, right, products=products) == pytest.approx(expected)


def test_a_feature_of_zeros_scores_0_and_one_that_is_no_number_is_refused():
    features = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    assert highest_different(features, [0, 1, 2]).scores.tolist() == [0, 0, -1]
    features[1, 1] = np.nan
    with pytest.raises(ValueError, match="feature of row 1 has a number that is not finite"):
        highest_different(features, [0, 1, 2])
    with pytest.raises(ValueError, match=r"features and people have shapes \(2, 2\), \(3,\); wanted \(N, D\)"):
        highest_different(features[[0, 2]], [0, 1, 2])


def test_same_pairs_are_all_of_one_person():
    people = np.array([2, 0, 2, 1, 0, 2])
    assert sorted(zip(*same_pairs(people), strict=True)) == [(0, 2), (0, 5), (1, 4), (2, 5)]
