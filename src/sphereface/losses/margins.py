"""The margins: one formula each, on B numbers.

A formula maps (cos, length) to the target logit: the cosine between a feature and the weight of its true class, and the
length that scales it (|x|, or |x||w| where weights keep their length). A `Margin` also returns the two derivatives of
that logit; `exact` takes them from the formula, `caffe_margin` replaces them by those of the authors' released layer.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from sphereface.errors import UserError
from sphereface.geometry import psi


class Target(NamedTuple):
    """The target logit of each sample and its derivatives; each (B,)."""

    logit: Tensor
    d_cos: Tensor
    d_length: Tensor


Formula = Callable[[Tensor, Tensor], Tensor]
Margin = Callable[[Tensor, Tensor], Target]


def exact(formula: Formula) -> Margin:
    """The margin with the derivatives of its formula, without those of detached terms."""

    def margin(cos: Tensor, length: Tensor) -> Target:
        with torch.enable_grad():
            cos, length = cos.detach().requires_grad_(), length.detach().requires_grad_()
            logit = formula(cos, length)
            d_cos, d_length = torch.autograd.grad(logit.sum(), (cos, length))
        return Target(logit.detach(), d_cos, d_length)

    return margin


def no_margin(cos: Tensor, length: Tensor) -> Tensor:
    """|x| cos(theta): softmax, modified softmax and NormFace."""
    return length * cos


def a_softmax(cos: Tensor, length: Tensor, *, m: int, lambda_: Tensor | float = 0.0) -> Tensor:
    """(lambda |x| cos + |x| psi(theta)) / (1 + lambda). Liu et al., CVPR 2017, eq. 7 and appendix."""
    hard: Tensor = psi(cos, m)
    return length * (lambda_ * cos + hard) / (1 + lambda_)


def cosface(cos: Tensor, length: Tensor, *, m: float) -> Tensor:
    """s (cos(theta) - m). Wang et al., CVPR 2018; also AM-Softmax."""
    return length * (cos - m)


def arcface(cos: Tensor, length: Tensor, *, m: float) -> Tensor:
    """s cos(theta + m) up to theta = pi - m, and s (cos(theta) - m sin m) beyond. Deng et al., CVPR 2019.

    Beyond pi - m the angle theta + m exceeds pi and its cosine would rise again. The continuation is that of the
    authors' code: it keeps falling, with a step down at pi - m from -1 to -(cos m + m sin m).
    """
    smallest = torch.finfo(cos.dtype).eps  # the slope of the sine is infinite at +-1; error in float32: 2e-4 there
    sin = (1 - cos * cos).clamp_min(smallest).sqrt()
    turned = cos * math.cos(m) - sin * math.sin(m)
    return length * torch.where(cos > math.cos(math.pi - m), turned, cos - m * math.sin(m))


def sphereface_r_v1(cos: Tensor, length: Tensor, *, m: float) -> Tensor:
    """s cos(min(m theta, pi)) for real m >= 1, its offset from cos(theta) detached. Liu et al., TPAMI 2022, v1."""
    hard = torch.cos((m * torch.acos(cos.clamp(-1, 1).detach())).clamp_max(math.pi))
    return length * (cos + (hard - cos).detach())


def sphereface_r_v2_others(cos: Tensor, *, m: float) -> Tensor:
    """cos(theta / m): the cosine of every class but the true one in SphereFace-R v2; its offset is also detached."""
    return torch.cos(torch.acos(cos.clamp(-1, 1)) / m)


def caffe_margin(*, m: int, lambda_: Tensor | float) -> Margin:
    """A-Softmax with the x-gradient of the authors' released layer, which divides the psi part by sqrt(a^2 + b^2).

    With a w + b x the true gradient of |x| psi, the layer propagates [(a w + b x) / sqrt(a^2 + b^2) + lambda w] / (1 +
    lambda). That vector is returned as the pair of derivatives that produces it, so the classifier needs no second form
    for x.
    """
    if m not in (1, 2, 3, 4):
        raise UserError(f"m is {m}; gradient='caffe', the released layer, takes m = 1, 2, 3, 4; use gradient='exact'")

    def margin(cos: Tensor, length: Tensor) -> Target:
        unit = torch.ones_like(length)
        value, slope, _ = exact(lambda c, n: n * psi(c, m))(cos, unit)
        a, b = slope, (value - cos * slope) / length
        scale = torch.rsqrt(a * a + b * b) if m > 1 else unit  # the layer treats m = 1 as a plain inner product
        on_w, on_x = (scale * a + lambda_) / (1 + lambda_), scale * b / (1 + lambda_)
        logit = length * (lambda_ * cos + value) / (1 + lambda_)
        return Target(logit, length * on_w, on_x * length + on_w * cos)

    return margin
