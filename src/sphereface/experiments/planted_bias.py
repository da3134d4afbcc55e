"""A bias planted on purpose: one group of synthetic people is starved in training; does `--groups` find it?

There are two looks: red people, as they are drawn, and blue ones, whose red and blue are exchanged. Neither is harder:
the exchange turns one look into the other, with every shape, light and grain, and a network's first weights are as
likely as the same weights with these two colours exchanged. So what differs after training comes from training.

Each seed is an experiment of its own, with people of its own. Three networks learn from the same people, photos and
batches, which differ only in who is blue: half of them, a few, or all but a few. All are tested on the same new people,
half of them blue, by what `evaluate folder --groups` calls. The balanced ones go on to many crowds of other people: how
often is a look named although nothing was planted?
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from math import exp, log
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch

from sphereface import __version__
from sphereface.arrays import Bools
from sphereface.contract import Card
from sphereface.data.files.writing import new_folder
from sphereface.data.manifest import SetManifest, write_manifest
from sphereface.data.synthetic.people import VERSION, SyntheticPeople
from sphereface.embed.embedder import Embedder
from sphereface.evaluation.groups.compare import Finding, GroupReport, evaluate_groups
from sphereface.experiments.accusations import LEVEL, Accusations, named_at, try_crowds
from sphereface.experiments.loop import Step
from sphereface.experiments.openset import NET, TEST, TRAIN, Contender, Faces, Scale, train
from sphereface.experiments.two_looks import LOOKS, dressed, every_other_family
from sphereface.faces.images import encode_png
from sphereface.metrics.group_rates import ERROR
from sphereface.models import save_model
from sphereface.models.inputs import to_tensor
from sphereface.progress import Begin, Progress

LOSS = Contender("a_softmax", m=4)
POWER = 0.9
LEVELS = (ERROR, LEVEL)  # of findings: what reports use, and what many would
COMMAND = "sphereface reproduce planted-bias --out results"

Training = Literal["balanced", "blue starved", "red starved"]


@dataclass(frozen=True)
class Plan:
    """How much of everything; numbers of people are multiples of 8, so that families divide by two."""

    people: int = 240
    photos: int = 30
    starved: int = 12  # people of the starved look, of all
    steps: int = 1_000
    test_people: int = 160
    test_photos: int = 6
    far: float = 1e-2  # of the threshold, for all pairs of the test
    seeds: tuple[int, ...] = (6, 7, 8)  # what 0 to 5 gave was known when the crowds were added
    crowds: int = 20  # of as many new people each, for every balanced network
    rounds: int = 1_000  # of the bootstrap

    def folder(self, seed: int) -> str:
        """Where the faces and models of a seed lie among the runs: what they depend on is in the name."""
        learned = f"{self.people}x{self.photos}-starved{self.starved}-steps{self.steps}"
        return f"v{VERSION}-seed{seed}-{learned}-test{self.test_people}x{self.test_photos}"


FULL = Plan()
QUICK = Plan(
    people=8, photos=3, starved=4, steps=2, test_people=40, test_photos=2, far=0.05, seeds=(0,), crowds=2, rounds=20
)


class Run(NamedTuple):
    """One network, and what the groups of the test showed of it."""

    seed: int
    training: Training
    report: GroupReport

    @property
    def starved(self) -> str | None:
        """The look that was starved."""
        return None if self.training == "balanced" else self.training.removesuffix(" starved")

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All of them, of either rate."""
        return self.report.findings

    @property
    def as_planted(self) -> bool:
        """Whether what was planted was found: a higher FMR of the starved look; where none was starved, nothing at all.

        FMR, for a network tells apart badly those whom it has hardly seen. Then the one threshold rises for all, so
        that a second finding may well be a higher FNMR of the others.
        """
        if self.starved is None:
            return not self.findings
        return any(found.group == self.starved and found.which == "FMR" for found in self.findings)

    @property
    def detectable(self) -> float | None:
        """About how many times as high as the other an FMR must be, to be found nine times in ten.

        From the interval of the ratio, whose logarithm is taken as normal; None where that interval has an open end.
        """
        ratio = self.report.attributes[0].max_over_min["FMR"]
        if ratio is None or ratio.interval is None or not 0 < ratio.interval.low <= ratio.interval.high < np.inf:
            return None
        normal = NormalDist()
        spread = log(ratio.interval.high / ratio.interval.low) / (2 * normal.inv_cdf(0.975))
        return exp(spread * (normal.inv_cdf(1 - self.report.error / self.report.tests / 2) + normal.inv_cdf(POWER)))

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "seed": self.seed,
            "training": self.training,
            "as_planted": self.as_planted,
            "detectable_fmr_ratio": self.detectable,
            **self.report.as_dict(),
        }


class Planted(NamedTuple):
    """Everything that results/planted-bias.md tells."""

    plan: Plan
    runs: tuple[Run, ...]
    accusations: tuple[Accusations, ...]  # of the balanced networks
    threads: int  # that trained: sums are rounded otherwise on another number, and other networks come out

    def tally(self, *, starved: bool) -> tuple[int, int]:
        """How many of the starved, or of the balanced, networks showed what was planted, and of how many."""
        judged = [run.as_planted for run in self.runs if (run.starved is not None) == starved]
        return sum(judged), len(judged)

    def as_json(self) -> dict[str, Any]:
        """For machines, and for results/planted-bias.json."""
        return {
            "command": COMMAND,
            "synthetic_version": VERSION,
            "plan": asdict(self.plan),
            "net": {"name": "sphereface4", "features": 128, **NET},
            "loss": LOSS.name,
            "lr": LOSS.lr,
            "starved_found": list(self.tally(starved=True)),
            "balanced_found_nothing": list(self.tally(starved=False)),
            "threads": self.threads,
            "runs": [run.as_json() for run in self.runs],
            "balanced_named": {f"{level:g}": list(named_at(level, self.accusations)) for level in LEVELS},
            "accusations": [each.as_json() for each in self.accusations],
        }


def run_planted(plan: Plan, runs: Path, *, workers: int, begin: Begin) -> Planted:
    """Train three networks for each seed and test them; models and faces in `runs` are not made a second time."""
    done, accusations = [], []
    for seed in plan.seeds:
        home = runs / plan.folder(seed)
        home.mkdir(parents=True, exist_ok=True)
        write_test(home / "test", plan, seed, workers=workers, begin=begin)
        models = train_all(home, plan, seed, workers=workers, begin=begin)
        for training, model in models.items():
            hear = begin(f"seed {seed}, {training}: testing")
            report = evaluate_groups(
                Embedder.load(model), home / "test" / "faces", home / "test" / "groups.csv", far=plan.far,
                rounds=plan.rounds, progress=hear,
            )  # fmt: skip
            done.append(Run(seed, training, report))
        accusations.append(
            try_crowds(
                Embedder.load(models["balanced"]), seed, plan.crowds, people=plan.test_people, photos=plan.test_photos,
                far=plan.far, rounds=plan.rounds, workers=workers,
                progress=begin(f"seed {seed}, balanced: crowds"),
            )
        )  # fmt: skip
    return Planted(plan, tuple(done), tuple(accusations), torch.get_num_threads())


def blue_people(training: Training, plan: Plan) -> Bools:
    """Which of the people to learn from are blue, (people,)."""
    if training == "balanced":
        return every_other_family(plan.people)
    few = np.arange(plan.people) < plan.starved
    return few if training == "blue starved" else ~few


def train_all(home: Path, plan: Plan, seed: int, *, workers: int, begin: Begin) -> Mapping[Training, Path]:
    """The models of a seed; those whose file is there are taken as they are."""
    models: dict[Training, Path] = {
        training: home / f"{training.replace(' ', '-')}.safetensors" for training in get_args(Training)
    }
    missing = {training: path for training, path in models.items() if not path.is_file()}
    if not missing:
        return models
    hear = begin(f"seed {seed}: faces to learn from")
    people = range(TRAIN, TRAIN + plan.people)
    faces, labels = SyntheticPeople(seed=seed).faces(people, plan.photos, workers=workers, progress=hear)
    for training, path in missing.items():
        hear = begin(f"seed {seed}, {training}: training")
        known = Faces(to_tensor(dressed(faces, blue_people(training, plan)[labels])), labels)
        net, _ = train(LOSS, known, Scale(steps=plan.steps), seed=seed, on_step=_steps(hear))
        save_model(net, path, Card(name=f"planted bias, {training}, seed {seed}"))
    return models


def write_test(folder: Path, plan: Plan, seed: int, *, workers: int, begin: Begin) -> None:
    """New people, half of them blue, as anybody would bring them: `faces/NAME/photo.png`, and `groups.csv`."""
    if folder.is_dir():
        return
    hear = begin(f"seed {seed}: faces to be tested on")
    people = range(TEST, TEST + plan.test_people)
    faces, labels = SyntheticPeople(seed=seed).faces(people, plan.test_photos, workers=workers, progress=hear)
    blue = every_other_family(plan.test_people)
    with new_folder(folder) as new:
        for place, (face, person) in enumerate(zip(dressed(faces, blue[labels]), labels, strict=True)):
            path = new / "faces" / f"p{person:04d}" / f"{place % plan.test_photos:04d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode_png(face))
        write_manifest(new / "faces", SetManifest(made_by=f"sphereface {__version__} reproduce planted-bias"))
        lines = [f"p{person:04d},{LOOKS[int(is_blue)]}\n" for person, is_blue in enumerate(blue)]
        (new / "groups.csv").write_text("person,look\n" + "".join(lines))


def _steps(hear: Progress) -> Callable[[Step], None]:
    return lambda step: hear(step.step, step.steps)
