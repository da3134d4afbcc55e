"""What torch can compute on, and in which precisions; how near to the truth each of them must come."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NoReturn

import torch

from sphereface.doctor.findings import Check, Skipped
from sphereface.errors import UserError
from sphereface.training.allocation import keep_freed_memory
from sphereface.training.precision import has_bfloat16
from sphereface.training.setting import choose_device


@dataclass(frozen=True)
class Precision:
    """A way to compute, and the largest errors that it may have, as shares of the true numbers.

    A wrong formula is off by a tenth and more. Half precision has errors of its own: bfloat16 keeps 8 bits of each
    number, float16 and TensorFloat-32 keep 11, and twenty layers add up.
    """

    name: str
    setting: Literal["float32", "bfloat16", "float16"]  # of a training run
    features: float
    gradients: float
    loss: float  # which is computed in float32 whatever the features are; what is left is one rounding of its gradient
    training: float  # of what some steps change
    tf32: bool = False  # whether CUDA may take TensorFloat-32 where float32 is asked for


FLOAT32 = Precision("float32", "float32", features=1e-4, gradients=1e-4, loss=1e-5, training=1e-3)
TF32 = Precision("tf32", "float32", features=1e-2, gradients=5e-2, loss=1e-2, training=5e-2, tf32=True)
BFLOAT16 = Precision("bfloat16", "bfloat16", features=3e-2, gradients=1e-1, loss=1e-3, training=1e-1)
FLOAT16 = Precision("float16", "float16", features=5e-3, gradients=5e-2, loss=1e-3, training=5e-2)
EVERY = (FLOAT32, TF32, BFLOAT16, FLOAT16)

CUDNN: Any = torch.backends.cudnn  # of which torch's own types know little
PRODUCTS = torch.backends.cuda.matmul


def choose(name: str) -> torch.device:
    """The device of a name; one that is not there is an error that says what to do."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("doctor starts processes of its own; run it without torchrun")
    return choose_device(name)


def precisions(device: torch.device) -> list[Precision]:
    """Those that a device has."""
    return [precision for precision in EVERY if lack(precision, device) is None]


def checks(device: torch.device) -> Iterator[Check]:
    """A line for each precision that is not checked, to say why."""
    for precision in EVERY:
        reason = lack(precision, device)
        if reason is not None:
            yield Check(precision.name, partial(_skip, reason))


def lack(precision: Precision, device: torch.device) -> str | None:
    """Why a device has not a precision; None where it has."""
    if precision is FLOAT16 and device.type == "cpu":
        return "for GPUs; train refuses it on a CPU"
    if precision is TF32 and device.type != "cuda":
        return "for CUDA devices"
    new = device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0)
    return None if new or precision in (FLOAT32, FLOAT16) else "for CUDA devices of compute 8.0 and up"


def _skip(reason: str) -> NoReturn:
    raise Skipped(reason)


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Let CUDA compute float32 as TensorFloat-32, or forbid it, for a while.

    By the older of torch's two switches: the newer one is for convolutions alone, and torch may refuse to go on as it
    finds recurrent networks set otherwise.
    """
    places = (CUDNN, PRODUCTS)
    before = [place.allow_tf32 for place in places]
    try:
        for place in places:
            place.allow_tf32 = allowed
        yield
    finally:
        for place, was in zip(places, before, strict=True):
            place.allow_tf32 = was


def torch_machine(device: torch.device) -> dict[str, str]:
    """Instructions, threads, devices, and the settings that change what is computed."""
    instructions = f"{torch.backends.cpu.get_cpu_capability()}, {'with' if has_bfloat16() else 'without'} bfloat16"
    kept = "freed memory is kept while training" if keep_freed_memory() else "freed memory goes back to the system"
    found = {"torch on cpu": f"{instructions} instructions, {torch.get_num_threads()} threads, {kept}"}
    if device.type == "cuda":
        found["cuda"] = f"{torch.version.cuda}, cuDNN {CUDNN.version()}"
        for place in range(torch.cuda.device_count()):
            has = torch.cuda.get_device_properties(place)
            found[f"gpu {place}"] = f"{has.name}, {has.total_memory / 2**30:.0f} GiB, compute {has.major}.{has.minor}"
        by_default = [name for name, place in (("convolutions", CUDNN), ("products", PRODUCTS)) if place.allow_tf32]
        found["tf32"] = f"{' and '.join(by_default) or 'nothing'} by default; off in checks of float32"
    deterministic = "yes" if torch.are_deterministic_algorithms_enabled() else "not asked for"
    return found | {"deterministic": deterministic}
