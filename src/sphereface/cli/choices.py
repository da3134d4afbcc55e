"""Choices that several verbs offer."""

from enum import StrEnum


class FailOrSkip(StrEnum):
    """What to do with images that are not there or cannot be read."""

    fail = "fail"
    skip = "skip"


class RuleName(StrEnum):
    """What a feature is made of."""

    concatenate = "concatenate"
    sum = "sum"
    image = "image"


class EngineName(StrEnum):
    """What runs the network."""

    auto = "auto"
    onnxruntime = "onnxruntime"
    torch = "torch"
