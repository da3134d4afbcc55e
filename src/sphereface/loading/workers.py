"""Worker processes: torch's DataLoader, told to change nothing but the speed."""

import atexit
import os
import sys
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

import cv2
import torch
from torch.utils.data import DataLoader, Dataset

StartMethod = Literal["fork", "spawn"]
START_METHOD: StartMethod = "fork" if sys.platform == "linux" else "spawn"  # elsewhere a fork is unsafe or unknown

Item = TypeVar("Item")


@dataclass(frozen=True)
class Workers:
    """How many processes help, how they start, and how many items each may be ahead; with 0 this process does all."""

    count: int = 0
    start_method: StartMethod = START_METHOD
    prefetch: int = 2

    def __post_init__(self) -> None:
        if self.count < 0 or self.prefetch < 1:
            raise ValueError(f"workers is {self.count}, prefetch is {self.prefetch}; wanted at least 0, and at least 1")
        if self.start_method not in ("fork", "spawn"):
            raise ValueError(f"start_method is {self.start_method!r}; choose 'fork' or 'spawn'")

    def run(self, dataset: Dataset[Item], keys: Iterable[int], *, pin: bool = False) -> Generator[Item, None, None]:
        """`dataset[key]` for each key, in order; the processes end with the iteration, finished, closed or dropped."""
        yield from DataLoader(
            dataset,
            batch_size=None,  # an item is a whole batch already
            sampler=keys,
            num_workers=self.count,
            collate_fn=_unchanged,
            multiprocessing_context=self.start_method if self.count else None,
            prefetch_factor=self.prefetch if self.count else None,
            worker_init_fn=_begin,
            pin_memory=pin,
            generator=torch.Generator(),  # else it would draw from the global one, and dropout would change
        )


def _unchanged(item: Item) -> Item:
    return item


def _begin(_: int) -> None:
    cv2.setNumThreads(0)  # the workers are the parallelism, and a fork leaves OpenCV's threads behind
    # A spawned worker leaves as a forked one does, without taking Python down around it: a thread of it may still be
    # in torch, sending a batch that nobody waits for, and would end in an abort that the parent reports as a crash.
    atexit.register(os._exit, 0)
