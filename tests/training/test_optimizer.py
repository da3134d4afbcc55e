"""The optimizer against Caffe's formula, written out."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from sphereface.errors import UserError
from sphereface.losses import create_loss
from sphereface.models import create_model
from sphereface.training.config import TrainConfig
from sphereface.training.optimizer import (
    build_optimizer,
    clip_,
    gradient_norm,
    named_parameters,
    running_mean,
    set_rate,
)


def small():
    net = create_model("sphereface4", width=0.05, features=8)
    return net, create_loss("softmax", 8, 5)


def test_biases_learn_at_twice_the_rate_and_do_not_decay():
    net, loss = small()
    optimizer = build_optimizer(net, loss, TrainConfig(lr=0.1))
    set_rate(optimizer, 0.02, caffe_momentum=False)
    shown = {group["name"]: (group["lr"], group["weight_decay"]) for group in optimizer.param_groups}
    assert shown == {"weights": (0.02, 5e-4), "biases": (0.04, 0.0), "classifier": (0.02, 5e-4)}
    assert {p for group in optimizer.param_groups for p in group["params"]} == set(named_parameters(net, loss).values())


@pytest.mark.parametrize("caffe", [True, False])
def test_momentum_is_caffes_where_asked(caffe):
    torch.manual_seed(1)
    net, loss = small()
    config = TrainConfig(lr=0.1, momentum=0.9, weight_decay=0.01)
    optimizer = build_optimizer(net, loss, config)
    (name, parameter), *_ = named_parameters(net, loss).items()
    w, v = parameter.detach().double().clone(), torch.zeros_like(parameter, dtype=torch.double)
    previous = None
    for step, lr in enumerate([0.1, 0.1, 0.1, 0.01, 0.01, 0.05]):
        set_rate(optimizer, lr, caffe_momentum=caffe)
        for other in named_parameters(net, loss).values():
            other.grad = torch.full_like(other, 0.1 * (step + 1))
        g = parameter.grad.double() + 0.01 * w
        optimizer.step()
        if caffe:
            v = 0.9 * v + lr * g  # Caffe's solver
            w = w - v
        else:
            v = 0.9 * v + g
            w = w - lr * v
        previous = lr
    assert previous == 0.05
    assert name == "net.stages.0.weight"
    assert_close(parameter.detach().double(), w, rtol=1e-5, atol=1e-6)


def test_a_running_mean_forgets_at_its_own_pace_and_counts_as_the_network_does():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    mean = running_mean(net, 0.75)
    expected = {name: value.clone() for name, value in net.state_dict().items()}
    for number in range(1, 4):
        nn.init.constant_(net[0].weight, number)
        net(torch.randn(8, 2))  # moves batch norm's statistics, and counts
        mean.update_parameters(net)
        for name, value in net.state_dict().items():
            if name.endswith("num_batches_tracked"):
                expected[name] = torch.tensor(number)
            else:
                expected[name] = 0.75 * expected[name] + 0.25 * value
    assert_close(mean.module.state_dict(), expected)
    assert not torch.equal(mean.module[1].running_mean, net[1].running_mean)


def test_clipping_shortens_what_is_too_long_and_nothing_else():
    parameters = [nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.zeros(1))]
    parameters[0].grad, parameters[1].grad = torch.tensor([3.0, 0, 0]), torch.full((2, 2), 2.0)
    norm = gradient_norm(parameters)
    assert norm.item() == pytest.approx(5)
    clip_(parameters, norm, 10.0)
    assert gradient_norm(parameters).item() == pytest.approx(5, rel=1e-5)
    clip_(parameters, norm, 1.0)
    assert gradient_norm(parameters).item() == pytest.approx(1, rel=1e-5)


def test_adamw_is_the_formula_of_its_paper():
    torch.manual_seed(1)
    net, loss = small()
    optimizer = build_optimizer(net, loss, TrainConfig(optimizer="adamw", lr=0.01, momentum=0.8, weight_decay=0.1))
    parameter = named_parameters(net, loss)["net.stages.0.weight"]
    w = parameter.detach().double().clone()
    m = v = torch.zeros_like(w)
    for step in range(1, 5):
        for other in named_parameters(net, loss).values():
            other.grad = torch.full_like(other, 0.1 * step)
        optimizer.step()
        g = torch.full_like(w, 0.1 * step)
        m, v = 0.8 * m + 0.2 * g, 0.999 * v + 0.001 * g**2
        w = w - 0.01 * (0.1 * w + (m / (1 - 0.8**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8))
    assert_close(parameter.detach().double(), w, rtol=1e-5, atol=1e-6)


def test_caffes_momentum_and_adamw_exclude_each_other():
    with pytest.raises(UserError, match="caffe_momentum is a rule of sgd"):
        TrainConfig().changed(optimizer="adamw", caffe_momentum=True)
