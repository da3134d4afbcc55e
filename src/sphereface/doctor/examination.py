"""All checks of one device, one after the other."""

import tempfile
import time
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from sphereface.doctor.findings import Check, Examination, Finding, Skipped, find
from sphereface.doctor.machine import machine
from sphereface.progress import Say, mute

NEEDS_TORCH = ("network", "losses", "training", "resume", "sharding")


def examine(device: str = "auto", *, say: Say = mute) -> Examination:
    """Check a device: cpu, cuda, cuda:1, or auto for CUDA where there is any; `say` hears of each check as it begins.

    A device that is not there is an error. What goes wrong in a check is written down, and the next one is made.
    """
    start = time.perf_counter()
    known = machine()
    with tempfile.TemporaryDirectory(prefix="sphereface-doctor-", ignore_cleanup_errors=True) as folder:
        trouble = _trouble_with_torch()
        if trouble is not None:
            checks = [Check(name, partial(_raise, trouble)) for name in NEEDS_TORCH]
        else:
            device, of_torch, checks = _with_torch(device, Path(folder))
            known |= of_torch
        findings: list[Finding] = []
        for check in checks:
            say(f"checking {check.name}")
            findings.append(find(check))
    return Examination(device, known, findings, time.perf_counter() - start)


def _trouble_with_torch() -> Exception | None:
    """Why there is nothing to check: no torch, which is a choice, or a broken one, which is a fault."""
    try:
        import_module("torch")
    except ModuleNotFoundError as error:
        return Skipped("torch is not installed: pip install 'sphereface[train]'") if error.name == "torch" else error
    except (ImportError, OSError) as error:  # a library of the system that it wants is missing
        return error
    return None


def _with_torch(device: str, folder: Path) -> tuple[str, dict[str, str], list[Check]]:
    """The device by its full name, what torch knows of the machine, and what can be checked."""
    from sphereface.doctor import devices, parity, resuming, sharding

    chosen = devices.choose(device)
    checks = [
        *parity.checks(chosen),
        *resuming.checks(chosen, folder),
        *sharding.checks(chosen, folder),
        *devices.checks(chosen),
    ]
    return str(chosen), devices.torch_machine(chosen), checks


def _raise(trouble: Exception) -> NoReturn:
    raise trouble
