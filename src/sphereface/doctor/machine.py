"""What a machine is made of, as far as it matters here; nothing that names its owner, and no torch needed."""

import os
import platform
from importlib import import_module
from pathlib import Path

import sphereface
from sphereface.doctor.findings import one_line

MODULES = {"numpy": "numpy", "opencv": "cv2", "onnxruntime": "onnxruntime"}  # what is shown, and what is imported
MATTERS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG", "GLIBC_TUNABLES")


def machine() -> dict[str, str]:
    """Versions, processor and settings; all that can be known without torch."""
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
    return found | {"environment": ", ".join(settings) or "nothing special"}


def version_of(module: str) -> str:
    """The version of a module that is there and can be imported, or why it cannot."""
    try:
        return str(import_module(module).__version__)
    except ModuleNotFoundError as error:
        return "not installed" if error.name == module else f"broken: {one_line(error)}"
    except (ImportError, OSError) as error:  # a library of the system that it wants is missing
        return f"broken: {one_line(error)}"


def cpu_name() -> str:
    """What the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []  # not every system has it
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
