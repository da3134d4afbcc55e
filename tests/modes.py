"""Who may read a file."""

import os
import stat
from contextlib import contextmanager


def mode(path):
    """The permission bits of a file."""
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def umask(bits):
    """Another umask, for the whole process."""
    before = os.umask(bits)
    try:
        yield
    finally:
        os.umask(before)
