"""The card of a model: what faces it wants, what its features mean, what may be done with it.

A card travels in the metadata of the model's own file, so the two cannot be parted. It is read, written and compared
here only, and without torch.
"""

import math
import os
from bisect import bisect_right
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal, NamedTuple

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    model_serializer,
    model_validator,
)

from sphereface.choices import FeatureRule, Template, Weigh
from sphereface.errors import ContractMismatch, ModelFileError, UserError
from sphereface.hashes import sha256_of

METADATA_KEY = "sphereface.card"

# Residual units per stage, as printed in the paper; depth = sum(1 + 2 units). Here, since a card names them, and a
# network is read from its file also where torch is missing.
STAGES: dict[str, tuple[int, int, int, int]] = {
    "sphereface4": (0, 0, 0, 0),
    "sphereface10": (0, 1, 2, 0),
    "sphereface20": (1, 2, 4, 1),
    "sphereface36": (2, 4, 8, 2),
    "sphereface64": (3, 8, 16, 3),
    "sphereface64_caffe": (3, 7, 16, 3),  # the authors' prototxt: one unit fewer than the table
}

Norm = Literal["batch"] | None
MADE_OF: dict[FeatureRule, str] = {
    "concatenate": "image and mirror image, concatenated",
    "sum": "image and mirror image, summed",
    "image": "the image alone",
}
Measured = Literal["measured", "below what was measured", "above what was measured"]


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

    template: Template = "sphereface"
    crop: str = "112x96"

    def fingerprint(self) -> str:
        """A hash that changes with every field: two sets of faces with the same one were made alike."""
        return sha256_of(self.model_dump_json())[:16]


class Preprocessing(Alignment):
    """How a photo becomes the numbers that enter the network: (pixel - mean) / scale of an aligned crop."""

    colour: Literal["RGB", "BGR"] = "RGB"
    mean: float = Field(default=127.5, ge=-1e6, le=1e6)
    scale: float = Field(default=128.0, ge=1e-6, le=1e6)

    @property
    def alignment(self) -> Alignment:
        """The part that is done to stored faces; the rest happens as they enter a network."""
        return Alignment(template=self.template, crop=self.crop)


class Grown(Record):
    """A record that got fields later: they are written only where they say something.

    So the text of an older card, and the hashes that were taken of it, stay as they were.
    """

    later: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _without_empty(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {field: value for field, value in write(self).items() if value or field not in self.later}


class Threshold(Grown):
    """A score from which two faces count as the same person, and where that was measured.

    One for searches has a gallery's size, the rate of searches for strangers that find somebody (FPIR), and as `far`
    the rate of one comparison that gives this FPIR if comparisons are independent.
    """

    later: ClassVar[frozenset[str]] = frozenset({"interval", "fpir", "gallery_size", "approximate"})

    score: float = Field(ge=-1, le=1)
    far: float = Field(gt=0, lt=1)
    measured_on: str
    interval: tuple[float, float] | None = None  # 95 %, of the score
    fpir: float | None = Field(default=None, gt=0, lt=1)
    gallery_size: int | None = Field(default=None, ge=1)
    approximate: bool = False  # taken from `far`, as if comparisons were independent

    def __str__(self) -> str:
        rate = f"FAR {self.far:g}"
        if self.fpir is not None:
            rate = f"FPIR {self.fpir:g}, gallery of {self.gallery_size:,}"
        interval = "" if self.interval is None else f"   [{self.interval[0]:.4f}, {self.interval[1]:.4f}]"
        note = "  approximate: as if comparisons were independent" if self.approximate else ""
        return f"{rate:<34}{self.score:>8.4f}{interval}{note}"

    @model_validator(mode="after")
    def _agree(self) -> "Threshold":
        if (self.fpir is None) != (self.gallery_size is None):
            raise UserError("fpir and gallery_size belong together")
        if self.interval and not self.interval[0] <= self.score <= self.interval[1]:
            raise UserError(f"score {self.score} outside of its interval {self.interval}")
        return self


class FalseAcceptRate(NamedTuple):
    """The share of different people that score as high, and whether the data reached so far."""

    far: float  # where the data did not reach: the last rate that they did
    said: Measured = "measured"

    def __str__(self) -> str:
        match self.said:
            case "measured":
                return f"{self.far:.2g}"
            case "below what was measured":
                return f"below {self.far:.2g}, {self.said}"
            case _:
                return f"above {self.far:.2g}, {self.said}"


class ImpostorTail(Record):
    """How often different people score so high: rising scores, each with the share of pairs that reach it."""

    scores: tuple[float, ...] = Field(min_length=1)
    fars: tuple[float, ...]
    people: int = Field(ge=2)
    pairs: int = Field(ge=1)  # of photos of different people
    weigh: Weigh  # whether two people have the same say, or two photos
    feature_rule: FeatureRule
    measured_on: str

    @model_validator(mode="after")
    def _falls(self) -> "ImpostorTail":
        falls = all(a < b for a, b in pairwise(self.scores)) and all(a > b > 0 for a, b in pairwise(self.fars))
        if len(self.fars) != len(self.scores) or not falls or not 0 < self.fars[0] <= 1:
            raise UserError("an impostor tail has rising scores, and as many rates, which fall and stay above 0")
        return self

    def far_of(self, score: float) -> FalseAcceptRate:
        """The rate at a score, straight in its logarithm between two points; beyond the ends it says so."""
        if not math.isfinite(score):
            raise UserError(f"score is {score}; wanted a cosine")
        if score < self.scores[0]:
            return FalseAcceptRate(self.fars[0], "above what was measured")
        if score > self.scores[-1]:
            return FalseAcceptRate(self.fars[-1], "below what was measured")
        after = min(bisect_right(self.scores, score), len(self.scores) - 1)
        before = max(after - 1, 0)
        if before == after:
            return FalseAcceptRate(self.fars[0])
        share = (score - self.scores[before]) / (self.scores[after] - self.scores[before])
        return FalseAcceptRate(self.fars[before] ** (1 - share) * self.fars[after] ** share)


class Member(Record):
    """One of the models of an ensemble."""

    name: str
    model: str  # SHA-256 of its file
    card: str  # hash of its card


class Card(Grown):
    """What a user of a model must know."""

    later: ClassVar[frozenset[str]] = frozenset({"impostor_tail", "members"})

    format: Literal[1] = 1
    name: str = ""
    architecture: Architecture | None = None
    preprocessing: Preprocessing = Preprocessing()
    feature_rule: FeatureRule = "concatenate"
    thresholds: tuple[Threshold, ...] = ()
    licences: dict[str, str] = Field(default_factory=dict)  # of code, weights, data
    impostor_tail: ImpostorTail | None = None
    members: tuple[Member, ...] = ()  # of an ensemble; then colour, mean and scale are theirs

    def far_of(self, score: float) -> FalseAcceptRate:
        """How often different people score so high, from the calibration that the card carries.

        >>> str(read_card("model.safetensors").far_of(0.61))
        'below 6e-05, below what was measured'
        """
        tail = self.impostor_tail
        if tail is None:
            raise ContractMismatch(f"the card of {self.name or 'this model'} has no impostor tail; calibrate the model")
        if tail.feature_rule != self.feature_rule:
            raise ContractMismatch(
                f"the impostor tail was measured under the feature rule {tail.feature_rule}, the features are made "
                f"under {self.feature_rule}; calibrate the model under that rule"
            )
        return tail.far_of(score)

    @property
    def called(self) -> str:
        """The model's name, or that it has none."""
        return self.name or "a model without a name"

    def text(self) -> str:
        """The card for people to read, as plain text."""
        how, net, tail = self.preprocessing, self.architecture, self.impostor_tail
        lines = [self.called]
        if net is not None:
            extras = (", last ReLU" if net.last_relu else "") + (f", {net.norm} norm" if net.norm else "")
            lines.append(f"network     {net.name}, width {net.width:g}, {net.features:,} features{extras}")
        lines += [f"member      {each.name}, SHA-256 {each.model[:12]}..." for each in self.members]
        lines.append(f"faces       template {how.template}, crop {how.crop}")
        if not self.members:
            lines.append(f"input       {how.colour}, (pixel - {how.mean:g}) / {how.scale:g}")
        lines.append(f"features    {MADE_OF[self.feature_rule]}")
        lines += [f"threshold   {each}, measured on {each.measured_on}" for each in self.thresholds]
        if not self.thresholds:
            lines.append("thresholds  none: measure some with sphereface models calibrate")
        if tail is not None:
            lines.append(
                f"impostors   scores {tail.scores[0]:.4f} to {tail.scores[-1]:.4f} are reached by {tail.fars[0]:.2g} "
                f"to {tail.fars[-1]:.2g} of different people; {tail.people:,} people, {tail.pairs:,} pairs of photos"
            )
        lines += [f"licence     {what}: {licence}" for what, licence in self.licences.items()]
        return "\n".join(lines)

    def metadata(self) -> dict[str, str]:
        """The card as a model file stores it."""
        return {METADATA_KEY: self.model_dump_json(), "format": "pt"}


class _Extent(BaseModel):
    """Where a tensor lies in a `.safetensors` file: its first byte and its end, counted from the header's end."""

    data_offsets: tuple[int, int]


_HEADER = TypeAdapter(dict[str, _Extent | dict[str, str]])


def read_card(path: str | Path) -> Card:
    """The card of a `.safetensors` model, checked.

    >>> read_card("model.safetensors").preprocessing.colour
    'RGB'
    """
    path = Path(path)
    if not path.is_file():
        raise ModelFileError(f"{path}: no such model file")
    try:
        with path.open("rb") as file:
            return card_in(file, source=str(path))
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror})") from error


def card_in(file: BinaryIO, *, source: str) -> Card:
    """The card in an open `.safetensors`, of which only the header is read; `source` names it in errors.

    The file begins with the header's length in 8 bytes, and the header is JSON. The safetensors package reads metadata
    of files only, and a model that is hashed and run is at hand as bytes.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    try:
        header = _HEADER.validate_json(file.read(min(length, size)))
    except ValidationError as error:
        raise broken_safetensors(source, "it has no header that is one") from error
    ends = [entry.data_offsets[1] for entry in header.values() if isinstance(entry, _Extent)]
    if (wanted := 8 + length + max(ends, default=0)) != size:
        raise broken_safetensors(source, f"{size:,} bytes, where its header speaks of {wanted:,}")
    metadata = header.get("__metadata__", {})
    if isinstance(metadata, _Extent) or METADATA_KEY not in metadata:
        raise ModelFileError(
            f"{source}: a .safetensors file without a sphereface card; save it with sphereface.models.save_model"
        )
    return parse_card(metadata[METADATA_KEY], source=source)


def broken_safetensors(source: str, reason: object) -> ModelFileError:
    """The error for a damaged `.safetensors`."""
    return ModelFileError(f"{source}: not a whole .safetensors file ({reason}); copy or download it again")


def parse_card(text: str | bytes, *, source: str) -> Card:
    """A card from its JSON text; `source` names it in errors."""
    try:
        return Card.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "card"
        reason = " ".join(first["msg"].split())
        raise ModelFileError(
            f"{source}: its card has a bad {where}: {reason}; it may come from a newer sphereface"
        ) from error


def differences(a: Preprocessing, b: Preprocessing) -> dict[str, tuple[object, object]]:
    """The fields in which two ways to make faces differ, with both values."""
    left, right = a.model_dump(), b.model_dump()
    return {field: (left[field], right[field]) for field in left if left[field] != right[field]}
