"""Pools of threads that run torch operations single-threaded, for work divided into pieces instead of operations."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue

import torch


class SingleThreads:
    """A pool of threads that run torch operations single-threaded.

    The threads never end: a program exits without waiting for them, and a thread that outlives the main one can still
    use them. The thread count of new threads is one global number of torch, so a thread that starts elsewhere while
    the pool is being set up may inherit the pool's count of 1.
    """

    def __init__(self, number: int) -> None:
        self.tasks: SimpleQueue[tuple[Future[None], Callable[[int], None], int]] = SimpleQueue()
        all_settled = threading.Barrier(number + 1)
        try:
            for _ in range(number):
                threading.Thread(target=self._run, args=(all_settled,), name="sphereface", daemon=True).start()
            all_settled.wait()
        except BaseException:
            all_settled.abort()  # or the started threads would wait for the others
            raise
        finally:
            torch.set_num_threads(number)  # for threads that start later

    def _run(self, all_settled: threading.Barrier) -> None:
        torch.get_num_threads()  # the first call copies the global count; only then is it the thread's own
        torch.set_num_threads(1)
        try:
            all_settled.wait()
        except threading.BrokenBarrierError:
            return
        while True:
            future, work, number = self.tasks.get()
            try:
                future.set_result(work(number))
            except BaseException as error:  # noqa: BLE001 raised in the waiting thread
                future.set_exception(error)

    def map(self, work: Callable[[int], None], number: int) -> None:
        """Run work(0), ..., work(number - 1) in the pool and wait for them; an error in one of them is raised here."""
        futures = [Future[None]() for _ in range(number)]
        for piece, future in enumerate(futures):
            self.tasks.put((future, work, piece))
        wait(futures)
        for future in futures:
            future.result()


_made, _making = dict[int, SingleThreads](), threading.Lock()


def single_threads(number: int) -> SingleThreads:
    """The pool of `number` threads, one for the whole program."""
    with _making:
        if number not in _made:
            _made[number] = SingleThreads(number)
        return _made[number]
