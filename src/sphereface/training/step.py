"""One step of training: forward, backward, update; the same on one process or many."""

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sphereface import parallel
from sphereface.losses import FaceLoss
from sphereface.losses.sharded import global_loss, global_mean
from sphereface.models.inputs import to_input
from sphereface.training.config import TrainConfig
from sphereface.training.optimizer import clip_, gradient_norm, gradients, is_sharded
from sphereface.training.precision import LossScale, precision
from sphereface.training.teaching import taught_loss


class Report(NamedTuple):
    """Measurements of a step over all processes; tensors, because reading a number waits for the GPU."""

    loss: Tensor
    gradient_norm: Tensor  # 0 where a float16 gradient overflowed and the step was left out
    agreement: Tensor | None = None  # mean cosine of the student's features to the teacher's


def learn(
    net: nn.Module,
    loss: FaceLoss,
    optimizer: torch.optim.Optimizer,
    scaler: LossScale,
    images: Tensor,
    labels: Tensor,
    config: TrainConfig,
    targets: Tensor | None = None,
) -> Report:
    """Make one step with this process's share of a batch, faces (B, 3, H, W) uint8; `set_rate` is called before.

    `targets` (B, D) are a teacher's unit features of the faces.
    """
    loss.advance()
    optimizer.zero_grad()
    total, agreement = torch.zeros((), device=images.device), None
    micro_batches = list(zip(images.chunk(config.accumulate), labels.chunk(config.accumulate), strict=True))
    for number, (faces, people) in enumerate(micro_batches, 1):
        with _exchange(net, last=number == len(micro_batches)):
            with precision(config, images.device):
                features = net(to_input(faces).contiguous(memory_format=torch.channels_last))
            if targets is not None and config.teaching is not None:
                value, agreement = taught_loss(loss, features, people, targets, config.teaching)
            else:
                value = global_loss(loss, features, people) * (len(faces) / len(images))  # chunks may differ in size
            scaler.scale(value).backward()  # type: ignore[no-untyped-call]
        total += value.detach()
    scaler.unscale_(gradients(_parameters(optimizer)))
    norm = _share_gradients(loss, optimizer)
    factor_can_shrink = scaler.factor > LossScale.SMALLEST
    if scaler.judge(norm):
        if config.clip is not None:
            clip_(_parameters(optimizer), norm, config.clip)
        optimizer.step()
        loss.project_()
    elif factor_can_shrink:
        norm = torch.zeros_like(norm)
    return Report(global_mean(total), norm, None if agreement is None else global_mean(agreement))


def _exchange(net: nn.Module, *, last: bool) -> AbstractContextManager[object]:
    """Let processes exchange gradients once a step, with the last micro-batch."""
    if isinstance(net, nn.parallel.DistributedDataParallel) and not last:
        return net.no_sync()
    return nullcontext()


def _share_gradients(loss: FaceLoss, optimizer: torch.optim.Optimizer) -> Tensor:
    """Average a replicated classifier's gradients over the processes; returns the norm of the whole gradient.

    DistributedDataParallel has averaged the network's. Those of a shard are complete: squared norms add over shards.
    """
    head = [parameter for parameter in loss.parameters() if parameter.grad is not None]
    own = {id(parameter) for parameter in head}
    others = [parameter for parameter in _parameters(optimizer) if id(parameter) not in own]
    if not is_sharded(loss):
        parallel.all_reduce_mean_(gradients(head))
    squares = [gradient_norm(head) ** 2] if head else []
    if is_sharded(loss):
        parallel.all_reduce_sum_(squares)
    return torch.stack([gradient_norm(others) ** 2, *squares]).sum().sqrt()


def _parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
