"""A margin softmax over K classes, in pieces that merge.

All ways to run it are one algebra. Some classes sum up their logits as a `Partial`; partials `merge`, over blocks of
time or over processes, into the softmax's denominator; then every block, on its own, gives its share of the gradient.
One piece keeps the logits between the two passes, chunks compute them again, shards exchange B numbers in between.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sphereface.losses.blocks import TINY, ClassBlocks
from sphereface.losses.margins import Margin


class Partial(NamedTuple):
    """What some classes contribute to a softmax: largest logit, sum of exp(logit - largest), target logit; (B,)."""

    top: Tensor
    total: Tensor
    target: Tensor  # -inf where the true class is not among them

    def log_total(self) -> Tensor:
        """The logarithm of the sum of exp over these classes."""
        return self.top + self.total.log()


def merge(a: Partial, b: Partial) -> Partial:
    """What two disjoint sets of classes contribute together: associative, commutative, and no classes are its zero."""
    top = torch.maximum(a.top, b.top)
    base = torch.where(top.isneginf(), torch.zeros_like(top), top)  # nothing on either side: -inf - -inf is no number
    total = a.total * (a.top - base).exp() + b.total * (b.top - base).exp()
    return Partial(top, total, torch.maximum(a.target, b.target))


@dataclass(frozen=True)
class Rule:
    """How inner products become logits, and which gradient comes back."""

    margin: Margin
    normalize: bool = True  # weights count as w / |w|
    tangent: bool = (
        True  # False: the released layer's w-gradient, top^T x, blind to the margin and to the normalisation
    )
    others: Callable[[Tensor], Tensor] | None = (
        None  # cos -> what it counts as for a class that is not the true one; offset detached
    )
    chunk: int | None = (
        None  # hold at most (B, chunk) logits; None keeps all (B, K) from the forward to the backward pass
    )


class Gradients(NamedTuple):
    """Of the features (B, D), the weights (K, D) and the bias (K,) or None."""

    features: Tensor
    weight: Tensor
    bias: Tensor | None


class Shard:
    """Some classes at work on a batch: all K of them, or the share of one process.

    Labels count from the first class of the shard; a label outside it belongs to a true class that lives elsewhere. Two
    passes: `partial()`, then, with the merged denominator, `gradients()`.
    """

    def __init__(self, features: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, rule: Rule) -> None:
        self.features, self.weight, self.bias, self.labels, self.rule = features, weight, bias, labels, rule
        self.here = (labels >= 0) & (labels < len(weight))  # (B,)
        self.own = labels.clamp(0, len(weight) - 1)  # (B,) row of the true class; any row where it lives elsewhere
        self.length = features.norm(dim=1).clamp_min(TINY)  # (B,)
        self.own_weight = weight.index_select(0, self.own)  # (B, D)
        self.own_length = self.own_weight.norm(dim=1).clamp_min(TINY)
        self.cos = ((features * self.own_weight).sum(1) / (self.length * self.own_length)).clamp(-1, 1)
        self.target = rule.margin(self.cos, self.length if rule.normalize else self.length * self.own_length)
        self.logit = self.target.logit if bias is None else self.target.logit + bias.index_select(0, self.own)
        self.blocks = ClassBlocks(features, weight, normalize=rule.normalize, chunk=rule.chunk)

    def partial(self) -> Partial:
        """First pass: the share of these classes in the denominator, with the margin's logit for the true class."""
        nothing = torch.full_like(self.length, -torch.inf)
        result = Partial(nothing, torch.zeros_like(self.length), torch.where(self.here, self.logit, nothing))
        scratch = self.blocks.scratch()
        for classes, products in self.blocks:
            logits = self._logits(classes, products, scratch)
            logits = self.blocks.place(logits, classes, self.labels, self.logit)
            top = logits.amax(0)
            total = torch.sub(logits, top, out=scratch[: len(logits)]).exp_().sum(0)
            result = merge(result, Partial(top, total, nothing))
        return result

    def gradients(self, log_total: Tensor, scale: Tensor) -> Gradients:
        """Second pass: these classes' share in the gradient of sum(scale (log_total - target logit)); scale (B,)."""
        d_features, d_weight = torch.zeros_like(self.features), torch.empty_like(self.weight)
        d_bias = None if self.bias is None else torch.empty_like(self.bias)
        radial = torch.zeros_like(self.length)  # along x, from logits that are not proportional to cos
        none, scratch = torch.zeros_like(self.logit), self.blocks.scratch()
        for classes, products in self.blocks:
            logits = self._logits(classes, products, scratch)
            offset = None if self.rule.others is None else logits - products
            share = torch.sub(logits, log_total, out=scratch[: len(logits)]).exp_()  # (k, B): the softmax itself
            share = self.blocks.place(share, classes, self.labels, none)  # true classes have their own rule below
            if offset is not None:
                radial += (share * offset).sum(0)
            if d_bias is not None:
                torch.mv(share, scale, out=d_bias[classes])
            self.blocks.pull_back(classes, share, products, scale, d_features, d_weight, tangent=self.rule.tangent)
        if self.rule.others is not None:
            d_features += (radial / self.length**2)[:, None] * self.features
        d_features *= scale[:, None]
        self._add_true_classes(d_features, d_weight, d_bias, log_total, scale)
        return Gradients(d_features, d_weight, d_bias)

    def _logits(self, classes: slice, products: Tensor, scratch: Tensor) -> Tensor:
        """The logits of a block, as for classes that are not the true one."""
        if self.rule.others is not None:
            products = self.rule.others(products / self.length) * self.length
        if self.bias is not None:
            products = torch.add(products, self.bias[classes][:, None], out=scratch[: len(products)])
        return products

    def _add_true_classes(
        self, d_features: Tensor, d_weight: Tensor, d_bias: Tensor | None, log_total: Tensor, scale: Tensor
    ) -> None:
        """Add the gradient that flows through the target logit: B rows."""
        top = torch.where(self.here, (self.logit - log_total).exp() - 1, torch.zeros_like(self.logit)) * scale
        x, w = self.features / self.length[:, None], self.own_weight / self.own_length[:, None]
        by_cos, along_x, along_w = top * self.target.d_cos, top * self.target.d_length, torch.zeros_like(top)
        if not self.rule.normalize:  # the length is |x||w|
            along_x, along_w = along_x * self.own_length, along_x * self.length
        d_features += (by_cos / self.length)[:, None] * w + (along_x - by_cos * self.cos / self.length)[:, None] * x
        if self.rule.tangent:
            rows = (by_cos / self.own_length)[:, None] * x + (along_w - by_cos * self.cos / self.own_length)[
                :, None
            ] * w
        else:
            rows = top[:, None] * self.features
        d_weight.index_add_(0, self.own, rows)
        if d_bias is not None:
            d_bias.index_add_(0, self.own, top)


class MarginCrossEntropy(torch.autograd.Function):
    """Mean cross-entropy of a margin softmax over all classes: (features, weight, bias, labels, rule) -> scalar."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, rule: Rule) -> Tensor:
        """Keep the shard and the denominator for the way back."""
        shard = Shard(features, weight, bias, labels, rule)
        partial = shard.partial()
        ctx.save_for_backward(features, weight)  # so that torch notices if they change before the backward pass
        log_total = partial.log_total()
        ctx.shard, ctx.log_total = shard, log_total
        return (log_total - partial.target).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        """The second pass over the classes."""
        _ = ctx.saved_tensors
        batch = len(ctx.log_total)
        with torch.autocast(grad_output.device.type, enabled=False):
            return *ctx.shard.gradients(ctx.log_total, (grad_output / batch).expand(batch)), None, None


def margin_cross_entropy(features: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, rule: Rule) -> Tensor:
    """Mean cross-entropy of features (B, D) over the classes of weight (K, D), under a rule."""
    return MarginCrossEntropy.apply(features, weight, bias, labels, rule)  # type: ignore[no-any-return, no-untyped-call]
