"""The card of a model: what faces it wants, what its features mean, what may be done with it.

A card travels in the metadata of the model's own file, so the two cannot be parted. It is read, written and compared
here only, and without torch.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open

from sphereface.errors import ContractMismatch, ModelFileError

METADATA_KEY = "sphereface.card"

Norm = Literal["batch"] | None


class Record(BaseModel):
    """A frozen record that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Architecture(Record):
    """Which network the weights belong to: the arguments of `create_model`."""

    name: str
    features: int = Field(default=512, ge=1, le=1 << 20)
    width: float = Field(default=1.0, gt=0, le=64)
    last_relu: bool = False
    norm: Norm = None


class Alignment(Record):
    """How a photo becomes a face: which template its five points are carried to, and which crop is kept."""

    template: Literal["sphereface", "matlab"] = "sphereface"
    crop: str = "112x96"

    def fingerprint(self) -> str:
        """A hash that changes with every field: two sets of faces with the same one were made alike."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]


class Preprocessing(Alignment):
    """How a photo becomes the numbers that enter the network: (pixel - mean) / scale of an aligned crop."""

    colour: Literal["RGB", "BGR"] = "RGB"
    mean: float = 127.5
    scale: float = Field(default=128.0, gt=0)

    @property
    def alignment(self) -> Alignment:
        """The part that is done to stored faces; the rest happens as they enter a network."""
        return Alignment(template=self.template, crop=self.crop)


class Threshold(Record):
    """A score from which two faces count as the same person, and where that was measured."""

    score: float = Field(ge=-1, le=1)
    far: float = Field(gt=0, lt=1)
    measured_on: str


class Card(Record):
    """What a user of a model must know."""

    format: Literal[1] = 1
    name: str = ""
    architecture: Architecture | None = None
    preprocessing: Preprocessing = Preprocessing()
    feature_rule: Literal["concatenate", "sum", "image"] = "concatenate"  # image and mirror image, or the image alone
    thresholds: tuple[Threshold, ...] = ()
    licences: dict[str, str] = Field(default_factory=dict)  # of code, weights, data

    def metadata(self) -> dict[str, str]:
        """The card as a model file stores it."""
        return {METADATA_KEY: self.model_dump_json(), "format": "pt"}


def read_card(path: str | Path) -> Card:
    """The card of a `.safetensors` model, checked.

    >>> read_card("model.safetensors").preprocessing.colour
    'RGB'
    """
    path = Path(path)
    if not path.is_file():
        raise ModelFileError(f"{path}: no such model file")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata: Mapping[str, str] = file.metadata() or {}
    except SafetensorError as error:
        raise ModelFileError(f"{path}: not a whole .safetensors file ({error}); copy or download it again") from error
    if METADATA_KEY not in metadata:
        raise ModelFileError(
            f"{path}: a .safetensors file without a sphereface card; save it with sphereface.models.save_model"
        )
    return parse_card(metadata[METADATA_KEY], source=str(path))


def parse_card(text: str, *, source: str) -> Card:
    """A card from its JSON text; `source` names it in errors."""
    try:
        return Card.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "card"
        reason = re.sub(r"\s+", " ", first["msg"])
        raise ModelFileError(
            f"{source}: its card has a bad {where}: {reason}; it may come from a newer sphereface"
        ) from error


def differences(a: Preprocessing, b: Preprocessing) -> dict[str, tuple[object, object]]:
    """The fields in which two ways to make faces differ, with both values."""
    left, right = a.model_dump(), b.model_dump()
    return {field: (left[field], right[field]) for field in left if left[field] != right[field]}


def require_same(faces: Preprocessing, model: Preprocessing) -> None:
    """Raise unless faces were made as a model wants them."""
    found = differences(faces, model)
    if found:
        listed = ", ".join(
            f"{field} {json.dumps(a)} (the model wants {json.dumps(b)})" for field, (a, b) in found.items()
        )
        raise ContractMismatch(f"the faces were made with {listed}; align them again as the model's card says")
