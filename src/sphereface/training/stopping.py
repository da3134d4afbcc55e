"""Requests to stop a run: it saves a checkpoint after the current step, and can be resumed."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from sphereface import parallel


@dataclass
class Stop:
    """A request to stop; a program that trains in one thread sets `asked` from another."""

    asked: bool = False

    def agreed(self) -> bool:
        """True if any process has a request: all must stop at the same step, or one would wait for the others."""
        return any(parallel.gather_json(self.asked))


@contextmanager
def stop_on_signals(stop: Stop) -> Iterator[None]:
    """Take Ctrl-C and SIGTERM as requests to stop; a second Ctrl-C stops at once.

    Python lets only the main thread install handlers. In any other thread this changes nothing, and the caller handles
    signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, _: FrameType | None) -> None:
        if stop.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.asked = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
