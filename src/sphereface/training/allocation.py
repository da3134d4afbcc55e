"""Memory that a step frees is kept for the next step, instead of going back to the system."""

import ctypes
import platform

# Of mallopt(3), from malloc.h.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
NEVER = -1


def keep_freed_memory() -> bool:
    """Tell the C library to keep what is freed; returns whether it listened.

    Torch allocates activations and gradients anew in every step. By default glibc maps each large one from the system
    and unmaps it afterwards, so that every step touches hundreds of megabytes of fresh pages, which the system clears
    one by one. The setting holds for the whole process, whose memory no longer shrinks. Other C libraries have other
    rules and are left alone.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    return bool(libc.mallopt(M_MMAP_MAX, 0) and libc.mallopt(M_TRIM_THRESHOLD, NEVER))
