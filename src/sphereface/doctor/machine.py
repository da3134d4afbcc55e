"""A description of a machine without personal data; needs no torch."""

import os
import platform
from importlib import import_module
from pathlib import Path

import sphereface
from sphereface.doctor.findings import one_line

MODULES = {"numpy": "numpy", "opencv": "cv2", "onnxruntime": "onnxruntime"}  # shown name: module
MATTERS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG", "GLIBC_TUNABLES")


def machine() -> dict[str, str]:
    """Versions, processor and environment variables, without torch."""
    libc = " ".join(platform.libc_ver()).strip()
    found = {
        "sphereface": sphereface.__version__,
        "python": platform.python_version(),
        **{name: version_of(module) for name, module in MODULES.items()},
        "torch": version_of("torch"),
        "system": ", ".join(part for part in (f"{platform.system()} {platform.machine()}", libc) if part),
        "cpu": f"{cpu_name()}, {os.cpu_count()} logical cores",
    }
    settings = [f"{name}={os.environ[name]}" for name in MATTERS if name in os.environ]
    settings += [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("MALLOC_")]
    settings += [f"LD_PRELOAD={Path(part).name}" for part in os.environ.get("LD_PRELOAD", "").split(":") if part]
    return found | {"environment": ", ".join(settings) or "no relevant variables"}


def version_of(module: str) -> str:
    """The version of a module, or the reason why it cannot be imported."""
    try:
        return str(import_module(module).__version__)
    except ModuleNotFoundError as error:
        return "not installed" if error.name == module else f"broken: {one_line(error)}"
    except (ImportError, OSError) as error:  # such as a missing system library
        return f"broken: {one_line(error)}"


def cpu_name() -> str:
    """The model name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []  # exists on Linux only
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
