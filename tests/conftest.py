import importlib.util

import pytest
from hypothesis import settings

settings.register_profile("house", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("house")

if importlib.util.find_spec("torch"):  # the tests of what runs without it pass where it is not installed
    import torch

    torch.set_num_threads(1)  # tests run side by side

    @pytest.fixture(autouse=True)
    def same_random_numbers_and_threads():
        """A test that leaves torch another number of threads fails: it would change the bits of the next one."""
        torch.manual_seed(0)
        yield
        left = torch.get_num_threads()
        torch.set_num_threads(1)
        assert left == 1, f"the test left torch {left} threads"
