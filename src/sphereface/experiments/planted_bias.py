"""A planted bias: training has few people of one of two groups of synthetic people, and `--groups` should find it.

There are two looks: red people, as drawn, and blue people, with red and blue exchanged. Neither is harder: the exchange
turns one look into the other, with every shape, light and grain, and a network's initial weights are as probable as the
same weights with these two colours exchanged. So a difference after training is caused by training.

Each seed is an independent experiment with its own people. Three networks train on the same people, photos and batches,
which differ only in the number of blue people: half of them, a few, or all but a few. All are tested on the same new
people, half of them blue, by the function of `evaluate folder --groups`. The balanced networks are also tested on many
crowds of other people, which measures how often a look is reported although no bias was planted.
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
LEVELS = (ERROR, LEVEL)  # of findings: that of all reports, and a common one
COMMAND = "sphereface reproduce planted-bias --out results"

Training = Literal["balanced", "blue starved", "red starved"]


@dataclass(frozen=True)
class Plan:
    """Sizes of the experiment; numbers of people are multiples of 8, so that the number of families is even."""

    people: int = 240
    photos: int = 30
    starved: int = 12  # people of the rare look in training
    steps: int = 1_000
    test_people: int = 160
    test_photos: int = 6
    far: float = 1e-2  # FAR of the threshold over all pairs of the test
    seeds: tuple[int, ...] = (6, 7, 8)  # the results of 0 to 5 were known when the crowds were added
    crowds: int = 20  # crowds of `test_people` new people each, for every balanced network
    rounds: int = 1_000  # bootstrap rounds

    def folder(self, seed: int) -> str:
        """Folder of a seed's faces and models; its name has all settings that they depend on."""
        learned = f"{self.people}x{self.photos}-starved{self.starved}-steps{self.steps}"
        return f"v{VERSION}-seed{seed}-{learned}-test{self.test_people}x{self.test_photos}"


FULL = Plan()
QUICK = Plan(
    people=8, photos=3, starved=4, steps=2, test_people=40, test_photos=2, far=0.05, seeds=(0,), crowds=2, rounds=20
)


class Run(NamedTuple):
    """One network with its group report."""

    seed: int
    training: Training
    report: GroupReport

    @property
    def starved(self) -> str | None:
        """The rare look in training; None if both were balanced."""
        return None if self.training == "balanced" else self.training.removesuffix(" starved")

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, of both error rates."""
        return self.report.findings

    @property
    def as_planted(self) -> bool:
        """True if a higher FMR of the starved look is found, or nothing in a balanced network.

        FMR, because a network separates people of a rare look badly. This raises the common threshold, so a higher FNMR
        of the other look may be a second finding.
        """
        if self.starved is None:
            return not self.findings
        return any(found.group == self.starved and found.which == "FMR" for found in self.findings)

    @property
    def detectable(self) -> float | None:
        """The approximate ratio of two looks' FMR that is found with a probability of 0.9.

        From the interval of the ratio, on the assumption of a normal logarithm; None if the interval is not bounded.
        """
        ratio = self.report.attributes[0].max_over_min["FMR"]
        if ratio is None or ratio.interval is None or not 0 < ratio.interval.low <= ratio.interval.high < np.inf:
            return None
        normal = NormalDist()
        spread = log(ratio.interval.high / ratio.interval.low) / (2 * normal.inv_cdf(0.975))
        return exp(spread * (normal.inv_cdf(1 - self.report.error / self.report.tests / 2) + normal.inv_cdf(POWER)))

    def as_json(self) -> dict[str, Any]:
        """The run as a JSON object."""
        return {
            "seed": self.seed,
            "training": self.training,
            "as_planted": self.as_planted,
            "detectable_fmr_ratio": self.detectable,
            **self.report.as_dict(),
        }


class Planted(NamedTuple):
    """All results in results/planted-bias.md."""

    plan: Plan
    runs: tuple[Run, ...]
    accusations: tuple[Accusations, ...]  # of the balanced networks
    threads: int  # of training; their number changes the rounding of sums, and so the networks

    def tally(self, *, starved: bool) -> tuple[int, int]:
        """Number of starved (or balanced) networks with the planted result, and number of all of them."""
        judged = [run.as_planted for run in self.runs if (run.starved is not None) == starved]
        return sum(judged), len(judged)

    def as_json(self) -> dict[str, Any]:
        """The result as a JSON object, as in results/planted-bias.json."""
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
    """Train and test three networks for each seed; existing models and faces in `runs` are used again."""
    done, accusations = [], []
    for seed in plan.seeds:
        home = runs / plan.folder(seed)
        home.mkdir(parents=True, exist_ok=True)
        write_test(home / "test", plan, seed, workers=workers, begin=begin)
        models = train_all(home, plan, seed, workers=workers, begin=begin)
        for training, model in models.items():
            report = evaluate_groups(
                Embedder.load(model), home / "test" / "faces", home / "test" / "groups.csv", far=plan.far,
                rounds=plan.rounds, progress=begin(f"seed {seed}, {training}: testing"),
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
    """A mask (people,) of the blue people of a training."""
    if training == "balanced":
        return every_other_family(plan.people)
    few = np.arange(plan.people) < plan.starved
    return few if training == "blue starved" else ~few


def train_all(home: Path, plan: Plan, seed: int, *, workers: int, begin: Begin) -> Mapping[Training, Path]:
    """The models of a seed; existing files are not trained again."""
    models: dict[Training, Path] = {
        training: home / f"{training.replace(' ', '-')}.safetensors" for training in get_args(Training)
    }
    missing = {training: path for training, path in models.items() if not path.is_file()}
    if not missing:
        return models
    progress = begin(f"seed {seed}: faces to train on")
    people = range(TRAIN, TRAIN + plan.people)
    faces, labels = SyntheticPeople(seed=seed).faces(people, plan.photos, workers=workers, progress=progress)
    for training, path in missing.items():
        progress = begin(f"seed {seed}, {training}: training")
        known = Faces(to_tensor(dressed(faces, blue_people(training, plan)[labels])), labels)
        net, _ = train(LOSS, known, Scale(steps=plan.steps), seed=seed, on_step=_steps(progress))
        save_model(net, path, Card(name=f"planted bias, {training}, seed {seed}"))
    return models


def write_test(folder: Path, plan: Plan, seed: int, *, workers: int, begin: Begin) -> None:
    """Write new people, half of them blue, as `faces/NAME/photo.png` and `groups.csv`."""
    if folder.is_dir():
        return
    progress = begin(f"seed {seed}: faces to test on")
    people = range(TEST, TEST + plan.test_people)
    faces, labels = SyntheticPeople(seed=seed).faces(people, plan.test_photos, workers=workers, progress=progress)
    blue = every_other_family(plan.test_people)
    with new_folder(folder) as new:
        for place, (face, person) in enumerate(zip(dressed(faces, blue[labels]), labels, strict=True)):
            path = new / "faces" / f"p{person:04d}" / f"{place % plan.test_photos:04d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode_png(face))
        write_manifest(new / "faces", SetManifest(made_by=f"sphereface {__version__} reproduce planted-bias"))
        lines = [f"p{person:04d},{LOOKS[int(is_blue)]}\n" for person, is_blue in enumerate(blue)]
        (new / "groups.csv").write_text("person,look\n" + "".join(lines))


def _steps(progress: Progress) -> Callable[[Step], None]:
    return lambda step: progress(step.step, step.steps)
