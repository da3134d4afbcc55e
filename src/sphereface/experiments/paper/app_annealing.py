"""Appendix G: schedules of lambda: the training loss and the accuracy for a lowest lambda of 0, 1, 5 and 10."""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from sphereface.arrays import Float64, Int64
from sphereface.experiments.paper.comparison import Found, cell, difference, measured, note, seeds_of
from sphereface.experiments.paper.methods import METHODS
from sphereface.experiments.paper.result import Figure, Result, Row, Table
from sphereface.experiments.paper.runs import Run, Runs, runs_of
from sphereface.experiments.paper.setting import Setting
from sphereface.reports.figures import COLOURS, Theme, blank, picture
from sphereface.training.config import AnnealingConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

LOWEST = (0.0, 1.0, 5.0, 10.0)  # of lambda
PAPERS = 5.0


def needed(runs: Runs) -> dict[float, list[Run]]:
    """The runs of this experiment, by lowest lambda."""
    annealing = METHODS["a_softmax"].config(runs.plan.base).annealing
    assert annealing is not None
    return {
        lowest: seeds_of(runs, "a_softmax", annealing={**annealing.model_dump(), "minimum": lowest})
        for lowest in LOWEST
    }


def run(setting: Setting) -> Result:
    """Train A-Softmax m = 4 down to each lambda, and compare with 5, the paper's."""
    runs = runs_of(setting)
    wanted = {f"{lowest:g}": some for lowest, some in needed(runs).items()}
    found = measured(runs, wanted, "lfw", "training")
    rows = []
    for lowest, of in found.items():
        losses = [list(each["training"]["loss"].values()) for each in of]
        differs = "" if lowest == f"{PAPERS:g}" else difference(of, found[f"{PAPERS:g}"], "tar").text()
        rows.append(
            Row([lowest, cell(of, "lfw", "accuracy"), cell(of, "lfw", "tar"), differs,
                 f"{np.mean([each[-1] for each in losses]):.3f}"], setting.scale)
        )  # fmt: skip
    best = max(found, key=lambda lowest: float(np.mean([each["lfw"]["statistics"]["tar"] for each in found[lowest]])))
    annealing, steps = wanted[f"{PAPERS:g}"][0].settings.annealing, runs.plan.base.steps
    assert annealing is not None
    says = "lambda over the steps of a run, and the training loss, for each lowest lambda"
    return Result(
        "app-annealing",
        "schedules of lambda",
        setting.scale,
        findings=[
            f"The highest TAR has a lowest lambda of {best}. The paper: 5 is enough, smaller values could be better "
            "but are harder to train.",
            f"Without a lowest value lambda ends at {fallen(annealing, np.array(steps)):.2f}.",
        ],
        tables=[
            Table("annealing", "By lowest lambda",
                  ("lowest lambda", "LFW, %", f"TAR at FAR {runs.plan.far:g}, %", "against 5, points", "last loss"),
                  rows,
                  f"lambda = max(lowest, {annealing.base:g} (1 + {annealing.gamma:g} step)^-{annealing.power:g}). "
                  "Losses of different lambda are losses of different tasks. " + note(runs, "lfw"))
        ],
        figures=[
            Figure("annealing", picture(partial(draw, found, annealing, steps), says, pdf=True),
                   "lambda, and the training loss, over the steps of a run for each lowest lambda.")
        ],
    )  # fmt: skip


def fallen(annealing: AnnealingConfig, step: Int64) -> Float64:
    """lambda without a lowest value."""
    return np.asarray(annealing.base * (1 + annealing.gamma * step) ** -annealing.power)


def draw(found: dict[str, Found], annealing: AnnealingConfig, steps: int, _: Theme) -> "Drawing":
    """lambda on the left, on a logarithmic axis from 0.1; the mean loss over seeds on the right."""
    figure = blank(8.0, 3.0)
    left, right = figure.subplots(1, 2)
    at = np.arange(1, steps + 1)
    whole = fallen(annealing, at)
    for place, (lowest, of) in enumerate(found.items()):
        colour = COLOURS[1 + place]
        left.plot(at, np.maximum(whole, float(lowest)), color=colour, label=f"lowest {lowest}", linewidth=1.5)
        curves = [each["training"]["loss"] for each in of]
        places = [int(step) for step in curves[0]]
        mean = np.mean([[curve[step] for step in curves[0]] for curve in curves], axis=0)
        right.plot(places, mean, color=colour, label=f"lowest {lowest}", linewidth=1.5)
    left.set_yscale("log")
    left.set_ylabel("lambda")
    right.set_ylabel("training loss")
    for axes in (left, right):
        axes.set_xlabel("step")
        axes.grid(alpha=0.2)
        axes.legend(loc="upper right", fontsize=8)
    return figure
