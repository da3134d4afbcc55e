"""Worker processes change nothing but the speed, and leave without a trace."""

import multiprocessing
import os

import pytest
import torch

from sphereface.errors import Setting, UnreadableImage
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


class Third:
    """Items of which the third is an error."""

    def __getitem__(self, key):
        if key == 2:
            raise UnreadableImage("a/b.jpg", "cut off; leave it out with ", Setting("missing", "skip"))
        return key


@pytest.mark.parametrize("count", [0, 2])
def test_an_error_of_ours_comes_as_it_is_and_ends_the_workers(count):
    seen = []
    with pytest.raises(UnreadableImage) as error:
        seen.extend(Workers(count).run(Third(), range(9)))
    assert (error.value.path, error.value.reason) == ("a/b.jpg", 'cut off; leave it out with missing="skip"')
    assert error.value.as_typed == "a/b.jpg: cut off; leave it out with --missing skip"
    assert not multiprocessing.active_children()
    assert seen == [0, 1]


class Priority:
    """How low the priority of the process is that asks."""

    def __getitem__(self, key):
        return os.nice(0)


@pytest.mark.skipif(not hasattr(os, "nice"), reason="this system has no such priorities")
@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_workers_that_give_way_have_the_lowest_priority_and_others_that_of_the_program(start_method):
    own = os.nice(0)
    assert list(Workers(1, start_method, give_way=True).run(Priority(), range(2))) == [19, 19]
    assert list(Workers(1, start_method).run(Priority(), range(2))) == [own, own]
    assert list(Workers(0, give_way=True).run(Priority(), range(2))) == [own, own]
    assert os.nice(0) == own
