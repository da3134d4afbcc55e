"""Two looks of synthetic people: red, as drawn, and blue, with red and blue exchanged; neither is harder."""

import numpy as np

from sphereface.arrays import Bools, Image

LOOKS = ("red", "blue")
FAMILY = 4  # every fourth person resembles the one before; relatives have the same look


def every_other_family(people: int) -> Bools:
    """A mask (people,) of every second family of four people."""
    return np.asarray(np.arange(people) // FAMILY % 2 == 1)


def dressed(faces: Image, blue: Bools) -> Image:
    """Faces (N, H, W, 3), with red and blue exchanged in those of a mask (N,)."""
    return np.where(blue[:, None, None, None], faces[..., ::-1], faces)
