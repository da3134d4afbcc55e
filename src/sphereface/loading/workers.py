"""Worker processes: torch's DataLoader, told to change nothing but the speed."""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

import cv2
import torch
from torch.utils.data import DataLoader, Dataset

from sphereface.errors import JobFailed, UserError

StartMethod = Literal["fork", "spawn"]
START_METHOD: StartMethod = "fork" if sys.platform == "linux" else "spawn"  # elsewhere a fork is unsafe or unknown

NICE = 19  # the lowest priority there is

Item = TypeVar("Item")


@dataclass(frozen=True)
class Workers:
    """How many processes help, how they start, and how many items each may be ahead; with 0 this process does all.

    Where this process computes on the same cores, they can `give_way` and take what it leaves idle: its threads do a
    step together, so that all of them wait for the one whose core decodes images. If an item is late, this process
    sleeps and they have the cores.
    """

    count: int = 0
    start_method: StartMethod = START_METHOD
    prefetch: int = 2
    give_way: bool = False

    def __post_init__(self) -> None:
        if self.count < 0 or self.prefetch < 1:
            raise UserError(f"workers is {self.count}, prefetch is {self.prefetch}; wanted at least 0, and at least 1")
        if self.start_method not in ("fork", "spawn"):
            raise UserError(f"start_method is {self.start_method!r}; choose 'fork' or 'spawn'")

    def run(self, dataset: Dataset[Item], keys: Iterable[int], *, pin: bool = False) -> Generator[Item, None, None]:
        """`dataset[key]` for each key, in order; the processes end with the iteration, finished, closed or dropped.

        A `UserError` in a process is raised here as it is.
        """
        loader = DataLoader(
            _OrError(dataset) if self.count else dataset,
            batch_size=None,  # an item is a whole batch already
            sampler=keys,
            num_workers=self.count,
            collate_fn=_unchanged,
            multiprocessing_context=self.start_method if self.count else None,
            prefetch_factor=self.prefetch if self.count else None,
            worker_init_fn=partial(_begin, give_way=self.give_way),
            pin_memory=pin,
            generator=torch.Generator(),  # else it would draw from the global one, and dropout would change
        )
        if not self.count:
            yield from loader
            return
        items = _without_torchs_alarm(loader)
        try:
            while True:
                try:
                    item = next(items)
                except StopIteration:
                    return
                except (RuntimeError, OSError, EOFError) as error:  # torch's word for it, or a pipe that broke
                    raise JobFailed(
                        f"a process that loads faces ended ({error}); often memory ran out: use fewer workers, and "
                        "resume"
                    ) from error
                if isinstance(item, UserError):
                    raise item
                yield item
        finally:
            del items  # with it the processes end; an error that is raised here would keep it


class _OrError(Dataset[Item | UserError]):
    """A dataset whose errors of users are items: torch would wrap them in a traceback."""

    def __init__(self, dataset: Dataset[Item]) -> None:
        self.dataset = dataset

    def __getitem__(self, key: int) -> Item | UserError:
        try:
            return self.dataset[key]
        except UserError as error:
            return error


def _without_torchs_alarm(loader: DataLoader[Item]) -> Iterator[Item]:
    """Start the workers; one that dies is noticed where its item is awaited.

    Torch also installs a handler of SIGCHLD that raises wherever the program happens to be, such as in the middle of
    writing a checkpoint.
    """
    handler = signal.getsignal(signal.SIGCHLD) if hasattr(signal, "SIGCHLD") else None
    items = iter(loader)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, handler)
    return items


def _unchanged(item: Item) -> Item:
    return item


def _begin(_: int, *, give_way: bool) -> None:
    if give_way and hasattr(os, "nice"):  # not on Windows
        os.nice(NICE)
    cv2.setNumThreads(0)  # the workers are the parallelism, and a fork leaves OpenCV's threads behind
    # A spawned worker leaves as a forked one does, without taking Python down around it: a thread of it may still be
    # in torch, sending a batch that nobody waits for, and would end in an abort that the parent reports as a crash.
    atexit.register(os._exit, 0)
