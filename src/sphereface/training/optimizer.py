"""SGD as the authors ran it, or AdamW; gradient clipping and a running mean of the weights."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from sphereface.losses import FaceLoss
from sphereface.losses.classifier import Classifier
from sphereface.models.spherefacenet import SphereFaceNet
from sphereface.training.config import TrainConfig

Tensors = tuple[Tensor, ...] | list[Tensor]


def build_optimizer(net: SphereFaceNet, loss: FaceLoss, config: TrainConfig) -> torch.optim.Optimizer:
    """The optimizer of network and classifier; each group stores its multiple of the rate, such as 2 for biases."""
    groups = net.parameter_groups(lr=config.lr, weight_decay=config.weight_decay)
    head = [parameter for parameter in loss.parameters() if parameter.requires_grad]
    if head:
        groups.append({"name": "classifier", "params": head, "lr": config.lr, "weight_decay": config.weight_decay})
    for group in groups:
        group["share"] = group["lr"] / config.lr
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=config.lr, betas=(config.momentum, 0.999), fused=True)
    return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, fused=True)


def set_rate(optimizer: torch.optim.Optimizer, lr: float, *, caffe_momentum: bool) -> None:
    """Set the rate of all groups.

    Caffe folds the rate into the momentum, v = mu v + lr g, and torch does not: w -= lr (v = mu v + g). Where the rate
    changes, torch's v is scaled by old / new, so that lr v is what Caffe's v would be.
    """
    for group in optimizer.param_groups:
        old, new = group["lr"], lr * group["share"]
        if caffe_momentum and old != new:
            states = [optimizer.state[parameter] for parameter in group["params"]]
            buffers = [state["momentum_buffer"] for state in states if "momentum_buffer" in state]
            if buffers:
                torch._foreach_mul_(buffers, old / new)
        group["lr"] = new


def running_mean(net: nn.Module, decay: float) -> AveragedModel:
    """An exponential running mean of a network's weights and buffers, which starts with its current ones.

    Integers are copied: torch's own rule would also average batch norm's count of batches.
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
    """The trained parameters of network and loss, by name."""
    modules = {"net": net, "loss": loss}
    return {
        f"{key}.{name}": value
        for key, module in modules.items()
        for name, value in module.named_parameters()
        if value.requires_grad
    }


def is_sharded(loss: FaceLoss) -> bool:
    """True if a loss holds one shard of the classes."""
    return isinstance(loss, Classifier) and loss.sharded


def gradients(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    """The gradients of those parameters that have one."""
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def gradient_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    """The norm of the whole gradient."""
    norms: Any = torch._foreach_norm(gradients(parameters))
    whole: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return whole


def clip_(parameters: Iterable[nn.Parameter], norm: Tensor, limit: float) -> None:
    """Scale the gradient down to a norm of `limit`, if `norm` is larger; without waiting for a GPU."""
    torch._foreach_mul_(gradients(parameters), (limit / (norm + 1e-6)).clamp(max=1.0))
