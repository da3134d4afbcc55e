"""Losses on pairs and triplets of a batch, and on the distance to a class center."""

from typing import Literal

import torch
from torch import Tensor

from sphereface.losses.blocks import TINY

Mining = Literal["hard", "semi-hard"]


def unit(features: Tensor) -> Tensor:
    """Features (B, D) at length one; a feature of length zero has no direction: it stays zero, with a zero gradient."""
    length = features.norm(dim=1, keepdim=True)
    return features * torch.where(length > TINY, 1 / length.clamp_min(TINY), torch.zeros_like(length))


def squared_distances(features: Tensor) -> Tensor:
    """All squared Euclidean distances (B, B), by differences: |a|^2 + |b|^2 - 2ab cancels for close pairs."""
    return torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist") ** 2


def contrastive(features: Tensor, labels: Tensor, *, margin: float) -> Tensor:
    """Mean over all pairs of d^2 / 2 if same, max(0, margin - d)^2 / 2 if different. Hadsell et al., CVPR 2006."""
    row, column = torch.triu_indices(len(features), len(features), offset=1, device=features.device)
    squared = squared_distances(features)[row, column]
    distance = squared.clamp_min(TINY).sqrt()  # clamped: two equal features have no direction apart
    cost = torch.where(labels[row] == labels[column], squared, (margin - distance).clamp_min(0) ** 2)
    return cost.sum() / 2 / max(1, len(cost))  # 0 for a batch of one, which has no pairs


def triplet(features: Tensor, labels: Tensor, *, margin: float, mining: Mining) -> Tensor:
    """Mean of max(0, d^2(a, p) - d^2(a, n) + margin) over mined triplets. Schroff et al., CVPR 2015.

    "hard": one triplet per anchor, its furthest positive and nearest negative (Hermans et al., 2017). "semi-hard": one
    per (anchor, positive), with the nearest negative that is further than the positive, or else the furthest negative.
    Anchors without a positive or a negative are left out; without any triplet the loss is 0.
    """
    squared = squared_distances(features)
    same = labels[:, None] == labels[None, :]
    positive, negative = same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device), ~same
    if mining == "hard":
        to_positive = torch.where(positive, squared, -torch.inf).amax(1)
        to_negative = torch.where(negative, squared, torch.inf).amin(1)
        valid = positive.any(1) & negative.any(1)
    else:
        to_positive, valid = squared, positive & negative.any(1, keepdim=True)
        to_negative = squared.gather(1, _semi_hard(squared.detach(), negative))
    zero = torch.zeros((), dtype=features.dtype, device=features.device)
    cost = torch.where(valid, to_positive, zero) - torch.where(valid, to_negative, zero)
    return torch.where(valid, (cost + margin).clamp_min(0), zero).sum() / valid.sum().clamp_min(1)


def _semi_hard(squared: Tensor, negative: Tensor) -> Tensor:
    """The index (B, B) of the negative of each (anchor, positive); each row is sorted once, then searched."""
    ordered, index = torch.where(negative, squared, torch.inf).sort(1)
    place = torch.searchsorted(ordered, squared, right=True)  # the first negative further than the positive
    furthest = (negative.sum(1, keepdim=True) - 1).clamp_min(0)
    return index.gather(1, torch.minimum(place, furthest))


def center(features: Tensor, own_centers: Tensor) -> Tensor:
    """Mean of |x - c_y|^2 / 2 with given centers (B, D), constants for the gradient. Wen et al., ECCV 2016."""
    return ((features - own_centers) ** 2).sum(1).mean() / 2


def move_centers_(centers: Tensor, features: Tensor, labels: Tensor, *, alpha: float) -> None:
    """Update the centers (K, D) by a batch: c_j - alpha sum over y_i = j of (c_j - x_i) / (1 + n_j)."""
    present, place, count = torch.unique(labels, return_inverse=True, return_counts=True)
    rows = centers.index_select(0, present)
    pull = torch.zeros_like(rows).index_add_(0, place, rows[place] - features.to(rows.dtype))
    centers.index_copy_(0, present, rows - alpha * pull / (1 + count)[:, None])
