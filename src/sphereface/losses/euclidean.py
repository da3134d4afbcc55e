"""The losses on Euclidean distances: contrastive, center and triplet loss."""

from typing import Unpack

import torch
from torch import Tensor

from sphereface.errors import UserError
from sphereface.losses import pairs
from sphereface.losses.base import FaceLoss
from sphereface.losses.classifier import MarginSoftmax, Mode


class Contrastive(MarginSoftmax):
    """Softmax plus weight x contrastive loss over all pairs of the batch (Sun et al., NeurIPS 2014).

    normalize_features: measure distances between unit features, for a fixed meaning of the margin, or between raw ones.
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
        """Softmax plus the weighted loss of pairs."""
        measured = pairs.unit(features) if self.normalize_features else features
        pair_loss = pairs.contrastive(measured, labels, margin=self.margin)
        return super().compute(features, labels) + self.pair_weight * pair_loss


class Center(MarginSoftmax):
    """Softmax plus weight x center loss; the centers have their own rate alpha (Wen et al., ECCV 2016).

    Centers are a buffer: each forward pass in training mode updates them, as batch norm updates its means.
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
        """Softmax plus the weighted distance to the centers before their update by this batch."""
        own = self.centers.index_select(0, labels).to(features.dtype)
        if self.training:
            pairs.move_centers_(self.centers, features.detach(), labels, alpha=self.alpha)
        return super().compute(features, labels) + self.center_weight * pairs.center(features, own)


class Triplet(FaceLoss):
    """Triplet loss on unit or raw features, with the triplets mined inside the batch, without class weights."""

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
            raise UserError(f"mining is {mining!r}; choose one of hard, semi-hard")
        self.margin, self.mining, self.normalize_features = margin, mining, normalize_features

    def compute(self, features: Tensor, labels: Tensor) -> Tensor:
        """The mean over mined triplets."""
        measured = pairs.unit(features) if self.normalize_features else features
        return pairs.triplet(measured, labels, margin=self.margin, mining=self.mining)
