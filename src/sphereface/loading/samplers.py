"""The choice of faces for a batch: a pure function of seed and step, so that a run resumes at any step.

Samplers are stateless: any batch can be computed without those before it, in any process, and the batches are the same
for any number of workers or ranks.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from sphereface.arrays import Bools, Float64, Int64
from sphereface.errors import UserError

ORDER, PEOPLE, PHOTOS, MIRROR = range(4)  # purposes of random numbers, each with its own stream
Row = TypeVar("Row", bound=np.generic)


class Sampler(Protocol):
    """Chooses the faces of each step's batch, over all ranks together."""

    @property
    def count(self) -> int:
        """The number of faces to draw from."""

    @property
    def batch(self) -> int:
        """The number of faces in a batch."""

    @property
    def seed(self) -> int:
        """The random seed."""

    def settings(self) -> Mapping[str, int | str]:
        """The settings that determine the batches."""

    def indices(self, step: int) -> Int64:
        """The indices of a step's faces in the set, (batch,)."""


@dataclass(frozen=True)
class Shuffled:
    """Every face once per epoch, in random order; a batch may end one epoch and begin the next.

    >>> Shuffled(count=5, batch=3, seed=1).indices(0).shape
    (3,)
    """

    count: int
    batch: int
    seed: int = 0

    def __post_init__(self) -> None:
        _check(self.seed, count=self.count, batch=self.batch)

    def settings(self) -> Mapping[str, int | str]:
        """The settings that determine the batches."""
        return {"sampler": "Shuffled", **asdict(self)}

    def indices(self, step: int) -> Int64:
        """The indices of a step's faces in the set, (batch,)."""
        epochs, places = np.divmod(step * self.batch + np.arange(self.batch), self.count)
        chosen = np.empty(self.batch, np.int64)
        for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):
            here = epochs == epoch
            chosen[here] = _order(ORDER, self.seed, epoch, self.count)[places[here]]
        return chosen


class PeoplePhotos:
    """Batches of P people x K photos, person by person, for losses on pairs and triplets.

    An epoch is the fewest batches that hold every person once; its last batch is filled up with people of its
    beginning, so that the P people of a batch are always different. The K photos of a person are different if there
    are at least K; else each is taken about equally often, so that a person with a single photo has K copies of it
    (some of them mirrored, if the loader mirrors). Pairs of copies teach little: `least=2` leaves such people out.
    """

    def __init__(self, labels: Int64, *, people: int, photos: int, seed: int = 0, least: int = 1) -> None:
        _check(seed, people=people, photos=photos, least=least)
        self.people, self.photos, self.seed, self.least = people, photos, seed, least
        self.count, self.batch = len(labels), people * photos
        self._faces = np.argsort(labels, kind="stable")  # all faces, person by person
        self._counts = np.bincount(labels)
        self._starts = np.cumsum(self._counts) - self._counts
        self._able = np.flatnonzero(self._counts >= least)
        if len(self._able) < people:
            found = f"only {len(self._able)} have {least} photos or more"
            raise UserError(f"people is {people}, but {found}; ask for fewer per batch")

    def settings(self) -> Mapping[str, int | str]:
        """The settings that determine the batches."""
        names = ("count", "batch", "people", "photos", "least", "seed")
        return {"sampler": "PeoplePhotos", **{name: getattr(self, name) for name in names}}

    def indices(self, step: int) -> Int64:
        """The indices of a step's faces in the set, (P * K,), person by person."""
        batches = -(-len(self._able) // self.people)  # of an epoch, rounded up
        epoch, place = divmod(step, batches)
        order = _order(PEOPLE, self.seed, epoch, len(self._able))
        places = (place * self.people + np.arange(self.people)) % len(order)
        people = self._able[order[places]]
        ends = np.cumsum(self._counts[people])
        bits = np.split(_bits(PHOTOS, self.seed, step, int(ends[-1])), ends[:-1])
        return np.concatenate([self._draw(person, part) for person, part in zip(people, bits, strict=True)])

    def _draw(self, person: int, bits: NDArray[np.uint64]) -> Int64:
        """K photos of a person: the first K in random order, repeated cyclically if there are fewer."""
        photos = self._faces[self._starts[person] :][: self._counts[person]]
        return photos[np.argsort(bits, kind="stable")[np.arange(self.photos) % len(photos)]]


def mirrored(seed: int, step: int, batch: int) -> Bools:
    """True for the mirrored faces of a step's batch, (batch,): each with probability 1/2."""
    return _bits(MIRROR, seed, step, batch) >= 2**63


def uniform(purpose: int, seed: int, row: int, number: int, count: int) -> Float64:
    """Random numbers in [0, 1) for a row of a set and a number, (count,), independent of the order of calls."""
    key, counter = np.array([seed, purpose], np.uint64), np.array([0, 0, row, number], np.uint64)
    bits = np.random.Philox(key=key, counter=counter).random_raw(count)
    return (np.asarray(bits, np.uint64) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def shard(batch: NDArray[Row], rank: int, ranks: int) -> NDArray[Row]:
    """One rank's share of a global batch; the batch is the concatenation of the shares of all ranks.

    All shares have one size, so that an average over ranks is the average over the batch.
    """
    if not 0 <= rank < ranks:
        raise UserError(f"rank is {rank} of {ranks}; ranks count from 0")
    if len(batch) % ranks:
        raise UserError(f"a batch of {len(batch)} cannot be shared evenly by {ranks} ranks; choose a multiple")
    size = len(batch) // ranks
    return batch[rank * size : (rank + 1) * size]


@lru_cache(maxsize=2)  # the epoch that ends and the one that begins
def _order(purpose: int, seed: int, epoch: int, count: int) -> Int64:
    """The random order of one epoch.

    It is sorted by the generator's raw bits, which NumPy guarantees; its `permutation` may change with a version, and
    with it the batches of a seed.
    """
    order = np.argsort(_bits(purpose, seed, epoch, count), kind="stable")
    order.setflags(write=False)
    return order


def _bits(purpose: int, seed: int, number: int, count: int) -> NDArray[np.uint64]:
    """Random 64-bit numbers of a step or an epoch, independent of the order of calls."""
    key, counter = np.array([seed, purpose], np.uint64), np.array([0, 0, 0, number], np.uint64)
    bits: NDArray[Any] = np.random.Philox(key=key, counter=counter).random_raw(count)
    return bits


def _check(seed: int, **counts: int) -> None:
    if not 0 <= seed < 2**64:
        raise UserError(f"seed is {seed}; wanted at least 0 and below 2^64")
    for name, value in counts.items():
        if value < 1:
            raise UserError(f"{name} is {value}; wanted at least 1")
