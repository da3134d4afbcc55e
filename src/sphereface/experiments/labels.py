"""What labels alone give: A-Softmax on few and on many people, and softmax on many, tested on view 1 of LFW.

The runs are those of `real_faces` with twice the steps. Each arm searches its learning rate in the same way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from sphereface.data.formats.sets import open_set
from sphereface.data.joined import JoinedSets
from sphereface.experiments import real_faces, tables
from sphereface.experiments.lfw_dev import Unseen
from sphereface.experiments.outcomes import Outcome, differences, kept, outcome, statistics_of
from sphereface.experiments.real_faces import SEARCH_FAR, Trial
from sphereface.experiments.trials import Sets, run_trials, tar_on_held_out
from sphereface.experiments.view1 import measure
from sphereface.loading import without
from sphereface.loading.subset import Subset
from sphereface.metrics import Paired, PeopleBootstrap
from sphereface.progress import Say
from sphereface.training.run import MODEL

COMMAND = "reproduce mini"
FULL = real_faces.Plan(seeds=(0, 1), steps=4_800, search_steps=1_600, full_width=None)
QUICK = real_faces.Plan(
    rates=(0.05, 0.1), seeds=(0, 1), steps=6, search_steps=2, width=0.125, full_width=None, rounds=20
)


class Arm(NamedTuple):
    """A loss on a set of people."""

    loss: str
    people: str  # few or many

    @property
    def name(self) -> str:
        """The name in tables."""
        return f"{real_faces.NAMES[self.loss]}, {self.people} people"


MANY, SOFTMAX, FEW = Arm("a_softmax", "many"), Arm("softmax", "many"), Arm("a_softmax", "few")
ARMS = MANY, SOFTMAX, FEW


class Labels(NamedTuple):
    """The results of all arms."""

    plan: real_faces.Plan
    faces: dict[str, int]  # of few and of many people
    people: dict[str, int]
    search: dict[Arm, dict[float, float]]  # learning rate -> TAR on held-out people
    runs: dict[Arm, list[Outcome]]  # one a seed

    @property
    def more_people(self) -> dict[str, Paired]:
        """A-Softmax on many minus on few people."""
        return differences(self.runs[MANY], self.runs[FEW])

    @property
    def margin(self) -> dict[str, Paired]:
        """A-Softmax minus softmax, on many people."""
        return differences(self.runs[MANY], self.runs[SOFTMAX])

    def as_json(self) -> dict[str, Any]:
        """The results as a JSON object."""
        return {
            "plan": self.plan.__dict__,
            "faces": self.faces,
            "people": self.people,
            "search": tables.search_json({arm.name: found for arm, found in self.search.items()}),
            "runs": {arm.name: [run["statistics"] for run in runs] for arm, runs in self.runs.items()},
            "more_people": tables.differences_json(self.more_people),
            "margin": tables.differences_json(self.margin),
        }


@dataclass(frozen=True)
class Study:
    """The arms with their faces, the test, and the folders of runs and of outcomes."""

    sets: dict[str, Sets]  # few, many
    test: Unseen
    runs: Path
    outcomes: Path
    plan: real_faces.Plan = FULL
    jobs: int = 2

    @cached_property
    def known(self) -> dict[str, Subset]:
        """The faces to learn from: few, many."""
        named = {name: JoinedSets([open_set(path) for path in each.faces]) for name, each in self.sets.items()}
        return {name: without(faces, self.sets[name].exclude)[0] for name, faces in named.items()}

    def run(self, trials: Sequence[tuple[Arm, Trial]], say: Say) -> list[Outcome]:
        """Train the trials whose outcomes are not kept, measure each when it ends, and return all outcomes."""
        for people, sets in self.sets.items():
            waiting = {
                trial.folder: (arm, trial)
                for arm, trial in trials
                if arm.people == people and not kept(self._file(arm, trial))
            }
            run_trials(
                [trial for _, trial in waiting.values()], sets, self.runs / people, command=COMMAND, jobs=self.jobs,
                say=say, each=lambda trial, waiting=waiting: say(self._summary(*waiting[trial.folder])),  # type: ignore[misc]
            )  # fmt: skip
        return [self._outcome(arm, trial) for arm, trial in trials]

    def _outcome(self, arm: Arm, trial: Trial) -> Outcome:
        return outcome(self._file(arm, trial), self._about(arm, trial), lambda: self._measure(arm, trial))

    def _summary(self, arm: Arm, trial: Trial) -> str:
        """The numbers of an outcome in one line."""
        found = self._outcome(arm, trial)
        numbers = {"TAR": found["tar"]} if trial.held_out else found["statistics"]
        return f"{arm.name}, {trial.folder}: " + ", ".join(f"{name} {value:.2%}" for name, value in numbers.items())

    def _file(self, arm: Arm, trial: Trial) -> Path:
        return self.outcomes / f"{arm.people}-{trial.folder}.json"

    def _about(self, arm: Arm, trial: Trial) -> dict[str, Any]:
        known = self.known[arm.people]
        return {"config": trial.config().model_dump(), "faces": len(known.paths), "people": len(known.people)}

    def _measure(self, arm: Arm, trial: Trial) -> Outcome:
        run = self.runs / arm.people / trial.folder
        if trial.held_out:
            return {"tar": tar_on_held_out(self.known[arm.people], run / MODEL, trial.config(), SEARCH_FAR)}
        bootstrap = PeopleBootstrap(int(self.test.people.max()) + 1, rounds=self.plan.rounds)
        return statistics_of(measure(run / MODEL, self.test), bootstrap)


def compare_labels(study: Study, *, say: Say) -> Labels:
    """Search the learning rate of each arm, then train and test every arm with every seed."""
    plan = study.plan
    searched = [
        (arm, Trial(arm.loss, lr, plan.seeds[0], plan.width, plan.search_steps, plan.held_out))
        for arm in ARMS for lr in plan.rates
    ]  # fmt: skip
    search: dict[Arm, dict[float, float]] = {arm: {} for arm in ARMS}
    for (arm, trial), found in zip(searched, study.run(searched, say), strict=True):
        search[arm][trial.lr] = found["tar"]
    chosen = {arm: max(found, key=found.__getitem__) for arm, found in search.items()}
    trials = [
        (arm, Trial(arm.loss, chosen[arm], seed, plan.width, plan.steps))
        for seed in plan.seeds for arm in ARMS
    ]  # fmt: skip
    runs: dict[Arm, list[Outcome]] = {arm: [] for arm in ARMS}
    for (arm, _), found in zip(trials, study.run(trials, say), strict=True):
        runs[arm].append(found)
    return Labels(
        plan,
        faces={name: len(faces.paths) for name, faces in study.known.items()},
        people={name: len(faces.people) for name, faces in study.known.items()},
        search=search,
        runs=runs,
    )
