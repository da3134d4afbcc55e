"""A minimal training loop: load, forward, backward, step, log."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sphereface.arrays import Float32
from sphereface.contract import Card
from sphereface.embed.embedder import Embedder
from sphereface.engines.torch import run_network
from sphereface.losses import FaceLoss
from sphereface.models.cpu import speed_up_
from sphereface.models.inputs import to_input
from sphereface.models.spherefacenet import SphereFaceNet


@dataclass(frozen=True)
class Budget:
    """Hyperparameters of a run; the same for every loss of a comparison."""

    steps: int = 1500
    batch: int = 64
    lr: float = 0.05
    milestones: tuple[float, ...] = (0.6, 0.85)  # shares of the run after which the learning rate is divided by ten
    momentum: float = 0.9
    weight_decay: float = 5e-4
    clip: float = 5.0  # largest norm of the gradient; keeps the first steps small


class Step(NamedTuple):
    """The numbers of one step."""

    step: int
    steps: int  # of the whole run
    loss: float
    lr: float


def batches(count: int, size: int, steps: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Indices of faces, and a mask of those to mirror; every face comes once before any is repeated."""
    order = torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        while len(order) < size:
            order = torch.cat([order, torch.randperm(count, generator=generator)])
        chosen, order = order[:size], order[size:]
        yield chosen, torch.rand(size, generator=generator) < 0.5


def fit(
    net: SphereFaceNet,
    loss: FaceLoss,
    faces: Tensor,
    labels: Tensor,
    budget: Budget,
    *,
    seed: int,
    on_step: Callable[[Step], None] = lambda _: None,
) -> None:
    """Train a network and its loss on faces (N, 3, 112, 96) uint8; the same seed gives the same weights."""
    speed_up_(net)
    net.to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    loss.train()
    head = {"params": list(loss.parameters()), "lr": budget.lr, "weight_decay": budget.weight_decay}
    optimizer = torch.optim.SGD(
        [*net.parameter_groups(lr=budget.lr, weight_decay=budget.weight_decay), head], momentum=budget.momentum
    )
    falls = [round(share * budget.steps) for share in budget.milestones]
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, falls)
    parameters = [*net.parameters(), *loss.parameters()]
    generator = torch.Generator().manual_seed(seed)
    for step, (chosen, mirrored) in enumerate(batches(len(faces), budget.batch, budget.steps, generator)):
        batch = to_input(faces[chosen])
        batch = torch.where(mirrored[:, None, None, None], batch.flip(3), batch)
        loss.advance()
        optimizer.zero_grad()
        value = loss(net(batch.contiguous(memory_format=torch.channels_last)), labels[chosen])
        value.backward()
        torch.nn.utils.clip_grad_norm_(parameters, budget.clip)
        optimizer.step()
        loss.project_()
        on_step(Step(step + 1, budget.steps, value.item(), float(schedule.get_last_lr()[0])))
        schedule.step()


def extract(net: SphereFaceNet, faces: Tensor, *, mirror: bool = True, batch: int = 128) -> Float32:
    """Features of faces (N, 3, 112, 96) uint8: image and mirror image side by side (N, 2 D), not normalised."""
    net.eval()
    embedder = Embedder(partial(run_network, net), Card(feature_rule="concatenate" if mirror else "image"))
    parts = torch.split(faces.permute(0, 2, 3, 1), batch)
    return np.concatenate([embedder.embed_batch(part.numpy()) for part in parts])
