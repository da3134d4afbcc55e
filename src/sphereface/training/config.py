"""The settings of a training run in one record; with the data they decide the result.

Paths, devices and workers change from machine to machine and are flags. All other settings are here, are written beside
the checkpoints as `config.toml`, and can be read back from there. `batch` is the global one, over all processes.
"""

import math
import tomllib
from pathlib import Path
from typing import Any, Literal

import tomli_w
import torch
from pydantic import Field, ValidationError, field_validator, model_validator

from sphereface.choices import ClassWeights, FeatureRule, Template
from sphereface.contract import Alignment, Architecture, Norm, Record
from sphereface.errors import UserError
from sphereface.faces.warp import CROPS
from sphereface.loading.augment import Augmentation
from sphereface.losses import LOSSES, MODES, Annealing, create_loss
from sphereface.losses.options import checked_options, nearest, plain
from sphereface.models import MODELS

ANNEALED = ("a_softmax", "l_softmax", "sphereface_plus")
ELSEWHERE = {"annealing": "the table [annealing]", "shard": "classifier = 'sharded'"}  # options with a key of their own
PAIRWISE = ("contrastive", "triplet")  # losses on pairs of one person: batches hold several photos of each


class AnnealingConfig(Record):
    """lambda = max(minimum, base (1 + gamma step)^-power); see `losses.Annealing`."""

    base: float = Field(default=1000.0, ge=0)
    gamma: float = Field(default=0.12, ge=0)
    power: float = Field(default=1.0, ge=0)
    minimum: float = Field(default=5.0, ge=0)

    def build(self) -> Annealing:
        """The annealing schedule."""
        return Annealing(**self.model_dump())


class GuardConfig(Record):
    """When a run counts as lost, and how often it may be rolled back."""

    window: int = Field(default=200, ge=200)  # steps over which a plateau is judged
    rollbacks: int = Field(default=3, ge=0)
    lr_factor: float = Field(default=0.5, gt=0, le=1)  # on the rate, at each rollback
    gamma_factor: float = Field(default=0.25, gt=0, le=1)  # on the speed at which lambda falls


class TeachingConfig(Record):
    """How a teacher's features become a loss; see `training.teaching`."""

    views: int = Field(default=8, ge=1)  # of each face that the teacher embeds
    similarity: float = Field(default=10.0, ge=0)  # weight of the similarities within a batch
    labels: float = Field(default=0.1, ge=0)  # weight of the classification loss on faces with a label
    class_weights: ClassWeights = "free"


class TrainConfig(Record):
    """The settings that decide the result of a run, together with the data."""

    recipe: str = ""  # the recipe's name; without effect
    # The network and its faces.
    model: str = "sphereface20"
    features: int = Field(default=512, ge=1)
    width: float = Field(default=1.0, gt=0)
    norm: Norm = None
    last_relu: bool = False
    template: Template = "sphereface"
    crop: str = "112x96"
    mirror: bool = True
    augmentation: Augmentation = Augmentation()
    # The loss.
    loss: str = "a_softmax"
    loss_options: dict[str, Any] = Field(default_factory=dict)
    annealing: AnnealingConfig | None = None
    classifier: Literal["replicated", "sharded"] = "replicated"
    teaching: TeachingConfig | None = None
    # Batches.
    batch: int = Field(default=128, ge=1)
    photos: int | None = Field(default=None, ge=2)  # of each person in a batch; None: faces in shuffled order
    accumulate: int = Field(default=1, ge=1)  # micro-batches of a batch, one after the other
    steps: int = Field(default=28_000, ge=1)
    seed: int = Field(default=0, ge=0)
    # The optimizer.
    optimizer: Literal["sgd", "adamw"] = "sgd"
    lr: float = Field(default=0.1, gt=0)
    milestones: tuple[int, ...] = (16_000, 24_000)  # steps at which the rate falls
    schedule: Literal["steps", "cosine"] = "steps"  # cosine: the rate falls to 0 along half a cosine, no milestones
    lr_drop: float = Field(default=0.1, gt=0, le=1)
    warmup: int = Field(default=0, ge=0)  # steps over which the rate rises from 0
    momentum: float = Field(default=0.9, ge=0, lt=1)  # of AdamW: beta_1; its beta_2 is 0.999
    caffe_momentum: bool = False  # v = mu v + lr g: a lower rate does not shrink earlier gradients in v
    weight_decay: float = Field(default=5e-4, ge=0)
    clip: float | None = Field(default=None, gt=0)  # of the gradient's norm
    ema: float | None = Field(default=None, gt=0, lt=1)  # decay of the running mean that becomes the model
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    # Checkpoints and validation.
    checkpoint_every: int = Field(default=1000, ge=1)
    keep: int = Field(default=3, ge=1)
    validation_people: int = Field(default=0, ge=0)  # held out of training
    validate_every: int = Field(default=0, ge=0)  # 0: at the end only
    guard: GuardConfig = GuardConfig()

    @field_validator("loss_options")
    @classmethod
    def _plain(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Convert numbers to Python's own types, which TOML can hold."""
        return {name: plain(value) for name, value in options.items()}

    @model_validator(mode="after")
    def _agree(self) -> "TrainConfig":
        for name, known in {"model": MODELS, "loss": LOSSES, "crop": CROPS}.items():
            if getattr(self, name) not in known:
                raise UserError(f"unknown {name} {getattr(self, name)!r}; choose one of {', '.join(known)}")
        if self.annealing is not None and self.loss not in ANNEALED:
            raise UserError(f"{self.loss} has no annealing; only {', '.join(ANNEALED)} do")
        if self.batch % self.accumulate:
            raise UserError(f"batch is {self.batch}, accumulate {self.accumulate}; wanted a divisor of batch")
        if self.accumulate > 1 and self.loss in (*PAIRWISE, "center", "sphereface_plus"):
            raise UserError(f"{self.loss} needs the whole batch at once; accumulate must be 1")
        if self.photos is not None and self.batch % self.photos:
            raise UserError(f"batch is {self.batch}, photos {self.photos} of a person; wanted a multiple of photos")
        if self.caffe_momentum and self.optimizer != "sgd":
            raise UserError(f"caffe_momentum is a rule of sgd; the optimizer is {self.optimizer}: leave one out")
        if self.teaching is not None:
            self._teachable()
        if self.classifier == "sharded" and "sharded" not in MODES[self.loss]:
            raise UserError(f"{self.loss} cannot be sharded; use classifier = 'replicated'")
        for name in ELSEWHERE.keys() & self.loss_options:
            raise UserError(f"loss_options.{name} is not an option here; set it with {ELSEWHERE[name]}")
        try:
            checked_options(self.loss, LOSSES[self.loss], self.loss_options)
            with torch.device("meta"):  # a tiny loss without memory, to reject options now
                create_loss(self.loss, 2, 3, **self.options())
        except UserError as error:
            raise UserError(f"loss_options: {error}") from error
        return self

    def _teachable(self) -> None:
        if self.accumulate > 1 or self.photos is not None or self.classifier == "sharded" or self.loss in PAIRWISE:
            raise UserError(
                "teaching takes whole batches of shuffled faces and a replicated classifier over single faces; "
                "set accumulate to 1, classifier to 'replicated', leave photos out and choose another loss"
            )

    @property
    def feature_rule(self) -> FeatureRule:
        """How features are made: a teacher's targets include the mirror image, so its student needs the image alone."""
        return "concatenate" if self.teaching is None else "image"

    @property
    def architecture(self) -> Architecture:
        """The architecture for `create_model`."""
        return Architecture(
            name=self.model, features=self.features, width=self.width, last_relu=self.last_relu, norm=self.norm
        )

    @property
    def alignment(self) -> Alignment:
        """Template and crop of the network's faces."""
        return Alignment(template=self.template, crop=self.crop)

    def options(self) -> dict[str, Any]:
        """The options for `create_loss`."""
        annealing = {"annealing": self.annealing.build() if self.annealing else None} if self.loss in ANNEALED else {}
        return {**self.loss_options, **annealing}

    def lr_at(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        if self.schedule == "cosine":
            fallen = self.lr * (1 + math.cos(math.pi * step / self.steps)) / 2
        else:
            fallen = self.lr * self.lr_drop ** sum(step >= milestone for milestone in self.milestones)
        return fallen * min(1.0, (step + 1) / self.warmup) if self.warmup else fallen

    def with_steps(self, steps: int) -> "TrainConfig":
        """The same run with another number of steps; milestones, warm-up, annealing and running mean scale with it."""
        ratio = steps / self.steps
        annealing = self.annealing and self.annealing.model_copy(update={"gamma": self.annealing.gamma / ratio})
        return self.changed(
            steps=steps,
            milestones=tuple(round(milestone * ratio) for milestone in self.milestones),
            warmup=round(self.warmup * ratio),
            ema=None if self.ema is None else max(self.ema ** (1 / ratio), 1e-9),
            annealing=annealing,
        )

    def with_loss(self, loss: str) -> "TrainConfig":
        """The same run with another loss at its own defaults; annealing stays if the loss can be annealed."""
        if loss == self.loss:
            return self
        annealing = (self.annealing or AnnealingConfig()) if loss in ANNEALED else None
        photos = self.photos or (4 if loss in PAIRWISE else None)
        return self.changed(loss=loss, loss_options={}, annealing=annealing, photos=photos)

    def changed(self, **fields: Any) -> "TrainConfig":
        """A copy with other values of some fields, validated again."""
        return check({**self.model_dump(), **fields}, source="these settings")

    def toml(self) -> str:
        """The record as TOML, without fields that are None."""
        options = {name: value for name, value in self.loss_options.items() if value is not None}
        return tomli_w.dumps({**self.model_dump(exclude_none=True), "loss_options": options})


def read_config(path: Path) -> TrainConfig:
    """The settings in a TOML file; an unknown key is an error that names similar keys."""
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); wanted a recipe in TOML") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid TOML ({error}); wanted a recipe in TOML") from error
    return check(fields, source=str(path))


def check(fields: dict[str, Any], *, source: str) -> TrainConfig:
    """The settings from plain values; an error names the first invalid field in one line."""
    try:
        return TrainConfig.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = [str(part) for part in first["loc"]]
        if first["type"] == "extra_forbidden":
            raise UserError(f"{source}: {_neighbours(where)}") from None
        reason = first["msg"].removeprefix("Value error, ")
        raise UserError(f"{source}: {'.'.join(where) + ': ' if where else ''}{reason}") from None


def _neighbours(where: list[str]) -> str:
    """An error text with an unknown key and the known keys similar to it."""
    inside: dict[str, type[Record]] = {
        "annealing": AnnealingConfig, "augmentation": Augmentation, "guard": GuardConfig, "teaching": TeachingConfig,
    }  # fmt: skip
    known = list((inside[where[0]] if len(where) > 1 and where[0] in inside else TrainConfig).model_fields)
    return f"unknown key {'.'.join(where)!r}; {nearest(where[-1], known)}"
