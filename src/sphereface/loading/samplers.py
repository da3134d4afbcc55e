"""Which faces a batch holds: a pure function of seed and step, so that a run resumes by naming a step.

Nothing here has a state. Any batch can be had without those before it, in any process, and however many workers or
ranks share the work, the batches are the same.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from sphereface.arrays import Bools, Int64
from sphereface.errors import UserError

ORDER, PEOPLE, PHOTOS, MIRROR = range(4)  # what random numbers are for; each purpose has a stream of its own
Row = TypeVar("Row", bound=np.generic)


class Sampler(Protocol):
    """Chooses the faces of each step's batch, over all ranks together."""

    @property
    def count(self) -> int:
        """How many faces it draws from."""

    @property
    def batch(self) -> int:
        """How many faces a batch holds."""

    @property
    def seed(self) -> int:
        """Another seed, other batches."""

    def settings(self) -> Mapping[str, int | str]:
        """All that must agree for the batches to be the same."""

    def indices(self, step: int) -> Int64:
        """The places of this step's faces in the set, (batch,)."""


@dataclass(frozen=True)
class Shuffled:
    """Every face once before any comes again; a batch may end one epoch and begin the next.

    >>> Shuffled(count=5, batch=3, seed=1).indices(0).shape
    (3,)
    """

    count: int
    batch: int
    seed: int = 0

    def __post_init__(self) -> None:
        _check(self.seed, count=self.count, batch=self.batch)

    def settings(self) -> Mapping[str, int | str]:
        """All that must agree for the batches to be the same."""
        return {"sampler": "Shuffled", **asdict(self)}

    def indices(self, step: int) -> Int64:
        """The places of this step's faces in the set, (batch,)."""
        epochs, places = np.divmod(step * self.batch + np.arange(self.batch), self.count)
        chosen = np.empty(self.batch, np.int64)
        for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):
            here = epochs == epoch
            chosen[here] = _order(ORDER, self.seed, epoch, self.count)[places[here]]
        return chosen


class PeoplePhotos:
    """P people x K photos a batch, person by person: what losses on pairs and triplets want.

    An epoch of people is the fewest batches in which everyone comes. Everyone comes once; the places left over in the
    epoch's last batch go to some who came at its beginning, so that the people of a batch are always P different ones.
    The K photos of a person are K different ones where there are as many; else each is taken about equally often, so
    that a person with a single photo brings K copies of it (some of them mirrored, where the loader mirrors). Pairs of
    copies teach little: `least=2` leaves such people out.
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
            raise UserError(
                f"people is {people}, but only {len(self._able)} have {least} photos or more; ask for fewer a batch"
            )

    def settings(self) -> Mapping[str, int | str]:
        """All that must agree for the batches to be the same."""
        names = ("count", "batch", "people", "photos", "least", "seed")
        return {"sampler": "PeoplePhotos", **{name: getattr(self, name) for name in names}}

    def indices(self, step: int) -> Int64:
        """The places of this step's faces in the set, (P * K,), person by person."""
        batches = -(-len(self._able) // self.people)  # of an epoch, rounded up
        epoch, place = divmod(step, batches)
        order = _order(PEOPLE, self.seed, epoch, len(self._able))
        places = (place * self.people + np.arange(self.people)) % len(order)
        people = self._able[order[places]]
        ends = np.cumsum(self._counts[people])
        bits = np.split(_bits(PHOTOS, self.seed, step, int(ends[-1])), ends[:-1])
        return np.concatenate([self._draw(person, part) for person, part in zip(people, bits, strict=True)])

    def _draw(self, person: int, bits: NDArray[np.uint64]) -> Int64:
        """K photos of a person: the first K in random order, from the front again where there are fewer."""
        photos = self._faces[self._starts[person] :][: self._counts[person]]
        return photos[np.argsort(bits, kind="stable")[np.arange(self.photos) % len(photos)]]


def mirrored(seed: int, step: int, batch: int) -> Bools:
    """Which faces of a step's batch are mirrored, (batch,): each with a chance of a half."""
    return _bits(MIRROR, seed, step, batch) >= 2**63


def shard(batch: NDArray[Row], rank: int, ranks: int) -> NDArray[Row]:
    """One rank's share of a global batch; the shares of all ranks, one after the other, are the batch.

    The shares are of one size, so that an average over ranks is the average over the batch.
    """
    if not 0 <= rank < ranks:
        raise UserError(f"rank is {rank} of {ranks}; ranks count from 0")
    if len(batch) % ranks:
        raise UserError(f"a batch of {len(batch)} cannot be shared evenly by {ranks} ranks; choose a multiple")
    size = len(batch) // ranks
    return batch[rank * size : (rank + 1) * size]


@lru_cache(maxsize=2)  # the epoch that ends and the one that begins
def _order(purpose: int, seed: int, epoch: int, count: int) -> Int64:
    """A random order of one epoch.

    It is sorted from the generator's raw bits, which NumPy promises to keep; what its `permutation` makes of them may
    change with a version, and so would the batches of a seed.
    """
    order = np.argsort(_bits(purpose, seed, epoch, count), kind="stable")
    order.setflags(write=False)
    return order


def _bits(purpose: int, seed: int, number: int, count: int) -> NDArray[np.uint64]:
    """Random 64-bit numbers that belong to a step or an epoch; none has to be drawn before another."""
    key, counter = np.array([seed, purpose], np.uint64), np.array([0, 0, 0, number], np.uint64)
    bits: NDArray[Any] = np.random.Philox(key=key, counter=counter).random_raw(count)
    return bits


def _check(seed: int, **counts: int) -> None:
    if not 0 <= seed < 2**64:
        raise UserError(f"seed is {seed}; wanted 0 or more, below 2^64")
    for name, value in counts.items():
        if value < 1:
            raise UserError(f"{name} is {value}; wanted at least 1")
