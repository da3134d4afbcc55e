"""Threads that each compute alone, for work that is shared out in pieces rather than operation by operation."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue

import torch


class SingleThreads:
    """So many threads, whose operations use no other threads.

    They never end: a program does not wait for them, and a thread that outlives its main one can go on with them. How
    many threads a new thread uses is one number for all of torch, so that another one which starts just while these
    settle may take theirs, 1, for its own.
    """

    def __init__(self, number: int) -> None:
        self.tasks: SimpleQueue[tuple[Future[None], Callable[[int], None], int]] = SimpleQueue()
        all_settled = threading.Barrier(number + 1)
        try:
            for _ in range(number):
                threading.Thread(target=self._run, args=(all_settled,), name="sphereface", daemon=True).start()
            all_settled.wait()
        except BaseException:
            all_settled.abort()  # or those that started would wait for the others
            raise
        finally:
            torch.set_num_threads(number)  # for threads that come later

    def _run(self, all_settled: threading.Barrier) -> None:
        torch.get_num_threads()  # a thread's first question sets its number to everybody's, and only then is it its own
        torch.set_num_threads(1)
        try:
            all_settled.wait()
        except threading.BrokenBarrierError:
            return
        while True:
            future, work, number = self.tasks.get()
            try:
                future.set_result(work(number))
            except BaseException as error:  # noqa: BLE001 the one who waits is told
                future.set_exception(error)

    def map(self, work: Callable[[int], None], number: int) -> None:
        """Do the pieces of some work, 0 to number - 1, and wait for them; an error in one of them is raised here."""
        futures = [Future[None]() for _ in range(number)]
        for piece, future in enumerate(futures):
            self.tasks.put((future, work, piece))
        wait(futures)
        for future in futures:
            future.result()


_made, _making = dict[int, SingleThreads](), threading.Lock()


def single_threads(number: int) -> SingleThreads:
    """So many of them, always the same."""
    with _making:
        if number not in _made:
            _made[number] = SingleThreads(number)
        return _made[number]
