"""Softmax against A-Softmax on real faces: the same network, faces, batches and steps, tested on view 1 of LFW.

Both run the recipe `small`. For each loss, the best of the same learning rates is chosen on people held out of
training, in runs with fewer steps; then the loss is trained with every seed on all people.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sphereface.data.formats.sets import open_set
from sphereface.data.people import FaceSet
from sphereface.experiments import tables
from sphereface.experiments.lfw_dev import IN_LFW, Unseen, align_test, gather_test
from sphereface.experiments.trials import Sets, run_trials, tar_on_held_out
from sphereface.experiments.view1 import STATISTICS, Measured, measure, row
from sphereface.loading import without
from sphereface.metrics import Paired, PeopleBootstrap
from sphereface.progress import Say
from sphereface.training.config import TrainConfig
from sphereface.training.recipes import small
from sphereface.training.run import MODEL

SEARCH_FAR = 1e-2  # with the few faces of held-out people, a FAR of 1e-3 would depend on a handful of pairs
NAMES = {"softmax": "softmax", "a_softmax": "A-Softmax m = 4"}


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
    sets = Sets((faces / "train",), IN_LFW)
    run = partial(run_trials, sets=sets, runs=runs, command="reproduce real-faces", jobs=jobs, say=say)
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
        runs={loss: [row(each) for each in by_seed] for loss, by_seed in measured.items()},
        difference=_differences(measured, bootstrap),
        full_width={loss: row(each[0]) for loss, each in full.items()},
        full_width_difference=_differences(full, bootstrap) if full else {},
    )


def search_rates(
    plan: Plan, run: Callable[[Sequence[Trial]], None], known: FaceSet, runs: Path
) -> dict[str, dict[float, float]]:
    """TAR on held-out people after `search_steps` steps: loss -> learning rate -> TAR."""
    searched = {
        loss: {lr: Trial(loss, lr, plan.seeds[0], plan.width, plan.search_steps, plan.held_out) for lr in plan.rates}
        for loss in NAMES
    }
    run([trial for by_rate in searched.values() for trial in by_rate.values()])

    def tar(trial: Trial) -> float:
        return tar_on_held_out(known, runs / trial.folder / MODEL, trial.config(), SEARCH_FAR)

    return {loss: {lr: tar(trial) for lr, trial in by_rate.items()} for loss, by_rate in searched.items()}


def measure_all(trials: dict[str, list[Trial]], runs: Path, test: Unseen) -> dict[str, list[Measured]]:
    """Extract the test faces' features with the network of every finished trial."""
    return {loss: [measure(runs / trial.folder / MODEL, test) for trial in each] for loss, each in trials.items()}


def _differences(measured: dict[str, list[Measured]], bootstrap: PeopleBootstrap) -> dict[str, Paired]:
    """A-Softmax minus softmax in every statistic."""
    return tables.paired_differences(measured["a_softmax"], measured["softmax"], STATISTICS, bootstrap)
