"""The networks of Table 2 of the paper."""

import math
from functools import partial
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from sphereface.contract import STAGES as STAGES
from sphereface.contract import Architecture
from sphereface.errors import UserError

WIDTHS = (64, 128, 256, 512)
HEIGHT, WIDTH = 112, 96


class Residual(nn.Module):
    """x + PReLU(conv(PReLU(conv(x)))): the activation is before the addition, with none after it."""

    def __init__(self, channels: int, *, batch_norm: bool) -> None:
        super().__init__()
        layers = partial(convolution, channels, channels, stride=1, bias=False, batch_norm=batch_norm)
        self.body = nn.Sequential(*layers(), *layers())

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> the same shape."""
        return x + self.body(x)  # type: ignore[no-any-return]


class SphereFaceNet(nn.Module):
    """Four stages of 3x3 convolutions and one linear layer: faces (N, 3, 112, 96) -> features (N, D).

    Each stage begins with a convolution of stride 2. The features are linear, unless `last_relu` adds the ReLU that the
    paper's ablation removes. Batch norm, which the paper does not have, is merged into the layers before it when a
    trained network is exported: the features cost no more with it.
    """

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = architecture
        batch_norm = architecture.norm is not None
        widths = [max(1, round(width * architecture.width)) for width in WIDTHS]
        layers: list[nn.Module] = []
        for (channels, width), units in zip(pairwise([3, *widths]), STAGES[architecture.name], strict=True):
            layers += convolution(channels, width, stride=2, bias=not batch_norm, batch_norm=batch_norm)
            layers += [Residual(width, batch_norm=batch_norm) for _ in range(units)]
        self.stages = nn.Sequential(*layers)
        self.fc1 = nn.Linear(widths[-1] * (HEIGHT // 16) * (WIDTH // 16), architecture.features)
        self.fc1_norm = nn.BatchNorm1d(architecture.features) if architecture.norm == "batch-all" else nn.Identity()
        self.last = nn.ReLU() if architecture.last_relu else nn.Identity()
        self.reset_parameters()

    def forward(self, faces: Tensor) -> Tensor:
        """Features (N, D) at their own length; only scores normalise."""
        if faces.ndim != 4 or faces.shape[1:] != (3, HEIGHT, WIDTH):
            raise UserError(f"faces have shape {tuple(faces.shape)}; wanted (N, 3, {HEIGHT}, {WIDTH})")
        return self.last(self.fc1_norm(self.fc1(self.stages(faces).flatten(1))))  # type: ignore[no-any-return]

    def reset_parameters(self) -> None:
        """Set the authors' initial values: Caffe's Xavier for heads of stages and FC1, small Gaussians in units."""
        inside_units = {module for unit in self.modules() if isinstance(unit, Residual) for module in unit.modules()}
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                if module in inside_units:
                    nn.init.normal_(module.weight, std=0.01)
                else:
                    bound = math.sqrt(3 / module.weight[0].numel())  # by fan-in alone, unlike torch's xavier_uniform_
                    nn.init.uniform_(module.weight, -bound, bound)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.PReLU):
                nn.init.constant_(module.weight, 0.25)

    def parameter_groups(self, *, lr: float = 0.1, weight_decay: float = 5e-4) -> list[dict[str, Any]]:
        """Groups for an optimizer, as in the authors' prototxt: biases with twice the rate and without decay.

        Slopes of PReLU decay like weights, as in the prototxt. Batch norm, an addition to the paper, does not decay.

        >>> torch.optim.SGD(net.parameter_groups(lr=0.1, weight_decay=5e-4), momentum=0.9)
        """
        groups: dict[str, list[nn.Parameter]] = {"weights": [], "biases": [], "norms": []}
        for module in self.modules():
            for name, parameter in module.named_parameters(recurse=False):
                is_norm = isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)
                groups["norms" if is_norm else "biases" if name == "bias" else "weights"].append(parameter)
        rates = {"weights": (lr, weight_decay), "biases": (2 * lr, 0.0), "norms": (lr, 0.0)}
        return [
            {"name": name, "params": parameters, "lr": rates[name][0], "weight_decay": rates[name][1]}
            for name, parameters in groups.items()
            if parameters
        ]


def convolution(channels: int, width: int, *, stride: int, bias: bool, batch_norm: bool) -> list[nn.Module]:
    """A 3x3 convolution, optionally batch norm, and a PReLU with one slope per channel."""
    layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=bias)]
    if batch_norm:
        layers.append(nn.BatchNorm2d(width))
    return [*layers, nn.PReLU(width)]
