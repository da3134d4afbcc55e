"""The highest of very many scores, without keeping the others."""

import numpy as np

from sphereface.arrays import Float32, Float64, Int32, Integers
from sphereface.evaluation.streaming.scores import Exact

ROOM = 1 << 16  # pairs beyond those to keep that are worth waiting for before any is dropped


class HighestPairs:
    """Pairs out of a stream of approximate scores, with the `keep` highest exact scores among them.

    Approximations may be off by `error`, so whatever lies up to two errors below the last place stays, too.
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
        """Forget the pairs that cannot be among the highest any more."""
        self.cut, (scores, rows, columns) = self._near_the_top(self.keep)
        if len(scores) > self.keep + self._held // 4:  # so many within the error: only exact scores can tell
            exact = self._exact(rows, columns)
            best = np.argpartition(-exact, self.keep - 1)[: self.keep]
            self.cut = float(exact[best].min()) - self.error
            scores, rows, columns = exact[best].astype(np.float32), rows[best], columns[best]
        self._parts, self._held = [(scores, rows, columns)], len(scores)

    def _near_the_top(self, count: int) -> tuple[float, tuple[Float32, Int32, Int32]]:
        """The pairs that may be among the `count` highest, and the approximate score from which they are."""
        scores, rows, columns = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        if len(scores) <= count:
            return self.cut, (scores, rows, columns)
        last_place = float(np.partition(scores, len(scores) - count)[len(scores) - count])
        cut = max(self.cut, last_place - 2 * self.error)
        near = np.flatnonzero(scores >= cut)
        return cut, (scores[near], rows[near], columns[near])
