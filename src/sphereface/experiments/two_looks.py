"""Two looks of synthetic people: red, as they are drawn, and blue, with red and blue exchanged; neither is harder."""

import numpy as np

from sphereface.arrays import Bools, Image

LOOKS = ("red", "blue")
FAMILY = 4  # every fourth person resembles the one before: relatives are of one look


def every_other_family(people: int) -> Bools:
    """Half of some people, relatives together, (people,)."""
    return np.asarray(np.arange(people) // FAMILY % 2 == 1)


def dressed(faces: Image, blue: Bools) -> Image:
    """Faces (N, H, W, 3), some of them, (N,), with red and blue exchanged."""
    return np.where(blue[:, None, None, None], faces[..., ::-1], faces)
