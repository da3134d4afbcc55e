"""Fair measurement on a noisy machine: candidates take turns, medians count, memory is measured in fresh processes."""

import importlib.util
import multiprocessing
import platform
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

LINUX = platform.system() == "Linux"


def interleaved(candidates: Mapping[str, Callable[[], object]], *, repeats: int, device: str) -> dict[str, float]:
    """Median seconds of each candidate; in each round every candidate runs once, so that all meet the same weather."""
    for run in candidates.values():
        run()  # first calls allocate and choose kernels
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repeats):
        for name, run in candidates.items():
            wait(device)
            start = time.perf_counter()
            run()
            wait(device)
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def wait(device: str) -> None:
    """Let a device finish what it was given."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize(device)


def in_own_process(run: Callable[..., Any], *arguments: object) -> Any:
    """What `run(*arguments)` returns in a fresh process; it must be importable by name."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_result, args=(sender, run, arguments))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError as error:
        process.join()  # before that it has no exit code
        raise RuntimeError(
            f"{run.__name__}{arguments} exited without a result, with exit code {process.exitcode}"
        ) from error
    finally:
        process.join()


def _send_result(sender: Any, run: Callable[..., Any], arguments: tuple[object, ...]) -> None:
    sender.send(run(*arguments))


def peak_beyond_inputs(prepare: Callable[..., Callable[[], object]], *arguments: object) -> int:
    """Bytes by which one run exceeds what its inputs hold, in a process of its own.

    `prepare(*arguments)` builds the inputs and returns the run; both must be importable by name.
    """
    return int(in_own_process(_measure_peak, prepare, *arguments))


def _measure_peak(prepare: Callable[..., Callable[[], object]], *arguments: object) -> int:
    import torch

    run = prepare(*arguments)
    torch.mm(torch.ones(256, 256), torch.ones(256, 256))  # thread pools and matrix buffers are not the run's
    before = resident_bytes()
    run()
    return max(0, peak_bytes() - before)


def resident_bytes() -> int:
    """Bytes that this process holds now."""
    if LINUX:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return peak_bytes()


def peak_bytes() -> int:
    """The most bytes that this process ever held."""
    if LINUX:  # not ru_maxrss: a child inherits its parent's
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if platform.system() == "Darwin" else 1024)


def machine() -> dict[str, object]:
    """What the numbers were measured on; torch only where it is installed."""
    model = platform.processor() or platform.machine()
    if LINUX:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    told: dict[str, object] = {"cpu": model, "python": platform.python_version()}
    if importlib.util.find_spec("torch"):
        import torch

        told |= {"threads": torch.get_num_threads(), "torch": torch.__version__}
    return told
