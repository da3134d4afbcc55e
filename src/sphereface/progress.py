"""Callbacks of a long job, for its progress and its notes: one signature each."""

import time
from collections.abc import Callable

Progress = Callable[[int, int], None]  # (done, total)
Begin = Callable[[str], Progress]  # name of a step -> its progress
Say = Callable[[str], None]  # a note, one line of text


def silent(_done: int, _total: int) -> None:
    """Ignore progress."""


def unseen(_step: str) -> Progress:
    """Ignore the progress of each step."""
    return silent


def spoken(say: Say, seconds: float = 30.0) -> Begin:
    """Progress as notes: one when a step begins, one every `seconds`, one when the step is done."""

    def begin(step: str) -> Progress:
        said = time.monotonic()
        say(step)

        def progress(done: int, total: int) -> None:
            nonlocal said
            if done == total or time.monotonic() - said >= seconds:
                said = time.monotonic()
                say(f"{step}: {done:,}/{total:,}")

        return progress

    return begin


def mute(_line: str) -> None:
    """Ignore notes."""
