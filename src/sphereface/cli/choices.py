"""Choices that several verbs offer."""

from enum import StrEnum


class OnUnreadable(StrEnum):
    """What to do with images that cannot be read."""

    fail = "fail"
    skip = "skip"
