"""Features grouped by person, without a second array as large as the features."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from sphereface.arrays import Float32, Int64, unit_rows

BLOCK = 4096  # photos or people processed at a time
ROUNDING = 1e-6  # a sum of unit rows with no larger entry is zero but for rounding


@dataclass(frozen=True)
class People:
    """Features of photos and, normalised to length one, their sums by person."""

    features: Float32  # (N, D), at their own lengths
    labels: Int64  # (N,)
    sums: Float32  # (K, D), of features at length one
    counts: Int64  # (K,)

    @classmethod
    def of(cls, features: Float32, labels: Int64, people: int) -> "People":
        """Group features (N, D) by labels 0..K-1; a person may have no photos."""
        sums = np.zeros((people, features.shape[1]), np.float32)
        for part in blocks(len(features), BLOCK):
            np.add.at(sums, labels[part], unit_rows(features[part], dtype=np.float32))
        return cls(features, labels, sums, np.bincount(labels, minlength=people))

    def unit(self, photos: slice | Int64) -> Float32:
        """Features of the given photos, normalised to length one."""
        return unit_rows(self.features[photos], dtype=np.float32)

    @property
    def directions(self) -> Float32:
        """Mean directions (K, D)."""
        return directions(self.sums)

    def merged(self, pairs: Iterable[tuple[int, int]]) -> "People":
        """The same photos, where those of each pair's second person are labelled as the first."""
        owner = np.arange(len(self.counts))
        for first, second in pairs:
            owner[owner == owner[second]] = owner[first]
        return People.of(self.features, owner[self.labels], len(owner))

    def own_likeness(self) -> Float32:
        """Likeness (N,) of each photo with the other photos of its person."""
        own = np.empty(len(self.features), np.float32)
        for part in blocks(len(own), BLOCK):
            photos = self.unit(part)
            own[part] = np.einsum("nd,nd->n", photos, directions(self.sums[self.labels[part]] - photos))
        return own


def blocks(count: int, block: int) -> Iterator[slice]:
    """Slices of at most `block` that cover 0..count."""
    for start in range(0, count, block):
        yield slice(start, min(start + block, count))


def directions(sums: Float32) -> Float32:
    """Rows normalised to length one, in blocks; rows that are zero but for rounding become zeros."""
    unit = np.zeros_like(sums)
    for part in blocks(len(sums), BLOCK):
        some = np.where(np.abs(sums[part]).max(axis=1, keepdims=True) > ROUNDING, sums[part], 0)
        unit_rows(some, dtype=np.float32, out=unit[part])
    return unit
