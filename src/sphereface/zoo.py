"""Model files, and the models of others that we know: cards for files that carry none."""

import io
import os
from functools import cached_property
from pathlib import Path

from sphereface.contract import METADATA_KEY, Card, Preprocessing, card_in, parse_card
from sphereface.errors import ModelFileError
from sphereface.graphs import metadata
from sphereface.hashes import sha256_of

LARGEST = 2_000_000_000  # bytes of a model file; a protocol buffer ends at 2 GiB

# OpenCV's own class takes BGR images, as all of OpenCV, and turns them to RGB for the network.
SFACE = Card(
    name="sface-2021dec",
    preprocessing=Preprocessing(crop="112x112", colour="RGB", mean=0.0, scale=1.0),
    feature_rule="image",
    licences={"weights": "Apache-2.0"},
)

KNOWN = {  # by SHA-256 of the file
    "0ba9fbfa01b5270c96627c4ef784da859931e02f04419c829e83484087c34e79": SFACE,
    "fb143eea07838aa532d1c95df5f69899974ea0140e1fba05e94204be13ed74ee": SFACE.model_copy(
        update={"name": "sface-2021dec-int8bq"}  # weights as integers, in blocks of 64
    ),
}


class ModelFile:
    """A model file, read once: its hash, its card and its network are of the same bytes.

    >>> ModelFile("face_recognition_sface_2021dec.onnx").card.name
    'sface-2021dec'
    """

    def __init__(self, path: str | Path) -> None:
        """Read a `.safetensors` of ours or an `.onnx`."""
        self.path = Path(path)
        self.kind = self.path.suffix
        if self.kind not in (".safetensors", ".onnx"):
            raise ModelFileError(f"{path}: wanted an .onnx embedder with a card, or our .safetensors")
        if not self.path.is_file():
            raise ModelFileError(f"{path}: no such model file")
        try:
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size > LARGEST:
                    raise ModelFileError(f"{path}: {size:,} bytes; a model file has at most {LARGEST:,}")
                self.content = file.read()
        except OSError as error:
            raise ModelFileError(f"{path}: cannot be read ({error.strerror})") from error

    @cached_property
    def sha256(self) -> str:
        """The hash of the file."""
        return sha256_of(self.content)

    @cached_property
    def card(self) -> Card:
        """The file's own card, or for an `.onnx` the one beside it, or the one that we know it by."""
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
    """A model file that is read already, or the one at a path."""
    return given if isinstance(given, ModelFile) else ModelFile(given)


def card_of(path: str | Path) -> Card:
    """The card of a model file, from wherever it comes."""
    return ModelFile(path).card
