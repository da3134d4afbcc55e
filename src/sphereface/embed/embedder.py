"""Faces to features: preprocessing, network and feature rule of a model's card."""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from sphereface.arrays import Float32, Image, UInt8
from sphereface.choices import FeatureRule
from sphereface.contract import Card
from sphereface.engines.choice import choose_engine, open_network
from sphereface.errors import ContractMismatch, ModelFileError, NoFaceFound, UserError
from sphereface.faces.detections import choose
from sphereface.faces.detector import Detector
from sphereface.faces.warp import CROPS, align, as_crop
from sphereface.progress import Progress, silent
from sphereface.zoo import ModelFile, identity_of, model_file

BATCH = 16

Faces = UInt8 | Sequence[Image]  # (N, H, W, 3), or N times (H, W, 3)


class Embedder:
    """A model with its card: aligned faces to features, which are not normalised.

    >>> Embedder.load("sface").embed(faces).shape
    (2, 128)
    """

    def __init__(
        self,
        network: Callable[[Float32], Float32],
        card: Card,
        *,
        model: str = "",
        engine: str = "function",
        weights: str = "",
    ) -> None:
        """SHA-256 of the model file (`model`) and of its weights, and the engine's name; all are metadata only."""
        self._network, self.card, self.model, self.engine, self.weights = network, card, model, engine, weights

    @classmethod
    def load(
        cls,
        path: str | Path | ModelFile = "auto",
        engine: str = "auto",
        *,
        threads: int | None = None,
        device: str = "cpu",
        feature_rule: FeatureRule | None = None,
    ) -> "Embedder":
        """An embedder by name, as in `models list`, or from one of our `.safetensors`, or any ONNX file with a card.

        The model `auto` is the most accurate one that is installed; `https://...#sha256=...` is downloaded once.

        The engine `auto` is onnxruntime, or torch for a device other than the cpu. `feature_rule` replaces the card's.
        """
        file = model_file(path)
        chosen = choose_engine(file.path, engine, device=device)
        card = file.card
        network = open_network(file, chosen, threads=threads, device=device)
        _check_size(file.path, network.size, card.preprocessing.crop)
        embedder = cls(network.run, card, model=file.sha256, engine=chosen, weights=file.weights)
        return embedder if feature_rule is None else embedder.with_rule(feature_rule)

    def with_rule(self, rule: FeatureRule) -> "Embedder":
        """The same network under another feature rule; its card has no thresholds and no impostor tails."""
        if rule not in get_args(FeatureRule):
            raise UserError(f"unknown feature rule {rule!r}; choose one of {', '.join(get_args(FeatureRule))}")
        if rule == self.card.feature_rule:
            return self
        uncalibrated = {"thresholds": (), "impostor_tail": None, "template_tails": ()}
        card = self.card.model_copy(update={"feature_rule": rule, **uncalibrated})
        return Embedder(self._network, card, model=self.model, engine=self.engine, weights=self.weights)

    def with_card(self, card: Card) -> "Embedder":
        """The same network with another calibration on its card."""
        return Embedder(self._network, card, model=self.model, engine=self.engine, weights=self.weights)

    @property
    def identity(self) -> str:
        """A hash of all that decides the features; those of two embedders can be compared if it is equal."""
        return identity_of(self.weights or self.model, self.card)

    @cached_property
    def dimension(self) -> int:
        """The length D of a feature."""
        crop = CROPS[self.card.preprocessing.crop]
        return int(self._features(np.zeros((1, crop.height, crop.width, 3), np.uint8)).shape[1])

    def embed(self, faces: Faces, *, progress: Progress = silent) -> Float32:
        """Features (N, D) of faces (N, H, W, 3) uint8 RGB; calls `progress` after each batch."""
        require_faces(faces)
        rows = []
        for start in range(0, len(faces), BATCH):
            rows.append(self.embed_batch(faces[start : start + BATCH]))
            progress(min(start + BATCH, len(faces)), len(faces))
        return np.concatenate(rows) if rows else np.zeros((0, self.dimension), np.float32)

    def embed_batch(self, faces: Faces) -> Float32:
        """Features (N, D) of faces in one call of the network."""
        require_faces(faces)
        if not len(faces):
            return np.zeros((0, self.dimension), np.float32)
        return self._features(np.stack([as_crop(np.asarray(face), self.card.preprocessing.crop) for face in faces]))

    def embed_photo(self, photo: Image, *, detector: Detector | None = None) -> Float32:
        """The feature (D,) of the face nearest the centre of a photo (H, W, 3) uint8 RGB; MTCNN finds it by default.

        >>> Embedder.load("model.safetensors").embed_photo(read_photo("me.jpg")).shape
        (1024,)
        """
        found = choose((detector or self._detector).detect(photo), photo)
        if not len(found):
            height, width = photo.shape[:2]
            raise NoFaceFound(f"no face was found in a photo of {width} x {height} pixels; try a larger, upright one")
        how = self.card.preprocessing
        feature: Float32 = self.embed_batch(align(photo, found.landmarks[0], how.template, how.crop)[None])[0]
        return feature

    @cached_property
    def _detector(self) -> Detector:
        return Detector()

    def _features(self, faces: Image) -> Float32:
        how = self.card.preprocessing
        ordered = faces if how.colour == "RGB" else faces[..., ::-1]
        inputs = np.ascontiguousarray(((ordered.astype(np.float32) - how.mean) / how.scale).transpose(0, 3, 1, 2))
        image = self._network(inputs)
        if self.card.feature_rule == "image":
            return image
        mirror = self._network(np.ascontiguousarray(inputs[..., ::-1]))
        return image + mirror if self.card.feature_rule == "sum" else np.concatenate([image, mirror], axis=1)


def _check_size(path: str | Path, size: tuple[int, int], crop: str) -> None:
    """Raise unless the input size of a network is that of its card's crop."""
    if crop not in CROPS:
        raise ModelFileError(f"{path}: its card has the crop {crop!r}; this version knows {', '.join(CROPS)}")
    wanted = CROPS[crop].height, CROPS[crop].width
    if size != wanted:
        raise ContractMismatch(
            f"{path}: its network takes faces {size[0]} pixels high and {size[1]} wide, but its card's crop {crop} has "
            f"{wanted[0]} and {wanted[1]}; correct the card"
        )


def require_faces(faces: Faces) -> None:
    """Raise unless faces are uint8 (N, H, W, 3), or N times (H, W, 3): numbers from 0 to 1 would be almost black."""
    if isinstance(faces, np.ndarray):
        _require_pixels(faces, "faces", "(N, H, W, 3)", axes=4)
        return
    for number, face in enumerate(faces):
        _require_pixels(np.asarray(face), f"face {number}", "(H, W, 3)", axes=3)


def _require_pixels(found: NDArray[Any], what: str, wanted: str, *, axes: int) -> None:
    if found.dtype == np.uint8 and found.ndim == axes and found.shape[-1] == 3:
        return
    if found.dtype.kind == "f":
        way_out = ": convert numbers from 0 to 1 with (faces * 255).round().astype(np.uint8)"
    elif found.dtype != np.uint8:
        way_out = ": use faces.astype(np.uint8) if they are from 0 to 255"
    elif axes == 4 and found.ndim == 3 and found.shape[-1] == 3:
        way_out = ": use faces[None] for one face"
    elif axes == found.ndim == 4 and found.shape[1] == 3:
        way_out = ": use faces.transpose(0, 2, 3, 1)"
    else:
        way_out = ""
    raise UserError(f"{what} of {found.dtype} {found.shape}; wanted uint8 {wanted}, RGB{way_out}")
