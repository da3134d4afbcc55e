"""Tiny sets of faces: every face is noise of its own, so that no two can be mistaken for each other."""

from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest


@pytest.fixture
def write_faces(tmp_path) -> Callable[..., Path]:
    """write_faces([3, 2]) writes a/0.png, a/1.png, a/2.png, b/0.png, b/1.png and gives their folder."""

    def write(photos: Sequence[int], *, size: tuple[int, int] = (112, 96), suffix: str = ".png") -> Path:
        root = tmp_path / "faces"
        for person, count in enumerate(photos):
            folder = root / chr(ord("a") + person)
            folder.mkdir(parents=True)
            for photo in range(count):
                face = np.random.default_rng([person, photo]).integers(0, 256, (*size, 3), np.uint8)
                cv2.imwrite(str(folder / f"{photo}{suffix}"), face)
        return root

    return write


def cut_off(path: Path) -> None:
    """Leave half of a file."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def pixels(path: Path) -> np.ndarray:
    """A file's pixels, (H, W, 3) RGB, by way of OpenCV alone."""
    return cv2.imread(str(path))[:, :, ::-1]
