"""The losses as modules: class weights, what a margin makes of them, and how they run."""

import math
from collections.abc import Callable
from functools import partial
from typing import Literal, TypedDict, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sphereface.geometry import check_m
from sphereface.losses import margins, pairs
from sphereface.losses.annealing import Annealing
from sphereface.losses.blocks import TINY
from sphereface.losses.others import sum_over_others
from sphereface.losses.softmax import Rule, margin_cross_entropy

Gradient = Literal["exact", "caffe"]


class FaceLoss(nn.Module):
    """What every loss does: check its input, compute in at least float32, also inside autocast, and return a scalar."""

    steepest = 4.0  # at most this is the gradient of one sample with respect to the direction of its feature

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        if features < 1 or classes < 2:
            raise ValueError(
                f"a loss over {classes} classes of {features} features; it takes at least 2 classes and 1 feature"
            )
        self.features, self.classes = features, classes

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        """Mean loss of features (B, D) with labels (B,); changes no parameter."""
        check_batch(features, labels, self.features, self.classes)
        with torch.autocast(features.device.type, enabled=False):
            return self.compute(flush_short(features, self.steepest).to(self.dtype_for(features)), labels.long())

    def compute(self, features: Tensor, labels: Tensor) -> Tensor:
        """The loss itself, on checked input."""
        raise NotImplementedError

    def dtype_for(self, features: Tensor) -> torch.dtype:
        """Float64 for float64 input, float32 for everything else."""
        return torch.promote_types(features.dtype, torch.float32)

    @torch.no_grad()
    def project_(self) -> None:
        """Set class weights back to length one, where the loss takes them so; for after each optimizer step."""

    def advance(self) -> None:
        """Count one optimizer step, before its forward passes; from then on these no longer count themselves."""


class Mode(TypedDict, total=False):
    """How a classifier runs; by default in one piece.

    chunk: hold at most (B, chunk) numbers at a time instead of (B, K), and compute the logits twice.
    sample: in training, compare with this fraction of the classes, the true ones always among them (An et al., Partial
    FC, 2021).
    """

    chunk: int | None
    sample: float | None


class Classifier(FaceLoss):
    """A loss with class weights (K, D), run in one piece, in chunks, or on a sample of the classes."""

    normalize = True  # weights count as w / |w|

    def __init__(self, features: int, classes: int, **mode: Unpack[Mode]) -> None:
        super().__init__(features, classes)
        chunk, sample = mode.get("chunk"), mode.get("sample")
        if chunk is not None and (chunk < 1 or int(chunk) != chunk):
            raise ValueError(f"chunk is {chunk}; it takes a number of classes of at least 1, or None")
        if sample is not None and not 0 < sample <= 1:
            raise ValueError(f"sample is {sample}; it takes a fraction of the classes above 0 and up to 1, or None")
        self.chunk, self.sample = chunk, sample
        self.weight = nn.Parameter(torch.empty(classes, features))
        nn.init.uniform_(
            self.weight, -math.sqrt(3 / features), math.sqrt(3 / features)
        )  # Caffe's Xavier: by fan-in alone
        self.project_()

    def dtype_for(self, features: Tensor) -> torch.dtype:
        """The wider of features and weights, float32 at least."""
        return torch.promote_types(super().dtype_for(features), self.weight.dtype)

    @torch.no_grad()
    def project_(self) -> None:
        """Set the class weights back to length one, where the loss takes them so."""
        if self.normalize:
            length = self.weight.to(torch.promote_types(self.weight.dtype, torch.float32)).norm(dim=1, keepdim=True)
            self.weight.copy_(self.weight / length.clamp_min(TINY))

    def sampled(self, labels: Tensor) -> Tensor | None:
        """The classes to compare with, in order, or None for all of them."""
        if self.sample is None or not self.training:
            return None
        return sample_classes(labels, self.classes, self.sample)


class MarginSoftmax(Classifier):
    """Softmax over the angles to each class, the true class judged by a harder angle.

    scale: the length that every feature is set to; None leaves features at their own length.
    """

    def __init__(
        self,
        features: int,
        classes: int,
        formula: margins.Formula = margins.no_margin,
        *,
        scale: float | None = None,
        normalize: bool = True,
        bias: bool = False,
        others: Callable[[Tensor], Tensor] | None = None,
        **mode: Unpack[Mode],
    ) -> None:
        self.normalize = normalize
        super().__init__(features, classes, **mode)
        if scale is not None and not scale > 0:
            raise ValueError(f"scale is {scale}; it takes a length above 0")
        self.formula, self.scale, self.others = formula, scale, others
        self.steepest = 2 * scale if scale else FaceLoss.steepest
        self.bias = nn.Parameter(torch.zeros(classes)) if bias else None

    def rule(self) -> Rule:
        """How this loss makes logits of inner products, now."""
        return Rule(margins.exact(self.formula), normalize=self.normalize, others=self.others, chunk=self.chunk)

    def compute(self, features: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy over all classes, or over a sample of them."""
        if self.scale is not None:
            features = pairs.unit(features) * self.scale
        weight, bias = self.weight.to(features.dtype), None if self.bias is None else self.bias.to(features.dtype)
        classes = self.sampled(labels)
        if classes is not None:
            weight, bias = weight.index_select(0, classes), None if bias is None else bias.index_select(0, classes)
            labels = torch.searchsorted(classes, labels)
        return margin_cross_entropy(features, weight, bias, labels, self.rule())


class ASoftmax(MarginSoftmax):
    """A-Softmax, the loss of the paper: the target logit |x| psi(theta), led there by annealing.

    gradient: "exact", the gradient of the loss with weights taken as w/|w|; "caffe", what the authors' released layer
    propagates. With normalize=False the weights keep their length, |w||x| psi(theta): L-Softmax (Liu et al., ICML
    2016).
    """

    step: Tensor

    def __init__(
        self,
        features: int,
        classes: int,
        *,
        m: int = 4,
        annealing: Annealing | None = Annealing(),
        gradient: Gradient = "exact",
        normalize: bool = True,
        **mode: Unpack[Mode],
    ) -> None:
        super().__init__(features, classes, normalize=normalize, **mode)
        if gradient not in ("exact", "caffe"):
            raise ValueError(f"gradient is {gradient!r}; choose one of exact, caffe")
        if not isinstance(annealing, Annealing | None):
            raise ValueError(f"annealing is {annealing!r}; wanted an Annealing or None")
        self.m, self.annealing, self.gradient = check_m(m), annealing, gradient
        if gradient == "caffe":
            margins.caffe_margin(m=self.m, lambda_=0.0)  # says at once which m it knows
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))  # state: a resumed run goes on where it was
        self._counts_itself = True

    def advance(self) -> None:
        """Count one optimizer step; forward passes between two calls share its lambda."""
        self._counts_itself = False
        if self.training:
            self.step += 1

    @property
    def lambda_(self) -> Tensor:
        """The weight of the plain cosine at the present step."""
        return self.annealing(self.step.clamp_min(1)) if self.annealing else torch.zeros((), device=self.step.device)

    def rule(self) -> Rule:
        """The margin at the present lambda."""
        if self.gradient == "caffe":
            margin = margins.caffe_margin(m=self.m, lambda_=self.lambda_)
        else:
            margin = margins.exact(partial(margins.a_softmax, m=self.m, lambda_=self.lambda_))
        return Rule(margin, normalize=self.normalize, tangent=self.gradient == "exact", chunk=self.chunk)

    def compute(self, features: Tensor, labels: Tensor) -> Tensor:
        """Count the step, as the released layer does, before it is used."""
        if self.training and self._counts_itself:
            self.step += 1
        return super().compute(features, labels)


class SphereFacePlus(ASoftmax):
    """A-Softmax plus the hyperspherical energy of the class weights. Liu et al., NeurIPS 2018.

    The energy is the mean of |w_i - w_j|^-power over unit weights, i the classes of the batch and j all others: the
    mini-batch form of the sum over all pairs. Power 0 stands for log(1 / |w_i - w_j|).
    """

    def __init__(
        self,
        features: int,
        classes: int,
        *,
        m: int = 4,
        annealing: Annealing | None = Annealing(),
        weight: float = 1.0,
        power: float = 2.0,
        chunk: int | None = None,
    ) -> None:
        super().__init__(features, classes, m=m, annealing=annealing, chunk=chunk)
        self.energy_weight, self.power = weight, power

    def compute(self, features: Tensor, labels: Tensor) -> Tensor:
        """A-Softmax and the weighted energy."""
        loss = super().compute(features, labels)
        weight = self.weight.to(features.dtype)
        present = torch.unique(labels)
        own = pairs.unit(weight.index_select(0, present))
        energies = sum_over_others(own, weight, weight.new_zeros(()), present, self.pair_energy, chunk=self.chunk)
        return loss + self.energy_weight * energies.mean() / (self.classes - 1)

    def pair_energy(self, cos: Tensor, _: Tensor) -> Tensor:
        """The energy of two unit weights from their cosine; |w_i - w_j|^2 = 2 - 2 cos."""
        squared = (2 - 2 * cos).clamp_min(1e-6)  # two equal weights: finite
        return -squared.log() / 2 if self.power == 0 else squared ** (-self.power / 2)


class SphereFaceR(MarginSoftmax):
    """SphereFace revived, versions 1 and 2, with hard, soft or no feature normalisation. Liu et al., TPAMI 2022.

    v1: target cos(min(m theta, pi)); v2: target cos(theta) and all others cos(theta / m). The offset from cos(theta) is
    detached, so gradients are those of the plain cosine at the margin's probabilities. hard: every feature has length
    scale; none: its own;
    soft: its own, with a penalty soft_weight (|x| - scale)^2.
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
            raise ValueError(f"m is {m}; SphereFace-R takes a real number of at least 1")
        if version not in ("v1", "v2"):
            raise ValueError(f"version is {version!r}; choose one of v1, v2")
        if normalization not in ("hard", "soft", "none"):
            raise ValueError(f"normalization is {normalization!r}; choose one of hard, soft, none")
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
        """The margin softmax, and the pull towards the wanted length."""
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
            raise ValueError(f"alpha {alpha}, r {r}, t {t}; SphereFace2 takes 0 < alpha < 1, r > 0, t >= 1")
        self.alpha, self.r, self.m, self.t = alpha, r, m, t
        self.bias = nn.Parameter(torch.tensor(self.balanced_bias()))

    def stretch(self, cos: Tensor) -> Tensor:
        """g(cos), which spreads similar pairs and squeezes different ones."""
        return 2 * ((cos.clamp(-1, 1) + 1) / 2) ** self.t - 1

    def negative(self, cos: Tensor, bias: Tensor) -> Tensor:
        """What a class that is not the true one costs."""
        return -F.logsigmoid(-self.r * (self.stretch(cos) + self.m) - bias)

    def balanced_bias(self) -> float:
        """The b at which, for cos = 0, positive and negative gradients balance: a quadratic in exp(b).

        alpha sigma(-(r (g - m) + b)) = (1 - alpha) (K - 1) sigma(r (g + m) + b)
        """
        z = self.alpha / ((1 - self.alpha) * (self.classes - 1))
        g = 2 * 0.5**self.t - 1
        up, down = math.exp(self.r * (g - self.m)), math.exp(-self.r * (g + self.m))
        root = abs(1 - z) + math.sqrt((1 - z) ** 2 + 4 * z * up * down)  # the form of the solution that does not cancel
        return math.log(2 * z * down / root if z < 1 else root / (2 * up))

    def compute(self, features: Tensor, labels: Tensor) -> Tensor:
        """The true class pulls, all others push."""
        x, weight, bias = pairs.unit(features), self.weight.to(features.dtype), self.bias.to(features.dtype)
        cos = (x * pairs.unit(weight.index_select(0, labels))).sum(1)
        positive = -F.logsigmoid(self.r * (self.stretch(cos) - self.m) + bias)
        negative = sum_over_others(x, weight, bias, labels, self.negative, chunk=self.chunk)
        return (self.alpha * positive + (1 - self.alpha) * negative).mean() / self.r


class Contrastive(MarginSoftmax):
    """Softmax plus weight x contrastive loss over all pairs of the batch (Sun et al., NeurIPS 2014).

    normalize_features: measure distances between unit features, so that the margin has a fixed meaning; False takes raw
    ones.
    """

    def __init__(
        self,
        features: int,
        classes: int,
        *,
        weight: float = 0.05,
        margin: float = 1.0,
        normalize_features: bool = True,
        bias: bool = True,
        **mode: Unpack[Mode],
    ) -> None:
        super().__init__(features, classes, normalize=False, bias=bias, **mode)
        self.pair_weight, self.margin, self.normalize_features = weight, margin, normalize_features

    def compute(self, features: Tensor, labels: Tensor) -> Tensor:
        """Softmax and the weighted pairs."""
        measured = pairs.unit(features) if self.normalize_features else features
        pair_loss = pairs.contrastive(measured, labels, margin=self.margin)
        return super().compute(features, labels) + self.pair_weight * pair_loss


class Center(MarginSoftmax):
    """Softmax plus weight x center loss; the centers move at their own rate alpha (Wen et al., ECCV 2016).

    Centers are a buffer: each forward pass in training mode moves them, as batch norm moves its means.
    """

    centers: Tensor

    def __init__(
        self,
        features: int,
        classes: int,
        *,
        weight: float = 0.003,
        alpha: float = 0.5,
        bias: bool = True,
        **mode: Unpack[Mode],
    ) -> None:
        super().__init__(features, classes, normalize=False, bias=bias, **mode)
        self.center_weight, self.alpha = weight, alpha
        self.register_buffer("centers", torch.zeros(classes, features))

    def compute(self, features: Tensor, labels: Tensor) -> Tensor:
        """Softmax and the weighted distance to the centers as they were before this batch."""
        own = self.centers.index_select(0, labels).to(features.dtype)
        if self.training:
            pairs.move_centers_(self.centers, features.detach(), labels, alpha=self.alpha)
        return super().compute(features, labels) + self.center_weight * pairs.center(features, own)


class Triplet(FaceLoss):
    """Triplet loss on unit features, with the triplets mined inside the batch; it has no class weights.

    normalize_features=False measures raw features.
    """

    def __init__(
        self,
        features: int,
        classes: int,
        *,
        margin: float = 0.2,
        mining: pairs.Mining = "semi-hard",
        normalize_features: bool = True,
    ) -> None:
        super().__init__(features, classes)
        if mining not in ("hard", "semi-hard"):
            raise ValueError(f"mining is {mining!r}; choose one of hard, semi-hard")
        self.margin, self.mining, self.normalize_features = margin, mining, normalize_features

    def compute(self, features: Tensor, labels: Tensor) -> Tensor:
        """The mean over mined triplets."""
        measured = pairs.unit(features) if self.normalize_features else features
        return pairs.triplet(measured, labels, margin=self.margin, mining=self.mining)


def flush_short(features: Tensor, steepest: float) -> Tensor:
    """Count half-precision features as zero where they are so short that their gradient would not fit their type.

    The gradient of a direction grows as one over the length: below `steepest` / 65504 it overflows float16.
    """
    if features.dtype != torch.float16:
        return features
    half = torch.finfo(torch.float16)
    too_short = features.float().norm(dim=1, keepdim=True) < max(half.tiny, steepest / half.max)
    return features - torch.where(too_short, features, torch.zeros_like(features)).detach()


def sample_classes(labels: Tensor, classes: int, fraction: float) -> Tensor:
    """The true classes of a batch and enough random others to make up a fraction of all, in ascending order."""
    present = torch.unique(labels)
    lot = torch.rand(classes, device=labels.device)
    lot[present] = 2.0
    size = max(len(present), math.ceil(fraction * classes))
    return lot.topk(size).indices.sort().values


def check_batch(features: Tensor, labels: Tensor, width: int, classes: int) -> None:
    """Say what came and what was wanted if a batch does not fit a loss."""
    if features.ndim != 2 or features.shape[1] != width or len(features) == 0:
        raise ValueError(f"features have shape {tuple(features.shape)}; wanted (B, {width}) with B >= 1")
    if not features.is_floating_point():
        raise ValueError(f"features are {features.dtype}; wanted a floating-point type")
    if labels.shape != features.shape[:1]:
        raise ValueError(f"labels have shape {tuple(labels.shape)}; wanted ({len(features)},), one for each feature")
    if labels.dtype.is_floating_point or labels.dtype.is_complex or labels.dtype == torch.bool:
        raise ValueError(f"labels are {labels.dtype}; wanted whole numbers, such as torch.int64")
    if labels.device != features.device:
        raise ValueError(f"labels are on {labels.device}; wanted {features.device}, where the features are")
    low, high = torch.stack(labels.long().aminmax()).tolist()  # together: one wait for a GPU
    if low < 0 or high >= classes:
        raise ValueError(f"labels run from {low} to {high}; wanted 0 to {classes - 1} for {classes} classes")
