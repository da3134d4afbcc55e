"""Successors of the paper's loss: SphereFace+, SphereFace-R and SphereFace2."""

import math
from functools import partial
from typing import Literal, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sphereface.errors import UserError
from sphereface.losses import margins, pairs
from sphereface.losses.annealing import Annealing
from sphereface.losses.classifier import ASoftmax, Classifier, MarginSoftmax, Mode
from sphereface.losses.others import sum_over_others


class SphereFacePlus(ASoftmax):
    """A-Softmax plus the hyperspherical energy of the class weights. Liu et al., NeurIPS 2018.

    The energy is the mean of |w_i - w_j|^-power over unit weights, i the classes of the batch and j all others: the
    mini-batch form of the sum over all pairs. Power 0 means log(1 / |w_i - w_j|).
    """

    def __init__(
        self,
        features: int,
        classes: int,
        *,
        annealing: Annealing | None = Annealing(),
        m: int = 4,
        weight: float = 1.0,
        power: float = 2.0,
        chunk: int | None = None,
    ) -> None:
        super().__init__(features, classes, m=m, annealing=annealing, chunk=chunk)
        self.energy_weight, self.power = weight, power

    def compute(self, features: Tensor, labels: Tensor) -> Tensor:
        """A-Softmax plus the weighted energy."""
        loss = super().compute(features, labels)
        weight = self.weight.to(features.dtype)
        present = torch.unique(labels)
        own = pairs.unit(weight.index_select(0, present))
        energies = sum_over_others(own, weight, weight.new_zeros(()), present, self.pair_energy, chunk=self.chunk)
        return loss + self.energy_weight * energies.mean() / (self.classes - 1)

    def pair_energy(self, cos: Tensor, _: Tensor) -> Tensor:
        """The energy of two unit weights from their cosine; |w_i - w_j|^2 = 2 - 2 cos."""
        squared = (2 - 2 * cos).clamp_min(1e-6)  # finite for two equal weights
        return -squared.log() / 2 if self.power == 0 else squared ** (-self.power / 2)


class SphereFaceR(MarginSoftmax):
    """SphereFace revived, versions 1 and 2, with hard, soft or no feature normalisation. Liu et al., TPAMI 2022.

    v1: target cos(min(m theta, pi)); v2: target cos(theta) and all others cos(theta / m). The offset from cos(theta) is
    detached, so gradients are those of the plain cosine at the margin's probabilities.
    hard: features of length scale; none: of their own; soft: of their own, with a penalty soft_weight (|x| - scale)^2.
    """

    def __init__(
        self,
        features: int,
        classes: int,
        *,
        m: float = 1.5,
        version: Literal["v1", "v2"] = "v1",
        normalization: Literal["hard", "soft", "none"] = "hard",
        scale: float = 30.0,
        soft_weight: float = 0.01,
        **mode: Unpack[Mode],
    ) -> None:
        if not m >= 1:
            raise UserError(f"m is {m}; SphereFace-R takes a real number of at least 1")
        if version not in ("v1", "v2"):
            raise UserError(f"version is {version!r}; choose one of v1, v2")
        if normalization not in ("hard", "soft", "none"):
            raise UserError(f"normalization is {normalization!r}; choose one of hard, soft, none")
        super().__init__(
            features,
            classes,
            partial(margins.sphereface_r_v1, m=m) if version == "v1" else margins.no_margin,
            others=partial(margins.sphereface_r_v2_others, m=m) if version == "v2" else None,
            scale=scale if normalization == "hard" else None,
            **mode,
        )
        self.soft = (soft_weight, scale) if normalization == "soft" else None

    def compute(self, features: Tensor, labels: Tensor) -> Tensor:
        """The margin softmax plus the penalty on the features' length."""
        loss = super().compute(features, labels)
        if self.soft is not None:
            weight, scale = self.soft
            loss = loss + weight * ((features.norm(dim=1) - scale) ** 2).mean()
        return loss


class SphereFace2(Classifier):
    """K binary decisions instead of one softmax. Wen et al., ICLR 2022, with the additive margin on g ("C").

    alpha / r log(1 + exp(-r (g(cos_y) - m) - b)) + (1 - alpha) / r sum over j != y of log(1 + exp(r (g(cos_j) + m) +
    b)), where g(z) = 2 ((z + 1) / 2)^t - 1. The bias b is learned; it starts where positive and negative gradients
    balance at right angles.
    """

    def __init__(
        self,
        features: int,
        classes: int,
        *,
        alpha: float = 0.7,
        r: float = 40.0,
        m: float = 0.4,
        t: float = 3.0,
        chunk: int | None = None,
    ) -> None:
        super().__init__(features, classes, chunk=chunk)
        if not (0 < alpha < 1 and r > 0 and t >= 1):
            raise UserError(f"alpha {alpha}, r {r}, t {t}; SphereFace2 takes 0 < alpha < 1, r > 0, t >= 1")
        self.alpha, self.r, self.m, self.t = alpha, r, m, t
        self.bias = nn.Parameter(torch.tensor(self.balanced_bias()))

    def stretch(self, cos: Tensor) -> Tensor:
        """g(cos), which spreads similar pairs and squeezes different ones."""
        return 2 * ((cos.clamp(-1, 1) + 1) / 2) ** self.t - 1

    def negative(self, cos: Tensor, bias: Tensor) -> Tensor:
        """The cost of a class other than the true one."""
        return -F.logsigmoid(-self.r * (self.stretch(cos) + self.m) - bias)

    def balanced_bias(self) -> float:
        """The b at which, for cos = 0, positive and negative gradients balance: a quadratic in exp(b).

        alpha sigma(-(r (g - m) + b)) = (1 - alpha) (K - 1) sigma(r (g + m) + b)
        """
        z = self.alpha / ((1 - self.alpha) * (self.classes - 1))
        g: float = 2 * 0.5**self.t - 1
        # The form of the solution without cancellation, and in logarithms, so that a large r does not overflow.
        root = abs(1 - z) + math.sqrt((1 - z) ** 2 + 4 * z * math.exp(-2 * self.r * self.m))
        return math.log(2 * z / root) - self.r * (g + self.m) if z < 1 else math.log(root / 2) - self.r * (g - self.m)

    def compute(self, features: Tensor, labels: Tensor) -> Tensor:
        """Mean over the batch of the costs of the true class and of all others."""
        x, weight, bias = pairs.unit(features), self.weight.to(features.dtype), self.bias.to(features.dtype)
        cos = (x * pairs.unit(weight.index_select(0, labels))).sum(1)
        positive = -F.logsigmoid(self.r * (self.stretch(cos) - self.m) + bias)
        negative = sum_over_others(x, weight, bias, labels, self.negative, chunk=self.chunk)
        return (self.alpha * positive + (1 - self.alpha) * negative).mean() / self.r
