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
PAIRS = 4_096  # scored exactly at a time


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

    def template(self, person: int) -> Float32 | None:
        """The template of a person (D,), if there is one."""

    def discard(self, person: int) -> None:
        """Remove a person's template, if there is one."""

    def clear(self) -> None:
        """Remove all."""

    def search(self, probes: Float32, count: int = 1) -> Matches:
        """The best people of probes (P, D), unit rows."""


class ExactIndex:
    """All templates, in blocks of float32 rows."""

    def __init__(self) -> None:
        self.blocks: list[Float32] = []
        self._ids: list[Int64] = []
        self._places: dict[int, int] = {}  # of people: block * BLOCK + row

    def __len__(self) -> int:
        return len(self._places)

    def put(self, people: Int64, units: Float32) -> None:
        """Add templates, or replace those of the same people: ids (N,) and unit rows (N, D)."""
        if self.blocks and units.shape[1] != self.blocks[0].shape[1]:
            raise UserError(f"templates of {units.shape[1]} numbers; this gallery has {self.blocks[0].shape[1]}")
        for person, unit in zip(people.tolist(), units, strict=True):
            place = self._places.get(person, len(self._places))
            block, row = divmod(place, BLOCK)
            if block == len(self.blocks):
                self.blocks.append(np.empty((BLOCK, len(unit)), np.float32))
                self._ids.append(np.empty(BLOCK, np.int64))
            self.blocks[block][row], self._ids[block][row] = unit, person
            self._places[person] = place

    def template(self, person: int) -> Float32 | None:
        """The template of a person (D,), if there is one."""
        place = self._places.get(person)
        return None if place is None else self.blocks[place // BLOCK][place % BLOCK]

    def discard(self, person: int) -> None:
        """Remove a person's template, if there is one: the last row takes its place."""
        place = self._places.pop(person, None)
        if place is None:
            return
        (block, row), (last, end) = divmod(place, BLOCK), divmod(len(self._places), BLOCK)
        if place != len(self._places):
            moved = int(self._ids[last][end])
            self.blocks[block][row], self._ids[block][row] = self.blocks[last][end], moved
            self._places[moved] = place
        self.blocks[last][end] = 0
        if end == 0:
            del self.blocks[last], self._ids[last]

    def clear(self) -> None:
        """Remove all."""
        self.blocks, self._ids, self._places = [], [], {}

    def search(self, probes: Float32, count: int = 1) -> Matches:
        """The best people of probes (P, D), unit rows."""
        people = np.full((len(probes), count), -1, np.int64)
        scores = np.full((len(probes), count), -np.inf)
        if self.blocks and probes.shape[1] != self.blocks[0].shape[1]:
            raise UserError(f"features of {probes.shape[1]} numbers; this gallery has {self.blocks[0].shape[1]}")
        for start in range(0, len(probes), PROBES):
            some = slice(start, start + PROBES)
            self._search(np.ascontiguousarray(probes[some], np.float32), people[some], scores[some])
        return Matches(people, scores)

    def _search(self, probes: Float32, people: Int64, scores: Float64) -> None:
        """Search for some probes, and write the best into `people` and `scores` (P, K)."""
        slack = 2 * _error(probes.shape[1])
        products = np.empty((len(probes), BLOCK), np.float32)
        for number, (block, ids) in enumerate(zip(self.blocks, self._ids, strict=True)):
            rows = min(BLOCK, len(self) - number * BLOCK)
            found = np.matmul(probes, block[:rows].T, out=products[:, :rows])
            top = found.max(axis=1)
            open_ = np.flatnonzero(top >= scores[:, -1] - slack)  # probes that may find somebody better here
            last = top[open_] if scores.shape[1] == 1 else _last_of(found[open_], scores.shape[1])
            floor = np.maximum(scores[open_, -1], last) - slack
            probe, row = np.nonzero(found[open_] >= floor[:, None])
            exact = _exact(probes[open_], block, probe, row)
            people[open_], scores[open_] = _merged(people[open_], scores[open_], probe, ids[row], exact)


def _last_of(scores: Float32, count: int) -> Float32:
    """The last of the `count` highest scores of each probe (P, N); -inf if there are fewer."""
    if count > scores.shape[1]:
        return np.full(len(scores), -np.inf, np.float32)
    return np.asarray(np.partition(scores, -count, axis=1)[:, -count])


def _exact(probes: Float32, block: Float32, probe: Int64, row: Int64) -> Float64:
    """The scores of pairs of a probe and a row, in float64; the order of a sum is the same everywhere: copies tie."""
    scores = np.empty(len(probe))
    for start in range(0, len(probe), PAIRS):
        some = slice(start, start + PAIRS)
        scores[some] = np.multiply(block[row[some]], probes[probe[some]], dtype=np.float64).sum(axis=1)
    return scores


def _merged(people: Int64, scores: Float64, probe: Int64, more: Int64, found: Float64) -> tuple[Int64, Float64]:
    """The best of each probe (P, K) with more candidates: their probes, people and scores (C,)."""
    count = people.shape[1]
    of = np.concatenate([np.repeat(np.arange(len(people)), count), probe])
    owners, each = np.concatenate([people.ravel(), more]), np.concatenate([scores.ravel(), found])
    order = np.lexsort((owners, -each, of))
    begins = np.searchsorted(of[order], np.arange(len(people)))
    best = order[begins[:, None] + np.arange(count)]
    return owners[best], each[best]


def _error(dimension: int) -> float:
    """A bound on the error of a float32 product of two unit rows, summed in any order."""
    return 1.1 * (dimension + 8) * float(np.finfo(np.float32).eps) / 2
