"""Convolutions whose weight gradient is computed by Winograd's minimal filtering."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sphereface.models import create_model, winograd
from sphereface.models.winograd import Conv3x3, tiles_of_gradient, tiles_of_input, weight_gradient

B_T = torch.tensor([[1.0, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
A_T = torch.tensor([[1.0, 1, 1, 0], [0, 1, -1, -1]])
SHAPES = [(1, 1, 1, 1, 1), (2, 3, 5, 6, 4), (3, 4, 2, 7, 6), (2, 2, 3, 5, 7), (9, 5, 4, 2, 3)]  # images, C, O, H, W


def problem(images, channels, out, height, width, dtype=torch.float64):
    torch.manual_seed(0)
    x = torch.randn(images, channels, height, width, dtype=dtype)
    return x, torch.randn(images, out, height, width, dtype=dtype)


def by_definition(x, grad):
    """dw[o, c, i, j] = sum over images and places (y, x) of e[o, y, x] d[c, y + i - 1, x + j - 1]."""
    bordered = F.pad(x, (1, 1, 1, 1))
    height, width = grad.shape[2:]
    found = x.new_zeros(grad.shape[1], x.shape[1], 3, 3)
    for i in range(3):
        for j in range(3):
            found[:, :, i, j] = torch.einsum("nohw, nchw -> oc", grad, bordered[:, :, i : i + height, j : j + width])
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_the_weight_gradient_is_that_of_the_definition(shape, memory_format):
    x, grad = (tensor.to(memory_format=memory_format) for tensor in problem(*shape))
    torch.testing.assert_close(weight_gradient(x, grad), by_definition(x, grad))


def test_any_number_of_images_at_a_time_gives_the_same(monkeypatch):
    x, grad = problem(7, 4, 3, 6, 5)
    expected = by_definition(x, grad)
    for numbers in (1, 3 * 16 * 9 * 4, 1 << 30):  # one image, three and then one left over, all
        monkeypatch.setattr(winograd, "TILE_NUMBERS", numbers)
        torch.testing.assert_close(weight_gradient(x, grad), expected)


def test_tiles_are_products_with_the_matrices_of_the_paper():
    """And A^T [(G w G^T) (B^T d B)] A of them is the convolution."""
    x, grad = problem(2, 3, 2, 6, 4, torch.float32)
    bordered = F.pad(x, (1, 1, 1, 1))
    d, e = tiles_of_input(x).view(4, 4, 2, 3, 2, 3), tiles_of_gradient(grad).view(4, 4, 2, 3, 2, 2)
    weight = torch.randn(2, 3, 3, 3)
    expected = F.conv2d(x, weight, padding=1)
    for image in range(2):
        for line in range(3):
            for place in range(2):
                tile = bordered[image, :, 2 * line : 2 * line + 4, 2 * place : 2 * place + 4]
                transformed = B_T @ tile @ B_T.T
                ours = d[:, :, image, line, place].permute(2, 1, 0)  # (C, lines, places)
                torch.testing.assert_close(ours, transformed)
                of_output = grad[image, :, 2 * line : 2 * line + 2, 2 * place : 2 * place + 2]
                torch.testing.assert_close(e[:, :, image, line, place].permute(2, 1, 0), A_T.T @ of_output @ A_T)
                product = (winograd.G @ weight @ winograd.G.T * transformed).sum(1)
                y = expected[image, :, 2 * line : 2 * line + 2, 2 * place : 2 * place + 2]
                torch.testing.assert_close(A_T @ product @ A_T.T, y, rtol=1e-4, atol=1e-5)


def test_in_float32_it_is_off_by_rounding_alone():
    x, grad = problem(16, 64, 64, 14, 12, torch.float32)
    truth = by_definition(x.double(), grad.double())
    off = (weight_gradient(x, grad) - truth).abs().max() / truth.abs().max()
    assert off < 2e-6


def test_it_is_the_same_to_the_last_bit_each_time():
    x, grad = problem(5, 64, 64, 14, 12, torch.float32)
    first = weight_gradient(x, grad)
    for extra in range(1, 4):
        kept = torch.empty(extra * 7)  # what is allocated next lies elsewhere
        assert torch.equal(weight_gradient(x.clone(), grad.clone()), first)
        del kept


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_layer_has_the_values_and_gradients_of_torchs(bias, memory_format):
    torch.manual_seed(0)
    ours = Conv3x3(64, 65, bias=bias).to(memory_format=memory_format)
    theirs = nn.Conv2d(64, 65, 3, padding=1, bias=bias).to(memory_format=memory_format)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(3, 64, 7, 6).to(memory_format=memory_format)
    found = []
    for layer in (ours, theirs):
        given = x.clone(memory_format=torch.preserve_format).requires_grad_()
        out = layer(given)
        torch.manual_seed(1)
        out.backward(torch.randn_like(out))
        found.append([out.detach(), given.grad, *(parameter.grad for parameter in layer.parameters())])
    assert torch.equal(found[0][0], found[1][0])  # the forward pass is torch's own
    for own, other in zip(*found, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-4)
        assert own.stride() == other.stride()


def test_gradients_are_those_of_differences_and_have_gradients_themselves(monkeypatch):
    monkeypatch.setattr(winograd, "FEWEST", 1)
    torch.manual_seed(0)
    layer = Conv3x3(2, 3).double()
    x = torch.randn(2, 2, 3, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(3, dtype=torch.float64, requires_grad=True)

    def run(x, weight, bias):
        return torch.func.functional_call(layer, {"weight": weight, "bias": bias}, (x,))

    assert torch.autograd.gradcheck(run, (x, weight, bias))
    assert torch.autograd.gradgradcheck(run, (x, weight, bias))


def test_only_what_needs_a_gradient_gets_one():
    layer = Conv3x3(64, 64)
    layer.weight.requires_grad_(False)
    x = torch.randn(1, 64, 2, 2, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None
    assert layer.weight.grad is None
    assert layer.bias.grad is not None
    layer = Conv3x3(64, 64, bias=False)
    layer(x.detach()).sum().backward()
    assert layer.weight.grad is not None


def test_it_is_used_only_where_it_applies():
    x = torch.randn(2, 64, 4, 4)

    def way(layer, x):
        return type(layer(x).grad_fn).__name__

    assert way(Conv3x3(64, 64), x) == "FastBackwardBackward"
    assert way(Conv3x3(64, 64, stride=2), x) == "ConvolutionBackward0"
    assert way(Conv3x3(64, 63), x) == "ConvolutionBackward0"
    assert way(Conv3x3(63, 64), x[:, :63]) == "ConvolutionBackward0"
    assert Conv3x3(64, 64)(x[0]).shape == (64, 4, 4)  # one image without a batch, as torch takes it
    with torch.no_grad():
        assert Conv3x3(64, 64)(x).grad_fn is None
    with torch.autocast("cpu", torch.bfloat16):
        assert way(Conv3x3(64, 64), x) != "FastBackwardBackward"


def test_a_network_trains_with_it_as_it_does_with_torchs(monkeypatch):
    torch.manual_seed(0)
    net = create_model("sphereface10", features=8)
    faces = torch.rand(2, 3, 112, 96) * 2 - 1
    found = []
    for fewest in (winograd.FEWEST, 1 << 30):
        monkeypatch.setattr(winograd, "FEWEST", fewest)
        net.zero_grad()
        net(faces).square().sum().backward()
        found.append({name: parameter.grad for name, parameter in net.named_parameters()})
    for name, own in found[0].items():
        other = found[1][name]
        assert (own - other).norm() <= 1e-4 * other.norm(), name
