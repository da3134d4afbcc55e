"""Pairs drawn from a set of people."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphereface.evaluation.rules.drawn_pairs import draw_pairs


@given(
    st.lists(st.integers(1, 6), min_size=2, max_size=30).filter(lambda photos: max(photos) > 1),
    st.integers(1, 60),
    st.integers(0, 9),
)
def test_drawn_pairs_are_balanced_true_and_different_and_nobody_is_in_two_folds(photos, most, seed):
    people = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(photos)), photos))
    left, right, same, fold = draw_pairs(people, pairs=most, seed=seed)
    assert same.sum() * 2 == len(same) <= 2 * most
    assert (same == (people[left] == people[right])).all()
    assert (left < right).all()
    assert len({*zip(left, right, strict=True)}) == len(left)
    homes = [{*people[left[fold == number]], *people[right[fold == number]]} for number in np.unique(fold)]
    assert all(one.isdisjoint(other) for one, other in combinations(homes, 2))


def test_everybodys_first_pair_comes_before_anyones_second():
    people = np.repeat(np.arange(40), [100] + [2] * 39)
    left, _, same, _ = draw_pairs(people, pairs=40)
    assert sorted(people[left[same]]) == list(range(40))


def test_all_pairs_there_are_can_be_drawn():
    people = np.array([0, 0, 0, 1, 1, 1])
    left, right, same, _ = draw_pairs(people, pairs=100)
    drawn = {*zip(left[same], right[same], strict=True)}
    assert drawn == {(0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5)}


@pytest.mark.parametrize(("people", "folds"), [(40, 10), (20, 10), (7, 3), (3, 1)])
def test_there_are_ten_folds_where_there_are_people_enough(people, folds):
    assert len(np.unique(draw_pairs(np.repeat(np.arange(people), 3), pairs=100).fold)) == folds


@pytest.mark.parametrize("photos", [[5], [1, 1, 1]])
def test_pairs_need_two_people_and_two_photos_of_one(photos):
    with pytest.raises(ValueError, match="wanted 2 people"):
        draw_pairs(np.repeat(np.arange(len(photos)), photos))


def test_different_pairs_are_not_only_of_those_with_the_most_photos():
    people = np.repeat(np.arange(200), [3] * 100 + [2] * 100)
    left, right, same, _ = draw_pairs(people, pairs=20, folds=1)
    drawn = {*people[left[~same]], *people[right[~same]]}
    assert 5 < len([person for person in drawn if person >= 100]) < len(drawn)


@pytest.mark.parametrize("options", [{"pairs": 0}, {"folds": 0}])
def test_no_pairs_and_no_folds_are_refused(options):
    with pytest.raises(ValueError, match="wanted at least 1 pair of either kind, and 1 fold"):
        draw_pairs(np.repeat(np.arange(5), 3), **options)
