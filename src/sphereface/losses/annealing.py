"""The annealing schedule of A-Softmax, from an easy task to a hard one."""

from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor

from sphereface.errors import UserError


@dataclass(frozen=True)
class Annealing:
    """lambda = max(minimum, base (1 + gamma step)^-power): the weight of the plain cosine in the target logit.

    The defaults are those of the authors' released layer, which counts a step before it uses it: 892.857 comes first,
    and 5 is reached at step 1,659.
    """

    base: float = 1000.0
    gamma: float = 0.12
    power: float = 1.0
    minimum: float = 5.0

    def __post_init__(self) -> None:
        for name in ("base", "gamma", "power", "minimum"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or not float(value) >= 0:
                raise UserError(f"annealing {name} is {value!r}; it takes a number of at least 0")

    def __call__(self, step: Tensor | int) -> Tensor:
        """Lambda at a step, counted from 1. Input and output are tensors, so that a GPU need not wait for the host."""
        step = torch.as_tensor(step)
        exact = step.to(torch.float32 if step.device.type == "mps" else torch.float64)  # mps has no float64
        return (self.base * (1 + self.gamma * exact) ** -self.power).clamp_min(self.minimum)
