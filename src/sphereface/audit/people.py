"""Features grouped by person, with nothing as large as the features held beside them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BLOCK = 4096  # photos or people taken at a time

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class People:
    """Features of photos and their sums by person; every feature counts at length one."""

    features: Floats  # (N, D), at their own lengths
    lengths: Floats  # (N, 1)
    labels: Ints  # (N,)
    sums: Floats  # (K, D), of features at length one
    counts: Ints  # (K,)

    @classmethod
    def of(cls, features: Floats, labels: Ints, people: int) -> "People":
        """Group features (N, D) by labels 0..K-1; a person may have none."""
        lengths = np.empty((len(features), 1), features.dtype)
        for part in blocks(len(features), BLOCK):
            lengths[part] = np.linalg.norm(features[part], axis=1, keepdims=True)
        return cls(features, lengths, labels, *_sums(features, lengths, labels, people))

    def unit(self, photos: slice | Ints) -> Floats:
        """The features of some photos at length one; zeros stay."""
        return _unit(self.features[photos], self.lengths[photos])

    @property
    def directions(self) -> Floats:
        """Mean directions (K, D)."""
        return directions(self.sums)

    def merged(self, pairs: Iterable[tuple[int, int]]) -> "People":
        """The same photos, with each second person of a pair counted as the first; the second has none left."""
        owner = np.arange(len(self.counts))
        for first, second in pairs:
            owner[owner == owner[second]] = owner[first]
        labels = owner[self.labels]
        return People(self.features, self.lengths, labels, *_sums(self.features, self.lengths, labels, len(owner)))

    def own_likeness(self) -> Floats:
        """Likeness (N,) of each photo with the others of its person."""
        own = np.empty(len(self.features), np.float32)
        for part in blocks(len(own), BLOCK):
            photos = self.unit(part)
            own[part] = np.einsum("nd,nd->n", photos, directions(self.sums[self.labels[part]] - photos))
        return own


def blocks(count: int, block: int) -> Iterator[slice]:
    """0..count in slices of at most `block`."""
    for start in range(0, count, block):
        yield slice(start, min(start + block, count))


def directions(sums: Floats) -> Floats:
    """Rows at length one; zeros stay."""
    length = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.asarray(np.divide(sums, length, out=np.zeros_like(sums), where=length > 1e-6))


def _unit(features: Floats, lengths: Floats) -> Floats:
    return np.asarray(np.divide(features, lengths, out=np.zeros_like(features), where=lengths > 0))


def _sums(features: Floats, lengths: Floats, labels: Ints, people: int) -> tuple[Floats, Ints]:
    """Sums (K, D) of the features at length one, and counts (K,), by person."""
    sums = np.zeros((people, features.shape[1]), np.float32)
    for part in blocks(len(features), BLOCK):
        np.add.at(sums, labels[part], _unit(features[part], lengths[part]))
    return sums, np.bincount(labels, minlength=people)
