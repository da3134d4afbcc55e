"""Half precision for the network: autocast, checks of the device, and loss scaling."""

import platform
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from sphereface.errors import UserError
from sphereface.training.config import TrainConfig

HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def precision(config: TrainConfig, device: torch.device) -> AbstractContextManager[object]:
    """Autocast for the network if the config has half precision; losses stay in float32."""
    if config.precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, HALF[config.precision])


def precision_note(config: TrainConfig, device: torch.device) -> str | None:
    """A note on a run's precision on a device, or None; float16 on a CPU is an error."""
    if device.type != "cpu" or config.precision == "float32":
        return None
    if config.precision == "float16":
        raise UserError("precision is float16 on a CPU, which is slow at it; choose float32 or bfloat16, or a GPU")
    if has_bfloat16():
        return None
    return "this CPU has no bfloat16 instructions: the run takes several times as long as with precision = 'float32'"


def has_bfloat16() -> bool:
    """True if this CPU computes in bfloat16, instead of converting to float32 and back."""
    if platform.machine().lower() in ("x86_64", "amd64"):
        return bool(torch.cpu._is_avx512_bf16_supported())  # torch's own check for oneDNN accepts plain AVX-512
    known = hasattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported")  # not in every build for ARM
    return known and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class LossScale:
    """The factor on the loss of a float16 run, which keeps small gradients from underflowing.

    Where a gradient overflows, the step is left out and the factor halved; after PATIENCE steps without overflow it is
    doubled. An overflow at factor 1 has another cause: then the run is lost, as it would be in float32.

    Torch's GradScaler checks for overflow on each process separately. With a sharded classifier the results differ:
    some processes make the step, others leave it out, and from then on their networks differ. Here every process checks
    the same global norm. Besides, torch's fused SGD has an uninitialised momentum if its first step is left out.
    """

    LARGEST, SMALLEST = 2.0**24, 1.0
    PATIENCE = 2000  # steps without an overflow until the factor is doubled

    def __init__(self, *, enabled: bool = True, factor: float = 2.0**16) -> None:
        self.enabled, self.factor = enabled, factor if enabled else 1.0
        self.good_steps = 0  # since the factor changed

    def scale(self, loss: Tensor) -> Tensor:
        """The loss to take the gradient of."""
        return loss * self.factor if self.enabled else loss

    def unscale_(self, gradients: Iterable[Tensor]) -> None:
        """Divide gradients by the factor."""
        if self.enabled:
            torch._foreach_mul_(list(gradients), 1 / self.factor)

    def judge(self, norm: Tensor) -> bool:
        """True if a step can be made, given the gradient norm over all processes; updates the factor."""
        if not self.enabled:
            return True  # without waiting for the GPU
        fits = bool(norm.isfinite())
        self.good_steps = self.good_steps + 1 if fits else 0
        if not fits:
            self.factor = max(self.SMALLEST, self.factor / 2)
        elif self.good_steps == self.PATIENCE:
            self.factor, self.good_steps = min(self.LARGEST, self.factor * 2), 0
        return fits

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint; empty if disabled."""
        return {"factor": self.factor, "good_steps": self.good_steps} if self.enabled else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        if self.enabled:
            self.factor, self.good_steps = float(state["factor"]), int(state["good_steps"])
