"""The five networks of Table 2, counted and restated."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from sphereface import create_model
from sphereface.models import MODELS

# Parameters in millions, without the classifier, as counted from the authors' prototxts.
MILLIONS = {4: 12.56, 10: 15.22, 20: 22.67, 36: 32.77, 64: 48.19}


def on_meta(name: str, **options):
    with torch.device("meta"):
        return create_model(name, **options)


@pytest.mark.parametrize("depth", MILLIONS)
def test_a_network_has_the_stated_parameters_and_convolutions(depth):
    net = on_meta(f"sphereface{depth}")
    convolutions = [module for module in net.modules() if isinstance(module, nn.Conv2d)]
    assert len(convolutions) == depth
    assert all(convolution.kernel_size == (3, 3) for convolution in convolutions)
    assert sum(parameter.numel() for parameter in net.parameters()) / 1e6 == pytest.approx(MILLIONS[depth], abs=0.005)


def test_the_authors_prototxt_has_62_convolutions_where_the_table_has_64():
    net = on_meta("sphereface64_caffe")
    assert sum(isinstance(module, nn.Conv2d) for module in net.modules()) == 62


def by_hand(units: tuple[int, ...]) -> int:
    """Multiply-adds from the printed table alone."""
    total, channels, height, width = 0, 3, 112, 96
    for wide, number in zip((64, 128, 256, 512), units, strict=True):
        height, width = height // 2, width // 2
        total += height * width * 9 * wide * (channels + 2 * number * wide)
        channels = wide
    return total + channels * height * width * 512


@pytest.mark.parametrize(
    ("depth", "units"),
    [(4, (0, 0, 0, 0)), (10, (0, 1, 2, 0)), (20, (1, 2, 4, 1)), (36, (2, 4, 8, 2)), (64, (3, 8, 16, 3))],
)
def test_multiply_adds_equal_a_count_from_the_table(depth, units):
    net = on_meta(f"sphereface{depth}")
    with FlopCounterMode(display=False) as counter:
        net(torch.empty(1, 3, 112, 96, device="meta"))
    assert counter.get_total_flops() == 2 * by_hand(units)
    if depth == 20:
        assert by_hand(units) / 1e9 == pytest.approx(1.75, abs=0.005)


def test_initial_values_have_the_authors_moments():
    net = create_model("sphereface20")
    inside = {id(module) for block in net.stages if hasattr(block, "body") for module in block.body}
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            weight = module.weight.detach()
            fan_in = weight[0].numel()
            if id(module) in inside:
                assert weight.std().item() == pytest.approx(0.01, rel=0.02)
                assert weight.abs().max() > 0.03  # a Gaussian has tails
                assert module.bias is None
            else:
                bound = math.sqrt(3 / fan_in)
                assert weight.abs().max() <= bound
                assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
                assert (module.bias == 0).all()
            assert abs(weight.mean().item()) < 4 * weight.std().item() / math.sqrt(weight.numel())
        if isinstance(module, nn.PReLU):
            assert (module.weight == 0.25).all()


def restated(net, faces):
    """The forward pass from its state dict alone."""
    state = dict(net.named_parameters())
    x, layer = faces, 0
    while f"stages.{layer}.weight" in state or f"stages.{layer}.body.0.weight" in state:
        if f"stages.{layer}.body.0.weight" in state:  # a unit: the activation stands before the addition
            path = f"stages.{layer}.body"
            y = F.prelu(F.conv2d(x, state[f"{path}.0.weight"], padding=1), state[f"{path}.1.weight"])
            x = x + F.prelu(F.conv2d(y, state[f"{path}.2.weight"], padding=1), state[f"{path}.3.weight"])
            layer += 1
        else:
            opening = F.conv2d(x, state[f"stages.{layer}.weight"], state[f"stages.{layer}.bias"], stride=2, padding=1)
            x = F.prelu(opening, state[f"stages.{layer + 1}.weight"])
            layer += 2
    return F.linear(x.flatten(1), state["fc1.weight"], state["fc1.bias"])


@pytest.mark.parametrize("name", MODELS)
def test_a_forward_pass_equals_a_plain_restatement(name):
    net = create_model(name, width=0.125, features=16).double()
    for parameter in net.parameters():  # away from the initial values, where units hardly matter
        parameter.data.add_(0.05 * torch.randn_like(parameter))
    faces = torch.randn(2, 3, 112, 96, dtype=torch.double)
    assert_close(net(faces), restated(net, faces), rtol=1e-12, atol=1e-12)


def test_features_may_be_negative_unless_the_last_relu_is_asked_for():
    faces = torch.randn(4, 3, 112, 96)
    assert (create_model("sphereface4", width=0.125)(faces) < 0).any()
    assert (create_model("sphereface4", width=0.125, last_relu=True)(faces) >= 0).all()


def test_batch_norm_stands_between_every_convolution_and_its_activation():
    net = create_model("sphereface10", width=0.125, norm="batch")
    sequences = [net.stages, *[module.body for module in net.stages if hasattr(module, "body")]]
    followers = [
        list(sequence)[i + 1] for sequence in sequences for i, m in enumerate(sequence) if isinstance(m, nn.Conv2d)
    ]
    assert len(followers) == 10
    assert all(isinstance(follower, nn.BatchNorm2d) for follower in followers)
    assert net.train()(torch.randn(4, 3, 112, 96)).shape == (4, 512)


def test_batch_norm_of_the_features_gives_each_a_mean_of_zero_over_a_batch():
    net = create_model("sphereface4", width=0.125, features=8, norm="batch-all").train()
    faces = torch.randn(16, 3, 112, 96) + 3
    assert_close(net(faces).mean(0), torch.zeros(8), atol=1e-5, rtol=0)
    plain = create_model("sphereface4", width=0.125, features=8, norm="batch")
    assert (plain(faces).mean(0).abs() > 0.01).any()
    assert net.state_dict().keys() - plain.state_dict().keys() == {
        f"fc1_norm.{part}" for part in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    }


def test_biases_learn_twice_as_fast_without_decay_and_no_parameter_is_left_out():
    for norm in (None, "batch", "batch-all"):
        net = create_model("sphereface20", width=0.125, norm=norm)
        groups = {group["name"]: group for group in net.parameter_groups(lr=0.1, weight_decay=5e-4)}
        assert (groups["weights"]["lr"], groups["weights"]["weight_decay"]) == (0.1, 5e-4)
        assert (groups["biases"]["lr"], groups["biases"]["weight_decay"]) == (0.2, 0.0)
        listed = [id(parameter) for group in groups.values() for parameter in group["params"]]
        assert sorted(listed) == sorted(id(parameter) for parameter in net.parameters())
        names = {id(parameter): name for name, parameter in net.named_parameters()}
        in_biases = {names[id(parameter)] for parameter in groups["biases"]["params"]}
        assert all(name.endswith(".bias") for name in in_biases)
        torch.optim.SGD(net.parameter_groups(), momentum=0.9)


def test_channels_last_gives_the_same_features():
    net = create_model("sphereface10", width=0.25)
    faces = torch.randn(2, 3, 112, 96)
    expected = net(faces)
    found = net.to(memory_format=torch.channels_last)(faces.to(memory_format=torch.channels_last))
    assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_network_gives_the_same_features_and_gradients():
    net = create_model("sphereface10", width=0.125, features=8)
    faces = torch.randn(2, 3, 112, 96)
    compiled = torch.compile(net, fullgraph=True)
    assert_close(compiled(faces), net(faces), rtol=1e-4, atol=1e-5)
    expected = torch.autograd.grad(net(faces).sum(), net.fc1.weight)
    assert_close(torch.autograd.grad(compiled(faces).sum(), net.fc1.weight), expected, rtol=1e-4, atol=1e-5)


def test_an_exported_network_takes_any_batch_size():
    net = create_model("sphereface10", width=0.125, features=8).eval()
    batch = torch.export.Dim("batch", min=1, max=4096)
    program = torch.export.export(net, (torch.randn(2, 3, 112, 96),), dynamic_shapes=({0: batch},))
    faces = torch.randn(5, 3, 112, 96)
    assert_close(program.module()(faces), net(faces), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(3, 112, 96), (1, 3, 112, 112), (1, 1, 112, 96), (1, 3, 96, 112)])
def test_faces_of_another_shape_are_an_error_that_says_so(shape):
    with pytest.raises(ValueError, match=r"wanted \(N, 3, 112, 96\)"):
        create_model("sphereface4", width=0.125)(torch.zeros(shape))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("sphere20", {}, "choose one of sphereface4, sphereface10"),
        ("sphereface4", {"norm": "layer"}, "one of batch, batch-all"),
        ("sphereface4", {"features": 0}, "at least 1"),
        ("sphereface4", {"width": 0.0}, "above 0"),
    ],
)
def test_a_bad_argument_is_an_error_that_names_the_way_out(name, options, message):
    with pytest.raises(ValueError, match=message):
        create_model(name, **options)
