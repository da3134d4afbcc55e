"""A training run in one record: what is not here has no say in the result.

Paths, devices and workers change from machine to machine and are flags; everything else is here, is written beside the
checkpoints as `config.toml`, and can be read back from there. `batch` is the global one, over all processes.
"""

import tomllib
from pathlib import Path
from typing import Any, Literal

import tomli_w
import torch
from pydantic import Field, ValidationError, field_validator, model_validator

from sphereface.choices import Template
from sphereface.contract import Alignment, Architecture, Norm, Record
from sphereface.errors import UserError
from sphereface.faces.warp import CROPS
from sphereface.losses import LOSSES, MODES, Annealing, create_loss
from sphereface.losses.options import checked_options, nearest, plain
from sphereface.models import MODELS

ANNEALED = ("a_softmax", "l_softmax", "sphereface_plus")
ELSEWHERE = {"annealing": "the table [annealing]", "shard": "classifier = 'sharded'"}  # options with a key of their own
PAIRWISE = ("contrastive", "triplet")  # these learn from pairs of one person, so batches hold several photos of each


class AnnealingConfig(Record):
    """lambda = max(minimum, base (1 + gamma step)^-power); see `losses.Annealing`."""

    base: float = Field(default=1000.0, ge=0)
    gamma: float = Field(default=0.12, ge=0)
    power: float = Field(default=1.0, ge=0)
    minimum: float = Field(default=5.0, ge=0)

    def build(self) -> Annealing:
        """The schedule itself."""
        return Annealing(**self.model_dump())


class GuardConfig(Record):
    """When a run counts as lost, and how often it may be taken back."""

    window: int = Field(default=200, ge=200)  # steps over which a plateau is judged
    rollbacks: int = Field(default=3, ge=0)
    lr_factor: float = Field(default=0.5, gt=0, le=1)  # the rate after each rollback
    gamma_factor: float = Field(default=0.25, gt=0, le=1)  # and how fast lambda falls


class TrainConfig(Record):
    """What decides the outcome of a run, together with the data."""

    recipe: str = ""  # where it comes from; says nothing else
    # The network and its faces.
    model: str = "sphereface20"
    features: int = Field(default=512, ge=1)
    width: float = Field(default=1.0, gt=0)
    norm: Norm = None
    last_relu: bool = False
    template: Template = "sphereface"
    crop: str = "112x96"
    mirror: bool = True
    # The loss.
    loss: str = "a_softmax"
    loss_options: dict[str, Any] = Field(default_factory=dict)
    annealing: AnnealingConfig | None = None
    classifier: Literal["replicated", "sharded"] = "replicated"
    # Batches.
    batch: int = Field(default=128, ge=1)
    photos: int | None = Field(default=None, ge=2)  # of each person in a batch; None takes faces as they come
    accumulate: int = Field(default=1, ge=1)  # parts of a batch that go through the network one after the other
    steps: int = Field(default=28_000, ge=1)
    seed: int = Field(default=0, ge=0)
    # The optimizer.
    lr: float = Field(default=0.1, gt=0)
    milestones: tuple[int, ...] = (16_000, 24_000)  # steps at which the rate falls
    lr_drop: float = Field(default=0.1, gt=0, le=1)
    warmup: int = Field(default=0, ge=0)  # steps over which the rate rises from nothing
    momentum: float = Field(default=0.9, ge=0, lt=1)
    caffe_momentum: bool = False  # v = mu v + lr g: a falling rate does not shrink what is already in v
    weight_decay: float = Field(default=5e-4, ge=0)
    clip: float | None = Field(default=None, gt=0)  # of the gradient's norm
    ema: float | None = Field(default=None, gt=0, lt=1)  # keep a running mean of the weights, and save that
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    # What is kept and looked at.
    checkpoint_every: int = Field(default=1000, ge=1)
    keep: int = Field(default=3, ge=1)
    validation_people: int = Field(default=0, ge=0)  # set aside and never trained on
    validate_every: int = Field(default=0, ge=0)  # 0: at the end only
    guard: GuardConfig = GuardConfig()

    @field_validator("loss_options")
    @classmethod
    def _plain(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Numbers as Python's own, which a file takes."""
        return {name: plain(value) for name, value in options.items()}

    @model_validator(mode="after")
    def _agree(self) -> "TrainConfig":
        for name, value, known in (
            ("model", self.model, MODELS), ("loss", self.loss, LOSSES), ("crop", self.crop, CROPS),
        ):  # fmt: skip
            if value not in known:
                raise UserError(f"unknown {name} {value!r}; choose one of {', '.join(known)}")
        if self.annealing is not None and self.loss not in ANNEALED:
            raise UserError(f"{self.loss} has no annealing; it belongs to {', '.join(ANNEALED)}")
        if self.batch % self.accumulate:
            raise UserError(f"batch {self.batch} in {self.accumulate} equal parts; choose a divisor")
        if self.accumulate > 1 and self.loss in (*PAIRWISE, "center", "sphereface_plus"):
            raise UserError(f"{self.loss} looks at a batch as a whole; accumulate must be 1")
        if self.photos is not None and self.batch % self.photos:
            raise UserError(f"batch {self.batch} of {self.photos} photos a person; choose a multiple")
        if self.classifier == "sharded" and "sharded" not in MODES[self.loss]:
            raise UserError(f"{self.loss} cannot be sharded; use classifier = 'replicated'")
        for name in ELSEWHERE.keys() & self.loss_options:
            raise UserError(f"loss_options.{name}: a recipe says that with {ELSEWHERE[name]}")
        try:
            checked_options(self.loss, LOSSES[self.loss], self.loss_options)
            with torch.device("meta"):  # the smallest one, without numbers: what it does not take, it says now
                create_loss(self.loss, 2, 3, **self.options())
        except UserError as error:
            raise UserError(f"loss_options: {error}") from error
        return self

    @property
    def architecture(self) -> Architecture:
        """The network as `create_model` builds it."""
        return Architecture(
            name=self.model, features=self.features, width=self.width, last_relu=self.last_relu, norm=self.norm
        )

    @property
    def alignment(self) -> Alignment:
        """The faces that it wants."""
        return Alignment(template=self.template, crop=self.crop)

    def options(self) -> dict[str, Any]:
        """What `create_loss` is told."""
        annealing = {"annealing": self.annealing.build() if self.annealing else None} if self.loss in ANNEALED else {}
        return {**self.loss_options, **annealing}

    def lr_at(self, step: int) -> float:
        """The learning rate of a step; the first is 0."""
        fallen = self.lr * self.lr_drop ** sum(step >= milestone for milestone in self.milestones)
        return fallen * min(1.0, (step + 1) / self.warmup) if self.warmup else fallen

    def with_steps(self, steps: int) -> "TrainConfig":
        """The same run, longer or shorter: milestones, warm-up and annealing are stretched alike."""
        ratio = steps / self.steps
        annealing = self.annealing and self.annealing.model_copy(update={"gamma": self.annealing.gamma / ratio})
        return self.changed(
            steps=steps,
            milestones=tuple(round(milestone * ratio) for milestone in self.milestones),
            warmup=round(self.warmup * ratio),
            annealing=annealing,
        )

    def with_loss(self, loss: str) -> "TrainConfig":
        """The same run with another loss at its own defaults; annealing stays if the loss has any."""
        if loss == self.loss:
            return self
        annealing = (self.annealing or AnnealingConfig()) if loss in ANNEALED else None
        photos = self.photos or (4 if loss in PAIRWISE else None)
        return self.changed(loss=loss, loss_options={}, annealing=annealing, photos=photos)

    def changed(self, **fields: Any) -> "TrainConfig":
        """A copy with some fields changed, checked anew."""
        return check({**self.model_dump(), **fields}, source="these settings")

    def toml(self) -> str:
        """The record as TOML; None is left out."""
        options = {name: value for name, value in self.loss_options.items() if value is not None}
        return tomli_w.dumps({**self.model_dump(exclude_none=True), "loss_options": options})


def read_config(path: Path) -> TrainConfig:
    """A run from a TOML file; an unknown key is an error that names its neighbours."""
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); wanted a recipe in TOML") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: no TOML ({error})") from error
    return check(told, source=str(path))


def check(told: dict[str, Any], *, source: str) -> TrainConfig:
    """A run from plain values; the first thing that is wrong is said in one line."""
    try:
        return TrainConfig.model_validate(told)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = [str(part) for part in first["loc"]]
        if first["type"] == "extra_forbidden":
            raise UserError(f"{source}: {_neighbours(where)}") from None
        reason = first["msg"].removeprefix("Value error, ")
        raise UserError(f"{source}: {'.'.join(where) + ': ' if where else ''}{reason}") from None


def _neighbours(where: list[str]) -> str:
    """An unknown key, and the known ones that look like it."""
    inside: dict[str, type[Record]] = {"annealing": AnnealingConfig, "guard": GuardConfig}
    known = list((inside[where[0]] if len(where) > 1 and where[0] in inside else TrainConfig).model_fields)
    return f"unknown key {'.'.join(where)!r}; {nearest(where[-1], known)}"
