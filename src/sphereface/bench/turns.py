"""Candidates that take turns, each in a process of its own.

What one does to its process, such as telling the C library to keep freed memory, must not help a rival. All of them
live at once; who has no turn sleeps at a pipe.
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

LISTEN, GRACE = 1.0, 5.0  # seconds between looks whether a candidate lives; and to leave by itself


@dataclass(frozen=True)
class Task:
    """What every candidate does in its own manner: steps of training, so many a turn."""

    config: TrainConfig
    classes: int
    steps: int
    threads: int
    faces: Path  # only `train` reads them
    out: Path


Turns = Iterator[None]
Work = Callable[[Task, Turns], None]


def turns_of(pipe: Connection, steps: int) -> Turns:
    """Leave for one step after the other; between turns it sleeps, and the other end hears what a turn took."""
    pipe.send(None)  # ready
    while pipe.recv():
        start = time.perf_counter()
        for _ in range(steps):
            yield
        pipe.send(time.perf_counter() - start)


def take_part(pipe: Connection, work: Work, task: Task) -> None:
    """What a candidate's process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it decides; its end of the pipe closes
    torch.set_num_threads(task.threads)
    try:
        work(task, turns_of(pipe, task.steps))
        pipe.send(None)
    except (EOFError, ConnectionError):
        return  # nobody listens any more
    except Exception as error:  # noqa: BLE001 whatever it is, the one who started it tells
        pipe.send(f"{type(error).__name__}: {error}")


class Candidate:
    """One who takes turns, in a process of its own; `work` must be importable by name."""

    def __init__(self, name: str, work: Work, task: Task) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = name
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=take_part, args=(other, work, task))  # no daemon: `train` has workers
        self.process.start()
        other.close()

    def take_turn(self) -> float:
        """Let it do its steps; returns the seconds."""
        self._tell(go_on=True)
        return float(self.hear())

    def finish(self) -> None:
        """Let it come to its end."""
        self._tell(go_on=False)
        self.hear()

    def hear(self) -> Any:
        """What it says next; an error if it failed or died."""
        lives = True
        while not self.pipe.poll(LISTEN if lives else 0):  # the pipe alone tells late: forked workers hold it, too
            if not lives:
                raise self._death()
            lives = self.process.is_alive()
        try:
            said = self.pipe.recv()
        except (EOFError, ConnectionError) as error:
            raise self._death() from error
        if isinstance(said, str):
            raise JobFailed(f"the candidate {self.name!r} failed: {said}")
        return said

    def leave(self) -> None:
        """End its process: by itself, else by force."""
        self.pipe.close()
        self.process.join(GRACE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def _tell(self, *, go_on: bool) -> None:
        try:
            self.pipe.send(go_on)
        except ConnectionError as error:
            raise self._death() from error

    def _death(self) -> JobFailed:
        self.process.join(GRACE)
        return JobFailed(
            f"the candidate {self.name!r} died with exit code {self.process.exitcode}; often memory ran out: "
            "try a smaller --batch"
        )


@contextmanager
def alive(works: Mapping[str, Work], task: Task) -> Iterator[dict[str, Candidate]]:
    """All candidates, ready for their first turn; none outlives this."""
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
    """Seconds of every turn, by candidate; in each round all have one, and who began the last round ends the next.

    So every place in a round falls to each alike: a machine may be slower after long work than after a rest.
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
