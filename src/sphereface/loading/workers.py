"""Worker processes: torch's DataLoader, with the same items for any number of workers."""

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

NICE = 19  # the lowest priority

Item = TypeVar("Item")


@dataclass(frozen=True)
class Workers:
    """The number of worker processes, their start method, and the items each may load ahead; 0 loads in this process.

    With `give_way` they run at the lowest priority, for a process that computes on the same cores: its threads do a
    step together, so that all of them would wait for a core that decodes images. If an item is late, this process
    sleeps and the workers get the cores.
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
        """Yield `dataset[key]` for each key, in order; the workers end when the generator ends, is closed or deleted.

        A `UserError` in a worker is raised here unchanged.
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
            generator=torch.Generator(),  # the global one would be advanced, and dropout would change
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
                except (RuntimeError, OSError, EOFError) as error:  # torch's error for a dead worker, or a broken pipe
                    advice = "often memory ran out: use fewer workers, and resume"
                    raise JobFailed(f"a process that loads faces ended ({error}); {advice}") from error
                if isinstance(item, UserError):
                    raise item
                yield item
        finally:
            del items  # this ends the processes; the traceback of an error would keep them


class _OrError(Dataset[Item | UserError]):
    """A dataset that returns a `UserError` as an item: torch would wrap a raised one in a traceback."""

    def __init__(self, dataset: Dataset[Item]) -> None:
        self.dataset = dataset

    def __getitem__(self, key: int) -> Item | UserError:
        try:
            return self.dataset[key]
        except UserError as error:
            return error


def _without_torchs_alarm(loader: DataLoader[Item]) -> Iterator[Item]:
    """Start the workers without torch's SIGCHLD handler; a dead worker is detected when its item is awaited.

    That handler raises at any point of the program, such as in the middle of writing a checkpoint.
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
    cv2.setNumThreads(0)  # the workers run in parallel already, and a fork does not copy OpenCV's threads
    # A spawned worker exits as a forked one does, without the shutdown of Python: one of its threads may still be in
    # torch, sending a batch that is no longer awaited, and would abort, which the parent reports as a crash.
    atexit.register(os._exit, 0)
