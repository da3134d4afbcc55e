"""Training runs of an experiment: each in a folder of its own, several at a time, continued by a second call."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import torch

from sphereface.data.files.workers import mapping
from sphereface.data.people import FaceSet
from sphereface.data.reading import read_face
from sphereface.embed.embedder import Embedder
from sphereface.errors import JobFailed
from sphereface.metrics import AllPairs
from sphereface.progress import Say
from sphereface.training.config import TrainConfig
from sphereface.training.run import is_finished, train
from sphereface.training.setting import Place
from sphereface.training.validation import hold_out

# Some held-out people have hundreds of photos and would dominate: the number of photos of each is limited.
SEARCH_PHOTOS = 20


class Trial(Protocol):
    """One run of an experiment."""

    @property
    def folder(self) -> str:
        """The name of its folder among the runs."""

    def config(self) -> TrainConfig:
        """Its settings."""


Run = TypeVar("Run", bound=Trial)


class Sets(NamedTuple):
    """The faces that trials learn from, and their teacher."""

    faces: tuple[Path, ...]
    exclude: tuple[str, ...] = ()  # people to leave out
    teacher: str | Path | None = None
    unlabelled: tuple[Path, ...] = ()
    targets: Path | None = None  # folder of the teacher's features

    def place(
        self,
        out: Path,
        command: str,
        *,
        init: Path | None = None,
        device: str = "auto",
        workers: int = 0,
        report: bool = True,
    ) -> Place:
        """The place of a run in the folder `out`."""
        exclude = out / "exclude.txt"
        out.mkdir(parents=True, exist_ok=True)
        exclude.write_text("".join(f"{name}\n" for name in self.exclude))
        return Place(
            self.faces, out, device=device, workers=workers, exclude=exclude, resume=True, command=command, init=init,
            teacher=self.teacher, unlabelled=self.unlabelled, targets=self.targets, report=report,
        )  # fmt: skip


class Task(NamedTuple):
    """A trial with its faces, folder, device and threads, for a worker process."""

    trial: Trial
    sets: Sets
    out: Path
    threads: int
    command: str
    device: str = "auto"
    workers: int = 0  # that load faces


def run_trials(
    trials: Sequence[Run],
    sets: Sets,
    runs: Path,
    *,
    command: str,
    jobs: int,
    say: Say,
    each: Callable[[Run], None] = lambda _: None,
) -> None:
    """Train the unfinished trials, `jobs` at a time, which share cores and GPUs; call `each` for every finished one."""
    waiting = [trial for trial in trials if not is_finished(runs / trial.folder)]
    say(f"{len(waiting)} of {len(trials)} runs to do, {jobs} at a time")
    for trial in trials:
        if trial not in waiting:
            each(trial)
    jobs = min(jobs, len(waiting))
    threads = max(1, (os.cpu_count() or 1) // jobs) if jobs > 1 else torch.get_num_threads()
    gpus = torch.cuda.device_count()
    tasks = [
        Task(trial, sets, runs / trial.folder, threads, command, f"cuda:{place % gpus}" if gpus else "auto",
             max(1, threads - 1) if gpus else 0)
        for place, trial in enumerate(waiting)
    ]  # fmt: skip
    with mapping(jobs) as run_all:
        for trial, task, outcome in zip(waiting, tasks, run_all(run_task, tasks), strict=True):
            if outcome != "finished":
                raise JobFailed(f"{task.out}: {outcome}; run the same command again to continue")
            say(f"{task.out.name}: done")
            each(trial)


def run_task(task: Task) -> str:
    """Train one trial, from its last checkpoint if there is one; its messages go to `progress.txt`."""
    torch.set_num_threads(task.threads)
    place = task.sets.place(task.out, task.command, device=task.device, workers=task.workers, report=False)
    with (task.out / "progress.txt").open("a") as file, redirect_stderr(file):
        return train(task.trial.config(), place, say=lambda line: print(line, file=sys.stderr, flush=True)).outcome


def tar_on_held_out(known: FaceSet, model: str | Path, config: TrainConfig, far: float) -> float:
    """TAR of a model over all pairs of the people that a run held out, with the first photos of each."""
    held = hold_out(known.labels, known.people, people=config.validation_people, seed=config.seed).held
    labels = known.labels[held]
    rows = np.concatenate([held[labels == person][:SEARCH_PHOTOS] for person in np.unique(labels)])
    embedder = Embedder.load(model)
    pixels = np.stack([read_face(known, int(row), embedder.card.preprocessing.crop) for row in rows])
    _, people = np.unique(known.labels[rows], return_inverse=True)
    return AllPairs(embedder.embed(pixels), people).tar_at_far(far)
