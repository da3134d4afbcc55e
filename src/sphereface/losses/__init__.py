"""A-Softmax and the losses that it is compared with, by name."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Unpack

from sphereface.errors import UserError
from sphereface.losses import margins
from sphereface.losses.annealing import Annealing
from sphereface.losses.base import FaceLoss
from sphereface.losses.classifier import ASoftmax, Gradient, MarginSoftmax, Mode
from sphereface.losses.euclidean import Center, Contrastive, Triplet
from sphereface.losses.options import checked_options
from sphereface.losses.successors import SphereFace2, SphereFacePlus, SphereFaceR

__all__ = ["LOSSES", "MODES", "Annealing", "FaceLoss", "create_loss"]


def softmax(
    features: int, classes: int, *, bias: bool = True, normalize: bool = False, **mode: Unpack[Mode]
) -> MarginSoftmax:
    """w x + b; `bias` and `normalize` are the switches of the paper's ablation."""
    return MarginSoftmax(features, classes, bias=bias, normalize=normalize, **mode)


def modified_softmax(features: int, classes: int, **mode: Unpack[Mode]) -> MarginSoftmax:
    """|x| cos(theta): unit weights, no bias; A-Softmax with m = 1."""
    return MarginSoftmax(features, classes, **mode)


def l_softmax(
    features: int, classes: int, *, m: int = 4, annealing: Annealing | None = Annealing(), **mode: Unpack[Mode]
) -> ASoftmax:
    """|w||x| psi(theta): A-Softmax with weights that keep their length."""
    return ASoftmax(features, classes, m=m, annealing=annealing, normalize=False, **mode)


def a_softmax(
    features: int,
    classes: int,
    *,
    m: int = 4,
    annealing: Annealing | None = Annealing(),
    gradient: Gradient = "exact",
    **mode: Unpack[Mode],
) -> ASoftmax:
    """|x| psi(theta): the loss of the paper."""
    return ASoftmax(features, classes, m=m, annealing=annealing, gradient=gradient, **mode)


def normface(features: int, classes: int, *, scale: float = 30.0, **mode: Unpack[Mode]) -> MarginSoftmax:
    """s cos(theta): unit weights and features (Wang et al., ACM MM 2017)."""
    return MarginSoftmax(features, classes, scale=scale, **mode)


def cosface(
    features: int, classes: int, *, m: float = 0.35, scale: float = 64.0, **mode: Unpack[Mode]
) -> MarginSoftmax:
    """s (cos(theta) - m)."""
    if not 0 <= m <= 2:
        raise UserError(f"m is {m}; CosFace takes a margin on the cosine between 0 and 2")
    return MarginSoftmax(features, classes, partial(margins.cosface, m=m), scale=scale, **mode)


def arcface(features: int, classes: int, *, m: float = 0.5, scale: float = 64.0, **mode: Unpack[Mode]) -> MarginSoftmax:
    """s cos(theta + m)."""
    if not 0 <= m < math.pi:
        raise UserError(f"m is {m}; ArcFace takes a margin on the angle of at least 0 and below pi")
    return MarginSoftmax(features, classes, partial(margins.arcface, m=m), scale=scale, **mode)


LOSSES: dict[str, Callable[..., FaceLoss]] = {
    "softmax": softmax,
    "modified_softmax": modified_softmax,
    "a_softmax": a_softmax,
    "l_softmax": l_softmax,
    "contrastive": Contrastive,
    "triplet": Triplet,
    "center": Center,
    "normface": normface,
    "cosface": cosface,
    "arcface": arcface,
    "sphereface_plus": SphereFacePlus,
    "sphereface_r": SphereFaceR,
    "sphereface2": SphereFace2,
}

# The modes of each loss: "fused" in one piece, "chunked" with chunk=, "sampled" with sample=, "sharded" over processes
# with shard=. Triplet has no class weights. The energy of SphereFace+ and the K decisions of SphereFace2 are sums over
# all other classes: a sample would change their balance, and shards would have to exchange more than the partials of a
# softmax, so they take neither.
MODES: dict[str, tuple[str, ...]] = dict.fromkeys(LOSSES, ("fused", "chunked", "sampled", "sharded")) | {
    "triplet": ("fused",),
    "sphereface_plus": ("fused", "chunked"),
    "sphereface2": ("fused", "chunked"),
}


def create_loss(name: str, features: int, classes: int, **options: Any) -> FaceLoss:
    """Build a loss by name: a module, loss(features, labels) -> scalar.

    >>> loss = create_loss("a_softmax", 512, 10_572, m=4)
    """
    if name not in LOSSES:
        raise UserError(f"unknown loss {name!r}; choose one of {', '.join(LOSSES)}")
    if options.get("shard") is not None and "sharded" not in MODES[name]:
        able = ", ".join(loss for loss in LOSSES if "sharded" in MODES[loss])
        raise UserError(f"{name} cannot be sharded over processes: leave out shard, or choose one of {able}")
    return LOSSES[name](features, classes, **checked_options(name, LOSSES[name], options))
