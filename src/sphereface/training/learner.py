"""All that a run learns or counts: how it begins, and how it goes into a checkpoint and comes back."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from sphereface import parallel
from sphereface.contract import Preprocessing, differences, read_card
from sphereface.errors import ContractMismatch
from sphereface.losses import FaceLoss, create_loss
from sphereface.losses.classifier import ASoftmax, Classifier
from sphereface.models import create_model, load_model
from sphereface.models.spherefacenet import SphereFaceNet
from sphereface.progress import Say
from sphereface.training.checkpoints.pieces import fill, pack_optimizer, pack_rng, unpack_optimizer, unpack_rng
from sphereface.training.checkpoints.reading import Checkpoint
from sphereface.training.checkpoints.saving import save_checkpoint
from sphereface.training.config import TrainConfig
from sphereface.training.optimizer import build_optimizer, named_parameters, running_mean
from sphereface.training.precision import LossScale

CLASSWISE = ("weight", "bias")  # of a loss: those that have a row for each of its classes; centers are whole everywhere
TAKE_ITS_OWN = "use --recipe finetune, or a TOML recipe that says nothing of the network, template and crop"


@dataclass
class Learner:
    """Network, loss and optimizer, with what rollbacks did to the schedule."""

    config: TrainConfig
    net: SphereFaceNet
    loss: FaceLoss
    optimizer: torch.optim.SGD
    scaler: LossScale
    mean: AveragedModel | None
    device: torch.device
    lr_factor: float = 1.0
    gamma_factor: float = 1.0
    rollbacks: int = 0

    def slow_down(self) -> None:
        """Learn at a lower rate from now on, and let lambda fall more slowly."""
        rule = self.config.guard
        self.set_pace(self.lr_factor * rule.lr_factor, self.gamma_factor * rule.gamma_factor, self.rollbacks + 1)

    def pace(self) -> dict[str, float]:
        """What rollbacks did, and how many there were."""
        return {"lr_factor": self.lr_factor, "gamma_factor": self.gamma_factor, "rollbacks": self.rollbacks}

    def set_pace(self, lr_factor: float, gamma_factor: float, rollbacks: int) -> None:
        """Learn as fast as after so many rollbacks."""
        self.lr_factor, self.gamma_factor, self.rollbacks = lr_factor, gamma_factor, rollbacks
        if isinstance(self.loss, ASoftmax) and self.config.annealing is not None:
            schedule = self.config.annealing.build()
            self.loss.annealing = replace(schedule, gamma=schedule.gamma * gamma_factor)

    @property
    def lambda_(self) -> float | None:
        """The weight of the plain cosine, where the loss is annealed."""
        return float(self.loss.lambda_) if isinstance(self.loss, ASoftmax) else None

    @property
    def model(self) -> SphereFaceNet:
        """The network that is validated and saved as the model: the running mean, if there is one."""
        return self.net if self.mean is None else cast(SphereFaceNet, self.mean.module)

    @property
    def rows(self) -> tuple[int, int]:
        """The classes of this process."""
        return self.loss.rows if isinstance(self.loss, Classifier) else (0, 0)

    def save(self, folder: Path, step: int, state: dict[str, Any]) -> Path:
        """Write a checkpoint; all processes call it together."""
        packed = pack_optimizer(self.optimizer, named_parameters(self.net, self.loss), by_class=self._split_names())
        split, shared = self._loss_tensors()
        first, last = self.rows
        if parallel.rank() and not self._is_shard():
            first = last  # the first process writes what all of them hold
        return save_checkpoint(
            folder,
            step,
            groups={
                "net": self.net.state_dict(),
                "loss": shared,
                "optimizer": packed.shared,
                **({"mean": self.model.state_dict()} if self.mean else {}),
            },
            by_class={name: tensor[: last - first] for name, tensor in {**split, **packed.by_class}.items()},
            rows=(first, last),
            classes=self.loss.classes if split else 0,
            by_rank=pack_rng(self.device),
            state={**state, **self.pace(), "optimizer": packed.settings, "scaler": self.scaler.state_dict()},
            rank=parallel.rank(),
            gather=parallel.gather_json,
        )

    def load(self, checkpoint: Checkpoint, *, say: Say) -> None:
        """Go on where a checkpoint was saved, on however many processes."""
        source, state = checkpoint.path, checkpoint.state
        split, shared = self._loss_tensors()
        rows = checkpoint.rows(*self.rows) if split else {}
        fill(self.net.state_dict(), checkpoint.group("net"), source=source)
        fill(shared, checkpoint.group("loss"), source=source)
        fill(split, {name: rows.pop(name) for name in split}, source=source)
        unpack_optimizer(
            self.optimizer,
            named_parameters(self.net, self.loss),
            {**checkpoint.group("optimizer"), **rows},
            state["optimizer"],
            source=source,
        )
        if self.mean is not None:
            fill(self.model.state_dict(), checkpoint.group("mean"), source=source)
        scaler: Any = state["scaler"]
        self.scaler.load_state_dict(scaler)
        saved_by = len(checkpoint.manifest.by_rank)
        if saved_by != parallel.ranks():
            say(f"{source}: saved by {saved_by}, goes on with {parallel.ranks()} processes")
        # A process that is new takes the first one's numbers: those that hold the whole classifier draw one sample.
        numbers = checkpoint.of_rank(parallel.rank()) or checkpoint.of_rank(0)
        if numbers is not None:
            unpack_rng(numbers, self.device, source=source)
        lr_factor, gamma_factor, rollbacks = (state[name] for name in ("lr_factor", "gamma_factor", "rollbacks"))
        self.set_pace(float(lr_factor), float(gamma_factor), int(rollbacks))  # type: ignore[arg-type]

    def _loss_tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The loss's tensors with a row for each class, by names as a checkpoint has them, and the others."""
        tensors = self.loss.state_dict()
        split = {f"loss.{n}": t for n, t in tensors.items() if n in CLASSWISE and t.ndim}
        return split, {n: t for n, t in tensors.items() if f"loss.{n}" not in split}

    def _is_shard(self) -> bool:
        return isinstance(self.loss, Classifier) and self.loss.sharded

    def _split_names(self) -> list[str]:
        return list(self._loss_tensors()[0])


def build_learner(config: TrainConfig, classes: int, device: torch.device, init: Path | None = None) -> Learner:
    """Everything at its initial values: the same for a seed, however many processes there are."""
    torch.manual_seed(config.seed)
    net = create_model(config.model, **config.architecture.model_dump(exclude={"name"}))
    if init is not None:
        require_fitting(config, init)
        take_weights(net, init)
    shard = {"shard": (parallel.rank(), parallel.ranks())} if config.classifier == "sharded" else {}
    loss = create_loss(config.loss, config.features, classes, **config.options(), **shard)
    net.to(device=device, memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    loss.to(device).train()
    scaler = LossScale(enabled=config.precision == "float16")
    mean = running_mean(net, config.ema) if config.ema is not None else None
    return Learner(config, net, loss, build_optimizer(net, loss, config), scaler, mean, device)


def take_weights(net: SphereFaceNet, path: Path) -> None:
    """Start from a trained network instead of from random numbers."""
    net.load_state_dict(load_model(path).state_dict())


def require_fitting(config: TrainConfig, init: Path) -> None:
    """Raise unless a trained model is a run's network, and saw faces made as the run's are; reads its card only."""
    card = read_card(init)
    if card.architecture != config.architecture:
        raise ContractMismatch(
            f"{init}: a network of {card.architecture}; the recipe wants {config.architecture}: {TAKE_ITS_OWN}"
        )
    found = differences(card.preprocessing, Preprocessing(**config.alignment.model_dump()))
    if found:
        listed = ", ".join(f"{field} {had} (this run: {wanted})" for field, (had, wanted) in found.items())
        fixed = "a run feeds its network RGB, (pixel - 127.5) / 128, so this one cannot be trained further"
        way_out = TAKE_ITS_OWN if found.keys() <= {"template", "crop"} else fixed
        raise ContractMismatch(f"{init}: trained on faces of {listed}; {way_out}")
