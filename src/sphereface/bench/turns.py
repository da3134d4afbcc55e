"""Candidates of a benchmark that run in turns, each in its own process.

Settings of one process, such as those of the C library's allocator, do not affect the other candidates. All processes
run at once; between its turns a candidate waits on a pipe.
"""

import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from sphereface.errors import JobFailed
from sphereface.progress import Say
from sphereface.training.config import TrainConfig

LISTEN, GRACE = 1.0, 5.0  # seconds between checks of a process; seconds that it has to exit by itself


@dataclass(frozen=True)
class Task:
    """The training that every candidate runs, `steps` steps a turn."""

    config: TrainConfig
    classes: int
    steps: int
    threads: int
    faces: Path  # only `train` reads them
    out: Path


Turns = Iterator[None]
Work = Callable[[Task, Turns], None]


def turns_of(pipe: Connection, steps: int) -> Turns:
    """Yield once for each step; waits on the pipe between turns, and sends the seconds of each turn."""
    pipe.send(None)  # ready
    while pipe.recv():
        start = time.perf_counter()
        for _ in range(steps):
            yield
        pipe.send(time.perf_counter() - start)


def take_part(pipe: Connection, work: Work, task: Task) -> None:
    """Main function of a candidate's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent, which closes its end of the pipe
    torch.set_num_threads(task.threads)
    try:
        work(task, turns_of(pipe, task.steps))
        pipe.send(None)
    except (EOFError, ConnectionError):
        return  # the parent has closed the pipe
    except Exception as error:  # noqa: BLE001 the parent raises it
        pipe.send(f"{type(error).__name__}: {error}")


class Candidate:
    """A candidate in its own process; `work` must be importable by name."""

    def __init__(self, name: str, work: Work, task: Task) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = name
        self.pipe, other = context.Pipe()
        self.process = context.Process(
            target=take_part, args=(other, work, task)
        )  # not a daemon: `train` has worker processes
        self.process.start()
        other.close()

    def take_turn(self) -> float:
        """Run the steps of one turn; returns the seconds."""
        self._send(go_on=True)
        return float(self.hear())

    def finish(self) -> None:
        """Wait until the candidate has finished its work."""
        self._send(go_on=False)
        self.hear()

    def hear(self) -> Any:
        """The next message; raises if the candidate failed or its process exited."""
        lives = True
        while not self.pipe.poll(LISTEN if lives else 0):  # forked workers keep the pipe open after its exit
            if not lives:
                raise self._exited()
            lives = self.process.is_alive()
        try:
            message = self.pipe.recv()
        except (EOFError, ConnectionError) as error:
            raise self._exited() from error
        if isinstance(message, str):
            raise JobFailed(f"the candidate {self.name!r} failed: {message}")
        return message

    def leave(self) -> None:
        """End the process; kill it if it does not exit by itself."""
        self.pipe.close()
        self.process.join(GRACE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def _send(self, *, go_on: bool) -> None:
        try:
            self.pipe.send(go_on)
        except ConnectionError as error:
            raise self._exited() from error

    def _exited(self) -> JobFailed:
        self.process.join(GRACE)
        return JobFailed(
            f"the candidate {self.name!r} exited without a result, with exit code {self.process.exitcode}; "
            "if memory ran out, try a smaller --batch"
        )


@contextmanager
def alive(works: Mapping[str, Work], task: Task) -> Iterator[dict[str, Candidate]]:
    """All candidates, ready for their first turn; their processes end with the context."""
    candidates: dict[str, Candidate] = {}
    try:
        for name, work in works.items():
            candidates[name] = Candidate(name, work, task)
        for candidate in candidates.values():
            candidate.hear()
        yield candidates
    finally:
        for candidate in candidates.values():
            candidate.leave()


def measure(works: Mapping[str, Work], task: Task, *, rounds: int, say: Say) -> dict[str, list[float]]:
    """Seconds of every turn, by candidate; each has one turn in a round, and the first of a round is last in the next.

    So all have each place in a round equally often: a machine may be slower after long work than after a rest.
    """
    seconds: dict[str, list[float]] = {name: [] for name in works}
    with alive(works, task) as candidates:
        order = deque(candidates.values())
        for candidate in order:
            candidate.take_turn()  # first calls allocate, choose kernels and start workers
        for number in range(rounds):
            for candidate in order:
                seconds[candidate.name].append(candidate.take_turn())
            order.rotate(-1)
            say(f"{task.config.model}: round {number + 1} of {rounds}")
        for candidate in order:
            candidate.finish()
    return seconds
