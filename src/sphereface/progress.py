"""What a long job reports while it runs: how far it is, and notes; one signature each."""

from collections.abc import Callable

Progress = Callable[[int, int], None]  # (done, total)
Begin = Callable[[str], Progress]  # name of a step -> its progress
Say = Callable[[str], None]  # a line for people


def silent(_done: int, _total: int) -> None:
    """Progress that is not shown."""


def unseen(_step: str) -> Progress:
    """Steps whose progress is not shown."""
    return silent


def mute(_line: str) -> None:
    """Notes that are not shown."""
