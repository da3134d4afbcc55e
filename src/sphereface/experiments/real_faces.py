"""Softmax against A-Softmax on real faces: the same network, faces, batches and steps, tested on view 1 of LFW.

Both run the recipe `small`. For each loss, the best of the same learning rates is chosen on people held out of
training, in runs with fewer steps; then the loss is trained with every seed on all people.
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
from sphereface.experiments import tables
from sphereface.experiments.loop import extract
from sphereface.loading import without
from sphereface.metrics import AllPairs, Paired, PeopleBootstrap
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
# For the search on held-out people: some have hundreds of photos and would dominate, so the number of photos of each is
# limited; with that few faces, a FAR of 1e-3 would depend on a handful of pairs.
SEARCH_FAR, SEARCH_PHOTOS = 1e-2, 20
STATISTICS = ("accuracy", "tar")
NAMES = {"softmax": "softmax", "a_softmax": "A-Softmax m = 4"}
# People of the training set that are also in LFW, found by `data audit --against` (results/audit.md).
IN_LFW = ("p012", "p129", "p281")


@dataclass(frozen=True)
class Plan:
    """Learning rates, seeds and sizes of the runs."""

    rates: tuple[float, ...] = (0.025, 0.05, 0.1)
    seeds: tuple[int, ...] = (0, 1, 2)
    steps: int = 2_400
    search_steps: int = 800
    width: float = 0.5
    full_width: float | None = 1.0  # width of one more pair of runs, with the first seed
    held_out: int = 40  # people held out in the search for learning rates
    rounds: int = 1_000  # bootstrap rounds


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
        """The name of its folder among the runs."""
        searched = "-search" if self.held_out else ""
        return f"{self.loss}-width{self.width:g}-lr{self.lr:g}-seed{self.seed}-steps{self.steps}{searched}"

    def config(self) -> TrainConfig:
        """The recipe `small` with this trial's loss, learning rate, seed, width and steps."""
        whole = small().with_loss(self.loss).with_steps(self.steps)
        return whole.changed(lr=self.lr, seed=self.seed, width=self.width, validation_people=self.held_out)


class Unseen(NamedTuple):
    """The test faces: pixels (N, 112, 96, 3), their people (N,), and the pairs of view 1."""

    pixels: UInt8
    people: Int64
    left: Int64
    right: Int64
    same: Bools
    tested: Bools  # pairs of DevTest; mean and threshold are from the others, DevTrain


@dataclass(frozen=True, eq=False)
class Measured:
    """Statistics of a network's features (N, 2 D) of the test faces; `drawn` weights people, for a bootstrap."""

    features: Float32
    test: Unseen

    @cached_property
    def correct(self) -> Bools:
        """A mask of the pairs of DevTest that are decided correctly, with mean and threshold from DevTrain."""
        left, right = self.features[self.test.left], self.features[self.test.right]
        return verify_held_out(left, right, self.test.same, self.test.tested).correct

    @cached_property
    def all_pairs(self) -> AllPairs:
        """All pairs of test faces; of the different ones only those that can matter for a FAR of 1e-3 in any draw."""
        many = len(self.features) > 1_000
        return AllPairs(self.features, self.test.people, highest=20 * FAR if many else 1.0)

    def accuracy(self, drawn: Float64 | None = None) -> float:
        """The accuracy on DevTest."""
        if drawn is None:
            return float(self.correct.mean())
        tested = self.test.tested
        pairs = self.test.people[self.test.left[tested]], self.test.people[self.test.right[tested]]
        return float(np.average(self.correct, weights=pair_weights(drawn, *pairs)))

    def tar(self, drawn: Float64 | None = None) -> float:
        """The true accept rate at a false accept rate of 1e-3 over all pairs."""
        return self.all_pairs.tar_at_far(FAR, drawn)


class Comparison(NamedTuple):
    """All results in results/real-faces.md."""

    plan: Plan
    faces: int
    people: int
    test_faces: int
    test_people: int
    config: dict[str, Any]
    search: dict[str, dict[float, float]]  # loss -> learning rate -> TAR on held-out people
    chosen: dict[str, float]
    runs: dict[str, list[dict[str, float]]]  # loss -> one row a seed
    difference: dict[str, Paired]  # statistic -> A-Softmax minus softmax
    full_width: dict[str, dict[str, float]]  # loss -> its row
    full_width_difference: dict[str, Paired]

    @property
    def command(self) -> str:
        """The command of this result."""
        narrow = "" if self.full_width else " --no-full-width"
        return f"sphereface reproduce real-faces FACES --out results{narrow}"

    def as_json(self) -> dict[str, Any]:
        """The result as a JSON object, as in results/real-faces.json."""
        return {
            "command": self.command,
            **self._asdict(),
            "plan": self.plan.__dict__,
            "search": tables.search_json(self.search),
            "difference": tables.differences_json(self.difference),
            "full_width_difference": tables.differences_json(self.full_width_difference),
        }


def compare(
    faces: Path, runs: Path, plan: Plan = FULL, *, aligned: Path | None = None, jobs: int = 2, say: Say
) -> Comparison:
    """Align the test photos, search learning rates, train all unfinished runs, and test all runs.

    `faces` holds `train`, `lfw-dev`, `pairsDevTrain.txt` and `pairsDevTest.txt`; `aligned` may replace `lfw-dev`.
    `runs` keeps all runs, so that a second call continues the first.
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
    """Train the unfinished trials, `jobs` at a time, which share the cores."""
    exclude = runs / "exclude.txt"
    exclude.write_text("".join(f"{name}\n" for name in IN_LFW))
    threads = max(1, (os.cpu_count() or 1) // jobs) if jobs > 1 else torch.get_num_threads()
    tasks = [Task(trial, data, runs, exclude, threads) for trial in trials]
    waiting = [task for task in tasks if not is_finished(task.out)]
    say(f"{len(waiting)} of {len(tasks)} runs to do, {jobs} at a time")
    with mapping(min(jobs, len(waiting))) as run_all:
        for task, outcome in zip(waiting, run_all(run_task, waiting), strict=True):
            if outcome != "finished":
                raise JobFailed(f"{task.out}: {outcome}; run the same command again to continue")
            say(f"{task.out.name}: done")


def search_rates(
    plan: Plan, run: Callable[[Sequence[Trial]], None], known: FaceSet, runs: Path
) -> dict[str, dict[float, float]]:
    """TAR on held-out people after `search_steps` steps: loss -> learning rate -> TAR."""
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
    """A trial with its paths and threads, for a worker process."""

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
    """Train one trial, from its last checkpoint if there is one; its messages go to `progress.txt`."""
    torch.set_num_threads(task.threads)
    task.out.mkdir(parents=True, exist_ok=True)
    place = Place(task.data, task.out, workers=0, exclude=task.exclude, resume=True, command="reproduce real-faces")
    with (task.out / "progress.txt").open("a") as file, redirect_stderr(file):
        return train(task.trial.config(), place, say=lambda line: print(line, file=sys.stderr, flush=True)).outcome


def align_test(photos: Path, aligned: Path, *, workers: int, say: Say) -> Path:
    """Align the test photos; a photo without a face is an error, because every loss is tested on all of them."""
    say(f"aligning {photos}")
    report = align_folder(Job(photos, aligned, format="png"), workers=workers)
    lost = len(report.none) + len(report.unreadable)
    if lost:
        raise JobFailed(f"{aligned}: {lost} photos without a face, listed in its report.json; wanted a face in each")
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
    """TAR of a search run over all pairs of its held-out people, with the first photos of each."""
    held = hold_out(known.labels, known.people, people=plan.held_out, seed=plan.seeds[0]).held
    labels = known.labels[held]
    rows = np.concatenate([held[labels == person][:SEARCH_PHOTOS] for person in np.unique(labels)])
    pixels = np.stack([read_face(known, int(row), "112x96") for row in rows])
    _, people = np.unique(known.labels[rows], return_inverse=True)
    return AllPairs(extract(load_model(run / MODEL), to_tensor(pixels)), people).tar_at_far(SEARCH_FAR)


def measure_all(trials: dict[str, list[Trial]], runs: Path, test: Unseen) -> dict[str, list[Measured]]:
    """Extract the test faces' features, of image and mirror image, with the network of every finished trial."""
    pixels = to_tensor(test.pixels)
    return {
        loss: [Measured(extract(load_model(runs / trial.folder / MODEL), pixels), test) for trial in each]
        for loss, each in trials.items()
    }


def _row(measured: Measured) -> dict[str, float]:
    return {statistic: getattr(measured, statistic)() for statistic in STATISTICS}


def _differences(measured: dict[str, list[Measured]], bootstrap: PeopleBootstrap) -> dict[str, Paired]:
    """A-Softmax minus softmax in every statistic."""
    return tables.paired_differences(measured["a_softmax"], measured["softmax"], STATISTICS, bootstrap)
