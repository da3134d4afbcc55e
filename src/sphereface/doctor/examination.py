"""The examination of one device: all checks in order."""

import tempfile
import time
from functools import partial
from importlib import import_module
from pathlib import Path

from sphereface.doctor.findings import Check, Examination, Finding, Skipped, find, throw
from sphereface.doctor.machine import machine
from sphereface.progress import Say, mute

NEEDS_TORCH = ("network", "losses", "training", "resume", "sharding")


def examine(device: str = "auto", *, say: Say = mute) -> Examination:
    """Check a device: cpu, cuda, cuda:1, or auto for CUDA where there is any; `say` gets a note before each check.

    An absent device is an error. An error inside a check is a finding, and the next check follows.
    """
    start = time.perf_counter()
    known = machine()
    with tempfile.TemporaryDirectory(prefix="sphereface-doctor-", ignore_cleanup_errors=True) as folder:
        error = _torch_error()
        if error is not None:
            checks = [Check(name, partial(throw, error)) for name in NEEDS_TORCH]
        else:
            device, of_torch, checks = _with_torch(device, Path(folder))
            known |= of_torch
        findings: list[Finding] = []
        for check in checks:
            say(f"checking {check.name}")
            findings.append(find(check))
    return Examination(device, known, findings, time.perf_counter() - start)


def _torch_error() -> Exception | None:
    """The reason why torch cannot be imported: `Skipped` if it is not installed, else the error of its import."""
    try:
        import_module("torch")
    except ModuleNotFoundError as error:
        return Skipped("torch is not installed: pip install 'sphereface[train]'") if error.name == "torch" else error
    except (ImportError, OSError) as error:  # such as a missing system library
        return error
    return None


def _with_torch(device: str, folder: Path) -> tuple[str, dict[str, str], list[Check]]:
    """The full name of the device, torch's description of the machine, and the checks."""
    from sphereface.doctor import devices, parity, resuming, sharding

    chosen = devices.choose(device)
    checks = [
        *parity.checks(chosen),
        *resuming.checks(chosen, folder),
        *sharding.checks(chosen, folder),
        *devices.checks(chosen),
    ]
    return str(chosen), devices.torch_machine(chosen), checks
