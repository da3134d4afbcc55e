"""Inner products of a batch with K class weights, a block of classes at a time."""

from collections.abc import Iterator

import torch
from torch import Tensor

TINY = 1e-12  # below this a vector has no direction


class ClassBlocks:
    """The products x w, or x w/|w|, of features (B, D) with weights (K, D), in blocks laid out (classes, B).

    Iterating yields (range of classes, products). The first pass computes and keeps the products; the second consumes
    them, so that their memory is freed while the gradient is allocated. With a chunk nothing is kept and every pass
    computes them again; a block is then so small that `buffers` of them, the products and the temporaries of a loss,
    hold at most (B, chunk) numbers. A block is contiguous, of at most `most` classes; by default it stays in a CPU's
    cache from its matrix product to its last use.
    """

    def __init__(
        self,
        features: Tensor,
        weight: Tensor,
        *,
        normalize: bool,
        chunk: int | None,
        buffers: int,
        keep: bool,
        most: int | None = None,
    ) -> None:
        self.features, self.weight, self.normalize = features, weight, normalize
        self.inverse = features.new_empty(len(weight) if normalize else 0)  # 1 / |w|, filled on the first pass
        room = len(weight) if chunk is None else chunk // buffers
        self.size = max(1, min(len(weight), room, most or block_size(features)))
        self.samples = torch.arange(len(features), device=features.device)
        self.keep, self.kept, self.first = keep and chunk is None, dict[int, Tensor](), True

    def __iter__(self) -> Iterator[tuple[slice, Tensor]]:
        room = None
        for start in range(0, len(self.weight), self.size):
            classes = slice(start, min(start + self.size, len(self.weight)))
            products = self.kept.pop(start, None)
            if products is None:
                if room is None or (self.keep and self.first):
                    room = self.scratch()
                products = self._multiply(classes, out=room[: classes.stop - start])
                if self.keep and self.first:
                    self.kept[start] = products
            yield classes, products
        self.first = False

    def _multiply(self, classes: slice, out: Tensor) -> Tensor:
        weight = self.weight[classes]
        if self.first and self.normalize:
            self.inverse[classes] = 1 / weight.norm(dim=1).clamp_min(TINY)
        torch.mm(weight, self.features.t(), out=out)
        return out.mul_(self.inverse[classes][:, None]) if self.normalize else out

    def scratch(self) -> Tensor:
        """An uninitialised buffer for one block."""
        return self.features.new_empty(self.size, len(self.features))

    def place(self, block: Tensor, classes: slice, labels: Tensor, values: Tensor) -> Tensor:
        """Write values (B,) into the true classes of the samples, where these lie in the block."""
        row = labels - classes.start
        inside = (row >= 0) & (row < len(block))
        here = (row.clamp(0, len(block) - 1), self.samples)
        block[here] = torch.where(inside, values, block[here])  # no boolean mask: it would synchronise a GPU
        return block

    def pull_back(
        self,
        classes: slice,
        share: Tensor,
        products: Tensor,
        scale: Tensor,
        d_features: Tensor | None,
        d_weight: Tensor | None,
        *,
        tangent: bool,
    ) -> None:
        """Turn the gradient of a block's products into those of features and weights; overwrites share and products.

        The gradient is `share` (k, B) times `scale` (B,). d_weight[classes] is set, with the scale; share^T w/|w| is
        added to d_features without it, because one factor per sample is cheaper at the end. None is skipped. With
        `tangent` the weight's gradient goes through w/|w|: d(x w/|w|)/dw = (x - (x w/|w|) w/|w|) / |w|, without the
        component along w.
        """
        weight, scaled = self.weight[classes], self.features * scale[:, None]
        through_length = self.normalize and tangent
        if d_weight is not None and not through_length:
            torch.mm(share, scaled, out=d_weight[classes])
        if d_weight is not None and through_length:
            along, inverse = products.mul_(share).mv(scale), self.inverse[classes]
            torch.mul(weight, (-along * inverse * inverse)[:, None], out=d_weight[classes])
        if self.normalize:
            share.mul_(self.inverse[classes][:, None])
        if d_weight is not None and through_length:
            d_weight[classes].addmm_(share, scaled)
        if d_features is not None:
            d_features.addmm_(share.t(), weight)


def block_size(features: Tensor) -> int:
    """Classes per block: on a CPU its weights and products fit a cache, elsewhere they fill the device."""
    return (3 << 20) // sum(features.shape) if features.device.type == "cpu" else 1 << 16
