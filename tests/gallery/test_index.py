"""The exact index, against a float64 product over all rows."""

import numpy as np
import pytest

from sphereface.arrays import unit_rows
from sphereface.errors import UserError
from sphereface.gallery import index as module
from sphereface.gallery.index import ExactIndex


def rows(count, dimension=24, seed=0):
    return unit_rows(np.random.default_rng(seed).normal(size=(count, dimension))).astype(np.float32)


def by_product(ids, units, probes, count):
    """The best ids by float64 scores, ties to the lowest id."""
    scores = probes.astype(np.float64) @ units.astype(np.float64).T
    order = np.lexsort((np.broadcast_to(ids, scores.shape), -np.round(scores, 12)), axis=1)[:, :count]
    return ids[order], np.take_along_axis(scores, order, axis=1)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 16)


@pytest.mark.parametrize("count", [1, 3, 20])
def test_the_best_people_are_those_of_a_float64_product(small_blocks, count):
    units, ids, index = rows(100), np.arange(100) * 3 + 5, ExactIndex()
    index.put(ids, units)
    found = index.search(rows(50, seed=1), count)
    people, scores = by_product(ids, units, rows(50, seed=1), count)
    assert (found.people == people).all()
    assert found.scores == pytest.approx(scores, abs=1e-12)


def test_equal_rows_go_to_the_lowest_id_wherever_they_stand(small_blocks):
    units, index = rows(60), ExactIndex()
    units[[7, 33, 59]] = units[20]
    ids = np.random.default_rng(2).permutation(1000)[:60]
    index.put(ids, units)
    found = index.search(units[[20]], 5)
    same = sorted(ids[[7, 20, 33, 59]])
    assert found.people[0, :4].tolist() == same
    assert len(set(found.scores[0, :4])) == 1


def test_it_is_the_same_whatever_came_and_went_before(small_blocks):
    rng, index, truth = np.random.default_rng(3), ExactIndex(), {}
    for step in range(400):
        person = int(rng.integers(60))
        if person in truth and rng.random() < 0.5:
            index.discard(person)
            del truth[person]
        else:
            truth[person] = rows(1, seed=step)[0]
            index.put(np.array([person]), truth[person][None])
        assert len(index) == len(truth)
    index.discard(10_000)
    ids = np.array(sorted(truth))
    people, _ = by_product(ids, np.stack([truth[each] for each in ids]), rows(30, seed=9), 4)
    assert (index.search(rows(30, seed=9), 4).people == people).all()


def test_enrolling_a_person_copies_no_row(small_blocks):
    index = ExactIndex()
    index.put(np.arange(40), rows(40))
    before = [block.ctypes.data for block in index.blocks]
    index.put(np.array([99]), rows(1, seed=4))
    assert [block.ctypes.data for block in index.blocks][: len(before)] == before


def test_fewer_people_than_asked_for_leave_places_open():
    index = ExactIndex()
    assert index.search(rows(2)).people.tolist() == [[-1], [-1]]
    index.put(np.array([4]), rows(1))
    found = index.search(rows(1), 3)
    assert found.people.tolist() == [[4, -1, -1]]
    assert found.scores[0, 0] == pytest.approx(1)
    assert np.isneginf(found.scores[0, 1:]).all()
    index.clear()
    assert len(index) == 0


def test_templates_of_another_length_are_an_error_that_changes_nothing():
    index = ExactIndex()
    index.put(np.array([4]), rows(1))
    with pytest.raises(UserError, match="templates of 7 numbers; this gallery has 24"):
        index.put(np.array([5]), rows(1, dimension=7))
    assert len(index) == 1
    assert index.template(5) is None
    assert (index.template(4) == rows(1)[0]).all()


def test_probes_of_another_length_are_an_error():
    index = ExactIndex()
    index.put(np.array([4]), rows(1))
    with pytest.raises(UserError, match="features of 7 numbers; this gallery has 24"):
        index.search(rows(1, dimension=7))
