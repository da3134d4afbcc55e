"""The layers of a network with the faster backward pass: switched on in place, with nothing else changed."""

import torch
from torch import nn

from sphereface import create_model
from sphereface.models.cpu import speed_up_
from sphereface.models.cpu.prelu import PReLU
from sphereface.models.cpu.winograd import Conv3x3


def test_a_network_has_torchs_layers_until_it_is_sped_up():
    net = create_model("sphereface10", width=0.25, features=8)
    assert {type(module) for module in net.modules()} >= {nn.Conv2d, nn.PReLU}
    before, parameters = net.state_dict(), [id(parameter) for parameter in net.parameters()]
    speed_up_(net)
    assert {type(module) for module in net.modules()} & {nn.Conv2d, nn.PReLU, Conv3x3, PReLU} == {Conv3x3, PReLU}
    assert [id(parameter) for parameter in net.parameters()] == parameters
    assert list(net.state_dict()) == list(before)


def test_features_stay_the_same_to_the_last_bit_and_gradients_to_rounding():
    torch.manual_seed(0)
    net, faces = create_model("sphereface10", features=8), torch.rand(2, 3, 112, 96) * 2 - 1
    found = []
    for _ in range(2):
        net.zero_grad()
        features = net(faces)
        features.square().sum().backward()
        found.append((features.detach(), {name: parameter.grad for name, parameter in net.named_parameters()}))
        speed_up_(net)
    (plain, theirs), (fast, ours) = found
    assert torch.equal(plain, fast)
    for name, grad in theirs.items():
        assert (ours[name] - grad).norm() <= 1e-4 * grad.norm(), name


def test_other_convolutions_are_left_to_torch():
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 5, padding=2))
    speed_up_(net)
    assert [type(layer) for layer in net] == [nn.Conv2d] * 3
