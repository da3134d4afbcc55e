"""What an audit holds in memory grows with the photos and with the people, never with pairs of people."""

import tracemalloc

import numpy as np
import pytest

from sphereface.audit.duplicates import near_duplicates
from sphereface.audit.likeness import SAMPLE, Scale, doubts, one_person, strangers
from sphereface.audit.people import BLOCK, People

PEOPLE, PHOTOS, FEATURES = 9_000, 3, 8
MATRIX = 4 * PEOPLE**2  # bytes of one float32 for each pair of people


@pytest.fixture(scope="module")
def crowd():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(PEOPLE), PHOTOS)
    features = rng.normal(size=(PEOPLE, FEATURES))[labels] + 0.3 * rng.normal(size=(len(labels), FEATURES))
    return features.astype(np.float32), labels


def peak(run) -> int:
    """The most bytes that a run holds at a time; NumPy reports its arrays to tracemalloc."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_people_are_compared_without_a_matrix_of_all_pairs(crowd):
    people = People.of(*crowd, PEOPLE)
    scale = Scale(0.0, 0.35, {1: 0.995}, {1: 1.0})
    assert peak(lambda: one_person(people, people, scale, within=True)) < MATRIX
    assert peak(lambda: doubts(people, scale)) < MATRIX


def test_the_likeness_of_strangers_is_held_once(crowd):
    people = People.of(*crowd, PEOPLE)
    assert peak(lambda: strangers(people)) < 4 * SAMPLE * (PEOPLE + 4 * BLOCK)  # a copy would be PEOPLE more


def test_features_are_never_copied_as_a_whole():
    rng = np.random.default_rng(1)
    labels = np.repeat(np.arange(10), BLOCK)
    features = rng.normal(size=(len(labels), 256)).astype(np.float32)
    assert peak(lambda: People.of(features, labels, 10)) < features.nbytes / 2
    people = People.of(features, labels, 10)
    assert peak(people.own_likeness) < features.nbytes / 2
    assert peak(lambda: people.merged([(0, 1)])) < features.nbytes / 2


def test_pictures_that_differ_in_detail_alone_are_correlated_few_at_a_time():
    rng = np.random.default_rng(2)
    coarse = np.kron(rng.integers(90, 160, (8, 8)), np.ones((3, 3)))
    detail = rng.permuted(np.tile([-40, -40, -20, -20, 0, 20, 20, 40, 40], (300, 64, 1)), axis=2)
    cells = detail.reshape(300, 8, 8, 3, 3).transpose(0, 1, 3, 2, 4).reshape(300, 24, 24)
    thumbnails = (coarse + cells).astype(np.uint8)  # all of one 8 x 8 mean, so that no pair is ruled out early
    found = []
    most = peak(lambda: found.extend(near_duplicates(thumbnails)))
    assert found == []
    assert most < 4 * 300**2 * 24**2 / 2  # bytes of the thumbnails of every pair
