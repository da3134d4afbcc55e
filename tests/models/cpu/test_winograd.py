"""Convolutions whose gradients are computed by Winograd's minimal filtering."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sphereface.models import create_model
from sphereface.models.cpu import speed_up_
from sphereface.models.cpu.winograd import A, B, Conv3x3, G, Tiles, gradients, sharers

# images, C, O, H, W
SHAPES = [(1, 1, 1, 1, 1), (2, 3, 5, 6, 4), (3, 4, 2, 7, 6), (2, 2, 3, 5, 7), (9, 5, 4, 2, 3), (2, 1, 2, 8, 9)]


def problem(images, channels, out, height, width, dtype=torch.float64):
    torch.manual_seed(0)
    x = torch.randn(images, channels, height, width, dtype=dtype)
    weight = torch.randn(out, channels, 3, 3, dtype=dtype)
    return x, weight, torch.randn(images, out, height, width, dtype=dtype)


def by_definition(x, weight, grad):
    """With y[o, y, x] = sum of w[o, c, i, j] d[c, y + i - 1, x + j - 1], each w and each d gets its share of e."""
    bordered = F.pad(x, (1, 1, 1, 1))
    height, width = grad.shape[2:]
    of_input, of_weight = torch.zeros_like(bordered), torch.zeros_like(weight)
    for i in range(3):
        for j in range(3):
            place = slice(i, i + height), slice(j, j + width)
            of_weight[:, :, i, j] = torch.einsum("nohw, nchw -> oc", grad, bordered[:, :, *place])
            of_input[:, :, *place] += torch.einsum("nohw, oc -> nchw", grad, weight[:, :, i, j])
    return of_input[:, :, 1:-1, 1:-1], of_weight


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_gradients_are_those_of_the_definition(shape, memory_format):
    given = [tensor.to(memory_format=memory_format) for tensor in problem(*shape)]
    torch.testing.assert_close(gradients(*given), by_definition(*given))


def test_of_no_images_there_is_nothing_to_learn():
    of_input, of_weight = gradients(*problem(0, 3, 2, 5, 4))
    assert of_input.shape == (0, 3, 5, 4)
    assert torch.equal(of_weight, torch.zeros(2, 3, 3, 3, dtype=torch.float64))


def test_any_number_of_images_at_a_time_gives_the_same():
    given = problem(7, 4, 3, 6, 5)
    expected = by_definition(*given)
    for tiles in (1, 3 * 4, 1 << 20):  # one image, three and then one left over, all
        torch.testing.assert_close(gradients(*given, most=tiles), expected)


@pytest.mark.parametrize("images", [2, 3, 7])
def test_threads_that_share_the_images_give_the_same(images, two_threads):
    given = problem(images, 4, 3, 6, 5)
    assert sharers(given[0], 8) == 2
    torch.testing.assert_close(gradients(*given, most=8), by_definition(*given))


def test_images_are_shared_only_if_there_are_enough_for_all(two_threads):
    assert sharers(torch.empty(64, 1, 8, 8)) == 2
    assert sharers(torch.empty(63, 1, 8, 8)) == 1  # 252 tiles; two threads want half of 256 each
    assert sharers(torch.empty(1, 1, 640, 640)) == 1
    assert sharers(torch.empty(64, 128, 8, 8)) == 2  # as many tiles each as channels
    assert sharers(torch.empty(64, 129, 8, 8)) == 1
    torch.set_num_threads(1)
    assert sharers(torch.empty(64, 1, 8, 8)) == 1


AFTER_MAIN = """
import threading, torch
from sphereface.models.cpu import winograd
torch.set_num_threads(2)

def train():
    threading.main_thread().join()
    layer, x = winograd.Conv3x3(64, 64), torch.randn(64, 64, 8, 8)
    assert winograd.sharers(x) == 2
    layer(x).sum().backward()
    print(bool(layer.weight.grad.isfinite().all()))

threading.Thread(target=train).start()
"""


def test_a_thread_that_outlives_the_main_one_can_train():
    done = subprocess.run([sys.executable, "-c", AFTER_MAIN], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


def test_tiles_are_products_with_the_matrices_of_the_paper():
    """And A^T [(G w G^T) (B^T d B)] A of them is the convolution."""
    x, weight, grad = problem(2, 3, 2, 8, 5)
    bordered, of_output = F.pad(x, (1, 4, 1, 1)), F.pad(grad, (0, 3))
    tiles = Tiles(x, outputs=2)
    d, e = tiles.of_input(x).clone().view(6, 6, 2, 2, 2, 3), tiles.of_gradient(grad).view(6, 6, 2, 2, 2, 2)
    expected = F.pad(F.conv2d(x, weight, padding=1), (0, 3))
    a, b, g = A.double(), B.double(), G
    for image in range(2):
        for line in range(2):
            for place in range(2):
                tile = bordered[image, :, 4 * line : 4 * line + 6, 4 * place : 4 * place + 6]
                inside = slice(4 * line, 4 * line + 4), slice(4 * place, 4 * place + 4)
                torch.testing.assert_close(d[:, :, image, line, place].permute(2, 0, 1), b.T @ tile @ b)
                torch.testing.assert_close(
                    e[:, :, image, line, place].permute(2, 0, 1), a @ of_output[image, :, *inside] @ a.T
                )
                y = a.T @ (g @ weight @ g.T * (b.T @ tile @ b)).sum(1) @ a
                kept = 4 if place == 0 else 1  # of five columns
                torch.testing.assert_close(y[:, :, :kept], expected[image, :, *inside][:, :, :kept])


@pytest.mark.parametrize("channels", [64, 256])
def test_in_float32_they_are_off_by_rounding_alone(channels):
    given = problem(16, channels, channels, 14, 12, torch.float32)
    truth = by_definition(*(tensor.double() for tensor in given))
    for found, expected in zip(gradients(*given), truth, strict=True):
        assert (found - expected).abs().max() < 2e-5 * expected.abs().max()
        assert (found - expected).norm() < 5e-6 * expected.norm()


def test_they_are_the_same_to_the_last_bit_each_time(two_threads):
    given = problem(48, 64, 64, 14, 12, torch.float32)
    assert sharers(given[0]) == 2
    first = gradients(*given)
    for extra in range(1, 4):
        kept = torch.empty(extra * 300_007)  # what is allocated next lies elsewhere
        for found, before in zip(gradients(*(tensor.clone() for tensor in given)), first, strict=True):
            assert torch.equal(found, before)
        del kept


def trained(layer, x):
    given = x.clone(memory_format=torch.preserve_format).requires_grad_()
    out = layer(given)
    torch.manual_seed(1)
    out.backward(torch.randn_like(out))
    return [out.detach(), given.grad, *(parameter.grad for parameter in layer.parameters())]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("images", "threads"), [(33, 1), (70, 2)])
def test_a_layer_has_the_values_and_gradients_of_torchs(bias, memory_format, images, threads, two_threads):
    torch.manual_seed(0)
    ours = Conv3x3(64, 65, bias=bias).to(memory_format=memory_format)
    theirs = nn.Conv2d(64, 65, 3, padding=1, bias=bias).to(memory_format=memory_format)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(images, 64, 7, 6).to(memory_format=memory_format)
    assert sharers(x) == threads
    found = [trained(layer, x) for layer in (ours, theirs)]
    assert torch.equal(found[0][0], found[1][0])  # the forward pass is torch's own
    for own, other in zip(*found, strict=True):
        assert (own - other).abs().max() <= 2e-5 * other.abs().max()
        assert own.stride() == other.stride()


@pytest.mark.parametrize("images", [33, 70])
def test_a_backward_pass_may_run_under_other_modes_than_the_forward_pass(images, two_threads):
    torch.manual_seed(0)
    layer, x = Conv3x3(64, 64), torch.randn(images, 64, 7, 6, requires_grad=True)
    [expected] = torch.autograd.grad(layer(x).sum(), x)
    y = layer(x).sum()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(torch.autograd.grad(y, x, retain_graph=True)[0], expected)
    with torch.inference_mode():
        assert torch.equal(torch.autograd.grad(y, x)[0].clone(), expected)


def test_gradients_are_those_of_differences_and_have_gradients_themselves():
    torch.manual_seed(0)
    layer = Conv3x3(2, 3).double()
    layer.fewest = layer.tiles = 1
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
    x = torch.randn(128, 64, 2, 2, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None
    assert layer.weight.grad is None
    assert layer.bias.grad is not None
    layer = Conv3x3(64, 64, bias=False)
    layer(x.detach()).sum().backward()
    assert layer.weight.grad is not None


def way(layer, x):
    return type(layer(x).grad_fn).__name__


def test_it_is_used_only_where_it_applies():
    x = torch.randn(128, 64, 4, 4)
    assert way(Conv3x3(64, 64), x) == "FastBackwardBackward"
    assert way(Conv3x3(64, 64).double(), x.double()) == "FastBackwardBackward"
    assert way(Conv3x3(64, 64), x[1:]) == "ConvolutionBackward0"  # too few tiles
    assert way(Conv3x3(64, 64, stride=2), x) == "ConvolutionBackward0"
    assert way(Conv3x3(64, 63), x) == "ConvolutionBackward0"
    assert way(Conv3x3(63, 64), x[:, :63]) == "ConvolutionBackward0"
    assert Conv3x3(64, 64)(x[0]).shape == (64, 4, 4)  # one image without a batch, as torch takes it
    with torch.no_grad():
        assert Conv3x3(64, 64)(x).grad_fn is None
    with torch.autocast("cpu", torch.bfloat16):
        assert way(Conv3x3(64, 64), x) != "FastBackwardBackward"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_left_to_torch(dtype):
    """Its sums of transformed numbers would overflow, or lose half of their digits."""
    assert way(Conv3x3(64, 64).to(dtype), torch.randn(128, 64, 4, 4, dtype=dtype)) == "ConvolutionBackward0"


@pytest.mark.parametrize("threads", [1, 2])
def test_a_network_trains_with_it_as_it_does_with_torchs(threads, two_threads):
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    net = create_model("sphereface20", width=0.25, features=8)
    speed_up_(net)
    faces = torch.rand(4, 3, 112, 96) * 2 - 1
    assert sharers(torch.empty(4, 16, 56, 48), 8) == threads  # in the first stage
    found = []
    for fewest in (16, 1 << 30):
        for layer in net.modules():
            if isinstance(layer, Conv3x3):
                layer.fewest, layer.tiles = fewest, 8
        net.zero_grad()
        net(faces).square().sum().backward()
        found.append({name: parameter.grad for name, parameter in net.named_parameters()})
    assert not torch.equal(*(each["stages.0.weight"] for each in found))  # all that comes to it rounds otherwise
    for name, own in found[0].items():
        other = found[1][name]
        assert (own - other).norm() <= 1e-4 * other.norm(), name
