"""Model files: content, hash and card from one reading."""

import io
import json
import os
from functools import cached_property
from pathlib import Path

from sphereface.contract import METADATA_KEY, Card, card_in, open_model, parse_card
from sphereface.errors import ModelFileError
from sphereface.graphs import metadata, with_metadata
from sphereface.hashes import sha256_of
from sphereface.zoo.cards import known_card
from sphereface.zoo.finding import Found, find_model, names

LARGEST = 2_000_000_000  # bytes of a model file; a protocol buffer has at most 2 GiB


class ModelFile:
    """A model file, read once: hash, card and network come from the same bytes.

    >>> ModelFile("face_recognition_sface_2021dec.onnx").card.name
    'sface-2021dec'
    """

    def __init__(self, path: str | Path | Found) -> None:
        """Read a `.safetensors` of ours or an `.onnx`; a found model is checked by its SHA-256."""
        found = path if isinstance(path, Found) else Found(Path(path))
        self.path, self.is_shared = found.path, bool(found.sha256)  # shared: of a package or a download, not a user's
        self.kind = self.path.suffix
        if self.kind not in (".safetensors", ".onnx"):
            raise ModelFileError(
                f"{self.path}: wanted an .onnx embedder with a card, or our .safetensors, "
                f"or a name: {', '.join(names())}"
            )
        with open_model(self.path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > LARGEST:
                raise ModelFileError(f"{path}: {size:,} bytes; a model file has at most {LARGEST:,}")
            self.content = file.read()
        found.check(self.sha256)

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of the file."""
        return sha256_of(self.content)

    @cached_property
    def weights(self) -> str:
        """The SHA-256 of the file without its card: a calibration changes the file, and leaves this as it is."""
        if self.kind == ".safetensors":
            return sha256_of(self.content[8 + int.from_bytes(self.content[:8], "little") :])
        return sha256_of(with_metadata(self.content, METADATA_KEY, None))

    @property
    def identity(self) -> str:
        """A hash of all that decides the model's features; see `identity_of`."""
        return identity_of(self.weights, self.card)

    @cached_property
    def card(self) -> Card:
        """The card in the file; for an `.onnx` without one, the `.card.json` beside it, or ours if we know the file."""
        if self.kind == ".safetensors":
            return card_in(io.BytesIO(self.content), source=str(self.path))
        try:
            own = metadata(self.content).get(METADATA_KEY)
        except ModelFileError as error:
            raise ModelFileError(f"{self.path}: {error}; copy or download it again") from error
        if own:
            return parse_card(own, source=str(self.path))
        beside = self.path.with_name(f"{self.path.name}.card.json")
        if beside.is_file():
            return parse_card(beside.read_bytes(), source=str(beside))
        known = known_card(self.sha256)
        if known is None:
            raise ModelFileError(
                f"{self.path}: an ONNX file without a card; write {beside.name} beside it: the template, crop, colour, "
                "mean and scale of its faces, and its feature rule"
            )
        return known


def identity_of(weights: str, card: Card) -> str:
    """A hash of all that decides a model's features: weights, network, preprocessing and rule; not of thresholds."""
    net = card.architecture
    parts = [weights, net and net.model_dump_json(), card.preprocessing.model_dump_json(), card.feature_rule]
    return sha256_of(json.dumps(parts))


def model_file(given: str | Path | ModelFile) -> ModelFile:
    """The model file of a name, a path or a URL; a `ModelFile` is returned as it is."""
    return given if isinstance(given, ModelFile) else ModelFile(find_model(given))


def card_of(given: str | Path) -> Card:
    """The card of a model, by name, path or URL; see `ModelFile.card`."""
    return model_file(given).card
