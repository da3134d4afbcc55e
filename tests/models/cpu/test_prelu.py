"""PReLU with the faster backward pass."""

import pytest
import torch
from torch import nn

from sphereface.models.cpu.prelu import PReLU


def both(slopes, x):
    ours, theirs = PReLU(len(slopes)), nn.PReLU(len(slopes))
    found = []
    for layer in (ours, theirs):
        layer = layer.to(x.dtype)
        layer.weight.data = slopes.to(x.dtype)
        given = x.clone().requires_grad_()
        out = layer(given)
        torch.manual_seed(1)
        out.backward(torch.randn_like(out))
        found.append((out.detach(), given.grad, layer.weight.grad))
    return found


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_values_and_gradients_are_those_of_torch(memory_format):
    torch.manual_seed(0)
    slopes = torch.tensor([0.25, -0.5, 0.0, 0.45, 1.0, 3.0])
    x = torch.randn(4, 6, 5, 3).to(memory_format=memory_format)
    x[0, :, 0, 0] = 0  # at the corner, the slope counts
    for ours, theirs in zip(*both(slopes, x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    for ours, theirs in zip(*both(slopes[:4], x[:, :4]), strict=True):
        assert torch.equal(ours, theirs)  # with slopes below 1/2 to the last bit


def test_gradients_are_those_of_differences_and_have_gradients_themselves():
    torch.manual_seed(0)
    x, layer = torch.randn(2, 3, 2, 2, dtype=torch.float64, requires_grad=True), PReLU(3).double()

    def run(x, slope):
        return torch.func.functional_call(layer, {"weight": slope}, (x,))

    slope = torch.tensor([0.25, 0.7, -0.1], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(run, (x, slope))
    assert torch.autograd.gradgradcheck(run, (x, slope))


def test_it_is_used_only_where_it_applies():
    x = torch.randn(2, 3, 4, 4)
    layer = PReLU(3)
    assert type(layer(x).grad_fn).__name__ == "FastBackwardBackward"
    with torch.no_grad():
        assert layer(x).grad_fn is None
    assert type(PReLU(1)(x).grad_fn).__name__ == "PreluKernelBackward0"
    assert type(layer(x[:, :, 0, 0]).grad_fn).__name__ == "PreluKernelBackward0"


def test_under_autocast_its_gradients_are_those_of_float32_as_far_as_bfloat16_goes():
    torch.manual_seed(0)
    layer, x = PReLU(3), torch.randn(2, 3, 4, 4)
    grad = torch.randn(2, 3, 4, 4)
    half = x.bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(half)
    assert type(y.grad_fn).__name__ == "FastBackwardBackward"
    y.backward(grad.bfloat16())
    found, layer.weight.grad = layer.weight.grad, None
    whole = x.clone().requires_grad_()
    layer(whole).backward(grad)
    torch.testing.assert_close(found, layer.weight.grad, atol=0.1, rtol=0.03)
    torch.testing.assert_close(half.grad.float(), whole.grad, atol=0.03, rtol=0.03)
