"""3x3 convolutions whose weight gradient a CPU computes by Winograd's minimal filtering: 4 products in place of 9.

A convolution's weights w answer to each 4x4 tile d of the input with a 2x2 tile of the output, and in the matrices of
Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks" (CVPR 2016), F(2x2, 3x3), that is

    y = A^T [(G w G^T) (B^T d B)] A

with the product taken number by number and added up over channels. So, for the gradient e of y, that of the weights is

    dw = G^T [sum over tiles of (A e A^T) (B^T d B)] G,

16 matrix products over all tiles. The values are torch's but for rounding: the matrices hold 0, 1, -1 and 1/2 alone.
This is what the library that torch calls is slowest at, and so the larger part of a deep network's backward pass;
`sphereface bench layers` measures that pass against torch's. Forward pass and gradient of the input are torch's own.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

G = torch.tensor([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
TILE_NUMBERS = 1 << 21  # of B^T d B at a time, 8 MB: still in the cache when they are multiplied
FEWEST = 64  # channels, on either side; with fewer the matrices are too narrow to gain


class Conv3x3(nn.Conv2d):
    """torch's 3x3 convolution with a padding of 1; if its stride is 1, faster to train on CPUs."""

    def __init__(self, channels: int, width: int, *, stride: int = 1, bias: bool = True) -> None:
        super().__init__(channels, width, 3, stride=stride, padding=1, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, O, H / stride, W / stride)."""
        trained_on_cpu = torch.is_grad_enabled() and x.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
        wide_enough = min(self.in_channels, self.out_channels) >= FEWEST
        if trained_on_cpu and wide_enough and self.stride == (1, 1) and x.ndim == 4:
            return FastBackward.apply(x, self.weight, self.bias)  # type: ignore[no-any-return, no-untyped-call]
        return super().forward(x)


class FastBackward(torch.autograd.Function):
    """The 3x3 convolution of stride 1 with a padding of 1, its weight gradient by `weight_gradient`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """By torch."""
        ctx.save_for_backward(x, weight)
        return F.conv2d(x, weight, bias, padding=1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Of input, weights and bias; if gradients of these are wanted in turn, all by torch."""
        x, weight = ctx.saved_tensors
        for_input, for_weight, for_bias = ctx.needs_input_grad
        by_winograd = for_weight and not torch.is_grad_enabled()
        of_input, of_weight, of_bias = torch.ops.aten.convolution_backward(
            grad, x, weight, [weight.shape[0]], [1, 1], [1, 1], [1, 1], False, [0, 0], 1,
            [for_input, for_weight and not by_winograd, for_bias],
        )  # fmt: skip
        return of_input, weight_gradient(x, grad) if by_winograd else of_weight, of_bias


def weight_gradient(x: Tensor, grad: Tensor) -> Tensor:
    """(O, C, 3, 3) from a convolution's input (N, C, H, W) and the gradient of its output (N, O, H, W)."""
    channels, (_, out, height, width) = x.shape[1], grad.shape
    tiles = -(-height // 2) * -(-width // 2)
    at_once = max(1, TILE_NUMBERS // (16 * tiles * max(channels, out)))
    total = x.new_zeros(16, out, channels)
    for first in range(0, len(x), at_once):
        some = slice(first, first + at_once)
        total.baddbmm_(tiles_of_gradient(grad[some]).transpose(1, 2), tiles_of_input(x[some]))
    g = G.to(total)
    by_place = torch.einsum("aj, bi, aboc -> oijc", g, g, total.view(4, 4, out, channels))
    return by_place.contiguous().permute(0, 3, 1, 2)


def tiles_of_input(x: Tensor) -> Tensor:
    """B^T d B of all tiles d: (N, C, H, W) -> (16, tiles, C)."""
    height, width = x.shape[2:]
    d = F.pad(x.permute(0, 2, 3, 1), (0, 0, 1, 1 + width % 2, 1, 1 + height % 2))
    d = times_b([d[:, first : first + height : 2] for first in range(4)])
    d = times_b([d[:, :, :, first : first + width : 2] for first in range(4)])
    return d.view(16, -1, x.shape[1])


def tiles_of_gradient(grad: Tensor) -> Tensor:
    """A e A^T of all tiles e: (N, O, H, W) -> (16, tiles, O)."""
    height, width = grad.shape[2:]
    e = grad.permute(0, 2, 3, 1)
    if height % 2 or width % 2:
        e = F.pad(e, (0, 0, 0, width % 2, 0, height % 2))
    e = times_a(e[:, 0::2], e[:, 1::2])
    e = times_a(e[:, :, :, 0::2], e[:, :, :, 1::2])
    return e.view(16, -1, grad.shape[1])


def times_b(d: Sequence[Tensor]) -> Tensor:
    """B^T d of the four lines of a tile, along a new first axis."""
    out = d[0].new_empty(4, *d[0].shape)
    torch.sub(d[0], d[2], out=out[0])
    torch.add(d[1], d[2], out=out[1])
    torch.sub(d[2], d[1], out=out[2])
    torch.sub(d[1], d[3], out=out[3])
    return out


def times_a(first: Tensor, second: Tensor) -> Tensor:
    """A e of the two lines of a tile, along a new first axis."""
    out = first.new_empty(4, *first.shape)
    out[0] = first
    torch.add(first, second, out=out[1])
    torch.sub(first, second, out=out[2])
    torch.neg(second, out=out[3])
    return out
