"""Softmax against A-Softmax on real faces: the same network, faces, batches and steps, tested on view 1 of LFW.

The recipe `small` is what both run. Each loss takes the best of the same rates, judged on people set aside from
training, at a part of the steps; then it runs with every seed on all of them.
"""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from sphereface.arrays import Bools, Float32, Float64, Int64, UInt8
from sphereface.data.aligning.run import Job, align_folder
from sphereface.data.files.workers import mapping
from sphereface.data.formats.sets import open_set
from sphereface.data.lists.pairs import read_pairs
from sphereface.data.manifest import require_faces
from sphereface.data.people import FaceSet, PeopleFolder
from sphereface.data.reading import read_face
from sphereface.errors import JobFailed
from sphereface.evaluation import verify_held_out
from sphereface.experiments.loop import extract
from sphereface.loading import without
from sphereface.metrics import AllPairs, Paired, PeopleBootstrap, paired_difference
from sphereface.metrics.bootstrap import pair_weights
from sphereface.models import load_model
from sphereface.models.inputs import to_tensor
from sphereface.progress import Say
from sphereface.training.config import TrainConfig
from sphereface.training.recipes import small
from sphereface.training.run import MODEL, is_finished, train
from sphereface.training.setting import Place
from sphereface.training.validation import hold_out

FAR = 1e-3
# Rates are judged on people set aside: some of them have hundreds of photos and would decide alone, so that each gives
# at most so many, and of so few faces a rate of 1e-3 would depend on a handful of pairs.
SEARCH_FAR, SEARCH_PHOTOS = 1e-2, 20
STATISTICS = ("accuracy", "tar")
NAMES = {"softmax": "softmax", "a_softmax": "A-Softmax m = 4"}
# People of the training set who are in LFW too, found by `data audit --against` (results/audit.md).
IN_LFW = ("p012", "p129", "p281")


@dataclass(frozen=True)
class Plan:
    """How much of everything."""

    rates: tuple[float, ...] = (0.025, 0.05, 0.1)
    seeds: tuple[int, ...] = (0, 1, 2)
    steps: int = 2_400
    search_steps: int = 800
    width: float = 0.5
    full_width: float | None = 1.0  # of one more pair of runs, with the first seed
    held_out: int = 40  # people set aside while rates are searched
    rounds: int = 1_000  # of the bootstrap


FULL = Plan()
QUICK = Plan(rates=(0.05, 0.1), seeds=(0, 1), steps=6, search_steps=2, width=0.125, full_width=0.25, rounds=20)


class Trial(NamedTuple):
    """One run of the comparison."""

    loss: str
    lr: float
    seed: int
    width: float
    steps: int
    held_out: int = 0

    @property
    def folder(self) -> str:
        """Where it lies among the runs."""
        searched = "-search" if self.held_out else ""
        return f"{self.loss}-width{self.width:g}-lr{self.lr:g}-seed{self.seed}-steps{self.steps}{searched}"

    def config(self) -> TrainConfig:
        """The recipe `small` with this trial's loss, rate, seed, width and length."""
        whole = small().with_loss(self.loss).with_steps(self.steps)
        return whole.changed(lr=self.lr, seed=self.seed, width=self.width, validation_people=self.held_out)


class Unseen(NamedTuple):
    """Faces nobody learned from: pixels (N, 112, 96, 3), whose they are, and the pairs of view 1."""

    pixels: UInt8
    people: Int64
    left: Int64
    right: Int64
    same: Bools
    tested: Bools  # of DevTest; mean and threshold come from the others, DevTrain


@dataclass(frozen=True, eq=False)
class Measured:
    """What a network's features (N, 2 D) of the test faces are worth; asked again for every draw of people."""

    features: Float32
    test: Unseen

    @cached_property
    def correct(self) -> Bools:
        """Which pairs of DevTest are decided rightly, with mean and threshold from DevTrain."""
        left, right = self.features[self.test.left], self.features[self.test.right]
        return verify_held_out(left, right, self.test.same, self.test.tested).correct

    @cached_property
    def all_pairs(self) -> AllPairs:
        """Every pair of test faces; of the different ones those that a FAR of 1e-3 depends on, in any draw."""
        many = len(self.features) > 1_000
        return AllPairs(self.features, self.test.people, highest=20 * FAR if many else 1.0)

    def accuracy(self, drawn: Float64 | None = None) -> float:
        """The accuracy on DevTest."""
        if drawn is None:
            return float(self.correct.mean())
        tested = self.test.tested
        whose = self.test.people[self.test.left[tested]], self.test.people[self.test.right[tested]]
        return float(np.average(self.correct, weights=pair_weights(drawn, *whose)))

    def tar(self, drawn: Float64 | None = None) -> float:
        """The true accept rate at a false accept rate of 1e-3 over all pairs."""
        return self.all_pairs.tar_at_far(FAR, drawn)


class Comparison(NamedTuple):
    """Everything that results/real-faces.md tells."""

    plan: Plan
    faces: int
    people: int
    test_faces: int
    test_people: int
    config: dict[str, Any]
    search: dict[str, dict[float, float]]  # loss -> rate -> TAR on people set aside
    chosen: dict[str, float]
    runs: dict[str, list[dict[str, float]]]  # loss -> one row a seed
    difference: dict[str, Paired]  # statistic -> A-Softmax minus softmax
    full_width: dict[str, dict[str, float]]  # loss -> its row
    full_width_difference: dict[str, Paired]

    @property
    def command(self) -> str:
        """What makes these numbers."""
        narrow = "" if self.full_width else " --no-full-width"
        return f"sphereface reproduce real-faces FACES --out results{narrow}"

    def as_json(self) -> dict[str, Any]:
        """For machines, and for results/real-faces.json."""

        def told(by: dict[str, Paired]) -> dict[str, Any]:
            return {name: {**paired._asdict(), "interval": list(paired.interval)} for name, paired in by.items()}

        return {
            "command": self.command,
            **self._asdict(),
            "plan": self.plan.__dict__,
            "search": {name: {f"{rate:g}": tar for rate, tar in by.items()} for name, by in self.search.items()},
            "difference": told(self.difference),
            "full_width_difference": told(self.full_width_difference),
        }


def compare(
    faces: Path, runs: Path, plan: Plan = FULL, *, aligned: Path | None = None, jobs: int = 2, say: Say
) -> Comparison:
    """Align the test photos, search the rates, train every run that is not there yet, and test them all.

    `faces` holds `train`, `lfw-dev`, `pairsDevTrain.txt` and `pairsDevTest.txt`; `aligned` may stand in for `lfw-dev`.
    `runs` keeps what was done, so that a second call goes on where the first one stopped.
    """
    runs.mkdir(parents=True, exist_ok=True)
    if aligned is None:
        aligned = align_test(faces / "lfw-dev", runs / "lfw-dev", workers=jobs, say=say)
    test = gather_test(faces, aligned)
    known, _ = without(open_set(faces / "train"), IN_LFW)
    run = partial(run_trials, data=faces / "train", runs=runs, jobs=jobs, say=say)
    search = search_rates(plan, run, known, runs)
    chosen = {loss: max(found, key=found.__getitem__) for loss, found in search.items()}
    for loss, found in search.items():
        say(f"{NAMES[loss]}: " + ", ".join(f"rate {lr:g} TAR {tar:.2%}" for lr, tar in found.items()))
    trials = {loss: [Trial(loss, chosen[loss], seed, plan.width, plan.steps) for seed in plan.seeds] for loss in NAMES}
    run([trial for by_seed in zip(*trials.values(), strict=True) for trial in by_seed])
    wide = {
        loss: [Trial(loss, chosen[loss], plan.seeds[0], plan.full_width, plan.steps)]
        for loss in NAMES if plan.full_width is not None
    }  # fmt: skip
    run([trial for pair in wide.values() for trial in pair])
    say("testing")
    measured = measure_all(trials, runs, test)
    full = measure_all(wide, runs, test)
    bootstrap = PeopleBootstrap(int(test.people.max()) + 1, rounds=plan.rounds)
    return Comparison(
        plan=plan,
        faces=len(known.paths),
        people=len(known.people),
        test_faces=len(test.people),
        test_people=int(test.people.max()) + 1,
        config=trials["a_softmax"][0].config().model_dump(),
        search=search,
        chosen=chosen,
        runs={loss: [_row(each) for each in by_seed] for loss, by_seed in measured.items()},
        difference=_differences(measured, bootstrap),
        full_width={loss: _row(each[0]) for loss, each in full.items()},
        full_width_difference=_differences(full, bootstrap) if full else {},
    )


def run_trials(trials: Sequence[Trial], *, data: Path, runs: Path, jobs: int, say: Say) -> None:
    """Train those trials that are not finished, some at a time; the cores are shared among them."""
    exclude = runs / "exclude.txt"
    exclude.write_text("".join(f"{name}\n" for name in IN_LFW))
    threads = max(1, (os.cpu_count() or 1) // jobs) if jobs > 1 else torch.get_num_threads()
    tasks = [Task(trial, data, runs, exclude, threads) for trial in trials]
    waiting = [task for task in tasks if not is_finished(task.out)]
    say(f"{len(waiting)} of {len(tasks)} runs to do, {jobs} at a time")
    with mapping(min(jobs, len(waiting))) as run_all:
        for task, outcome in zip(waiting, run_all(run_task, waiting), strict=True):
            if outcome != "finished":
                raise JobFailed(f"{task.out}: {outcome}; run the same command again to go on")
            say(f"{task.out.name}: done")


def search_rates(
    plan: Plan, run: Callable[[Sequence[Trial]], None], known: FaceSet, runs: Path
) -> dict[str, dict[float, float]]:
    """What each rate gives each loss on people set aside, after a part of the steps: loss -> rate -> TAR."""
    searched = {
        loss: {lr: Trial(loss, lr, plan.seeds[0], plan.width, plan.search_steps, plan.held_out) for lr in plan.rates}
        for loss in NAMES
    }
    run([trial for by_rate in searched.values() for trial in by_rate.values()])
    return {
        loss: {lr: tar_on_held_out(known, runs / trial.folder, plan) for lr, trial in by_rate.items()}
        for loss, by_rate in searched.items()
    }


class Task(NamedTuple):
    """A trial with all that a process of its own must know."""

    trial: Trial
    data: Path
    runs: Path
    exclude: Path
    threads: int

    @property
    def out(self) -> Path:
        """The folder of the run."""
        return self.runs / self.trial.folder


def run_task(task: Task) -> str:
    """Train one trial, from its last checkpoint if there is one; what it says goes to a file."""
    torch.set_num_threads(task.threads)
    task.out.mkdir(parents=True, exist_ok=True)
    place = Place(task.data, task.out, workers=0, exclude=task.exclude, resume=True, command="reproduce real-faces")
    with (task.out / "progress.txt").open("a") as file, redirect_stderr(file):
        return train(task.trial.config(), place, say=lambda line: print(line, file=sys.stderr, flush=True)).outcome


def align_test(photos: Path, aligned: Path, *, workers: int, say: Say) -> Path:
    """Align the test photos; one without a face is an error, for every loss must be tested on all of them."""
    say(f"aligning {photos}")
    report = align_folder(Job(photos, aligned, format="png"), workers=workers)
    lost = len(report.none) + len(report.unreadable)
    if lost:
        raise JobFailed(f"{aligned}: {lost} photos without a face; its report.json lists them")
    return aligned


def gather_test(faces: Path, aligned: Path) -> Unseen:
    """The aligned test faces with the pairs of view 1."""
    require_faces(aligned, PeopleFolder(aligned), small().alignment)
    images = PeopleFolder(aligned)
    place = {path.rsplit(".", 1)[0]: row for row, path in enumerate(images.paths)}
    dev_train, dev_test = (read_pairs(faces / f"pairsDev{part}.txt") for part in ("Train", "Test"))
    pairs = [*dev_train, *dev_test]

    def side(name: str) -> Int64:
        return np.array([place[getattr(pair, name).rsplit(".", 1)[0]] for pair in pairs])

    return Unseen(
        pixels=np.stack([read_face(images, row, "112x96") for row in range(len(images.paths))]),
        people=images.labels,
        left=side("left"),
        right=side("right"),
        same=np.array([pair.same for pair in pairs]),
        tested=np.arange(len(pairs)) >= len(dev_train),
    )


def tar_on_held_out(known: FaceSet, run: Path, plan: Plan) -> float:
    """TAR of a searched run over all pairs of the people that it set aside, the first photos of each."""
    held = hold_out(known.labels, known.people, people=plan.held_out, seed=plan.seeds[0]).held
    whose = known.labels[held]
    rows = np.concatenate([held[whose == person][:SEARCH_PHOTOS] for person in np.unique(whose)])
    pixels = np.stack([read_face(known, int(row), "112x96") for row in rows])
    _, people = np.unique(known.labels[rows], return_inverse=True)
    return AllPairs(extract(load_model(run / MODEL), to_tensor(pixels)), people).tar_at_far(SEARCH_FAR)


def measure(run: Path, test: Unseen) -> Measured:
    """The test faces' features by the network of a finished run, image and mirror image."""
    return Measured(extract(load_model(run / MODEL), to_tensor(test.pixels)), test)


def measure_all(trials: dict[str, list[Trial]], runs: Path, test: Unseen) -> dict[str, list[Measured]]:
    """Every trial of every loss, measured."""
    return {loss: [measure(runs / trial.folder, test) for trial in each] for loss, each in trials.items()}


def _row(measured: Measured) -> dict[str, float]:
    return {statistic: getattr(measured, statistic)() for statistic in STATISTICS}


def _differences(measured: dict[str, list[Measured]], bootstrap: PeopleBootstrap) -> dict[str, Paired]:
    """A-Softmax minus softmax in every statistic."""

    def asked(loss: str, statistic: str) -> list[Callable[..., float]]:
        return [getattr(each, statistic) for each in measured[loss]]

    return {
        statistic: paired_difference(asked("a_softmax", statistic), asked("softmax", statistic), bootstrap)
        for statistic in STATISTICS
    }
