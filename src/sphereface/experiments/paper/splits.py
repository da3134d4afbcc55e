"""Parts of the training set, by name: the images that each leaves out."""

from collections.abc import Callable

import numpy as np

from sphereface.arrays import Bools, Int64
from sphereface.data.people import FaceSet
from sphereface.errors import UserError

WHOLE, LONG_TAILED, CLOSED = "whole", "long-tailed", "closed-set"
HEAD, TAIL = 0.2, 4  # share of people who keep all photos; photos of the others
KEPT_FOR_TEST = 5  # one photo of so many is left out for a test with the same people


def whole(faces: FaceSet) -> Bools:
    """No image."""
    return np.zeros(len(faces.labels), bool)


def long_tailed(faces: FaceSet) -> Bools:
    """All but the first four photos of the people with fewer photos than the fifth with the most."""
    counts = np.bincount(faces.labels)
    few = np.argsort(-counts, kind="stable")[round(HEAD * len(counts)) :]
    is_few: Bools = np.isin(faces.labels, few)
    return is_few & (rank_in_person(faces) >= TAIL)


def closed_set(faces: FaceSet) -> Bools:
    """Every fifth photo of each person, to test with the people who were trained on."""
    return np.asarray(rank_in_person(faces) % KEPT_FOR_TEST == KEPT_FOR_TEST - 1)


def rank_in_person(faces: FaceSet) -> Int64:
    """The number of earlier photos of the same person, (N,)."""
    labels = np.asarray(faces.labels)
    order = np.argsort(labels, kind="stable")
    counts = np.bincount(labels)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    ranks = np.empty(len(labels), np.int64)
    ranks[order] = np.arange(len(labels)) - starts[labels[order]]
    return ranks


SPLITS: dict[str, Callable[[FaceSet], Bools]] = {WHOLE: whole, LONG_TAILED: long_tailed, CLOSED: closed_set}


def left_out(split: str, faces: FaceSet) -> list[str]:
    """The names of the images that a split leaves out."""
    if split not in SPLITS:
        raise UserError(f"unknown split {split!r}; choose one of {', '.join(SPLITS)}")
    paths = faces.paths
    return [paths[row] for row in np.flatnonzero(SPLITS[split](faces)).tolist()]
