"""Faces become features: preprocessing, network and feature rule as a model's card says."""

import hashlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from sphereface.contract import Card
from sphereface.engines.choice import choose_engine, open_network
from sphereface.errors import ContractMismatch, ModelFileError
from sphereface.faces.images import Image
from sphereface.faces.warp import CROPS, as_crop

BATCH = 16

Floats = NDArray[np.float32]
Rule = Literal["concatenate", "sum", "image"]


class Embedder:
    """A model with its card: aligned faces in, features out, at their own length.

    >>> Embedder.load("face_recognition_sface_2021dec.onnx").embed(faces).shape
    (2, 128)
    """

    def __init__(
        self, network: Callable[[Floats], Floats], card: Card, *, model: str = "", engine: str = "function"
    ) -> None:
        """`model` is the SHA-256 of the model's file, `engine` what runs it; both are for the record."""
        self._network, self.card, self.model, self.engine = network, card, model, engine

    @classmethod
    def load(
        cls,
        path: str | Path,
        engine: str = "auto",
        *,
        threads: int | None = None,
        device: str = "cpu",
        rule: Rule | None = None,
    ) -> "Embedder":
        """An embedder from one of our `.safetensors`, or from any ONNX file with a card.

        The engine `auto` is onnxruntime, or torch for a device other than the cpu. `rule` replaces the card's.
        """
        chosen = choose_engine(path, engine, device=device)
        network = open_network(path, chosen, threads=threads, device=device)
        card = network.card()
        _check_size(path, network.size, card.preprocessing.crop)
        embedder = cls(network.run, card, model=_sha256(Path(path)), engine=chosen)
        return embedder if rule is None else embedder.with_rule(rule)

    def with_rule(self, rule: Rule) -> "Embedder":
        """The same network under another feature rule; what was calibrated under the card's own stays behind."""
        if rule not in get_args(Rule):
            raise ValueError(f"unknown feature rule {rule!r}; choose one of {', '.join(get_args(Rule))}")
        if rule == self.card.feature_rule:
            return self
        card = self.card.model_copy(update={"feature_rule": rule, "thresholds": (), "impostor_tail": None})
        return Embedder(self._network, card, model=self.model, engine=self.engine)

    @cached_property
    def dimension(self) -> int:
        """How many numbers a feature has."""
        crop = CROPS[self.card.preprocessing.crop]
        return int(self._features(np.zeros((1, crop.height, crop.width, 3), np.uint8)).shape[1])

    def embed(self, faces: NDArray[np.uint8], *, progress: Callable[[int], None] = lambda _: None) -> Floats:
        """Features of faces (N, H, W, 3) uint8 RGB, (N, D); `progress` hears how many are done."""
        rows = []
        for start in range(0, len(faces), BATCH):
            rows.append(self.embed_batch(faces[start : start + BATCH]))
            progress(min(start + BATCH, len(faces)))
        return np.concatenate(rows) if rows else np.zeros((0, self.dimension), np.float32)

    def embed_batch(self, faces: NDArray[np.uint8]) -> Floats:
        """Features of faces that go through the network together."""
        return self._features(np.stack([as_crop(face, self.card.preprocessing.crop) for face in faces]))

    def _features(self, faces: Image) -> Floats:
        inputs = self._inputs(faces)
        image = self._network(inputs)
        if self.card.feature_rule == "image":
            return image
        mirror = self._network(np.ascontiguousarray(inputs[..., ::-1]))
        return image + mirror if self.card.feature_rule == "sum" else np.concatenate([image, mirror], axis=1)

    def _inputs(self, faces: Image) -> Floats:
        how = self.card.preprocessing
        ordered = faces if how.colour == "RGB" else faces[..., ::-1]
        return np.ascontiguousarray(((ordered.astype(np.float32) - how.mean) / how.scale).transpose(0, 3, 1, 2))


def _check_size(path: str | Path, size: tuple[int, int], crop: str) -> None:
    """Raise unless a network takes the faces that its card speaks of."""
    if crop not in CROPS:
        raise ModelFileError(f"{path}: its card wants the crop {crop!r}; this version knows {', '.join(CROPS)}")
    wanted = CROPS[crop].height, CROPS[crop].width
    if size != wanted:
        raise ContractMismatch(
            f"{path}: its network takes faces {size[0]} pixels high and {size[1]} wide, but its card's crop {crop} has "
            f"{wanted[0]} and {wanted[1]}; correct the card"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
