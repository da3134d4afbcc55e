"""A map over processes that end with their parent, however it ends."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

Mapping = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


@contextmanager
def mapping(workers: int, *, chunk: int = 1) -> Iterator[Mapping]:
    """An ordered map over some processes, or over this one; tasks go out `chunk` at a time."""
    if workers <= 1:
        yield map
        return
    context = multiprocessing.get_context("spawn")  # fork would copy locks that other threads hold
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin)
    try:
        yield lambda function, tasks: _ordered(pool, function, tasks, chunk)
    finally:
        pool.shutdown(cancel_futures=True)


def _ordered(
    pool: ProcessPoolExecutor, function: Callable[[Any], Any], tasks: Iterable[Any], chunk: int
) -> Iterator[Any]:
    try:
        yield from pool.map(function, tasks, chunksize=chunk)
    except BrokenProcessPool as error:
        raise RuntimeError(
            "a worker process died (out of memory, or killed); what it had finished is kept: run it again, "
            "with fewer workers if memory was short"
        ) from error


def _begin() -> None:
    """What each process does first: leave Ctrl-C to the parent, and watch over the parent's end."""
    import cv2

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cv2.setNumThreads(1)  # the processes share the cores
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)  # orphans of a killed run must not go on writing
