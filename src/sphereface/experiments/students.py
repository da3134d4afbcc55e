"""Students for one teacher, compared on training people that were held out: settings first, then networks.

All runs are the recipe `mini` with fewer steps and the unchanged view alone, and have the same batches and faces. The
smallest network searches the learning rate, then the rule of teaching. As a margin needs time, the best rules without
and with labels run again for more steps. The networks are compared at the recipe's own rate and rule.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from sphereface.bench.timing import interleaved
from sphereface.choices import ClassWeights
from sphereface.contract import Card, Norm
from sphereface.data.formats.sets import open_set
from sphereface.data.joined import JoinedSets
from sphereface.embed.embedder import Embedder
from sphereface.experiments.outcomes import Outcome, kept, outcome
from sphereface.experiments.trials import Sets, run_trials, tar_on_held_out
from sphereface.loading import without
from sphereface.loading.subset import Subset
from sphereface.models import create_model, save_model
from sphereface.progress import Say, spoken
from sphereface.training.config import TrainConfig
from sphereface.training.recipes import mini
from sphereface.training.run import MODEL
from sphereface.training.setting import build_targets, gather_faces

FAR = 1e-3
WHOLE = 9_000  # steps of a whole run; shorter ones warm up and average their weights in proportion
COMMAND = "reproduce mini"

Optimizer = Literal["sgd", "adamw"]
Network = tuple[str, float]  # name, width
Rate = tuple[Optimizer, float]
K = TypeVar("K")


class Rule(NamedTuple):
    """How a student is taught: the weights of the losses, the class weights, and batch norm."""

    labels: float = 0.1
    class_weights: ClassWeights = "free"
    similarity: float = 2.0
    norm: Norm = "batch-all"


class Student(NamedTuple):
    """A taught run: its network, and the settings that are compared."""

    network: Network
    rate: Rate
    rule: Rule
    steps: int
    people: int  # held out

    @property
    def folder(self) -> str:
        """The name of its folder among the runs."""
        (model, width), (optimizer, lr), rule = self.network, self.rate, self.rule
        taught = f"labels{rule.labels:g}-{rule.class_weights}-similarity{rule.similarity:g}-{rule.norm}"
        return f"{model}-width{width:g}-{optimizer}{lr:g}-{taught}-steps{self.steps}"

    def config(self) -> TrainConfig:
        """The recipe `mini` with this student's network and settings."""
        (model, width), (optimizer, lr) = self.network, self.rate
        teaching = {"views": 1, **self.rule._asdict()}
        return mini().changed(steps=WHOLE).with_steps(self.steps).changed(
            model=model, width=width, norm=teaching.pop("norm"), optimizer=optimizer, lr=lr, teaching=teaching,
            validate_every=0, validation_people=self.people,
        )  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """The settings and networks that are compared."""

    networks: tuple[Network, ...] = (
        ("sphereface4", 0.5), ("sphereface10", 0.5), ("sphereface10", 0.625),
        ("sphereface20", 0.375), ("sphereface20", 0.5),
    )  # fmt: skip
    rates: tuple[Rate, ...] = (
        ("sgd", 0.1), ("adamw", 0.001), ("adamw", 0.002), ("adamw", 0.004), ("adamw", 0.008),
    )  # fmt: skip
    rules: tuple[Rule, ...] = (  # the first is that of the search of the rate
        Rule(), Rule(labels=0.0), Rule(labels=0.3), Rule(class_weights="teacher"), Rule(similarity=10.0),
        Rule(norm="batch"),
    )  # fmt: skip
    steps: int = 500
    long_steps: int = 2_000  # of the rules that run again
    people: int = 60
    rounds: int = 60  # of the measurement of time

    def student(self, network: Network, rate: Rate, rule: Rule, steps: int | None = None) -> Student:
        """A run of this plan."""
        return Student(network, rate, rule, steps or self.steps, self.people)


FULL = Plan()
QUICK = Plan(
    networks=(("sphereface4", 0.125), ("sphereface10", 0.125)), rates=(("sgd", 0.1), ("adamw", 0.001)),
    rules=(Rule(), Rule(labels=0.0)), steps=3, long_steps=4, people=4, rounds=2,
)  # fmt: skip


class Students(NamedTuple):
    """The results of all runs: TAR on held-out people, and time against the teacher's."""

    plan: Plan
    rates: dict[Rate, float]
    rules: dict[Rule, float]
    long_rules: dict[Rule, float]  # the best without and with labels, for more steps
    networks: dict[Network, float]
    time: dict[Network, float]  # of one face on one core, as a share of the teacher's
    teacher: float  # its TAR

    def as_json(self) -> dict[str, Any]:
        """The results as a JSON object."""
        return {
            "plan": {**self.plan.__dict__, "rules": [rule._asdict() for rule in self.plan.rules]},
            "rates": [{"optimizer": of, "lr": lr, "tar": tar} for (of, lr), tar in self.rates.items()],
            "rules": [{**rule._asdict(), "tar": tar} for rule, tar in self.rules.items()],
            "long_rules": [{**rule._asdict(), "tar": tar} for rule, tar in self.long_rules.items()],
            "lr": taught_by(mini())[0][1],
            "networks": [
                {"model": model, "width": width, "tar": tar, "time": self.time[model, width]}
                for (model, width), tar in self.networks.items()
            ],
            "teacher": self.teacher,
        }


@dataclass(frozen=True)
class Study:
    """The students' faces and teacher, and the folders of runs and of outcomes."""

    sets: Sets
    runs: Path
    outcomes: Path
    plan: Plan = FULL
    jobs: int = 2

    @cached_property
    def known(self) -> Subset:
        """The faces with a name."""
        return without(JoinedSets([open_set(path) for path in self.sets.faces]), self.sets.exclude)[0]

    def run(self, students: Sequence[Student], say: Say) -> list[float]:
        """TAR on held-out people of every student; trains those without an outcome."""
        waiting = [student for student in students if not kept(self._file(student))]
        if waiting:
            fill_targets(waiting[0].config(), self.sets, self.runs / waiting[0].folder, say=say)

        def report(student: Student) -> None:
            say(f"{student.folder}: TAR {self._outcome(student)['tar']:.2%}")

        run_trials(waiting, self.sets, self.runs, command=COMMAND, jobs=self.jobs, say=say, each=report)
        return [self._outcome(student)["tar"] for student in students]

    def _file(self, student: Student) -> Path:
        return self.outcomes / f"{student.folder}.json"

    def _outcome(self, student: Student) -> Outcome:
        config = student.config()
        counts = {"faces": len(self.known.paths), "people": len(self.known.people)}
        return outcome(
            self._file(student), {"config": config.model_dump(), **counts},
            lambda: {"tar": tar_on_held_out(self.known, self.runs / student.folder / MODEL, config, FAR)},
        )  # fmt: skip


def compare_students(study: Study, *, say: Say) -> Students:
    """Search the learning rate and the rule of teaching, train every network by the recipe, and measure time."""
    plan, sets = study.plan, study.sets
    small, first = plan.networks[0], plan.rules[0]
    found = study.run([plan.student(small, rate, first) for rate in plan.rates], say)
    rates = dict(zip(plan.rates, found, strict=True))
    found = study.run([plan.student(small, _best(rates), rule) for rule in plan.rules], say)
    rules = dict(zip(plan.rules, found, strict=True))
    finalists = [_best({rule: tar for rule, tar in rules.items() if bool(rule.labels) == has}) for has in (False, True)]
    found = study.run([plan.student(small, _best(rates), rule, plan.long_steps) for rule in finalists], say)
    long_rules = dict(zip(finalists, found, strict=True))
    students = [plan.student(network, *taught_by(mini())) for network in plan.networks]
    networks = dict(zip(plan.networks, study.run(students, say), strict=True))
    say("measuring time")
    assert sets.teacher is not None
    time = time_of(plan.networks, sets.teacher, study.runs, rounds=plan.rounds)
    teacher = tar_on_held_out(study.known, sets.teacher, students[0].config(), FAR)
    return Students(plan, rates, rules, long_rules, networks, time, teacher)


def taught_by(config: TrainConfig) -> tuple[Rate, Rule]:
    """The learning rate and the rule of teaching of a config with a teacher."""
    taught = config.teaching
    assert taught is not None
    return (config.optimizer, config.lr), Rule(taught.labels, taught.class_weights, taught.similarity, config.norm)


def fill_targets(config: TrainConfig, sets: Sets, out: Path, *, say: Say) -> None:
    """Embed every view of every face with the teacher, once: runs that share the cores would each do it."""
    place = sets.place(out, COMMAND)
    faces, _ = gather_faces(config, place, say)
    targets = build_targets(config, place, faces, spoken(say))
    if targets is not None and config.teaching is not None:
        for view in range(config.teaching.views):
            targets.of_view(view)


def time_of(networks: Iterable[Network], teacher: str | Path, room: Path, *, rounds: int) -> dict[Network, float]:
    """Time to embed one face on one core, by the image alone, as a share of the teacher's; in turns, medians."""
    embedders = dict[str, Embedder]()
    room.mkdir(parents=True, exist_ok=True)
    for name, width in networks:
        path = room / f"{name}-width{width:g}.safetensors"  # weights do not change the time
        net = create_model(name, width=width, features=mini().features, norm=mini().norm)
        save_model(net.eval(), path, Card(feature_rule="image"))
        embedders[path.stem] = Embedder.load(path, threads=1)
    face = np.zeros((1, 112, 112, 3), np.uint8)
    embedders["teacher"] = Embedder.load(teacher, threads=1)
    candidates = {name: partial(each.embed, face) for name, each in embedders.items()}
    *seconds, whole = interleaved(candidates, repeats=rounds, device="cpu").values()
    return {network: each / whole for network, each in zip(networks, seconds, strict=True)}


def _best(found: dict[K, float]) -> K:
    return max(found, key=found.__getitem__)
