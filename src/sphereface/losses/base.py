"""What every loss does before it is a loss: check its input and choose its precision."""

from numbers import Integral

import torch
from torch import Tensor, nn

from sphereface.errors import UserError


class FaceLoss(nn.Module):
    """What every loss does: check its input, compute in at least float32, also inside autocast, and return a scalar."""

    steepest = 4.0  # at most this is the gradient of one sample with respect to the direction of its feature

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        if not (is_integer(features) and is_integer(classes)):
            raise UserError(f"a loss over {classes!r} classes of {features!r} features; it takes integers")
        if features < 1 or classes < 2:
            raise UserError(
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


def is_integer(value: object) -> bool:
    """Whether a value is an integer, of Python or of another library such as NumPy; True and 8.0 are none."""
    return not isinstance(value, bool) and isinstance(value, Integral)


def flush_short(features: Tensor, steepest: float) -> Tensor:
    """Count half-precision features as zero where they are so short that their gradient would not fit their type.

    The gradient of a direction grows as one over the length: below `steepest` / 65504 it overflows float16.
    """
    if features.dtype != torch.float16:
        return features
    half = torch.finfo(torch.float16)
    too_short = features.float().norm(dim=1, keepdim=True) < max(half.tiny, steepest / half.max)
    return features - torch.where(too_short, features, torch.zeros_like(features)).detach()


def check_batch(features: Tensor, labels: Tensor, width: int, classes: int) -> None:
    """Say what came and what was wanted if a batch does not fit a loss."""
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
    low, high = torch.stack(labels.long().aminmax()).tolist()  # together: one wait for a GPU
    if low < 0 or high >= classes:
        raise UserError(f"labels run from {low} to {high}; wanted 0 to {classes - 1} for {classes} classes")
