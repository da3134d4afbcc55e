"""Devices and their precisions, with the largest errors allowed for each."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch

from sphereface.doctor.findings import Check, Skipped, throw
from sphereface.errors import UserError
from sphereface.training.allocation import keep_freed_memory
from sphereface.training.precision import has_bfloat16
from sphereface.training.setting import choose_device


@dataclass(frozen=True)
class Precision:
    """A precision, and its largest allowed errors relative to the true numbers.

    A wrong formula has an error of a tenth or more. Half precision has rounding errors: bfloat16 keeps 8 bits of each
    number, float16 and TensorFloat-32 keep 11, and the errors of twenty layers add up.
    """

    name: str
    setting: Literal["float32", "bfloat16", "float16"]  # of a training run
    features: float
    gradients: float
    loss: float  # computed in float32 for features of any type; the error is one rounding of its gradient
    training: float  # of the change by some steps
    tf32: bool = False  # allow CUDA to compute float32 as TensorFloat-32


FLOAT32 = Precision("float32", "float32", features=1e-4, gradients=1e-4, loss=1e-5, training=1e-3)
TF32 = Precision("tf32", "float32", features=1e-2, gradients=5e-2, loss=1e-2, training=5e-2, tf32=True)
BFLOAT16 = Precision("bfloat16", "bfloat16", features=3e-2, gradients=1e-1, loss=1e-3, training=1e-1)
FLOAT16 = Precision("float16", "float16", features=5e-3, gradients=5e-2, loss=1e-3, training=5e-2)
EVERY = (FLOAT32, TF32, BFLOAT16, FLOAT16)

CUDNN: Any = torch.backends.cudnn  # incomplete in torch's type annotations
PRODUCTS = torch.backends.cuda.matmul


def choose(name: str) -> torch.device:
    """The device of a name; an absent one is an error with a way out."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("doctor starts processes of its own; run it without torchrun")
    return choose_device(name)


def precisions(device: torch.device) -> list[Precision]:
    """The precisions of a device."""
    return [precision for precision in EVERY if lack(precision, device) is None]


def checks(device: torch.device) -> Iterator[Check]:
    """A skipped check for each precision that the device lacks, with the reason."""
    for precision in EVERY:
        reason = lack(precision, device)
        if reason is not None:
            yield Check(precision.name, partial(throw, Skipped(reason)))


def lack(precision: Precision, device: torch.device) -> str | None:
    """The reason why a device lacks a precision, or None."""
    if precision is FLOAT16 and device.type == "cpu":
        return "for GPUs; train refuses it on a CPU"
    if precision is TF32 and device.type != "cuda":
        return "for CUDA devices"
    new = device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0)
    return None if new or precision in (FLOAT32, FLOAT16) else "for CUDA devices of compute 8.0 and up"


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Allow or forbid CUDA to compute float32 as TensorFloat-32, inside a `with` block.

    This uses the older of torch's two switches: the newer one is for convolutions only, and torch may raise an error
    when recurrent networks have another setting.
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
    """Instructions, threads, devices, and settings that affect results."""
    instructions = f"{torch.backends.cpu.get_cpu_capability()}, {'with' if has_bfloat16() else 'without'} bfloat16"
    kept = "freed memory is kept during training" if keep_freed_memory() else "freed memory goes back to the system"
    found = {"torch on cpu": f"{instructions} instructions, {torch.get_num_threads()} threads, {kept}"}
    if device.type == "cuda":
        found["cuda"] = f"{torch.version.cuda}, cuDNN {CUDNN.version()}"
        for place in range(torch.cuda.device_count()):
            has = torch.cuda.get_device_properties(place)
            found[f"gpu {place}"] = f"{has.name}, {has.total_memory / 2**30:.0f} GiB, compute {has.major}.{has.minor}"
        by_default = [name for name, place in (("convolutions", CUDNN), ("products", PRODUCTS)) if place.allow_tf32]
        found["tf32"] = f"{' and '.join(by_default) or 'nothing'} by default; off in checks of float32"
    deterministic = "yes" if torch.are_deterministic_algorithms_enabled() else "not set"
    return found | {"deterministic": deterministic}
