"""The most alike of all pairs of different people."""

from itertools import combinations

import numpy as np
import pytest

from sphereface.metrics.impostors import count_different, highest_different, unit_rows


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
