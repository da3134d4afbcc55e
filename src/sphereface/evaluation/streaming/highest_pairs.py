"""The highest of a stream of scores."""

import numpy as np

from sphereface.arrays import Float32, Float64, Int32, Integers
from sphereface.evaluation.streaming.scores import Exact

ROOM = 1 << 16  # pairs beyond twice those to keep that are collected before any is dropped


class HighestPairs:
    """Collects pairs from a stream of approximate scores, among them those with the `keep` highest exact scores.

    Approximations may be off by `error`, so pairs up to two errors below the `keep`-th score are kept, too.
    """

    def __init__(self, keep: int, *, error: float, exact: Exact, room: int = ROOM) -> None:
        self.keep, self.error, self._exact, self._room = keep, error, exact, room
        self.cut = -np.inf  # approximate scores below this are not among the highest
        self._parts: list[tuple[Float32, Int32, Int32]] = []
        self._held = 0

    def add(self, approximate: Float32, rows: Integers, columns: Integers) -> None:
        """Take pairs of probes `rows` and distractors `columns`."""
        self._parts.append((approximate, rows.astype(np.int32), columns.astype(np.int32)))
        self._held += len(approximate)
        if self._held >= 2 * self.keep + self._room:
            self._drop()

    def highest(self, count: int) -> Float64:
        """The `count` highest exact scores so far, falling, or all if there are fewer; `count` is at most `keep`."""
        assert count <= self.keep
        _, (_, rows, columns) = self._near_the_top(count)
        falling = -np.sort(-self._exact(rows, columns))
        return np.asarray(falling[:count])

    def _drop(self) -> None:
        """Drop the pairs that cannot be among the `keep` highest."""
        self.cut, (scores, rows, columns) = self._near_the_top(self.keep)
        if len(scores) > self.keep + self._held // 4:  # many within the error: exact scores decide
            exact = self._exact(rows, columns)
            best = np.argpartition(-exact, self.keep - 1)[: self.keep]
            self.cut = float(exact[best].min()) - self.error
            scores, rows, columns = exact[best].astype(np.float32), rows[best], columns[best]
        self._parts, self._held = [(scores, rows, columns)], len(scores)

    def _near_the_top(self, count: int) -> tuple[float, tuple[Float32, Int32, Int32]]:
        """The lowest approximate score of pairs that may be among the `count` highest, and these pairs."""
        scores, rows, columns = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        if len(scores) <= count:
            return self.cut, (scores, rows, columns)
        last_place = float(np.partition(scores, len(scores) - count)[len(scores) - count])
        cut = max(self.cut, last_place - 2 * self.error)
        near = np.flatnonzero(scores >= cut)
        return cut, (scores[near], rows[near], columns[near])
