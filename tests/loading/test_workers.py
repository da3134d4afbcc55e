"""Worker processes change nothing but the speed, and leave without a trace."""

import multiprocessing

import pytest
import torch

from sphereface.loading.workers import Workers

# torch thinks that two workers are too many for a machine of one core.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Large:
    """Tensors that take a worker a while to send."""

    def __getitem__(self, key):
        return torch.full((20_000_000,), key, dtype=torch.uint8)


@pytest.mark.parametrize("count", [0, 3])
def test_items_come_in_the_order_of_their_keys(count):
    keys = [5, 1, 4, 1, 3]
    assert [int(item[0]) for item in Workers(count).run(Large(), keys)] == keys


def test_spawned_workers_that_are_dropped_while_they_send_end_well():
    items = Workers(2, "spawn", prefetch=4).run(Large(), range(100))
    next(items)
    workers = multiprocessing.active_children()
    items.close()
    assert [worker.exitcode for worker in workers] == [0, 0]
