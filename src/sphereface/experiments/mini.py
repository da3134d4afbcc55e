"""The model in the box: trained by the recipe `mini`, tested on view 1 of LFW, calibrated, written with its card."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sphereface.arrays import Float32
from sphereface.contract import Accuracy, Card
from sphereface.embed.embedder import Embedder
from sphereface.errors import JobFailed, UserError
from sphereface.experiments import tables
from sphereface.experiments.calibrations import calibrate_on_dev_train
from sphereface.experiments.lfw_dev import Unseen
from sphereface.experiments.students import COMMAND, Network, time_of
from sphereface.experiments.trials import Sets
from sphereface.experiments.view1 import STATISTICS, Measured, row
from sphereface.hashes import sha256_of
from sphereface.metrics import Paired, PeopleBootstrap
from sphereface.models import load_model, save_model
from sphereface.progress import Say
from sphereface.training.config import TrainConfig
from sphereface.training.run import MODEL, train
from sphereface.training.telling.log import LOG

NAME, VERSION = "sphereface-mini", "1.0.0"
DATA = (
    "16,323 photos of 311 people (CelebA, FaceScrub and other sets), 18,242 of 1,141 people (Glint360K, VN-celeb, "
    "PubFig, CACD, a Bollywood set), and 37,037 without names (UTKFace, WIKI, All-Age-Faces, SCUT-FBP5500)"
)
LICENCES = {
    "weights": "CC-BY-NC-4.0",
    "code": "MIT",
    "data": "research data sets, most of them for non-commercial research only",
}
LIMITS = (
    "MegaFace is void for it: its FaceScrub probes show people whom it was trained on.",
    "Its teacher's training data are not documented: people of LFW may be among them.",
    "Small: it errs more often than large models, most of all on children, profiles and low resolution.",
    "It recognises faces and does not check that a person is alive in front of the camera.",
)


class Training(NamedTuple):
    """A training run that made a version of the model."""

    steps: int
    hours: float  # over all sittings
    sittings: int
    seed: int
    sha256: str  # of the version


class Mini(NamedTuple):
    """The trained model against its teacher."""

    config: TrainConfig
    trainings: tuple[Training, ...]  # each began with the version of the one before
    faces: int
    statistics: dict[str, dict[str, float]]  # by model: mini, teacher
    difference: dict[str, Paired]  # mini - teacher
    agreement: float  # mean cosine to the teacher's features of the test faces, image and mirror summed
    time: float  # of a face on one core, as a share of the teacher's
    size: int  # bytes of the file

    def as_json(self) -> dict[str, Any]:
        """The results as a JSON object."""
        return {
            **self._asdict(),
            "config": self.config.model_dump(),
            "trainings": [each._asdict() for each in self.trainings],
            "difference": tables.differences_json(self.difference),
        }


@dataclass(frozen=True)
class Making:
    """The faces of training and test, and the folders of the run and of the weights."""

    sets: Sets
    test: Unseen
    watched: tuple[Path, Path]  # list of pairs, and folder of their faces, for the run's curve; without effect on it
    run: Path
    weights: Path  # the file to write
    init: Path | None = None  # weights to start from
    before: tuple[Training, ...] = ()  # how those were made


def make_mini(place: Making, config: TrainConfig, *, rounds: int = 1_000, say: Say) -> Mini:
    """Train, or continue; then test, calibrate and write the model. A finished run is only tested.

    All people of the sets are trained on: the run watches pairs of DevTrain, where others hold out people.
    """
    assert place.sets.teacher is not None
    pairs, faces = place.watched
    run = replace(place.sets.place(place.run, COMMAND, init=place.init), pairs=pairs, pairs_faces=faces)
    done = train(config, run, say=say)
    if done.outcome != "finished":
        raise JobFailed(f"{place.run}: {done.outcome}; run the same command again to continue")
    write_half(place.run / MODEL, place.weights, Card(name=f"{NAME}-{VERSION}", feature_rule="image"))
    say("testing")
    ours, teacher = Embedder.load(place.weights), Embedder.load(place.sets.teacher)
    measured = {"mini": measure_embedder(ours, place.test), "teacher": measure_embedder(teacher, place.test)}
    statistics = {name: row(each) for name, each in measured.items()}
    taught = measure_embedder(teacher.with_rule("sum"), place.test)  # as its features were the targets
    say("calibrating")
    card = finished_card(ours.card, statistics["mini"]["accuracy"], teacher.card)
    found = calibrate_on_dev_train(ours, measured["mini"].features, place.test, rounds=rounds)
    write_half(place.run / MODEL, place.weights, found.card(card))
    bootstrap = PeopleBootstrap(int(place.test.people.max()) + 1, rounds=rounds)
    network: Network = (config.model, config.width)
    entries = [json.loads(line) for line in (place.run / LOG).read_text().splitlines()]
    sittings = 1 + sum(entry["kind"] == "resume" for entry in entries)
    training = Training(done.step, hours_of(entries), sittings, config.seed, sha256_of(place.weights))
    return Mini(
        config, (*place.before, training),
        faces=int(entries[0]["data"]["faces"]),
        statistics=statistics,
        difference=tables.paired_differences([measured["mini"]], [measured["teacher"]], STATISTICS, bootstrap),
        agreement=mean_cosine(measured["mini"].features, taught.features),
        time=time_of([network], place.sets.teacher, place.run, rounds=60)[network],
        size=place.weights.stat().st_size,
    )  # fmt: skip


def trainings_until(model: Path, kept: Mapping[str, Any]) -> tuple[Training, ...]:
    """How a version of the model was made, from the results of a later one or of itself."""
    known, sha256 = [Training(**each) for each in kept.get("trainings", [])], sha256_of(model)
    for number, training in enumerate(known, 1):
        if training.sha256 == sha256:
            return tuple(known[:number])
    raise UserError(f"{model}: no version of the model in the results; wanted one, so that its training can be told")


def measure_embedder(embedder: Embedder, test: Unseen) -> Measured:
    """Any embedder on the test faces, by the feature rule on its card."""
    return Measured(embedder.embed(test.pixels), test)


def mean_cosine(a: Float32, b: Float32) -> float:
    """The mean cosine of the rows of two arrays (N, D)."""
    return float((np.sum(a * b, axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).mean())


def write_half(source: Path, target: Path, card: Card) -> None:
    """Write a trained model in half precision with another card."""
    target.parent.mkdir(parents=True, exist_ok=True)
    save_model(load_model(source).half(), target, card)


def finished_card(card: Card, accuracy: float, teacher: Card) -> Card:
    """The card with what the model learned from, its accuracy, licences and limits."""
    ours = Accuracy(value=accuracy, test="LFW view 1, DevTest", source="ours, photos aligned by data align")
    return card.model_copy(
        update={
            "training_data": DATA, "teacher": teacher.name, "commercial_use": "no", "accuracy": (ours,),
            "licences": LICENCES, "limits": LIMITS,
        }
    )  # fmt: skip


def hours_of(entries: Sequence[dict[str, Any]]) -> float:
    """Hours of training in a log; the pause before a resume does not count."""
    at = [(datetime.fromisoformat(entry["time"]), entry["kind"]) for entry in entries]
    spans = (after - before for (before, _), (after, kind) in pairwise(at) if kind != "resume")
    return sum(spans, timedelta()) / timedelta(hours=1)
