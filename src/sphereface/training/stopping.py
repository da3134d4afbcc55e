"""Ctrl-C and SIGTERM as a wish: a run stops where it can be taken up again."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from sphereface import parallel


@dataclass
class Stop:
    """Whether somebody asked to stop."""

    asked: bool = False

    def agreed(self) -> bool:
        """Whether any process was asked: all stop at the same step, or one would wait for the others."""
        return any(parallel.gather_json(self.asked))


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Take Ctrl-C and SIGTERM as a wish to stop where a run can go on; a second Ctrl-C stops at once."""
    stop = Stop()

    def ask(number: int, _: FrameType | None) -> None:
        if stop.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.asked = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
