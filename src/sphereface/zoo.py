"""Model files, and cards for well-known models of other projects, which store none."""

import io
import os
from functools import cached_property
from pathlib import Path

from sphereface.contract import METADATA_KEY, Card, Preprocessing, card_in, open_model, parse_card
from sphereface.errors import ModelFileError
from sphereface.graphs import metadata
from sphereface.hashes import sha256_of

LARGEST = 2_000_000_000  # bytes of a model file; a protocol buffer has at most 2 GiB

# The network takes RGB: OpenCV's own class takes BGR images and converts them.
SFACE = Card(
    name="sface-2021dec",
    preprocessing=Preprocessing(crop="112x112", colour="RGB", mean=0.0, scale=1.0),
    feature_rule="image",
    licences={"weights": "Apache-2.0"},
)

KNOWN = {  # by SHA-256 of the file
    "0ba9fbfa01b5270c96627c4ef784da859931e02f04419c829e83484087c34e79": SFACE,
    "fb143eea07838aa532d1c95df5f69899974ea0140e1fba05e94204be13ed74ee": SFACE.model_copy(
        update={"name": "sface-2021dec-int8bq"}  # integer weights, in blocks of 64
    ),
}


class ModelFile:
    """A model file, read once: hash, card and network come from the same bytes.

    >>> ModelFile("face_recognition_sface_2021dec.onnx").card.name
    'sface-2021dec'
    """

    def __init__(self, path: str | Path) -> None:
        """Read a `.safetensors` of ours or an `.onnx`."""
        self.path = Path(path)
        self.kind = self.path.suffix
        if self.kind not in (".safetensors", ".onnx"):
            raise ModelFileError(f"{path}: wanted an .onnx embedder with a card, or our .safetensors")
        with open_model(self.path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > LARGEST:
                raise ModelFileError(f"{path}: {size:,} bytes; a model file has at most {LARGEST:,}")
            self.content = file.read()

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of the file."""
        return sha256_of(self.content)

    @cached_property
    def card(self) -> Card:
        """The card in the file; for an `.onnx` without one, the `.card.json` beside it, or the entry of `KNOWN`."""
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
        if self.sha256 not in KNOWN:
            raise ModelFileError(
                f"{self.path}: an ONNX file without a card; write {beside.name} beside it: the template, crop, colour, "
                "mean and scale of its faces, and its feature rule"
            )
        return KNOWN[self.sha256]


def model_file(given: str | Path | ModelFile) -> ModelFile:
    """The model file at a path; a `ModelFile` is returned as it is."""
    return given if isinstance(given, ModelFile) else ModelFile(given)


def card_of(path: str | Path) -> Card:
    """The card of a model file; see `ModelFile.card`."""
    return ModelFile(path).card
