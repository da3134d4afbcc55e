"""3x3 convolutions with gradients by Winograd's minimal filtering on CPUs: 36 products in place of 144.

A convolution with weights w maps each 6x6 tile d of the input to a 4x4 tile of the output. With the matrices of Lavin &
Gray, "Fast Algorithms for Convolutional Neural Networks" (CVPR 2016), F(4x4, 3x3), that is

    y = A^T [(G w G^T) (B^T d B)] A

with an elementwise product, summed over channels. For the gradient e of y, the gradients of weights and input are

    dw = G^T [sum over tiles of (A e A^T) (B^T d B)] G
    dd = B [sum over outputs of (A e A^T) (G w G^T)] B^T, summed where tiles overlap,

36 matrix products each. The values equal torch's up to rounding: some millionths of the largest gradient, about ten
times the error of a direct sum. The forward pass is torch's own, so that features are the same in training and in use.
`sphereface bench layers` measures the backward pass, two thirds of the time, against torch's.
"""

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sphereface.models.cpu.single_threads import single_threads

G = torch.tensor([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]).double() / 24
B = torch.tensor([
    [4.0, 0, 0, 0, 0, 0], [0, -4, 4, -2, 2, 4], [-5, -4, -4, -1, -1, 0],
    [0, 1, -1, 2, -2, -5], [1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 1],
])  # fmt: skip
A = torch.tensor([[1.0, 0, 0, 0], [1, 1, 1, 1], [1, -1, 1, -1], [1, 2, 4, 8], [1, -2, 4, -8], [0, 0, 0, 1]])
TILES = 256  # at a time: enough for a matrix product, few enough for a core's cache
FEWEST = 64  # channels of input and of output; with fewer the matrices are too narrow to gain
PRECISE = torch.float32, torch.float64  # enough digits for the range of numbers in A, B and G


class Conv3x3(nn.Conv2d):
    """torch's 3x3 convolution with a padding of 1; with a stride of 1, faster to train on CPUs.

    That takes at least `fewest` input and output channels; gradients are computed for about `tiles` tiles at a time.
    """

    fewest, tiles = FEWEST, TILES

    def __init__(self, channels: int, width: int, *, stride: int = 1, bias: bool = True) -> None:
        super().__init__(channels, width, 3, stride=stride, padding=1, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, O, H / stride, W / stride)."""
        trained_on_cpu = torch.is_grad_enabled() and x.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
        if trained_on_cpu and self._gains(x) and not torch.compiler.is_compiling():
            return FastBackward.apply(x, self.weight, self.bias, self.tiles)  # type: ignore[no-any-return, no-untyped-call]
        return super().forward(x)

    def _gains(self, x: Tensor) -> bool:
        """True if tiles apply and are enough: the cost of transforming the filters is the same for any batch size."""
        wide_enough = min(self.in_channels, self.out_channels) >= self.fewest
        precise = x.dtype == self.weight.dtype and x.dtype in PRECISE
        return wide_enough and precise and self.stride == (1, 1) and x.ndim == 4 and tiles_in(x) >= self.tiles // 2


class FastBackward(torch.autograd.Function):
    """The 3x3 convolution of stride 1 with a padding of 1; gradients of input and weights by `gradients`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, tiles: int) -> Tensor:
        """The convolution, by torch."""
        ctx.save_for_backward(x, weight)
        ctx.tiles = tiles
        return F.conv2d(x, weight, bias, padding=1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of input, weights and bias; by torch if second derivatives are wanted."""
        x, weight = ctx.saved_tensors
        for_input, for_weight, for_bias, _ = ctx.needs_input_grad
        if torch.is_grad_enabled():
            rest = [len(weight)], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [for_input, for_weight, for_bias]
            return *torch.ops.aten.convolution_backward(grad, x, weight, *rest), None
        with torch.autocast("cpu", enabled=False):
            of_input, of_weight = gradients(x, weight, grad, for_input=for_input, for_weight=for_weight, most=ctx.tiles)
        return of_input, of_weight, grad.sum((0, 2, 3)) if for_bias else None, None


def gradients(
    x: Tensor, weight: Tensor, grad: Tensor, *, for_input: bool = True, for_weight: bool = True, most: int = TILES
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of a convolution's input (N, C, H, W) and weights (O, C, 3, 3), from that of its output (N, O, H, W).

    The images are divided among threads; each computes its share alone, in its own cache, `most` tiles or one image at
    a time.
    """
    threads = sharers(x, most)
    shares = [slice(*ends) for ends in pairwise(len(x) * share // threads for share in range(threads + 1))]
    workplaces = [Tiles(x[share], outputs=len(weight), most=most) for share in shares]
    g = G.to(weight)
    filters = torch.einsum("ai, bj, ocij -> aboc", g, g, weight).reshape(36, *weight.shape[:2])  # G w G^T
    of_input = torch.empty_like(x) if for_input else None
    of_filters = filters.new_zeros(threads, *filters.shape) if for_weight else None

    def work(number: int) -> None:
        share, tiles = shares[number], workplaces[number]
        for first in range(share.start, share.stop, tiles.images):
            some = slice(first, min(first + tiles.images, share.stop))
            e = tiles.of_gradient(grad[some])
            if of_filters is not None:
                of_filters[number].baddbmm_(e.transpose(1, 2), tiles.of_input(x[some]))
            if of_input is not None:
                tiles.add_up(e, filters, out=of_input[some])

    # Gradient recording is a setting of each thread: here it is off in all of them.
    unrecorded = torch.inference_mode(torch.is_inference_mode_enabled())(torch.no_grad()(work))
    if threads == 1:
        unrecorded(0)
    else:
        single_threads(threads).map(unrecorded, threads)
    if of_filters is None:
        return of_input, None
    total = of_filters[0] if threads == 1 else of_filters.sum(0)
    by_place = torch.einsum("ai, bj, aboc -> oijc", g, g, total.view(6, 6, *weight.shape[:2]))
    return of_input, by_place.contiguous().permute(0, 3, 1, 2)


def tiles_in(x: Tensor) -> int:
    """The number of tiles of images (N, C, H, W)."""
    return len(x) * math.ceil(x.shape[2] / 4) * math.ceil(x.shape[3] / 4)


def sharers(x: Tensor, most: int = TILES) -> int:
    """The number of threads to divide the images among: all if there is enough work for each, else one.

    Each has its own sum over its tiles, (36, O, C), which must be small compared with A e A^T of them, (36, tiles, O).
    """
    threads = torch.get_num_threads()
    enough = tiles_in(x) >= threads * max(most // 2, x.shape[1])
    return threads if enough and len(x) >= threads else 1


class Tiles:
    """Tiles of a few images at a time, in memory reused for all images, so that it stays in the cache.

    A returned tensor is valid until the next call of a method; A e A^T until the next images.
    """

    def __init__(self, x: Tensor, *, outputs: int, most: int = TILES) -> None:
        _, self.channels, height, width = x.shape
        self.down, self.across = math.ceil(height / 4), math.ceil(width / 4)
        self.images = max(1, min(len(x), most // (self.down * self.across)))
        size = self.images, 4 * self.down + 4, 4 * self.across + 4
        self.input, self.gradient = x.new_zeros(*size, self.channels), x.new_zeros(*size, outputs)
        self.sum = x.new_empty(*size, self.channels)
        numbers = 36 * self.images * self.down * self.across * max(self.channels, outputs)
        self.e, self.other, self.between = x.new_empty(3, numbers)

    def of_gradient(self, grad: Tensor) -> Tensor:
        """A e A^T of all tiles e: (N, O, H, W) -> (36, tiles, O)."""
        images, _, height, width = grad.shape
        self.gradient[:images, :height, :width] = grad.permute(0, 2, 3, 1)
        e = self._cut(self.gradient[:images, : 4 * self.down, : 4 * self.across], 4)
        return self._transform(A, e, out=self.e)

    def of_input(self, x: Tensor) -> Tensor:
        """B^T d B of all tiles d, which overlap by two: (N, C, H, W) -> (36, tiles, C)."""
        images, _, height, width = x.shape
        self.input[:images, 1 : height + 1, 1 : width + 1] = x.permute(0, 2, 3, 1)
        d = self._cut(self.input[:images, : 4 * self.down + 2, : 4 * self.across + 2], 6)
        return self._transform(B.T, d, out=self.other)

    def add_up(self, e: Tensor, filters: Tensor, *, out: Tensor) -> None:
        """B p B^T of the products p of gradients and filters, summed where tiles overlap: `out` (N, C, H, W)."""
        images, _, height, width = out.shape
        products = torch.bmm(e, filters, out=shaped(self.other, 36, e.shape[1], self.channels))
        d = self._transform(B, products.view(6, 6, -1, self.channels), out=self.other)
        d = d.view(6, 6, images, self.down, self.across, self.channels).permute(2, 3, 0, 4, 1, 5)
        whole = self.sum[:images].zero_()
        blocks = whole.view(images, self.down + 1, 4, self.across + 1, 4, self.channels)
        blocks[:, :-1, :, :-1] += d[:, :, :4, :, :4]
        blocks[:, 1:, :2, :-1] += d[:, :, 4:, :, :4]
        blocks[:, :-1, :, 1:, :2] += d[:, :, :4, :, 4:]
        blocks[:, 1:, :2, 1:, :2] += d[:, :, 4:, :, 4:]
        out.copy_(whole[:, 1 : height + 1, 1 : width + 1].permute(0, 3, 1, 2))

    def _cut(self, images: Tensor, size: int) -> Tensor:
        """Tiles of a size with a stride of four: (N, H, W, C) -> (size, size, tiles, C)."""
        views = images.unfold(1, size, 4).unfold(2, size, 4).permute(4, 5, 0, 1, 2, 3)
        return shaped(self.other, *views.shape).copy_(views).flatten(2, 4)

    def _transform(self, matrix: Tensor, tiles: Tensor, *, out: Tensor) -> Tensor:
        """M t M^T of all tiles t, which may lie in `out`: (k, k, tiles, C) -> (36, tiles, C) for a matrix (6, k)."""
        size, _, many, channels = tiles.shape
        m = matrix.to(tiles)
        half = torch.mm(m, tiles.view(size, -1), out=shaped(self.between, 6, size * many * channels))
        torch.bmm(m.expand(6, -1, -1), half.view(6, size, -1), out=shaped(out, 6, 6, many * channels))
        return shaped(out, 36, many, channels)


def shaped(room: Tensor, *shape: int) -> Tensor:
    """The first numbers of `room`, a flat buffer, as a tensor of a shape."""
    return room[: math.prod(shape)].view(shape)
