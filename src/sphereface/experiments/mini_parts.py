"""The parts of `reproduce mini`: labels alone, the choice of a student, the model. Each is kept when it ends."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from sphereface.choices import Part
from sphereface.data.files.writing import whole_file
from sphereface.embed.embedder import Embedder
from sphereface.errors import UserError
from sphereface.experiments import labels, mini, real_faces, students
from sphereface.experiments.calibrations import calibrate_on_dev_train
from sphereface.experiments.lfw_dev import ALIGNED, IN_LFW, align_and_gather
from sphereface.experiments.mini import measure_embedder
from sphereface.experiments.trials import Sets
from sphereface.progress import Say
from sphereface.training.config import TrainConfig
from sphereface.training.recipes import mini as recipe
from sphereface.zoo.cards import ENTRIES
from sphereface.zoo.finding import find_installed


@dataclass(frozen=True)
class Folders:
    """The faces, and the folders of runs, of results, and the file of weights."""

    faces: Path  # train, more/labelled, more/unlabelled.zip, lfw-dev, lists of pairs
    runs: Path
    out: Path
    weights: Path
    aligned: Path | None = None  # the photos of lfw-dev, aligned; None: in the folder of runs

    @property
    def aligned_photos(self) -> Path:
        """The folder of the aligned photos of lfw-dev."""
        return self.aligned or self.runs / ALIGNED

    def sets(self, *names: str, teacher: str | None = None) -> Sets:
        """The faces of some sets, and the faces without names if there is a teacher."""
        named = tuple(self.faces / name for name in names)
        if teacher is None:
            return Sets(named, IN_LFW)
        return Sets(named, IN_LFW, teacher, (self.faces / "more" / "unlabelled.zip",), self.runs / "targets")


@dataclass(frozen=True)
class Scale:
    """The sizes of all parts."""

    labels: real_faces.Plan
    students: students.Plan
    model: TrainConfig
    rounds: int = 1_000  # of the bootstrap over test people


FULL = Scale(labels.FULL, students.FULL, recipe())
QUICK = Scale(labels.QUICK, students.QUICK, recipe().with_steps(4).changed(width=0.125), rounds=20)


def run_parts(
    parts: Sequence[str],
    folders: Folders,
    scale: Scale = FULL,
    *,
    teacher: str,
    init: Path | None = None,
    jobs: int,
    say: Say,
) -> dict[str, Any]:
    """Run some parts; returns all parts that are done, with those of earlier calls."""
    unknown = [part for part in parts if part not in get_args(Part)]
    if unknown:
        raise UserError(f"unknown part {unknown[0]!r}; choose one of {', '.join(get_args(Part))}")
    kept = folders.out / "mini.json"
    test = align_and_gather(folders.faces, folders.runs, folders.aligned, jobs=jobs, say=say)
    taught = folders.sets("train", "more/labelled", teacher=teacher)
    for part in parts:
        match part:
            case "labels":
                sets = {"many": folders.sets("train", "more/labelled"), "few": folders.sets("train")}
                study = labels.Study(sets, test, folders.runs / part, folders.out / part, scale.labels, jobs)
                found = labels.compare_labels(study, say=say).as_json()
            case "students":
                chosen = students.Study(taught, folders.runs / part, folders.out / part, scale.students, jobs)
                found = students.compare_students(chosen, say=say).as_json()
            case "model":
                watched = folders.faces / "pairsDevTrain.txt", folders.aligned_photos
                before = mini.trainings_until(init, _done(kept).get(part, {})) if init else ()
                place = mini.Making(taught, test, watched, folders.runs / part, folders.weights, init, before)
                found = mini.make_mini(place, scale.model, rounds=scale.rounds, say=say).as_json()
        folders.out.mkdir(parents=True, exist_ok=True)
        done = {**_done(kept), part: found}  # read again: another part may have ended since
        with whole_file(kept) as file:
            file.write(json.dumps(done, indent=2).encode() + b"\n")
    return _done(kept)


def _done(kept: Path) -> dict[str, Any]:
    """The parts that are done, by name."""
    return dict(json.loads(kept.read_bytes())) if kept.is_file() else {}


def calibrate_others(faces: Path, runs: Path, aligned: Path | None = None, *, jobs: int, say: Say) -> dict[str, Any]:
    """Thresholds and impostor tails by name, of every installed embedder that brings no card of its own."""
    test = align_and_gather(faces, runs, aligned, jobs=jobs, say=say)
    found = {}
    for name, entry in ENTRIES.items():
        if entry.card is None or find_installed(entry) is None:
            continue
        say(f"calibrating {name}")
        embedder = Embedder.load(name)
        measured = calibrate_on_dev_train(embedder, measure_embedder(embedder, test).features, test)
        found[name] = {
            "thresholds": [each.model_dump(mode="json") for each in measured.thresholds],
            "impostor_tail": measured.tail.model_dump(mode="json"),
            "template_tails": [each.model_dump(mode="json") for each in measured.template_tails],
        }
    return found
