"""The base class of all losses: checks of the input and the choice of precision."""

from numbers import Integral

import torch
from torch import Tensor, nn

from sphereface.errors import UserError


class FaceLoss(nn.Module):
    """A loss module: checks its input, computes in at least float32, also inside autocast, and returns a scalar."""

    steepest = 4.0  # upper bound on a sample's gradient with respect to its unit feature

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        if not (is_integer(features) and is_integer(classes)):
            raise UserError(f"a loss over {classes!r} classes of {features!r} features; it takes integers")
        if features < 1 or classes < 2:
            came = f"a loss over {classes} classes of {features} features"
            raise UserError(f"{came}; it takes at least 2 classes and 1 feature")
        self.features, self.classes = features, classes

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        """Mean loss of features (B, D) with labels (B,); parameters stay unchanged."""
        check_batch(features, labels, self.features, self.classes)
        with torch.autocast(features.device.type, enabled=False):
            return self.compute(flush_short(features, self.steepest).to(self.dtype_for(features)), labels.long())

    def compute(self, features: Tensor, labels: Tensor) -> Tensor:
        """The loss on checked input; implemented by each subclass."""
        raise NotImplementedError

    def dtype_for(self, features: Tensor) -> torch.dtype:
        """Float64 for float64 input, else float32."""
        return torch.promote_types(features.dtype, torch.float32)

    @torch.no_grad()
    def project_(self) -> None:
        """Normalise class weights to length one, if the loss uses unit weights; to call after each optimizer step."""

    def advance(self) -> None:
        """Count one optimizer step, before its forward passes; without any call each forward pass counts as a step."""


def is_integer(value: object) -> bool:
    """True for an integer of Python or another library such as NumPy; False for True and 8.0."""
    return not isinstance(value, bool) and isinstance(value, Integral)


def flush_short(features: Tensor, steepest: float) -> Tensor:
    """Set float16 features to zero if they are so short that their gradient would overflow.

    The gradient of a direction is proportional to 1 / length: below `steepest` / 65504 it overflows float16.
    """
    if features.dtype != torch.float16:
        return features
    half = torch.finfo(torch.float16)
    too_short = features.float().norm(dim=1, keepdim=True) < max(half.tiny, steepest / half.max)
    return features - torch.where(too_short, features, torch.zeros_like(features)).detach()


def check_batch(features: Tensor, labels: Tensor, width: int, classes: int) -> None:
    """Raise an error unless a batch fits a loss of `width` features and `classes` classes."""
    if features.ndim != 2 or features.shape[1] != width or len(features) == 0:
        raise UserError(f"features have shape {tuple(features.shape)}; wanted (B, {width}) with B >= 1")
    if not features.is_floating_point():
        raise UserError(f"features are {features.dtype}; wanted a floating-point type")
    if labels.shape != features.shape[:1]:
        raise UserError(f"labels have shape {tuple(labels.shape)}; wanted ({len(features)},), one for each feature")
    if labels.dtype.is_floating_point or labels.dtype.is_complex or labels.dtype == torch.bool:
        raise UserError(f"labels are {labels.dtype}; wanted whole numbers, such as torch.int64")
    if labels.device != features.device:
        raise UserError(f"labels are on {labels.device}; wanted {features.device}, where the features are")
    low, high = torch.stack(labels.long().aminmax()).tolist()  # stacked: one GPU synchronisation
    if low < 0 or high >= classes:
        raise UserError(f"labels run from {low} to {high}; wanted 0 to {classes - 1} for {classes} classes")
