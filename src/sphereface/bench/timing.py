"""Measurement on a noisy machine: candidates in turns, medians, and memory in fresh processes."""

import importlib.util
import multiprocessing
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

LINUX = platform.system() == "Linux"


def interleaved(candidates: Mapping[str, Callable[[], object]], *, repeats: int, device: str) -> dict[str, float]:
    """Median seconds of each candidate; each runs once in every round, so that all have the same machine load."""
    for run in candidates.values():
        run()  # warm-up: first calls allocate and choose kernels
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repeats):
        for name, run in candidates.items():
            wait(device)
            start = time.perf_counter()
            run()
            wait(device)
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, lowest and highest value."""
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def wait(device: str) -> None:
    """Wait until a device has finished its work."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize(device)


def in_own_process(run: Callable[..., Any], *arguments: object) -> Any:
    """The result of `run(*arguments)` in a fresh process; `run` must be importable by name."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_result, args=(sender, run, arguments))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError as error:
        process.join()  # sets the exit code
        raise RuntimeError(
            f"{run.__name__}{arguments} exited without a result, with exit code {process.exitcode}"
        ) from error
    finally:
        process.join()


def _send_result(sender: Any, run: Callable[..., Any], arguments: tuple[object, ...]) -> None:
    sender.send(run(*arguments))


def peak_beyond_inputs(prepare: Callable[..., Callable[[], object]], *arguments: object) -> int:
    """Peak bytes of one run beyond its inputs, in a fresh process.

    `prepare(*arguments)` builds the inputs and returns the run; both must be importable by name.
    """
    return int(in_own_process(_measure_peak, prepare, *arguments))


def _measure_peak(prepare: Callable[..., Callable[[], object]], *arguments: object) -> int:
    import torch

    run = prepare(*arguments)
    torch.mm(torch.ones(256, 256), torch.ones(256, 256))  # before the measurement: thread pools and matrix buffers
    before = resident_bytes()
    run()
    return max(0, peak_bytes() - before)


def resident_bytes() -> int:
    """Resident bytes of this process."""
    if LINUX:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return peak_bytes()


def peak_bytes() -> int:
    """Peak resident bytes of this process."""
    if LINUX:  # not ru_maxrss, which a child inherits from its parent
        return status_bytes("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if platform.system() == "Darwin" else 1024)


def status_bytes(field: str) -> int:
    """A size in `/proc/self/status`, in bytes; Linux only."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(field))) * 1024


def numpy_machine() -> dict[str, object]:
    """Processor, cores and versions for a benchmark without torch."""
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    return {"cpu": machine()["cpu"], "cores": os.cpu_count(), **versions}


def machine() -> dict[str, object]:
    """Processor and versions; those of torch only where it is installed."""
    model = platform.processor() or platform.machine()
    if LINUX:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    found: dict[str, object] = {"cpu": model, "python": platform.python_version()}
    if importlib.util.find_spec("torch"):
        import torch

        found |= {"threads": torch.get_num_threads(), "torch": torch.__version__}
    return found
