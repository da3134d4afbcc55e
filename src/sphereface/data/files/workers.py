"""A map over worker processes that end with their parent, even if it is killed."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from typing import Any

Mapping = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


@contextmanager
def mapping(workers: int, *, chunk: int = 1) -> Iterator[Mapping]:
    """An ordered map over `workers` processes, or in this one, for use inside the block; tasks are sent in chunks."""
    if workers <= 1:
        yield map
        return
    context = multiprocessing.get_context("spawn")  # fork would copy locks that other threads hold
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin)
    try:
        yield partial(pool.map, chunksize=chunk)
    except BrokenProcessPool as error:
        raise RuntimeError(
            "a worker process exited without a result (out of memory, or killed); finished tasks are kept: run it "
            "again, with fewer workers if memory was short"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """Initialise a worker: the parent handles Ctrl-C, OpenCV uses one thread, and the worker ends with the parent."""
    import cv2

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cv2.setNumThreads(1)  # the processes share the cores
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)  # orphans of a killed run must not go on writing
