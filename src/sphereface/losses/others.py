"""A sum over all classes but the true one, for losses other than the softmax."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sphereface.losses.blocks import ClassBlocks

Formula = Callable[[Tensor, Tensor], Tensor]  # (products (k, B), bias scalar) -> values (k, B)


class OtherClasses(torch.autograd.Function):
    """sum over j != y of formula(x w_j/|w_j|, bias), (B,).

    Runs in the same blocks as the softmax; the derivative of the formula is taken block by block.
    """

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, formula: Formula, blocks: ClassBlocks
    ) -> Tensor:
        """The first pass: the sums, block by block."""
        total = torch.zeros_like(features[:, 0])
        none = torch.zeros_like(total)
        for classes, products in blocks:
            total += blocks.place(formula(products, bias), classes, labels, none).sum(0)
        ctx.save_for_backward(features, weight, bias, labels)
        ctx.blocks, ctx.formula = blocks, formula
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        """The second pass: the gradients of features, weights and bias, block by block."""
        features, weight, bias, labels = ctx.saved_tensors
        blocks: ClassBlocks = ctx.blocks
        d_features = torch.zeros_like(features) if ctx.needs_input_grad[0] else None
        d_weight = torch.empty_like(weight) if ctx.needs_input_grad[1] else None
        d_bias = torch.zeros_like(bias)
        each, none = torch.ones_like(grad_output), torch.zeros_like(grad_output)
        with torch.autocast(grad_output.device.type, enabled=False):
            for classes, products in blocks:
                upstream = blocks.place(grad_output.repeat(len(products), 1), classes, labels, none)
                with torch.enable_grad():
                    z, b = products.detach().requires_grad_(), bias.detach().requires_grad_()
                    share, by_bias = torch.autograd.grad(ctx.formula(z, b), (z, b), upstream, allow_unused=True)
                if by_bias is not None:
                    d_bias += by_bias
                blocks.pull_back(classes, share, products, each, d_features, d_weight, tangent=True)
        return d_features, d_weight, d_bias, None, None, None


def sum_over_others(
    features: Tensor,
    weight: Tensor,
    bias: Tensor,
    labels: Tensor,
    formula: Formula,
    *,
    chunk: int | None,
    most: int | None = None,
) -> Tensor:
    """The sum (B,) over the classes j != y of formula(x w_j/|w_j|, bias), in the blocks of `ClassBlocks`."""
    keep = torch.is_grad_enabled()
    blocks = ClassBlocks(features, weight, normalize=True, chunk=chunk, buffers=10, keep=keep, most=most)
    return OtherClasses.apply(features, weight, bias, labels, formula, blocks)  # type: ignore[no-any-return, no-untyped-call]
