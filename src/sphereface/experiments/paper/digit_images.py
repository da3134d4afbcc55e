"""The digits of an experiment: MNIST where it is given, else scikit-learn's."""

from functools import lru_cache, partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from sphereface.arrays import Int64, UInt8
from sphereface.data.formats.mnist import IMAGES, MnistSet
from sphereface.errors import UserError
from sphereface.experiments.paper.setting import Setting
from sphereface.hashes import sha256_of

Part = Literal["train", "test"]
PARTS: tuple[Part, ...] = ("train", "test")
CLASSES = 10
RAREST = 0.02  # of the long-tailed digits: the size of the smallest class over that of the largest


class Images(NamedTuple):
    """Grey images (N, H, W) and their digits (N,)."""

    pixels: UInt8
    labels: Int64


class Digits(NamedTuple):
    """The images to train on and those to test with, and their hash."""

    train: Images
    test: Images
    hash: str


def load_digits(setting: Setting) -> Digits:
    """The digits of a setting."""
    return read_digits(setting.data.mnist)


@lru_cache(maxsize=2)
def read_digits(folder: Path | None) -> Digits:
    """The digits of MNIST's four files in a folder; without one scikit-learn's, every fourth of them to test."""
    if folder is not None:
        train, test = (Images(each.images, each.labels) for each in map(partial(_mnist, folder), ("train", "t10k")))
    else:
        pixels, labels = _of_scikit_learn()
        tested = np.arange(len(labels)) % 4 == 3
        train, test = Images(pixels[~tested], labels[~tested]), Images(pixels[tested], labels[tested])
    for part in (train, test):
        if not np.array_equal(np.unique(part.labels), np.arange(CLASSES)):
            raise UserError(f"{folder}: labels {np.unique(part.labels).tolist()}; wanted the ten digits 0 to 9")
    return Digits(train, test, sha256_of(b"".join(array.tobytes() for part in (train, test) for array in part)))


def _mnist(folder: Path, part: str) -> MnistSet:
    names = [f"{part}-{IMAGES}{ending}" for ending in ("", ".gz")]
    found = [folder / name for name in names if (folder / name).is_file()]
    if not found:
        raise UserError(f"{folder}: no {' and no '.join(names)}; wanted MNIST's images and labels, train and t10k")
    return MnistSet(found[0])


def _of_scikit_learn() -> Images:
    """1,797 images of 8x8 pixels."""
    try:
        from sklearn import datasets  # type: ignore[import-untyped, unused-ignore]
    except ImportError as error:
        reason = "scikit-learn is not installed, and its digits replace MNIST where that is not given"
        raise UserError(f"{reason}: pip install scikit-learn, or give --mnist DIR") from error
    found = datasets.load_digits()
    return Images((found.images * (255 / 16)).astype(np.uint8), found.target.astype(np.int64))  # 0..16 to 0..255


def long_tailed(labels: Int64, seed: int) -> Int64:
    """The rows of images whose classes have sizes in a geometric series; the seed decides which digits are rare."""
    counts = np.bincount(labels, minlength=CLASSES)
    rank = np.random.default_rng(seed).permutation(CLASSES)
    sizes = np.round(counts.min() * RAREST ** (rank / (CLASSES - 1))).astype(int)
    return np.sort(np.concatenate([np.flatnonzero(labels == digit)[: sizes[digit]] for digit in range(CLASSES)]))
