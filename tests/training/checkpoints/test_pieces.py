"""Optimizer and random numbers leave for a checkpoint and come back to the bit."""

import json
from functools import partial

import pytest
import torch
from torch import nn

from sphereface.training.checkpoints.manifest import CheckpointError
from sphereface.training.checkpoints.pieces import fill, pack_optimizer, pack_rng, unpack_optimizer, unpack_rng
from sphereface.training.checkpoints.reading import open_checkpoint
from sphereface.training.checkpoints.saving import save_checkpoint


def equal(found, expected):
    return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)


def small_net():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.PReLU(8), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 4, 5))
    return net.to(memory_format=torch.channels_last)


def learn(net, optimizer, start, end):
    for step in range(start, end):
        torch.manual_seed(step)
        optimizer.zero_grad()
        net(torch.randn(4, 3, 4, 4)).square().mean().backward()
        optimizer.step()


OPTIMIZERS = {
    "momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "fused": partial(torch.optim.SGD, lr=0.1, momentum=0.9, fused=True),
    "plain": partial(torch.optim.SGD, lr=0.1),
    "adam": partial(torch.optim.AdamW, lr=0.01, betas=(0.8, 0.9), amsgrad=True),
    "factored": partial(torch.optim.Adafactor, lr=0.01),
    "averaged": partial(torch.optim.ASGD, lr=0.01),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_resumed_run_goes_on_bit_for_bit(tmp_path, make):
    torch.manual_seed(1)
    net = small_net()
    optimizer = make(net.parameters())
    learn(net, optimizer, 0, 3)
    packed = pack_optimizer(optimizer, dict(net.named_parameters()))
    groups = {"net": net.state_dict(), "optimizer": packed.shared}
    path = save_checkpoint(tmp_path, 3, groups=groups, state={"optimizer": packed.settings})
    learn(net, optimizer, 3, 6)

    checkpoint, again = open_checkpoint(path), small_net()
    other = make(list(again.parameters())[::-1], lr=0.77)  # neither order nor rate matter
    fill(again.state_dict(), checkpoint.group("net"), source=path)
    named = dict(again.named_parameters())
    unpack_optimizer(other, named, checkpoint.group("optimizer"), checkpoint.state["optimizer"], source=path)
    learn(again, other, 3, 6)
    assert equal(again.state_dict(), net.state_dict())
    assert other.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]


def trained(by_class=(), classes=6):
    """Two groups with rates of their own, as a network and a classifier have."""
    torch.manual_seed(2)
    parameters = {"net.w": nn.Parameter(torch.randn(3, 3)), "loss.weight": nn.Parameter(torch.randn(classes, 3))}
    groups = [{"params": [p], "lr": lr, "name": name} for (name, p), lr in zip(parameters.items(), (1, 2), strict=True)]
    optimizer = torch.optim.SGD(groups, momentum=0.9)
    (parameters["loss.weight"] @ parameters["net.w"]).square().sum().backward()
    optimizer.step()
    return optimizer, parameters, pack_optimizer(optimizer, parameters, by_class=by_class)


def test_the_momentum_of_classes_moves_with_them_to_other_processes():
    optimizer, parameters, packed = trained(by_class=["loss.weight"])
    momentum = optimizer.state[parameters["loss.weight"]]["momentum_buffer"]
    assert list(packed.shared) == ["net.w/momentum_buffer"]
    assert list(packed.by_class) == ["loss.weight/momentum_buffer"]
    other, fewer, _ = trained(classes=2)
    rows = {name: tensor[4:6] for name, tensor in packed.by_class.items()}
    unpack_optimizer(other, fewer, {**packed.shared, **rows}, packed.settings, source="here")
    assert torch.equal(other.state[fewer["loss.weight"]]["momentum_buffer"], momentum[4:6])
    with pytest.raises(CheckpointError, match=r"'loss.weight/momentum_buffer' has shape \[6, 3\]; wanted \[2, 3\]"):
        unpack_optimizer(other, fewer, {**packed.shared, **packed.by_class}, packed.settings, source="here")


def test_each_group_gets_back_its_own_rate_and_how_it_computes_stays_as_it_is_here():
    _, _, packed = trained()
    other, parameters, _ = trained()
    for group in other.param_groups:
        group |= {"lr": 0.5, "foreach": False}
    unpack_optimizer(other, parameters, packed.shared, packed.settings, source="here")
    assert [(group["name"], group["lr"], group["foreach"]) for group in other.param_groups] == [
        ("net.w", 1, False),
        ("loss.weight", 2, False),
    ]


def test_momentum_lies_in_memory_as_its_weights_do():
    net = small_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    learn(net, optimizer, 0, 1)
    named = dict(net.named_parameters())
    packed = pack_optimizer(optimizer, named)
    saved = {name: tensor.contiguous() for name, tensor in packed.shared.items()}
    unpack_optimizer(optimizer, named, saved, packed.settings, source="here")
    momentum = optimizer.state[named["0.weight"]]["momentum_buffer"]
    assert momentum.is_contiguous(memory_format=torch.channels_last)
    assert not momentum.is_contiguous()


def spoiled(kind):
    _, parameters, packed = trained()
    tensors, settings = dict(packed.shared), json.loads(json.dumps(packed.settings))
    if kind == "forgotten":
        tensors.pop("loss.weight/momentum_buffer")
    elif kind == "more":
        tensors["net.w/other"] = torch.ones(1)
    elif kind == "renamed":
        settings["shapes"]["net.v"] = settings["shapes"].pop("net.w")
    elif kind == "reshaped":
        settings["shapes"]["net.w"] = [9]
    elif kind == "regrouped":
        settings["groups"] = [{**settings["groups"][0], "params": ["net.w", "loss.weight"]}]
    return parameters, tensors, settings


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("forgotten", "'loss.weight/momentum_buffer' is only in the checkpoint"),
        ("more", "'net.w/other' is not in the checkpoint"),
        ("renamed", "'net.v' is only in the checkpoint"),
        ("reshaped", r"'net.w' has shape \[3, 3\]; wanted \[9\]"),
        ("regrouped", "no optimizer group of exactly the parameters net.w"),
    ],
)
def test_a_state_of_another_optimizer_is_refused(kind, message):
    parameters, tensors, settings = spoiled(kind)
    optimizer = torch.optim.SGD([{"params": [parameter]} for parameter in parameters.values()], lr=3.0, momentum=0.9)
    with pytest.raises(CheckpointError, match=f"here: .*{message}"):
        unpack_optimizer(optimizer, parameters, tensors, settings, source="here")
    assert not optimizer.state
    assert optimizer.param_groups[0]["lr"] == 3.0


def test_what_neither_a_tensor_nor_json_can_hold_is_refused():
    optimizer, parameters, _ = trained()
    with pytest.raises(ValueError, match="parameters without a name, the first of shape"):
        pack_optimizer(optimizer, {"net.w": parameters["net.w"]})
    optimizer.state[parameters["net.w"]]["odd"] = {1, 2}
    with pytest.raises(ValueError, match=r"'net.w/odd' is \{1, 2\}; wanted a tensor"):
        pack_optimizer(optimizer, parameters)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": torch.ones(3)}, r"'a' is float32 \(3,\); wanted float32 \(2,\)"),
        ({"a": torch.ones(2).half()}, r"'a' is float16 \(2,\); wanted float32 \(2,\)"),
        ({"c": torch.ones(2)}, r"'c' is float32 \(2,\); wanted absent"),
        ({"b": None}, r"'b' is absent; wanted int64 \(\)"),
    ],
)
def test_tensors_that_do_not_fit_are_named_and_none_is_copied(change, message):
    into = {"a": torch.zeros(2), "b": torch.tensor(0)}
    found = {"a": torch.ones(2), "b": torch.tensor(1), **change}
    with pytest.raises(CheckpointError, match=f"here: {message}"):
        fill(into, {name: tensor for name, tensor in found.items() if tensor is not None}, source="here")
    assert into["a"].tolist() == [0, 0]
    assert into["b"] == 0


def test_random_numbers_go_on_where_they_stood(tmp_path):
    torch.manual_seed(5)
    torch.rand(3)
    path = save_checkpoint(tmp_path, 1, groups={}, by_rank=pack_rng())
    expected = torch.rand(4), torch.randn(4), torch.randperm(9)
    torch.manual_seed(6)
    unpack_rng(open_checkpoint(path).of_rank(0), source=path)
    found = torch.rand(4), torch.randn(4), torch.randperm(9)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    "tensors",
    [{}, {"cpu": torch.zeros(3, dtype=torch.uint8)}, {"cpu": torch.zeros(5056)}],
    ids=["none", "short", "float"],
)
def test_what_is_no_state_of_random_numbers_is_a_clear_error(tensors):
    with pytest.raises(CheckpointError, match="here: no state of torch's random generators"):
        unpack_rng(tensors, source="here")
