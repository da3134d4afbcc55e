"""The demo: five losses on synthetic faces, with 3-D features on a sphere and a test on people outside training."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from sphereface.arrays import Float32
from sphereface.data.synthetic.people import VERSION, SyntheticPeople
from sphereface.experiments import openset
from sphereface.experiments.demo_recognition import COMMANDS, KNOWN, LEAST, Recognised, recognise
from sphereface.experiments.loop import Step, extract
from sphereface.experiments.openset import CONTENDERS, FAR, FOLDS, NET, Measured, Scale
from sphereface.metrics import roc
from sphereface.progress import Begin, Progress
from sphereface.reports import figures
from sphereface.reports.html import Report

SPHERE_PEOPLE = 6


class Row(NamedTuple):
    """One row of the table."""

    loss: str
    accuracy: float
    tar: float
    fisher: float
    rank_1: float
    lr: float


@dataclass
class Findings:
    """The results so far; `report` makes a page of them at any time."""

    seed: int
    scale: Scale
    losses: dict[str, list[float]] = field(default_factory=dict)
    measured: dict[str, Measured] = field(default_factory=dict)
    sphere: figures.Picture | None = None
    recognised: Recognised | None = None
    seconds: float = 0.0
    finished: bool = False

    def rows(self) -> list[Row]:
        """The rows of the table, in the order of the contenders."""
        rates = {contender.name: contender.lr for contender in CONTENDERS}
        return [
            Row(name, found.accuracy(), found.tar(), found.fisher(), found.rank_1(), rates[name])
            for name, found in self.measured.items()
        ]

    def as_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        return {
            "seed": self.seed,
            "synthetic_version": VERSION,
            "finished": self.finished,
            "seconds": round(self.seconds, 1),
            "far": FAR,
            "rows": [row._asdict() for row in self.rows()],
            "recognition": None if self.recognised is None else self.recognised.as_json(),
        }


def run_demo(scale: Scale, folder: Path, *, seed: int, workers: int, begin: Begin) -> Findings:
    """Train and test all contenders; the report in `folder` is written again after each, and is always complete HTML.

    An interrupt ends the run early with the results so far, and `finished` is False.
    """
    found = Findings(seed=seed, scale=scale)
    start = time.perf_counter()
    try:
        _spheres(found, folder, workers, begin)
        sets = openset.draw_sets(scale, workers=workers, progress=begin("drawing faces"))
        for contender in CONTENDERS:
            progress, losses = begin(f"training {contender.name}"), list[float]()
            net, _ = openset.train(contender, sets.train, scale, seed=seed, on_step=_recorder(progress, losses))
            found.losses[contender.name] = losses
            found.measured[contender.name] = openset.measure(net, sets)
            found.seconds = time.perf_counter() - start
            report(found, curves=False).write(folder / "report.html")
        if scale.test_people >= LEAST:
            found.recognised = recognise(net, scale, begin=begin)  # with the last one, A-Softmax m = 4
        found.finished = True
    except KeyboardInterrupt:
        found.finished = False
    found.seconds = time.perf_counter() - start
    report(found).write(folder / "report.html")
    return found


def _recorder(progress: Progress, losses: list[float]) -> Callable[[Step], None]:
    def on_step(step: Step) -> None:
        losses.append(step.loss)
        progress(step.step, step.steps)

    return on_step


def _spheres(found: Findings, folder: Path, workers: int, begin: Begin) -> None:
    """Train with 3-D features on six people, and add their picture to the report within the first minute."""
    scale = found.scale
    small = replace(scale, people=SPHERE_PEOPLE, photos=scale.sphere_photos, steps=scale.sphere_steps)
    progress = begin("drawing six people")
    faces = openset.draw(openset.TRAIN, small.people, small.photos, workers=workers, progress=progress)
    features: dict[str, Float32] = {}
    for contender in CONTENDERS:
        record = _recorder(begin(f"3-D features: {contender.name}"), [])
        net, _ = openset.train(contender, faces, small, seed=found.seed, features=3, on_step=record)
        features[contender.name] = extract(net, faces.images, mirror=False)
        if contender in (CONTENDERS[0], CONTENDERS[-1]):  # an early picture, then the complete one
            found.sphere = figures.spheres(features, faces.people)
            report(found).write(folder / "report.html")


def report(found: Findings, *, curves: bool = True) -> Report:
    """The page of the results so far; without `curves`, which take a few seconds to draw, it is written sooner."""
    page = Report(
        "A-Softmax on people outside its training set",
        f"sphereface demo, seed {found.seed}, synthetic faces version {VERSION}, {found.seconds:.0f} s",
    )
    if not found.finished:
        page.text("This run is not finished, or was interrupted: the page has the results so far.", note=True)
    if found.measured:
        _add_table(page, found)
    if found.sphere is not None:
        page.heading("Why: larger angles between people")
        page.figure(
            found.sphere,
            "Features of three numbers, which can be drawn: six people, each dot a photo, on the sphere.",
            wide=True,
        )
    if found.recognised is not None:
        _add_recognition(page, found.recognised)
    if found.measured and curves:
        _add_curves(page, found)
    _add_faces(page)
    page.heading("Command")
    page.code(
        f"sphereface demo --seed {found.seed}\n"
        f"network: sphereface4, width {NET['width']}, batch norm, 128 features; torch {torch.__version__}"
    )
    return page


def _add_table(page: Report, found: Findings) -> None:
    scale = found.scale
    page.heading("Recognition of new people")
    page.text(
        f"The same small network was trained {len(CONTENDERS)} times on {scale.people} people, {scale.photos} photos "
        f"each, for {scale.steps} steps, with the same faces in the same order, and tested on {scale.test_people} "
        f"other people: {scale.pairs:,} pairs in {FOLDS} folds that share no person."
    )
    _table(page, found.rows())
    page.text(
        f"Accuracy: ten folds, mean and threshold from the other nine. TAR: same pairs accepted at a FAR of {FAR:.0%}, "
        "over all pairs. Angular Fisher score: scatter within over scatter between people, lower is better. Rank 1: "
        f"share of people found by another photo among {scale.distractors:,} distractors. This is one seed; "
        "results/demo.md has three, with intervals of the differences."
    )


def _add_recognition(page: Report, found: Recognised) -> None:
    page.heading("Recognition with this network")
    page.text(found.text())
    page.figure(found.picture, f"Photos of enrolled people (the first {KNOWN // 2}) and of strangers.", wide=True)
    page.text("The same on photos of your own, with a model that was trained on real faces:")
    page.code("\n".join(COMMANDS))


def _add_curves(page: Report, found: Findings) -> None:
    page.figure(
        _angles(found.measured),
        "Angles between two photos of new people. The less the two distributions overlap, the better.",
        wide=True,
    )
    page.heading("True and false accept rates")
    curves = {name: roc(measured.pairs.same, measured.scores) for name, measured in found.measured.items()}
    page.figure(
        figures.roc_curves({name: (curve.far, curve.tar) for name, curve in curves.items()}),
        "New people, the pairs of the ten folds.",
    )
    page.heading("Training")
    page.figure(
        figures.training_curves(found.losses),
        "A margin makes the task harder, so its loss stays higher; the value of the loss is not a test result.",
    )


def _add_faces(page: Report) -> None:
    page.heading("The faces")
    population = SyntheticPeople()
    sample = np.stack([population.face(openset.TEST + person, photo) for person in range(4) for photo in range(8)])
    sheet = figures.contact_sheet(sample, 8, says=f"{len(sample)} synthetic faces, a person a row")
    page.figure(sheet, "Four synthetic people of the test set, a person a row.")


def _table(page: Report, rows: list[Row]) -> None:
    columns = [np.array([row[column] for row in rows]) for column in range(1, 5)]
    winners = [int(np.argmin(values) if place == 2 else np.argmax(values)) for place, values in enumerate(columns)]
    page.table(
        ["loss", "accuracy", f"TAR at FAR {FAR:g}", "angular Fisher score", "rank 1", "learning rate"],
        [
            [row.loss, f"{row.accuracy:.2%}", f"{row.tar:.2%}", f"{row.fisher:.3f}", f"{row.rank_1:.1%}", f"{row.lr:g}"]
            for row in rows
        ],
        best=[(winner, column + 1) for column, winner in enumerate(winners)],
    )


def _angles(measured: dict[str, Measured]) -> figures.Picture:
    angles = {name: np.arccos(np.clip(found.scores, -1, 1)) for name, found in measured.items()}
    same = {name: angles[name][found.pairs.same] for name, found in measured.items()}
    different = {name: angles[name][~found.pairs.same] for name, found in measured.items()}
    return figures.angle_histograms(same, different)
