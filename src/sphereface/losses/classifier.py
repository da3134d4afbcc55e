"""Losses with class weights: what a margin makes of them, and how they run."""

import math
from collections.abc import Callable
from functools import partial
from typing import Literal, TypedDict, Unpack

import torch
from torch import Tensor, nn

from sphereface.geometry import check_m
from sphereface.losses import margins, pairs
from sphereface.losses.annealing import Annealing
from sphereface.losses.base import FaceLoss
from sphereface.losses.blocks import TINY
from sphereface.losses.softmax import Rule, margin_cross_entropy

Gradient = Literal["exact", "caffe"]


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
        bound = math.sqrt(3 / features)  # Caffe's Xavier: by fan-in alone
        nn.init.uniform_(self.weight, -bound, bound)
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


def sample_classes(labels: Tensor, classes: int, fraction: float) -> Tensor:
    """The true classes of a batch and enough random others to make up a fraction of all, in ascending order."""
    present = torch.unique(labels)
    lot = torch.rand(classes, device=labels.device)
    lot[present] = 2.0
    size = max(len(present), math.ceil(fraction * classes))
    return lot.topk(size).indices.sort().values
