"""Small sets of aligned faces, and an embedder with features that depend on the whole batch."""

import numpy as np

from sphereface.contract import Card
from sphereface.embed.embedder import Embedder
from sphereface.faces.images import encode_png


class Ended(Exception):
    """What ends a run in its middle."""


def write_faces(root, *, people=3, photos=20, size=(112, 96), seed=0):
    """A folder of aligned faces; each is of one colour in each quarter, so that its file is small."""
    rng = np.random.default_rng(seed)
    for person in range(people):
        folder = root / f"p{person}"
        folder.mkdir(parents=True)
        for photo in range(photos):
            quarters = rng.integers(0, 256, (2, 2, 3), dtype=np.uint8)
            face = quarters.repeat(size[0] // 2, axis=0).repeat(size[1] // 2, axis=1)
            (folder / f"{photo:03d}.png").write_bytes(encode_png(face))
    return root


def mixing_embedder(*, calls=None, **card):
    """Features that depend on all faces of their batch: another batch, another feature. It fails after some calls."""
    left = [calls]

    def network(inputs):
        if left[0] is not None:
            left[0] -= 1
            if left[0] < 0:
                raise Ended
        return np.concatenate([inputs[:, :, 0, 0], inputs[:, :, -1, 0] + inputs.mean()], axis=1)

    return Embedder(network, Card(**card), model="a" * 64)
