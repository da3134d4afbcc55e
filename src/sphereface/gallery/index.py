"""The index of a gallery: templates in memory, searched exactly. It is derived from the store, never the truth.

A product of matrices in float32 finds the candidates, and its error is bounded; only the candidates' scores are
computed in float64, and equal ones go to the lowest id. So the answer is that of a float64 product over all rows.
"""

from typing import NamedTuple, Protocol

import numpy as np

from sphereface.arrays import Float32, Float64, Int64
from sphereface.errors import UserError

BLOCK = 8_192  # rows; enrolling a person fills the last block, and copies none
PROBES = 256  # searched at a time


class Matches(NamedTuple):
    """The best people of each probe, best first: ids and scores (P, K); -1 and -inf where there are fewer people."""

    people: Int64
    scores: Float64


class Index(Protocol):
    """What a gallery asks of its index."""

    def __len__(self) -> int:
        """The number of people."""

    def put(self, people: Int64, units: Float32) -> None:
        """Add templates, or replace those of the same people: ids (N,) and unit rows (N, D)."""

    def discard(self, person: int) -> None:
        """Remove a person's template, if there is one."""

    def clear(self) -> None:
        """Remove all."""

    def search(self, probes: Float32, count: int = 1) -> Matches:
        """The best people of probes (P, D), unit rows."""


class ExactIndex:
    """All templates, in blocks of float32 rows."""

    def __init__(self) -> None:
        self._blocks: list[Float32] = []
        self._ids: list[Int64] = []
        self._places: dict[int, int] = {}  # of people: block * BLOCK + row

    def __len__(self) -> int:
        return len(self._places)

    def put(self, people: Int64, units: Float32) -> None:
        """Add templates, or replace those of the same people: ids (N,) and unit rows (N, D)."""
        for person, unit in zip(people.tolist(), units, strict=True):
            place = self._places.setdefault(person, len(self._places))
            block, row = divmod(place, BLOCK)
            if block == len(self._blocks):
                self._blocks.append(np.empty((BLOCK, len(unit)), np.float32))
                self._ids.append(np.empty(BLOCK, np.int64))
            self._blocks[block][row], self._ids[block][row] = unit, person

    def discard(self, person: int) -> None:
        """Remove a person's template, if there is one: the last row takes its place."""
        place = self._places.pop(person, None)
        if place is None:
            return
        (block, row), (last, end) = divmod(place, BLOCK), divmod(len(self._places), BLOCK)
        if place != len(self._places):
            moved = int(self._ids[last][end])
            self._blocks[block][row], self._ids[block][row] = self._blocks[last][end], moved
            self._places[moved] = place
        self._blocks[last][end] = 0
        if end == 0:
            del self._blocks[last], self._ids[last]

    def clear(self) -> None:
        """Remove all."""
        self._blocks, self._ids, self._places = [], [], {}

    def search(self, probes: Float32, count: int = 1) -> Matches:
        """The best people of probes (P, D), unit rows."""
        people = np.full((len(probes), count), -1, np.int64)
        scores = np.full((len(probes), count), -np.inf)
        if self._blocks and probes.shape[1] != self._blocks[0].shape[1]:
            raise UserError(f"features of {probes.shape[1]} numbers; this gallery has {self._blocks[0].shape[1]}")
        for start in range(0, len(probes), PROBES):
            some = slice(start, start + PROBES)
            self._search(np.ascontiguousarray(probes[some], np.float32), people[some], scores[some])
        return Matches(people, scores)

    def _search(self, probes: Float32, people: Int64, scores: Float64) -> None:
        """Search for some probes, and write the best into `people` and `scores` (P, K)."""
        count, exact = people.shape[1], probes.astype(np.float64)
        slack = 2 * _error(probes.shape[1])
        products = np.empty((len(probes), BLOCK), np.float32)
        for number, (block, ids) in enumerate(zip(self._blocks, self._ids, strict=True)):
            rows = min(BLOCK, len(self) - number * BLOCK)
            approximate = np.matmul(probes, block[:rows].T, out=products[:, :rows])
            for probe in np.flatnonzero(approximate.max(axis=1) >= scores[:, -1] - slack):
                row = approximate[probe]
                near = np.flatnonzero(row >= max(scores[probe, -1], _highest(row, count)) - slack)
                each = np.multiply(block[near], exact[probe], dtype=np.float64).sum(1)  # a row's sum has its own order
                found = np.append(scores[probe], each)
                owners = np.append(people[probe], ids[near])
                best = np.lexsort((owners, -found))[:count]
                scores[probe], people[probe] = found[best], owners[best]


def _highest(scores: Float32, count: int) -> float:
    """The last of the `count` highest scores; -inf if there are fewer."""
    if count > len(scores):
        return -np.inf
    return float(scores.max() if count == 1 else np.partition(scores, -count)[-count])


def _error(dimension: int) -> float:
    """A bound on the error of a float32 product of two unit rows, summed in any order."""
    return 1.1 * (dimension + 8) * float(np.finfo(np.float32).eps) / 2
