"""The device against a reference: the same network, losses and steps of training in float64 on the CPU."""

import copy
import math
from collections.abc import Iterable, Iterator
from functools import cache, partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sphereface.doctor.devices import FLOAT32, TF32, Precision, precisions, tf32
from sphereface.doctor.findings import Check, Measured
from sphereface.losses import LOSSES, FaceLoss, create_loss
from sphereface.models import create_model
from sphereface.models.inputs import to_input
from sphereface.models.spherefacenet import HEIGHT, WIDTH
from sphereface.training.config import ANNEALED, AnnealingConfig, TrainConfig
from sphereface.training.learner import Learner, build_learner
from sphereface.training.optimizer import gradients
from sphereface.training.precision import LossScale, precision
from sphereface.training.step import learn

CPU = torch.device("cpu")
CLASSES, STEPS = 20, 5
CONFIG = TrainConfig(
    model="sphereface4", width=0.125, features=32, batch=16, steps=STEPS, milestones=(), lr=0.05, clip=5.0,
    annealing=AnnealingConfig(), loss_options={"m": 4},
)  # fmt: skip
FACTOR = 2.0**10  # on the loss in float16: enough for small networks, without overflow


def checks(device: torch.device) -> Iterator[Check]:
    """The checks of the network, every loss and some steps of training, in every precision of the device."""
    ways = precisions(device)
    for how in ways:
        yield Check(f"network {how.name}, features", partial(network_features, device, how))
        yield Check(f"network {how.name}, gradients", partial(network_gradients, device, how))
    for how in ways:
        if how is not TF32:  # losses have no convolutions, and matrix products are in float32 by default
            yield from (Check(f"{name} {how.name}", partial(loss_parity, name, device, how)) for name in LOSSES)
    for how in ways:
        yield Check(f"{STEPS} steps {how.name}", partial(training_parity, device, how))


def distance(found: Iterable[Tensor], wanted: Iterable[Tensor]) -> float:
    """The norm of the difference to the true numbers, relative to the norm of these, over all tensors."""
    pairs = [(a.detach().cpu().double(), b.detach().cpu().double()) for a, b in zip(found, wanted, strict=True)]
    apart = sum(float((a - b).square().sum()) for a, b in pairs)
    return float((apart / sum(float(b.square().sum()) for _, b in pairs)) ** 0.5)


class Passed(NamedTuple):
    """The results of a forward and backward pass."""

    features: Tensor
    gradients: list[Tensor]


def network_features(device: torch.device, how: Precision) -> Measured:
    """Compare the features of the 20-layer network."""
    return Measured(distance([passed(device, how).features], [passed(CPU, None).features]), how.features)


def network_gradients(device: torch.device, how: Precision) -> Measured:
    """Compare the gradients of all weights of the 20-layer network."""
    return Measured(distance(passed(device, how).gradients, passed(CPU, None).gradients), how.gradients)


@cache
def passed(device: torch.device, how: Precision | None) -> Passed:
    """Pass some images forward and backward through the 20-layer network, as `train` does; in float64 without `how`."""
    numbers = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (2, 3, HEIGHT, WIDTH), dtype=torch.uint8, generator=numbers)
    directions = torch.randn(2, 64, generator=numbers)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = create_model("sphereface20", width=0.25, features=64)
    if how is None:
        features = net.double()(to_input(images).double())
        return _back(net, features, directions, LossScale(enabled=False))
    net.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    scale = LossScale(enabled=how.setting == "float16", factor=FACTOR)
    with tf32(how.tf32):
        with precision(CONFIG.changed(precision=how.setting), device):
            features = net(to_input(images.to(device)).contiguous(memory_format=torch.channels_last))
        return _back(net, features, directions, scale)


def _back(net: nn.Module, features: Tensor, directions: Tensor, scale: LossScale) -> Passed:
    wide = features.to(torch.promote_types(features.dtype, torch.float32))
    scale.scale((wide * directions.to(wide)).sum()).backward()  # type: ignore[no-untyped-call]
    found = gradients(net.parameters())
    scale.unscale_(found)
    return Passed(features.detach(), found)


def loss_parity(name: str, device: torch.device, how: Precision) -> Measured:
    """Compare a loss, and its gradients for features and classes; the largest error counts.

    The features have the precision, the loss has not: so the true gradient is that of the rounded features in float64,
    rounded at the end. Annealing is off, because it hides the margin.
    """
    numbers = torch.Generator().manual_seed(0)
    features = (2 * torch.randn(16, 32, generator=numbers)).to(getattr(torch, how.setting))
    labels = torch.arange(16) // 2 + 3  # two faces of each person, for losses on pairs
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        loss = create_loss(name, 32, CLASSES, **({"annealing": None} if name in ANNEALED else {}))
    true_loss = copy.deepcopy(loss).double()
    with tf32(how.tf32):
        value, by_features, *by_classes = value_and_gradients(loss.to(device), features.to(device), labels.to(device))
    true_value, true_by_features, *true_by_classes = value_and_gradients(true_loss, features.double(), labels)
    apart = {
        "value": distance([value], [true_value]),
        "gradient for features": distance([by_features], [true_by_features.to(features.dtype)]),
        "gradient for classes": distance(by_classes, true_by_classes) if by_classes else 0.0,
    }
    worst = max(apart, key=lambda place: math.inf if math.isnan(apart[place]) else apart[place])
    return Measured(apart[worst], how.loss, worst)


def value_and_gradients(loss: FaceLoss, features: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    """A loss and its gradients: for the features first, then for the parameters."""
    features = features.detach().requires_grad_()
    value = loss(features, labels)
    return value, *torch.autograd.grad(value, [features, *loss.parameters()])


class Learned(NamedTuple):
    """The results of some steps of training."""

    losses: Tensor
    change: list[Tensor]  # of all parameters


def training_parity(device: torch.device, how: Precision) -> Measured:
    """Compare the change of network and classifier by some steps with A-Softmax."""
    found, wanted = learned(device, how), learned(CPU, None)
    return Measured(distance(found.change, wanted.change), how.training, f"loss {found.losses[-1]:.4f}")


@cache
def learned(device: torch.device, how: Precision | None) -> Learned:
    """Make the steps of `train` on one batch; in float64 without `how`."""
    with torch.random.fork_rng(devices=[]):
        learner = build_learner(CONFIG.changed(precision=(how or FLOAT32).setting), CLASSES, device)
    if how is None:
        learner.net.double().register_forward_pre_hook(lambda _, given: (given[0].double(),))
        learner.loss.double()
    if learner.scaler.enabled:
        learner.scaler.factor = FACTOR
    before = [value.clone() for value in learned_values(learner)]
    images, labels = batch(device)
    with tf32(how is not None and how.tf32):
        losses = [learn_once(learner, images, labels) for _ in range(STEPS)]
    pairs = zip(learned_values(learner), before, strict=True)
    return Learned(torch.stack(losses), [now.double() - then.double() for now, then in pairs])


def batch(device: torch.device) -> tuple[Tensor, Tensor]:
    """Random images and labels."""
    numbers = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (CONFIG.batch, 3, HEIGHT, WIDTH), dtype=torch.uint8, generator=numbers)
    return images.to(device), torch.randint(0, CLASSES, (CONFIG.batch,), generator=numbers).to(device)


def learn_once(learner: Learner, images: Tensor, labels: Tensor, net: nn.Module | None = None) -> Tensor:
    """Make one step of training; returns its loss."""
    net = learner.net if net is None else net
    return learn(net, learner.loss, learner.optimizer, learner.scaler, images, labels, learner.config).loss


def learned_values(learner: Learner) -> list[Tensor]:
    """All parameters of network and loss."""
    return [parameter.detach() for module in (learner.net, learner.loss) for parameter in module.parameters()]
