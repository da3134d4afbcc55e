"""One step of training: forward, backward, update; the same on one process or many."""

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sphereface import parallel
from sphereface.losses import FaceLoss
from sphereface.losses.classifier import Classifier
from sphereface.losses.sharded import global_loss, global_mean
from sphereface.models.inputs import to_input
from sphereface.training.config import TrainConfig
from sphereface.training.optimizer import clip_, gradient_norm
from sphereface.training.precision import LossScale, precision


class Report(NamedTuple):
    """What a step measured, over all processes; tensors, so that a GPU is not waited for until somebody looks."""

    loss: Tensor
    gradient_norm: Tensor  # 0 where a float16 gradient overflowed, so that nothing was learned from it


def learn(
    net: nn.Module,
    loss: FaceLoss,
    optimizer: torch.optim.SGD,
    scaler: LossScale,
    images: Tensor,
    labels: Tensor,
    config: TrainConfig,
) -> Report:
    """Learn from this process's share of a batch, faces (B, 3, H, W) uint8; the rate is set already."""
    loss.advance()
    optimizer.zero_grad()
    total = torch.zeros((), device=images.device)
    parts = list(zip(images.chunk(config.accumulate), labels.chunk(config.accumulate), strict=True))
    for number, (part, whose) in enumerate(parts):
        with _quiet(net, last=number == len(parts) - 1):
            with precision(config, images.device):
                features = net(to_input(part).contiguous(memory_format=torch.channels_last))
            value = global_loss(loss, features, whose) * (len(part) / len(images))  # a share may not divide evenly
            scaler.scale(value).backward()  # type: ignore[no-untyped-call]
        total += value.detach()
    scaler.unscale_(parameter.grad for parameter in _parameters(optimizer) if parameter.grad is not None)
    norm = _share_gradients(loss, optimizer)
    excused = scaler.factor > LossScale.SMALLEST
    if scaler.judge(norm):
        if config.clip is not None:
            clip_(_parameters(optimizer), norm, config.clip)
        optimizer.step()
        loss.project_()
    elif excused:
        norm = torch.zeros_like(norm)
    return Report(global_mean(total), norm)


def _quiet(net: nn.Module, *, last: bool) -> AbstractContextManager[object]:
    """Processes exchange gradients once a step, with the last part of a batch."""
    if isinstance(net, nn.parallel.DistributedDataParallel) and not last:
        return net.no_sync()
    return nullcontext()


def _share_gradients(loss: FaceLoss, optimizer: torch.optim.SGD) -> Tensor:
    """Average a replicated classifier's gradients over the processes; returns the length of the whole gradient.

    The network's are averaged already, and those of a shard are complete, so that its length is a sum over shards.
    """
    head = [parameter for parameter in loss.parameters() if parameter.grad is not None]
    own = {id(parameter) for parameter in head}
    others = [parameter for parameter in _parameters(optimizer) if id(parameter) not in own]
    sharded = isinstance(loss, Classifier) and loss.sharded
    if not sharded:
        parallel.all_reduce_mean_([parameter.grad for parameter in head if parameter.grad is not None])
    squares = [gradient_norm(head) ** 2] if head else []
    if sharded:
        parallel.all_reduce_sum_(squares)
    return torch.stack([gradient_norm(others) ** 2, *squares]).sum().sqrt()


def _parameters(optimizer: torch.optim.SGD) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
