"""The card of a model: preprocessing, feature rule, thresholds and licences, as metadata of the model file."""

import math
import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
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

# Residual units per stage, as printed in the paper; depth = sum(1 + 2 units). In this module, because cards name the
# networks, and model files are read without torch.
STAGES: dict[str, tuple[int, int, int, int]] = {
    "sphereface4": (0, 0, 0, 0),
    "sphereface10": (0, 1, 2, 0),
    "sphereface20": (1, 2, 4, 1),
    "sphereface36": (2, 4, 8, 2),
    "sphereface64": (3, 8, 16, 3),
    "sphereface64_caffe": (3, 7, 16, 3),  # the authors' prototxt: one unit fewer than the table
}

# None as in the paper; batch norm before each activation; the same, and on the features.
Norm = Literal["batch", "batch-all"] | None
MADE_OF: dict[FeatureRule, str] = {
    "concatenate": "image and mirror image, concatenated",
    "sum": "image and mirror image, summed",
    "image": "the image alone",
}
Measured = Literal["measured", "below what was measured", "above what was measured"]


class Record(BaseModel):
    """A frozen record; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Architecture(Record):
    """The network of the weights: the arguments of `create_model`."""

    name: str
    features: int = Field(default=512, ge=1, le=1 << 20)
    width: float = Field(default=1.0, gt=0, le=64)
    last_relu: bool = False
    norm: Norm = None


class Alignment(Record):
    """How a photo becomes a face: the template for its five points, and the crop."""

    template: Template = "sphereface"
    crop: str = "112x96"

    def fingerprint(self) -> str:
        """A hash of all fields: equal for two sets of faces with equal alignment."""
        return sha256_of(self.model_dump_json())[:16]


class Preprocessing(Alignment):
    """How a photo becomes the input of the network: (pixel - mean) / scale of an aligned crop."""

    colour: Literal["RGB", "BGR"] = "RGB"
    mean: float = Field(default=127.5, ge=-1e6, le=1e6)
    scale: float = Field(default=128.0, ge=1e-6, le=1e6)

    @property
    def alignment(self) -> Alignment:
        """The steps before a face is stored; the others are part of embedding."""
        return Alignment(template=self.template, crop=self.crop)


class Grown(Record):
    """A record that writes its `later` fields only if they are set: the text and hash of older cards stay the same."""

    later: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _without_empty(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {field: value for field, value in write(self).items() if value or field not in self.later}


class Threshold(Grown):
    """The lowest score at which two faces count as the same person, and the data that it was measured on.

    A threshold for searches has a gallery size and an FPIR, the share of searches for people outside the gallery that
    return a match; its `far` is the rate per comparison that gives this FPIR if comparisons are independent.
    """

    later: ClassVar[frozenset[str]] = frozenset({"interval", "fpir", "gallery_size", "approximate"})

    score: float = Field(ge=-1, le=1)
    far: float = Field(gt=0, lt=1)
    measured_on: str
    interval: tuple[float, float] | None = None  # 95 %, of the score
    fpir: float | None = Field(default=None, gt=0, lt=1)
    gallery_size: int | None = Field(default=None, ge=1)
    approximate: bool = False  # derived from `far` for independent comparisons

    def __str__(self) -> str:
        rate = f"FAR {self.far:g}" if self.fpir is None else f"FPIR {self.fpir:g}, gallery of {self.gallery_size:,}"
        interval = "" if self.interval is None else f"   [{self.interval[0]:.4f}, {self.interval[1]:.4f}]"
        note = "  approximate: as if comparisons were independent" if self.approximate else ""
        return f"{rate:<34}{self.score:>8.4f}{interval}{note}"

    @model_validator(mode="after")
    def _agree(self) -> "Threshold":
        if (self.fpir is None) != (self.gallery_size is None):
            raise UserError(f"fpir is {self.fpir}, gallery_size is {self.gallery_size}; give both or neither")
        if self.interval and not self.interval[0] <= self.score <= self.interval[1]:
            raise UserError(f"score {self.score}; wanted one inside its interval {self.interval}")
        return self


class FalseAcceptRate(NamedTuple):
    """The share of different people that reach a score, and whether the score is in the measured range."""

    far: float  # outside the measured range: the rate at its nearest end
    said: Measured = "measured"

    def __str__(self) -> str:
        if self.said == "measured":
            return f"{self.far:.2g}"
        side, _ = self.said.split(" ", 1)
        return f"{side} {self.far:.2g}, {self.said}"


class ImpostorTail(Record):
    """False accept rates of high scores: rising scores, each with the share of impostor pairs that reach it."""

    scores: tuple[float, ...] = Field(min_length=1)
    fars: tuple[float, ...]
    people: int = Field(ge=2)
    pairs: int = Field(ge=1)  # of photos of different people
    weigh: Weigh  # the unit of equal weight: pairs of people, or pairs of photos
    feature_rule: FeatureRule
    measured_on: str

    @model_validator(mode="after")
    def _falls(self) -> "ImpostorTail":
        falls = all(a < b for a, b in pairwise(self.scores)) and all(a > b > 0 for a, b in pairwise(self.fars))
        if len(self.fars) != len(self.scores) or not falls or not 0 < self.fars[0] <= 1:
            raise UserError("an impostor tail needs rising scores and the same number of rates, falling and above 0")
        return self

    def far_of(self, score: float) -> FalseAcceptRate:
        """The rate at a score, log-linear between two points; outside the measured range, that of the nearest end."""
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


class TemplateTail(ImpostorTail):
    """An impostor tail of searches: one photo of a person against the template of another, made of several photos.

    Templates of more photos score higher with strangers, too, so that each number of photos has a tail of its own.
    """

    photos: int = Field(ge=1)  # in a template
    templates: int = Field(ge=2)  # people with as many photos


class Accuracy(Record):
    """A verification accuracy, with the test set and the source of the number."""

    value: float = Field(ge=0, le=1)
    test: str  # such as "LFW view 2"
    source: str  # who measured it, and how

    def __str__(self) -> str:
        return f"{self.value:.2%} on {self.test} ({self.source})"


class Member(Record):
    """A model of an ensemble."""

    name: str
    model: str  # SHA-256 of its file
    card: str  # hash of its card


class Card(Grown):
    """What faces a model needs, how its features are made, and where it was calibrated."""

    later: ClassVar[frozenset[str]] = frozenset(
        {
            "impostor_tail",
            "template_tails",
            "members",
            "training_data",
            "teacher",
            "commercial_use",
            "accuracy",
            "limits",
        }
    )

    format: Literal[1] = 1
    name: str = ""
    architecture: Architecture | None = None
    preprocessing: Preprocessing = Preprocessing()
    feature_rule: FeatureRule = "concatenate"
    thresholds: tuple[Threshold, ...] = ()
    licences: dict[str, str] = Field(default_factory=dict)  # of code, weights, data
    impostor_tail: ImpostorTail | None = None
    template_tails: tuple[TemplateTail, ...] = ()  # by rising number of photos
    members: tuple[Member, ...] = ()  # of an ensemble; colour, mean and scale are then on their cards
    training_data: str = ""
    teacher: str = ""  # the model whose features it learned
    commercial_use: Literal["", "yes", "no", "unclear"] = ""  # empty: not stated
    accuracy: tuple[Accuracy, ...] = ()  # the first one ranks installed models
    limits: tuple[str, ...] = ()  # in plain words, for users

    def far_of(self, score: float) -> FalseAcceptRate:
        """The false accept rate at a score, from the calibration on the card.

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
        """The model's name, or a description if it has none."""
        return self.name or "a model without a name"

    def text(self) -> str:
        """The card as plain text."""
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
        lines += [
            f"templates   of {_count(each.photos, 'photo')}: scores {each.scores[0]:.4f} to {each.scores[-1]:.4f} are "
            f"reached by {each.fars[0]:.2g} to {each.fars[-1]:.2g} of strangers' photos; {each.templates:,} people"
            for each in self.template_tails
        ]
        lines += [f"accuracy    {each}" for each in self.accuracy]
        lines += [f"trained on  {self.training_data}"] if self.training_data else []
        lines += [f"teacher     {self.teacher}"] if self.teacher else []
        lines += [f"licence     {what}: {licence}" for what, licence in self.licences.items()]
        lines += [f"commercial  {self.commercial_use}"] if self.commercial_use else []
        lines += [f"limit       {limit}" for limit in self.limits]
        return "\n".join(lines)

    def metadata(self) -> dict[str, str]:
        """The card as the metadata of a model file."""
        return {METADATA_KEY: self.model_dump_json(), "format": "pt"}


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


class _Extent(BaseModel):
    """The byte range of a tensor in a `.safetensors` file, from the end of the header."""

    data_offsets: tuple[int, int]


_HEADER = TypeAdapter(dict[str, _Extent | dict[str, str]])


def read_card(path: str | Path) -> Card:
    """The card of a `.safetensors` model, checked.

    >>> read_card("model.safetensors").preprocessing.colour
    'RGB'
    """
    with open_model(Path(path)) as file:
        return card_in(file, source=str(path))


@contextmanager
def open_model(path: Path) -> Iterator[BinaryIO]:
    """A model file, open for reading; every `OSError` becomes a `ModelFileError`."""
    if not path.is_file():
        raise ModelFileError(f"{path}: no such model file")
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror})") from error


def card_in(file: BinaryIO, *, source: str) -> Card:
    """The card in an open `.safetensors`; reads only the header, and names the file as `source` in errors.

    The file begins with the header's length in 8 bytes, and the header is JSON. The safetensors package reads the
    metadata of files on disk only, not of bytes in memory.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    try:
        header = _HEADER.validate_json(file.read(min(length, size)))
    except ValidationError as error:
        raise broken_safetensors(source, "its header cannot be parsed") from error
    ends = [entry.data_offsets[1] for entry in header.values() if isinstance(entry, _Extent)]
    if (wanted := 8 + length + max(ends, default=0)) != size:
        raise broken_safetensors(source, f"{size:,} bytes; its header describes {wanted:,}")
    metadata = header.get("__metadata__", {})
    if isinstance(metadata, _Extent) or METADATA_KEY not in metadata:
        raise ModelFileError(f"{source}: without a sphereface card; save it with sphereface.models.save_model")
    return parse_card(metadata[METADATA_KEY], source=source)


def broken_safetensors(source: str, reason: object) -> ModelFileError:
    """The error for a damaged `.safetensors`."""
    return ModelFileError(f"{source}: not a whole .safetensors file ({reason}); copy or download it again")


def parse_card(text: str | bytes, *, source: str) -> Card:
    """A card from its JSON text; `source` names it in errors."""
    try:
        return Card.model_validate_json(text)
    except ValidationError as error:
        field, reason = first_problem(error, "card")
        raise ModelFileError(
            f"{source}: its card has a bad {field}: {reason}; it may need a newer sphereface"
        ) from error


def first_problem(error: ValidationError, record: str) -> tuple[str, str]:
    """The field with the first problem, such as `part.number`, or the name of the whole `record`; and the reason."""
    first = error.errors(include_url=False)[0]
    return ".".join(map(str, first["loc"])) or record, " ".join(first["msg"].split())


def differences(a: Preprocessing, b: Preprocessing) -> dict[str, tuple[object, object]]:
    """The fields that differ, with both values."""
    left, right = a.model_dump(), b.model_dump()
    return {field: (left[field], right[field]) for field in left if left[field] != right[field]}
