"""Keep memory that a step frees for the next step, instead of returning it to the system."""

import ctypes
import platform

# Of mallopt(3), from malloc.h.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
NEVER = -1


def keep_freed_memory() -> bool:
    """Make the C library keep freed memory; returns True if the setting took effect.

    Torch allocates activations and gradients anew in every step. By default glibc maps each large one from the system
    and unmaps it afterwards, so that every step touches hundreds of megabytes of fresh pages, which the system clears
    one by one. The setting holds for the whole process: its memory no longer shrinks. Other C libraries have other
    rules and stay as they are.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    return bool(libc.mallopt(M_MMAP_MAX, 0) and libc.mallopt(M_TRIM_THRESHOLD, NEVER))
