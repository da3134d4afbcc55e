"""A margin softmax over K classes, in pieces that merge.

All modes share one algebra. The logits of some classes are summed up as a `Partial`; partials `merge`, over blocks or
over processes, into the softmax's denominator; then each block yields its share of the gradient independently. The
fused mode keeps the logits between the two passes, chunks compute them again, shards exchange B numbers in between.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from sphereface import parallel
from sphereface.losses.blocks import TINY, ClassBlocks
from sphereface.losses.margins import Margin


class Partial(NamedTuple):
    """The contribution of some classes to a softmax, each (B,).

    The true class is separate from the others: the loss is the softplus of log_others() - target, which keeps its
    digits for small values. If the true class is not among these classes, its logit is -inf.
    """

    top: Tensor  # the largest logit of the others
    total: Tensor  # their sum of exp(logit - top)
    target: Tensor  # the logit of the true class

    def log_others(self) -> Tensor:
        """The logarithm of the sum of exp over all but the true class."""
        return self.top + self.total.log()


def merge(a: Partial, b: Partial) -> Partial:
    """The partial of two disjoint sets of classes: associative, commutative, with the empty set as its zero."""
    top = torch.maximum(a.top, b.top)
    base = finite(top)
    total = a.total * (a.top - base).exp() + b.total * (b.top - base).exp()
    return Partial(top, total, torch.maximum(a.target, b.target))


def merge_all(parts: Partial) -> Partial:
    """The partial of many disjoint sets of classes; the tensors of `parts` are (sets, B)."""
    top = parts.top.amax(0)
    total = (parts.total * (parts.top - finite(top)).exp()).sum(0)
    return Partial(top, total, parts.target.amax(0))


def merge_over_ranks(own: Partial) -> Partial:
    """The partial of the classes of all processes.

    Each process receives the partials of its share of the batch, merges them and sends the result to all: so it sends
    less than 6 B numbers for any number of processes, and all have the same bits.
    """
    numbers = torch.stack(own).view(3, parallel.ranks(), -1).movedim(1, 0)  # (R, 3, B / R)
    mine = merge_all(Partial(*parallel.exchange(numbers).unbind(1)))
    return Partial(*parallel.all_gather(torch.stack(mine)).movedim(0, 1).flatten(1).unbind())


def finite(top: Tensor) -> Tensor:
    """The largest logit, with 0 in place of -inf: -inf - -inf is nan."""
    return torch.where(top.isneginf(), torch.zeros_like(top), top)


@dataclass(frozen=True)
class LogitForm:
    """The mapping from inner products to logits, and its gradient."""

    margin: Margin
    normalize: bool = True  # weights are used as w / |w|
    tangent: bool = True  # False: the released layer's w-gradient, top^T x, without margin and normalisation
    others: Callable[[Tensor], Tensor] | None = None  # cos of classes but the true one -> cos; offset detached
    chunk: int | None = None  # hold at most (B, chunk) numbers; None keeps (B, K) logits for the backward pass
    most: int | None = None  # classes of a block; None: as many as fit a cache


class Wanted(NamedTuple):
    """Which inputs need gradients."""

    features: bool = True
    weight: bool = True
    bias: bool = True


EVERYTHING = Wanted()


class Gradients(NamedTuple):
    """Gradients of the features (B, D), the weights (K, D) and the bias (K,); None where not wanted."""

    features: Tensor | None
    weight: Tensor | None
    bias: Tensor | None


class Shard:
    """The softmax of a batch over some classes: all K of them, or the share of one process, which may be empty.

    Labels count from the first class of the shard; a label outside it is a true class of another shard. Two passes:
    `partial()`, then, with the merged partial, `gradients()`.
    """

    def __init__(
        self,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        form: LogitForm,
        wanted: Wanted = EVERYTHING,
    ) -> None:
        self.features, self.weight, self.bias, self.labels, self.form = features, weight, bias, labels, form
        self.wanted = wanted
        self.here = (labels >= 0) & (labels < len(weight))  # (B,)
        self.own = labels.clamp(0, max(0, len(weight) - 1))  # (B,) row of the true class; any if it is elsewhere
        self.length = features.norm(dim=1).clamp_min(TINY)  # (B,)
        self.own_weight = weight.index_select(0, self.own) if len(weight) else torch.zeros_like(features)  # (B, D)
        self.own_length = self.own_weight.norm(dim=1).clamp_min(TINY)
        self.cos = ((features * self.own_weight).sum(1) / (self.length * self.own_length)).clamp(-1, 1)
        self.target = form.margin(self.cos, self.length if form.normalize else self.length * self.own_length)
        logit = self.target.logit
        if bias is not None and len(bias):
            logit = logit + bias.index_select(0, self.own)
        self.logit = torch.where(self.here, logit, torch.full_like(logit, -torch.inf))
        self.blocks = ClassBlocks(
            features,
            weight,
            normalize=form.normalize,
            chunk=form.chunk,
            buffers=2 if form.others is None else 8,
            keep=any(wanted),
            most=form.most,
        )

    def partial(self) -> Partial:
        """First pass: the contribution of these classes to the denominator."""
        nothing = torch.full_like(self.length, -torch.inf)
        result = Partial(nothing, torch.zeros_like(self.length), self.logit)
        scratch = self.blocks.scratch()
        for classes, products in self.blocks:
            logits, _ = self._logits(classes, products, scratch)
            logits = self.blocks.place(logits, classes, self.labels, nothing)
            top = logits.amax(0)
            total = torch.sub(logits, finite(top), out=scratch[: len(logits)]).exp_().sum(0)
            result = merge(result, Partial(top, total, nothing))
        return result

    def gradients(self, whole: Partial, scale: Tensor) -> Gradients:
        """Second pass: the contribution of these classes to the gradient of sum(scale loss); `whole` is merged."""
        d_features = torch.zeros_like(self.features) if self.wanted.features else None
        d_weight = torch.empty_like(self.weight) if self.wanted.weight else None
        d_bias = torch.empty_like(self.bias) if self.bias is not None and self.wanted.bias else None
        log_total = torch.logaddexp(whole.log_others(), whole.target)
        radial = torch.zeros_like(self.length)  # along x, for logits that are not proportional to cos
        none, scratch = torch.zeros_like(self.logit), self.blocks.scratch()
        for classes, products in self.blocks:
            logits, offset = self._logits(classes, products, scratch)
            share = torch.sub(logits, log_total, out=scratch[: len(logits)]).exp_()  # (k, B): the softmax itself
            share = self.blocks.place(share, classes, self.labels, none)  # true classes are added below
            products = self.blocks.place(products, classes, self.labels, none)  # the first pass left -inf there
            if offset is not None:
                radial += (share * self.blocks.place(offset, classes, self.labels, none)).sum(0)
            if d_bias is not None:
                torch.mv(share, scale, out=d_bias[classes])
            self.blocks.pull_back(classes, share, products, scale, d_features, d_weight, tangent=self.form.tangent)
        if d_features is not None:
            if self.form.others is not None:
                d_features += (radial / self.length**2)[:, None] * self.features
            d_features *= scale[:, None]
        if len(self.weight):
            self._add_true_classes(d_features, d_weight, d_bias, whole, scale)
        return Gradients(d_features, d_weight, d_bias)

    def _logits(self, classes: slice, products: Tensor, scratch: Tensor) -> tuple[Tensor, Tensor | None]:
        """The logits of a block for classes other than the true one, and the offset that `others` added."""
        logits, offset = products, None
        if self.form.others is not None:
            logits = self.form.others(products / self.length) * self.length
            offset = logits - products
        if self.bias is not None:
            logits = torch.add(logits, self.bias[classes][:, None], out=scratch[: len(logits)])
        return logits, offset

    def _add_true_classes(
        self, d_features: Tensor | None, d_weight: Tensor | None, d_bias: Tensor | None, whole: Partial, scale: Tensor
    ) -> None:
        """Add the gradient through the target logits: d loss / d target = -sigmoid(others - target)."""
        pull = -torch.sigmoid(whole.log_others() - whole.target) * scale
        pull = torch.where(self.here, pull, torch.zeros_like(pull))
        x, w = self.features / self.length[:, None], self.own_weight / self.own_length[:, None]
        by_cos, along_x, along_w = pull * self.target.d_cos, pull * self.target.d_length, torch.zeros_like(pull)
        if not self.form.normalize:  # the length is |x||w|
            along_x, along_w = along_x * self.own_length, along_x * self.length
        if d_features is not None:
            turn = by_cos / self.length
            d_features += turn[:, None] * w + (along_x - turn * self.cos)[:, None] * x
        if d_weight is not None:
            turn = by_cos / self.own_length
            rows = turn[:, None] * x + (along_w - turn * self.cos)[:, None] * w
            d_weight.index_add_(0, self.own, rows if self.form.tangent else pull[:, None] * self.features)
        if d_bias is not None:
            d_bias.index_add_(0, self.own, pull)


def cross_entropy(whole: Partial) -> Tensor:
    """The loss of each sample (B,) from the partial over all classes: log(1 + exp(others - target))."""
    return -F.logsigmoid(whole.target - whole.log_others())  # torch's softplus is linear above 20


class MarginCrossEntropy(torch.autograd.Function):
    """Mean cross-entropy of a margin softmax: (features, weight, bias, labels, form, sharded) -> scalar.

    Sharded, every process calls it with the whole batch and its own classes, with labels from the first of these; the
    value is over all classes, and the same in all processes. The gradient of weights and bias is complete; that of the
    features is complete for the process's share of the batch and zero elsewhere, as `parallel.GatherRows` expects.
    """

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, form: LogitForm, sharded: bool
    ) -> Tensor:
        """The first pass over the classes; the shard and the merged partial are kept for the second."""
        shard = Shard(features, weight, bias, labels, form, Wanted(*ctx.needs_input_grad[:3]))
        whole = merge_over_ranks(shard.partial()) if sharded else shard.partial()
        ctx.save_for_backward(features, weight)  # torch then detects changes to them before the backward pass
        ctx.shard, ctx.whole, ctx.sharded = shard, whole, sharded
        return cross_entropy(whole).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        """The second pass over the classes."""
        _ = ctx.saved_tensors
        batch = len(ctx.whole.target)
        with torch.autocast(grad_output.device.type, enabled=False):
            features, weight, bias = ctx.shard.gradients(ctx.whole, (grad_output / batch).expand(batch))
            if ctx.sharded and features is not None:
                features = sum_of_own_share(features)
            return features, weight, bias, None, None, None


def sum_of_own_share(d_features: Tensor) -> Tensor:
    """The sum over the processes in the rows (B / R, D) of the process's share of the batch; zero in the others."""
    own = parallel.sum_of_own_rows(d_features)
    first = parallel.rank() * len(own)
    result = torch.zeros_like(d_features)
    result[first : first + len(own)] = own
    return result


def margin_cross_entropy(
    features: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, form: LogitForm, *, sharded: bool = False
) -> Tensor:
    """Mean cross-entropy of features (B, D) over the classes of weight (K, D), with logits by `form`."""
    if not torch.is_grad_enabled():
        own = Shard(features, weight, bias, labels, form, Wanted(False, False, False)).partial()
        return cross_entropy(merge_over_ranks(own) if sharded else own).mean()
    return MarginCrossEntropy.apply(features, weight, bias, labels, form, sharded)  # type: ignore[no-any-return, no-untyped-call]
