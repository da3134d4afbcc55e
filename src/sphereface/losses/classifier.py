"""Losses with class weights: margins, and the modes in which they run."""

import math
from collections.abc import Callable
from functools import partial
from typing import Literal, TypedDict, Unpack

import torch
from torch import Tensor, nn

from sphereface import parallel
from sphereface.errors import UserError
from sphereface.geometry import check_m
from sphereface.losses import margins, pairs
from sphereface.losses.annealing import Annealing
from sphereface.losses.base import FaceLoss, is_integer
from sphereface.losses.blocks import TINY
from sphereface.losses.softmax import LogitForm, margin_cross_entropy

Gradient = Literal["exact", "caffe"]


class Mode(TypedDict, total=False):
    """The mode of a classifier; by default it runs in one piece.

    chunk: hold at most (B, chunk) numbers at a time instead of (B, K), and compute the logits twice.
    sample: in training, compare with this fraction of the classes, which includes the true ones (An et al., Partial
    FC, 2021).
    shard: (rank, ranks), to hold one process's share of the classes. Every process calls the loss with its share of the
    batch, and gets the loss of the whole batch over all classes.
    """

    chunk: int | None
    sample: float | None
    shard: tuple[int, int] | None


class Classifier(FaceLoss):
    """A loss with class weights (K, D), run in one piece, in chunks, on a sample of the classes, or as one of R shards.

    The `weight` of a shard holds its own classes only, `rows` = (first, end) of all K; `classes` stays K. In backward,
    its weights get the complete gradient of the whole batch's loss, and its share of the features R x their gradient:
    the network is under DistributedDataParallel, which averages over the R processes.
    """

    normalize = True  # weights are used as w / |w|

    def __init__(self, features: int, classes: int, **mode: Unpack[Mode]) -> None:
        super().__init__(features, classes)
        chunk, sample = mode.get("chunk"), mode.get("sample")
        if chunk is not None and not (is_integer(chunk) and chunk >= 1):
            raise UserError(f"chunk is {chunk}; it takes a number of classes, at least 1, or None")
        if sample is not None and not 0 < sample <= 1:
            raise UserError(f"sample is {sample}; it takes a fraction of the classes above 0 and up to 1, or None")
        self.chunk, self.sample, self.shard = chunk, sample, mode.get("shard")
        self.rows = class_range(classes, *(self.shard or (0, 1)))
        self.weight = nn.Parameter(torch.empty(self.rows[1] - self.rows[0], features))
        draw_rows_(self.weight, self.rows[0], classes, bound=math.sqrt(3 / features))  # Caffe's Xavier: by fan-in alone
        self.project_()

    @property
    def sharded(self) -> bool:
        """True if other processes hold some of the classes."""
        return self.shard is not None and self.shard[1] > 1

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        """Mean loss of features (B, D) with labels (B,); for a shard, of the batches of all processes."""
        if not self.sharded:
            return super().forward(features, labels)
        if self.shard != (parallel.rank(), parallel.ranks()):
            here = f"process {parallel.rank()} of {parallel.ranks()}"
            raise UserError(f"shard is {self.shard} in {here}; it takes (parallel.rank(), parallel.ranks())")
        return super().forward(*parallel.gather_batch(features, labels))

    def dtype_for(self, features: Tensor) -> torch.dtype:
        """The wider type of features and weights, at least float32."""
        return torch.promote_types(super().dtype_for(features), self.weight.dtype)

    @torch.no_grad()
    def project_(self) -> None:
        """Normalise the class weights to length one, if the loss uses unit weights."""
        if self.normalize:
            length = self.weight.to(torch.promote_types(self.weight.dtype, torch.float32)).norm(dim=1, keepdim=True)
            self.weight.copy_(self.weight / length.clamp_min(TINY))

    def sampled(self, labels: Tensor) -> Tensor | None:
        """The rows to compare with, in ascending order, or None for all of them; labels count from the first row.

        A shard draws its own rows, from a seed shared by all processes plus its rank. Processes that hold all classes
        draw the same sample, given the same random state: it includes the true classes of all their batches.
        """
        if self.sample is None or not self.training:
            return None
        if not self.sharded:
            return sample_classes(parallel.all_gather(labels).flatten(), self.classes, self.sample)
        seed = int(torch.randint(2**62, ())) + parallel.rank()
        here = labels[(labels >= 0) & (labels < len(self.weight))]
        return sample_classes(here, len(self.weight), self.sample, torch.Generator(labels.device).manual_seed(seed))

    def compared(self, batch: int) -> int | None:
        """The number of classes that a batch is compared with; None if it varies, as a sample has all true classes."""
        if self.sample is None:
            return self.classes
        ranks = self.shard[1] if self.shard else 1
        held = [end - first for first, end in (class_range(self.classes, rank, ranks) for rank in range(ranks))]
        sizes = [math.ceil(self.sample * rows) for rows in held]
        always = all(size >= min(batch, rows) for size, rows in zip(sizes, held, strict=True))
        return sum(sizes) if always else None


class MarginSoftmax(Classifier):
    """Softmax over the angles to each class, with a margin on the angle to the true class.

    scale: the length that every feature is set to; None keeps their own lengths.
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
            raise UserError(f"scale is {scale}; it takes a length above 0")
        self.formula, self.scale, self.others = formula, scale, others
        self.steepest = 2 * scale if scale else FaceLoss.steepest
        self.bias = nn.Parameter(torch.zeros(len(self.weight))) if bias else None

    def form(self) -> LogitForm:
        """The present mapping from inner products to logits."""
        return LogitForm(margins.exact(self.formula), normalize=self.normalize, others=self.others, chunk=self.chunk)

    def compute(self, features: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy over all classes, or over a sample of them."""
        if self.scale is not None:
            features = pairs.unit(features) * self.scale
        weight, bias = self.weight.to(features.dtype), None if self.bias is None else self.bias.to(features.dtype)
        labels = labels - self.rows[0]
        chosen = self.sampled(labels)
        if chosen is not None:
            weight, bias = weight.index_select(0, chosen), None if bias is None else bias.index_select(0, chosen)
            labels = places_in(chosen, labels)
        return margin_cross_entropy(features, weight, bias, labels, self.form(), sharded=self.sharded)


class ASoftmax(MarginSoftmax):
    """A-Softmax, the loss of the paper: the target logit |x| psi(theta), reached by annealing.

    gradient: "exact", the gradient of the loss with weights used as w/|w|; "caffe", that of the authors' released
    layer. With normalize=False the weights keep their length, |w||x| psi(theta): L-Softmax (Liu et al., ICML 2016).
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
            raise UserError(f"gradient is {gradient!r}; choose one of exact, caffe")
        if not isinstance(annealing, Annealing | None):
            raise UserError(f"annealing is {annealing!r}; wanted an Annealing or None")
        self.m, self.annealing, self.gradient = check_m(m), annealing, gradient
        if gradient == "caffe":
            margins.caffe_margin(m=self.m, lambda_=0.0)  # an error now for an m that it does not have
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))  # in the state dict, for a resumed run
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

    def form(self) -> LogitForm:
        """The logits with the margin at the present lambda."""
        if self.gradient == "caffe":
            margin = margins.caffe_margin(m=self.m, lambda_=self.lambda_)
        else:
            margin = margins.exact(partial(margins.a_softmax, m=self.m, lambda_=self.lambda_))
        return LogitForm(margin, normalize=self.normalize, tangent=self.gradient == "exact", chunk=self.chunk)

    def compute(self, features: Tensor, labels: Tensor) -> Tensor:
        """The loss; counts the step before it is used, as the released layer does."""
        if self.training and self._counts_itself:
            self.step += 1
        return super().compute(features, labels)


def class_range(classes: int, rank: int, ranks: int) -> tuple[int, int]:
    """The classes [first, end) of one shard; shards differ by at most one class and may be empty.

    >>> [class_range(5, rank, 2) for rank in range(2)]
    [(0, 2), (2, 5)]
    """
    if not 0 <= rank < ranks:
        raise UserError(f"shard is ({rank}, {ranks}); it takes (rank, ranks) with 0 <= rank < ranks")
    return classes * rank // ranks, classes * (rank + 1) // ranks


@torch.no_grad()
def draw_rows_(weight: Tensor, first: int, classes: int, bound: float) -> None:
    """Initialise rows uniformly in [-bound, bound], to the values that they would have among the rows of all classes.

    A CPU draws numbers in sequence, so the numbers of the other rows are drawn and discarded: afterwards all processes
    have the same random state.
    """
    scratch = weight.new_empty(min(classes - len(weight), 4096), weight.shape[1])
    for before in range(0, first, 4096):
        scratch[: first - before].uniform_(-bound, bound)
    nn.init.uniform_(weight, -bound, bound)
    for after in range(first + len(weight), classes, 4096):
        scratch[: classes - after].uniform_(-bound, bound)


def sample_classes(labels: Tensor, classes: int, fraction: float, generator: torch.Generator | None = None) -> Tensor:
    """The true classes of a batch and random others up to a fraction of all classes, in ascending order."""
    present = torch.unique(labels)
    priority = torch.rand(classes, device=labels.device, generator=generator)
    priority[present] = 2.0
    size = max(len(present), math.ceil(fraction * classes))
    return priority.topk(size).indices.sort().values


def places_in(chosen: Tensor, labels: Tensor) -> Tensor:
    """The index of each label in `chosen`, which is ascending; -1 if it is absent."""
    if not len(chosen):
        return torch.full_like(labels, -1)
    place = torch.searchsorted(chosen, labels).clamp_max(len(chosen) - 1)
    return torch.where(chosen[place] == labels, place, -1)
