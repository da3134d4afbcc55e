"""Callbacks of a long job, for its progress and its notes: one signature each."""

from collections.abc import Callable

Progress = Callable[[int, int], None]  # (done, total)
Begin = Callable[[str], Progress]  # name of a step -> its progress
Say = Callable[[str], None]  # a note, one line of text


def silent(_done: int, _total: int) -> None:
    """Ignore progress."""


def unseen(_step: str) -> Progress:
    """Ignore the progress of each step."""
    return silent


def mute(_line: str) -> None:
    """Ignore notes."""
