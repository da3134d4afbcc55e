"""The first run: five losses on synthetic faces, seen on a sphere and tested on people who were never seen."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from sphereface.arrays import Float32
from sphereface.data.synthetic.people import VERSION, SyntheticPeople
from sphereface.experiments.loop import Step, extract
from sphereface.experiments.openset import (
    CONTENDERS,
    FAR,
    FOLDS,
    NET,
    TEST,
    TRAIN,
    Measured,
    Scale,
    draw,
    draw_sets,
    measure,
    train,
)
from sphereface.metrics import roc
from sphereface.progress import Begin, Progress
from sphereface.reports import figures
from sphereface.reports.html import Report

SPHERE_PEOPLE = 6


class Row(NamedTuple):
    """One line of the table."""

    loss: str
    accuracy: float
    tar: float
    fisher: float
    rank_1: float
    lr: float


@dataclass
class Findings:
    """What is known so far; a report can be made of it at any time."""

    seed: int
    scale: Scale
    losses: dict[str, list[float]] = field(default_factory=dict)
    measured: dict[str, Measured] = field(default_factory=dict)
    sphere: figures.Picture | None = None
    seconds: float = 0.0
    finished: bool = False

    def rows(self) -> list[Row]:
        """The table, in the order of the contenders."""
        rates = {contender.name: contender.lr for contender in CONTENDERS}
        return [
            Row(name, found.accuracy(), found.tar(), found.fisher(), found.rank_1(), rates[name])
            for name, found in self.measured.items()
        ]

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "seed": self.seed,
            "synthetic_version": VERSION,
            "finished": self.finished,
            "seconds": round(self.seconds, 1),
            "far": FAR,
            "rows": [row._asdict() for row in self.rows()],
        }


def run_demo(scale: Scale, folder: Path, *, seed: int, workers: int, begin: Begin) -> Findings:
    """Train and test all contenders; the report in `folder` grows as they come in, and is whole at every moment.

    An interrupt ends the run early with what is known by then; `finished` says whether it is all.
    """
    found = Findings(seed=seed, scale=scale)
    start = time.perf_counter()
    try:
        _spheres(found, folder, workers, begin)
        sets = draw_sets(scale, workers=workers, progress=begin("drawing faces"))
        for contender in CONTENDERS:
            hear, losses = begin(f"training {contender.name}"), list[float]()
            net, _ = train(contender, sets.train, scale, seed=seed, on_step=_listen(hear, losses))
            found.losses[contender.name] = losses
            found.measured[contender.name] = measure(net, sets)
            found.seconds = time.perf_counter() - start
            report(found, curves=False).write(folder / "report.html")
        found.finished = True
    except KeyboardInterrupt:
        found.finished = False
    found.seconds = time.perf_counter() - start
    report(found).write(folder / "report.html")
    return found


def _listen(hear: Progress, losses: list[float]) -> Callable[[Step], None]:
    def on_step(step: Step) -> None:
        losses.append(step.loss)
        hear(step.step, step.steps)

    return on_step


def _spheres(found: Findings, folder: Path, workers: int, begin: Begin) -> None:
    """Features of three numbers, for six people: something to look at within the first minute."""
    scale = found.scale
    small = replace(scale, people=SPHERE_PEOPLE, photos=scale.sphere_photos, steps=scale.sphere_steps)
    hear = begin("drawing six people")
    faces = draw(TRAIN, small.people, small.photos, workers=workers, progress=hear)
    features: dict[str, Float32] = {}
    for contender in CONTENDERS:
        hear = begin(f"3-D features: {contender.name}")
        net, _ = train(contender, faces, small, seed=found.seed, features=3, on_step=_listen(hear, []))
        features[contender.name] = extract(net, faces.images, mirror=False)
        if contender in (CONTENDERS[0], CONTENDERS[-1]):  # soon something to look at, then all of it
            found.sphere = figures.spheres(features, faces.people)
            report(found).write(folder / "report.html")


def report(found: Findings, *, curves: bool = True) -> Report:
    """The page, as far as things are known; curves take a few seconds to draw and can wait for the end."""
    page = Report(
        "A-Softmax on people it has never seen",
        f"sphereface demo, seed {found.seed}, synthetic faces version {VERSION}, {found.seconds:.0f} s",
    )
    if not found.finished:
        page.text("This run is not finished, or was interrupted: what follows is what was known by then.", note=True)
    if found.measured:
        _add_table(page, found)
    if found.sphere is not None:
        page.heading("Why: the angles between people grow")
        page.figure(
            found.sphere,
            "Features of only three numbers, so that they can be seen: six people, each dot a photo, on the sphere.",
            wide=True,
        )
    if found.measured and curves:
        _add_curves(page, found)
    _add_faces(page)
    page.heading("How to repeat this")
    page.code(
        f"sphereface demo --seed {found.seed}\n"
        f"network: sphereface4, width {NET['width']}, batch norm, 128 features; torch {torch.__version__}"
    )
    return page


def _add_table(page: Report, found: Findings) -> None:
    scale = found.scale
    page.heading("Recognising strangers")
    page.text(
        f"The same small network was trained {len(CONTENDERS)} times on {scale.people} people, {scale.photos} photos "
        f"each, for {scale.steps} steps, with the same faces in the same order, and tested on {scale.test_people} "
        f"other people: {scale.pairs:,} pairs in {FOLDS} folds that share no person."
    )
    _table(page, found.rows())
    page.text(
        f"Accuracy: ten folds, mean and threshold from the other nine. TAR: same pairs accepted when {FAR:.0%} of the "
        "different ones are, over all pairs. Angular Fisher score: scatter within over scatter between people, lower "
        f"is better. Rank 1: found by another photo among {scale.distractors:,} distractors. One seed: "
        "results/demo.md has three, and says how sure the differences are."
    )


def _add_curves(page: Report, found: Findings) -> None:
    page.figure(
        _angles(found.measured),
        "Angles between two photos of unseen people. The less the two hills overlap, the better.",
        wide=True,
    )
    page.heading("How many are let in, how many wrongly")
    curves = {name: roc(measured.pairs.same, measured.scores) for name, measured in found.measured.items()}
    page.figure(
        figures.roc_curves({name: (curve.far, curve.tar) for name, curve in curves.items()}),
        "Unseen people, the pairs of the ten folds.",
    )
    page.heading("Training")
    page.figure(
        figures.training_curves(found.losses),
        "A margin makes the task harder, so its loss stays higher; it is not the loss that we test.",
    )


def _add_faces(page: Report) -> None:
    page.heading("The faces")
    population = SyntheticPeople()
    sample = np.stack([population.face(TEST + person, photo) for person in range(4) for photo in range(8)])
    says = f"{len(sample)} synthetic faces, a person a row"
    sheet = figures.contact_sheet(sample, 8, says=says)
    page.figure(sheet, "Four people of the test set, drawn by our own code; nobody exists.")


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
