"""Average linkage against the definition, joined one by one over all faces."""

import numpy as np
import pytest

from sphereface.arrays import unit_rows
from sphereface.recognize import grouping
from sphereface.recognize.grouping import group_faces


def people(count, photos, *, spread=0.5, dimension=16, seed=0):
    rng = np.random.default_rng(seed)
    who = rng.permutation(np.repeat(np.arange(count), photos))
    rows = rng.normal(size=(count, dimension))[who] + spread * rng.normal(size=(len(who), dimension))
    return unit_rows(rows).astype(np.float32), who


def by_definition(units, threshold):
    """Groups by joining the two with the highest mean score until it is below the threshold."""
    groups = [[face] for face in range(len(units))]
    scores = units.astype(float) @ units.T.astype(float)
    while len(groups) > 1:
        best, a, b = max(
            (np.mean(scores[np.ix_(groups[a], groups[b])]), a, b) for a in range(len(groups)) for b in range(a)
        )
        if best < threshold:
            break
        groups[b] += groups.pop(a)
    return {frozenset(group) for group in groups}


def as_sets(labels):
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in np.unique(labels)}


@pytest.mark.parametrize("threshold", [0.1, 0.4, 0.6, 0.8, 0.95])
def test_groups_are_those_of_average_linkage(threshold, monkeypatch):
    monkeypatch.setattr(grouping, "ROWS", 7)
    units, _ = people(12, 4)
    assert as_sets(group_faces(units, threshold)) == by_definition(units, threshold)


def test_people_who_are_far_apart_are_found():
    units, who = people(30, 5, spread=0.15, dimension=64)
    found = group_faces(units, 0.6)
    assert as_sets(found) == as_sets(who)


def test_one_wrong_pair_does_not_join_two_people():
    units, who = people(2, 6, spread=0.1, dimension=64)
    first, second = np.flatnonzero(who == 0), np.flatnonzero(who == 1)
    units[first[0]] = units[second[0]] = unit_rows((units[first[0]] + units[second[0]])[None])[0]  # between both
    found = group_faces(units, 0.75)
    assert len(set(found[first[1:]])) == 1
    assert found[first[1]] != found[second[1]]


def test_labels_follow_the_first_face_of_each_group_and_no_face_is_no_group():
    units, _ = people(3, 1, dimension=64)
    assert group_faces(units[[0, 1, 0, 2]], 0.9).tolist() == [0, 1, 0, 2]
    assert group_faces(np.zeros((0, 4), np.float32), 0.5).tolist() == []
