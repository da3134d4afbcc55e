"""Freed memory stays with the process."""

import platform
import subprocess
import sys
import textwrap

import pytest

PAGES = """
    import resource
    import sys
    import torch
    from sphereface.training.allocation import keep_freed_memory
    if sys.argv[1] == "keep":
        assert keep_freed_memory()
    def faults():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(16 * 2**20).add(1)  # two times 64 MB, freed at once
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    print(min(faults() for _ in range(8)) * resource.getpagesize())  # the first ones still find their places
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is of glibc")
def test_memory_that_is_freed_and_asked_for_again_is_not_touched_anew():
    fresh = {
        how: int(subprocess.check_output([sys.executable, "-c", textwrap.dedent(PAGES), how]))
        for how in ("keep", "as_it_is")
    }
    assert fresh["keep"] < 2**20
    assert fresh["as_it_is"] > 32 * 2**20 or fresh["as_it_is"] < 2**20  # huge pages hide what would be saved
