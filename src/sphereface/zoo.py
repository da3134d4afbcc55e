"""The models that we know: cards for files of others that carry none."""

import hashlib
from pathlib import Path

from sphereface.contract import METADATA_KEY, Card, Preprocessing, parse_card, read_card
from sphereface.errors import ModelFileError
from sphereface.graphs import metadata

# OpenCV's own class takes BGR images, as all of OpenCV, and turns them to RGB for the network.
SFACE = Card(
    name="sface-2021dec",
    preprocessing=Preprocessing(crop="112x112", colour="RGB", mean=0.0, scale=1.0),
    feature_rule="image",
    licences={"weights": "Apache-2.0"},
)

KNOWN = {"0ba9fbfa01b5270c96627c4ef784da859931e02f04419c829e83484087c34e79": SFACE}  # by SHA-256 of the file


def known_card(path: Path) -> Card | None:
    """The card of a file that we know by its bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return KNOWN.get(digest.hexdigest())


def card_of(path: str | Path) -> Card:
    """The card of a model file: its own, or for an `.onnx` the one beside it, or the one that we know it by.

    >>> card_of("face_recognition_sface_2021dec.onnx").name
    'sface-2021dec'
    """
    path = Path(path)
    if path.suffix not in (".safetensors", ".onnx"):
        raise ModelFileError(f"{path}: wanted an .onnx embedder with a card, or our .safetensors")
    if path.suffix == ".safetensors":
        return read_card(path)
    if not path.is_file():
        raise ModelFileError(f"{path}: no such model file")
    try:
        own = metadata(path.read_bytes()).get(METADATA_KEY)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}; copy or download it again") from error
    beside = path.with_name(f"{path.name}.card.json")
    if own:
        return parse_card(own, source=str(path))
    if beside.is_file():
        return parse_card(beside.read_text(), source=str(beside))
    card = known_card(path)
    if card is None:
        raise ModelFileError(
            f"{path}: an ONNX file without a card; write {beside.name} beside it: the template, crop, colour, mean and "
            "scale of its faces, and its feature rule"
        )
    return card
