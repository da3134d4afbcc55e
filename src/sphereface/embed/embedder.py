"""Faces become features: preprocessing, network and feature rule as a model's card says."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sphereface.contract import Card
from sphereface.engines.onnxruntime import OnnxNetwork
from sphereface.errors import ModelFileError
from sphereface.faces.images import Image
from sphereface.faces.warp import as_crop

BATCH = 16

Floats = NDArray[np.float32]


class Embedder:
    """A model with its card: aligned faces in, features out, at their own length.

    >>> Embedder.load("face_recognition_sface_2021dec.onnx").embed(faces).shape
    (2, 128)
    """

    def __init__(self, network: Callable[[Floats], Floats], card: Card) -> None:
        self._network, self.card = network, card

    @classmethod
    def load(cls, path: str | Path, *, threads: int | None = None) -> "Embedder":
        """An embedder from an ONNX file with a card."""
        if Path(path).suffix != ".onnx":
            raise ModelFileError(f"{path}: wanted an .onnx embedder with a card")
        network = OnnxNetwork(path, threads=threads)
        return cls(network.run, network.card())

    def embed(self, faces: NDArray[np.uint8], *, progress: Callable[[int], None] = lambda _: None) -> Floats:
        """Features of faces (N, H, W, 3) uint8 RGB, (N, D); `progress` hears how many are done."""
        rows = []
        for start in range(0, len(faces), BATCH):
            rows.append(self._features(faces[start : start + BATCH]))
            progress(min(start + BATCH, len(faces)))
        return np.concatenate(rows) if rows else np.zeros((0, 0), np.float32)

    def _features(self, faces: Image) -> Floats:
        cropped = np.stack([as_crop(face, self.card.preprocessing.crop) for face in faces])
        image = self._network(self._inputs(cropped))
        if self.card.feature_rule == "image":
            return image
        mirror = self._network(self._inputs(cropped[:, :, ::-1]))
        return image + mirror if self.card.feature_rule == "sum" else np.concatenate([image, mirror], axis=1)

    def _inputs(self, faces: Image) -> Floats:
        how = self.card.preprocessing
        ordered = faces if how.colour == "RGB" else faces[..., ::-1]
        return np.ascontiguousarray(((ordered.astype(np.float32) - how.mean) / how.scale).transpose(0, 3, 1, 2))
