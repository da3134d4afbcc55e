"""The state of a run: network, loss, optimizer and counters; initial values, saving and loading."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from sphereface import parallel
from sphereface.contract import Preprocessing, differences, read_card
from sphereface.errors import ContractMismatch, UserError
from sphereface.losses import FaceLoss, create_loss
from sphereface.losses.classifier import ASoftmax, Classifier
from sphereface.models import create_model, load_model
from sphereface.models.cpu import speed_up_
from sphereface.models.spherefacenet import SphereFaceNet
from sphereface.progress import Say
from sphereface.training.checkpoints.pieces import fill, pack_optimizer, pack_rng, unpack_optimizer, unpack_rng
from sphereface.training.checkpoints.reading import Checkpoint
from sphereface.training.checkpoints.saving import save_checkpoint
from sphereface.training.config import TrainConfig
from sphereface.training.optimizer import build_optimizer, is_sharded, named_parameters, running_mean
from sphereface.training.precision import LossScale

CLASSWISE = ("weight", "bias")  # tensors with a row for each class of the shard; centers are whole on every rank
TAKE_ITS_OWN = "use --recipe finetune, or a TOML recipe without fields of the network, template and crop"


@dataclass
class Learner:
    """Network, loss and optimizer, with the factors that rollbacks put on the schedule."""

    config: TrainConfig
    net: SphereFaceNet
    loss: FaceLoss
    optimizer: torch.optim.Optimizer
    scaler: LossScale
    mean: AveragedModel | None
    device: torch.device
    lr_factor: float = 1.0
    gamma_factor: float = 1.0
    rollbacks: int = 0

    def slow_down(self) -> None:
        """Lower the rate, and let lambda fall more slowly."""
        rule = self.config.guard
        self.set_pace(self.lr_factor * rule.lr_factor, self.gamma_factor * rule.gamma_factor, self.rollbacks + 1)

    def pace(self) -> dict[str, float]:
        """The factors that rollbacks put on the schedule, and their count."""
        return {"lr_factor": self.lr_factor, "gamma_factor": self.gamma_factor, "rollbacks": self.rollbacks}

    def set_pace(self, lr_factor: float, gamma_factor: float, rollbacks: int) -> None:
        """Set the factors on the schedule and the count of rollbacks."""
        self.lr_factor, self.gamma_factor, self.rollbacks = lr_factor, gamma_factor, rollbacks
        if isinstance(self.loss, ASoftmax) and self.config.annealing is not None:
            schedule = self.config.annealing.build()
            self.loss.annealing = replace(schedule, gamma=schedule.gamma * gamma_factor)

    @property
    def lambda_(self) -> float | None:
        """The weight of the plain cosine; None for losses without annealing."""
        return float(self.loss.lambda_) if isinstance(self.loss, ASoftmax) else None

    @property
    def model(self) -> SphereFaceNet:
        """The network to validate and to save as the model: the running mean, if there is one."""
        return self.net if self.mean is None else cast(SphereFaceNet, self.mean.module)

    @property
    def rows(self) -> tuple[int, int]:
        """First and last + 1 class of this process."""
        return self.loss.rows if isinstance(self.loss, Classifier) else (0, 0)

    def save(self, folder: Path, step: int, state: dict[str, Any]) -> Path:
        """Write a checkpoint; all processes call it together."""
        split, shared = self._loss_tensors()
        packed = pack_optimizer(self.optimizer, named_parameters(self.net, self.loss), by_class=split)
        first, last = self.rows
        if parallel.rank() and not is_sharded(self.loss):
            first = last  # rank 0 writes what every process holds
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
        """Restore the state of a checkpoint, saved by any number of processes."""
        source = checkpoint.path
        state: dict[str, Any] = checkpoint.state
        split, shared = self._loss_tensors()
        rows = checkpoint.rows(*self.rows) if split else {}
        fill(self.net.state_dict(), checkpoint.group("net"), source=source)
        fill(shared, checkpoint.group("loss"), source=source)
        fill(split, {name: rows.pop(name) for name in split}, source=source)
        parameters, tensors = named_parameters(self.net, self.loss), {**checkpoint.group("optimizer"), **rows}
        unpack_optimizer(self.optimizer, parameters, tensors, state["optimizer"], source=source)
        if self.mean is not None:
            fill(self.model.state_dict(), checkpoint.group("mean"), source=source)
        self.scaler.load_state_dict(state["scaler"])
        saved_by = len(checkpoint.manifest.by_rank)
        if saved_by != parallel.ranks():
            say(f"{source}: saved by {saved_by} processes, resumed on {parallel.ranks()}")
        # A new process takes the generator of rank 0: replicas of the whole classifier must draw the same sample.
        numbers = checkpoint.of_rank(parallel.rank()) or checkpoint.of_rank(0)
        if numbers is not None:
            unpack_rng(numbers, self.device, source=source)
        self.set_pace(float(state["lr_factor"]), float(state["gamma_factor"]), int(state["rollbacks"]))

    def _loss_tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The loss's tensors with a row for each class, by their names in a checkpoint, and the others."""
        tensors = self.loss.state_dict()
        split = {f"loss.{n}": t for n, t in tensors.items() if n in CLASSWISE and t.ndim}
        return split, {n: t for n, t in tensors.items() if f"loss.{n}" not in split}


def build_learner(
    config: TrainConfig, classes: int, device: torch.device, init: Path | None = None, class_means: Tensor | None = None
) -> Learner:
    """A learner at its initial values: the same for a seed on any number of processes.

    Unit `class_means` (K, D) become the class weights and stay as they are.
    """
    torch.manual_seed(config.seed)
    net = create_model(config.model, **config.architecture.model_dump(exclude={"name"}))
    if init is not None:
        require_fitting(config, init)
        net.load_state_dict(load_model(init).state_dict())
    shard = {"shard": (parallel.rank(), parallel.ranks())} if config.classifier == "sharded" else {}
    loss = create_loss(config.loss, config.features, classes, **config.options(), **shard)
    if class_means is not None:
        fix_class_weights(loss, class_means)
    speed_up_(net)
    net.to(device=device, memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    loss.to(device).train()
    scaler = LossScale(enabled=config.precision == "float16")
    mean = running_mean(net, config.ema) if config.ema is not None else None
    return Learner(config, net, loss, build_optimizer(net, loss, config), scaler, mean, device)


def fix_class_weights(loss: FaceLoss, means: Tensor) -> None:
    """Set a classifier's weights to unit rows (K, D), which training leaves as they are."""
    if not isinstance(loss, Classifier):
        raise UserError(f"{type(loss).__name__} has no class weights to fix; use class_weights = 'free'")
    if loss.weight.shape != means.shape:
        came = f"the teacher has {means.shape[1]} features, the student {loss.weight.shape[1]}"
        raise ContractMismatch(f"{came}; give the student the teacher's number of features")
    with torch.no_grad():
        loss.weight.copy_(means)
    loss.weight.requires_grad_(False)


def require_fitting(config: TrainConfig, init: Path) -> None:
    """Raise unless a trained model has a run's network and preprocessing; reads its card only."""
    card = read_card(init)
    if card.architecture != config.architecture:
        raise ContractMismatch(
            f"{init}: its network is {card.architecture}; the recipe wants {config.architecture}: {TAKE_ITS_OWN}"
        )
    found = differences(card.preprocessing, Preprocessing(**config.alignment.model_dump()))
    if found:
        listed = ", ".join(f"{field} {had} (this run: {wanted})" for field, (had, wanted) in found.items())
        fixed = "a run feeds its network RGB, (pixel - 127.5) / 128, so this one cannot be trained further"
        way_out = TAKE_ITS_OWN if found.keys() <= {"template", "crop"} else fixed
        raise ContractMismatch(f"{init}: trained on faces of {listed}; {way_out}")
