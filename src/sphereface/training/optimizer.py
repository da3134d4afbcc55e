"""SGD as the authors ran it, and what may be put around it."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from sphereface.losses import FaceLoss
from sphereface.models.spherefacenet import SphereFaceNet
from sphereface.training.config import TrainConfig

Tensors = tuple[Tensor, ...] | list[Tensor]


def build_optimizer(net: SphereFaceNet, loss: FaceLoss, config: TrainConfig) -> torch.optim.SGD:
    """SGD over network and classifier; each group remembers its share of the rate, such as 2 for biases."""
    groups = net.parameter_groups(lr=config.lr, weight_decay=config.weight_decay)
    head = list(loss.parameters())
    if head:
        groups.append({"name": "classifier", "params": head, "lr": config.lr, "weight_decay": config.weight_decay})
    for group in groups:
        group["share"] = group["lr"] / config.lr
    return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, fused=True)


def set_rate(optimizer: torch.optim.SGD, lr: float, *, caffe_momentum: bool) -> None:
    """Set the rate of all groups.

    Caffe folds the rate into the momentum, v = mu v + lr g, and torch does not: w -= lr (v = mu v + g). Where the rate
    changes, torch's v is scaled by old / new, so that lr v is what Caffe's v would be.
    """
    for group in optimizer.param_groups:
        old, new = group["lr"], lr * group["share"]
        if caffe_momentum and old != new:
            buffers = [
                optimizer.state[p]["momentum_buffer"]
                for p in group["params"]
                if "momentum_buffer" in optimizer.state[p]
            ]
            if buffers:
                torch._foreach_mul_(buffers, old / new)
        group["lr"] = new


def running_mean(net: nn.Module, decay: float) -> AveragedModel:
    """An exponential running mean of a network's weights and buffers, which starts as the network is now.

    Integers are taken over: torch's own rule would also average batch norm's count of batches.
    """

    def average(means: Tensors, values: Tensors, _: Tensor | int) -> None:
        if means[0].is_floating_point():
            torch._foreach_lerp_(means, values, 1 - decay)
        else:
            torch._foreach_copy_(means, values)

    mean = AveragedModel(net, multi_avg_fn=average, use_buffers=True)
    mean.update_parameters(net)  # the first update copies
    return mean


def named_parameters(net: nn.Module, loss: nn.Module) -> dict[str, nn.Parameter]:
    """All that is learned, by name."""
    return {
        f"{part}.{name}": p for part, module in (("net", net), ("loss", loss)) for name, p in module.named_parameters()
    }


def gradient_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    """The length of the whole gradient."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norms: Any = torch._foreach_norm(gradients)
    whole: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return whole


def clip_(parameters: Iterable[nn.Parameter], norm: Tensor, limit: float) -> None:
    """Shorten the gradient to a limit, where it is longer; without waiting for a GPU."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    torch._foreach_mul_(gradients, (limit / (norm + 1e-6)).clamp(max=1.0))
