"""Six classes of points, a small network with 3-D features, and what each loss makes of their angles."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sphereface.losses import Annealing, create_loss

CLASSES, INPUTS, POINTS, STEPS = 6, 32, 100, 600
SHORT = Annealing(base=1000, gamma=1, power=1, minimum=5)  # the paper's schedule, fitted to a short run
LOSSES: dict[str, tuple[str, dict[str, Any]]] = {
    "softmax": ("softmax", {}),
    "modified softmax": ("modified_softmax", {}),
    "A-Softmax m = 2": ("a_softmax", {"m": 2, "annealing": SHORT}),
    "A-Softmax m = 3": ("a_softmax", {"m": 3, "annealing": SHORT}),
    "A-Softmax m = 4": ("a_softmax", {"m": 4, "annealing": SHORT}),
}


class Angles(NamedTuple):
    """Mean angle to the own class's mean, and mean angle between class means, in degrees."""

    loss: str
    within: float
    between: float
    ratio: float


def compare_losses(*, seed: int = 0) -> list[Angles]:
    """Train each loss on the same points from the same start, and measure it on points it has not seen."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(CLASSES, INPUTS, generator=generator)
    labels = torch.arange(CLASSES).repeat_interleave(POINTS)
    seen, unseen = (means[labels] + 0.9 * torch.randn(len(labels), INPUTS, generator=generator) for _ in range(2))
    return [
        Angles(name, *_measure(_train(loss, options, seen, labels, seed)(unseen), labels))
        for name, (loss, options) in LOSSES.items()
    ]


def _train(loss_name: str, options: dict[str, Any], points: Tensor, labels: Tensor, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(INPUTS, 64), nn.PReLU(), nn.Linear(64, 3))
    loss = create_loss(loss_name, 3, CLASSES, **options)
    optimizer = torch.optim.SGD([*net.parameters(), *loss.parameters()], lr=0.05, momentum=0.9, weight_decay=5e-4)
    for _ in range(STEPS):
        loss.advance()
        optimizer.zero_grad()
        loss(net(points), labels).backward()
        optimizer.step()
        loss.project_()
    return net.eval()


@torch.no_grad()
def _measure(features: Tensor, labels: Tensor) -> tuple[float, float, float]:
    means = F.normalize(torch.stack([features[labels == label].mean(0) for label in range(CLASSES)]))
    to_own = (F.normalize(features) * means[labels]).sum(1).clamp(-1, 1).acos()
    apart = (means @ means.t()).clamp(-1, 1).acos()[*torch.triu_indices(CLASSES, CLASSES, 1)]
    within, between = math.degrees(to_own.mean()), math.degrees(apart.mean())
    return within, between, within / between
