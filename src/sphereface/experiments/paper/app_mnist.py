"""Appendix D: digits with softmax and A-Softmax, m = 2, 3, 4: the 2-D features, and how well classes separate."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from sphereface.experiments.outcomes import Outcome
from sphereface.experiments.paper.comparison import cell, values
from sphereface.experiments.paper.digit_images import PARTS
from sphereface.experiments.paper.digits import DigitRuns, Run
from sphereface.experiments.paper.digits_drawing import scatter
from sphereface.experiments.paper.result import Figure, Result, Row, Table
from sphereface.experiments.paper.setting import Setting
from sphereface.reports.figures import COLOURS, Theme, blank, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

FLAT = {"softmax": "softmax", "a_softmax_m2": "m = 2", "a_softmax_m3": "m = 3", "a_softmax": "m = 4"}  # the paper's
SOLID = {"modified_softmax": "m = 1", "a_softmax_m2": "m = 2", "a_softmax_m3": "m = 3", "a_softmax": "m = 4"}
Found = dict[str, list[Outcome]]  # method -> outcome of each seed


def run(setting: Setting) -> Result:
    """Train the losses of the figure in 2-D, and m = 1 to 4 in 3-D; measure classes by angle."""
    runs = DigitRuns(setting)
    flat, solid = runs.over_seeds(FLAT), runs.over_seeds(SOLID, features=3)
    first = {FLAT[name]: runs.drawn([Run(name, setting.seeds[0])])[0] for name in FLAT}
    fisher = {name: float(np.mean(values(found, "test", "fisher"))) for name, found in flat.items()}
    apart = {name: float(np.mean(values(found, "test", "separated"))) for name, found in solid.items()}
    says = "Angular Fisher score of 2-D features by loss, and share of separated pairs of classes in 3-D by m"
    return Result(
        "app-mnist",
        "digits with softmax and A-Softmax m = 2, 3, 4",
        setting.scale,
        findings=[
            f"Angular Fisher score of 2-D features of test images, lower is better: {listed(fisher, FLAT, '{:.4f}')}. "
            f"From softmax over m = 2 to m = 4 it {course(fisher, ('softmax', 'a_softmax_m2', 'a_softmax'), -1)}; the "
            "paper: features become more discriminative with m, and generalise to the test images.",
            f"In 3-D, the share of pairs of classes whose angles between them exceed those within either is "
            f"{listed(apart, SOLID, '{:.0%}')} on test images: from m = 1 to m = 4 it "
            f"{course(apart, ('modified_softmax', 'a_softmax'), +1)}.",
        ],
        tables=[
            _table("fisher", "2-D features", FLAT, flat, "fisher", "angular Fisher score", runs),
            _table("separated", "3-D features", SOLID, solid, "separated", "separated pairs of classes, %", runs),
        ],
        figures=[
            Figure("mnist", scatter(first),
                   "2-D features with softmax and A-Softmax, m = 2, 3, 4; lines: class weights. As the figure of "
                   "appendix D.", wide=True),
            Figure("measures", picture(partial(draw_measures, flat, solid), says, pdf=True),
                   "Left: angular Fisher score in 2-D. Right: share of pairs of classes in 3-D whose angles between "
                   "them exceed those within either. Points: seeds; lines: their means."),
        ],
        numbers={"fisher": fisher, "separated": apart},
    )  # fmt: skip


def course(of: Mapping[str, float], names: Sequence[str], sign: int) -> str:
    """The words "falls" or "rises" if the values of some names do so at each step, else that they do not."""
    does, word = all(sign * (of[b] - of[a]) > 0 for a, b in pairwise(names)), "rises" if sign > 0 else "falls"
    return word if does else f"does not {word.removesuffix('s')} at each step"


def listed(of: Mapping[str, float], labels: Mapping[str, str], form: str) -> str:
    """The values with the names of their losses."""
    return ", ".join(f"{form.format(value)} ({labels[name]})" for name, value in of.items())


def _table(
    name: str, features: str, labels: Mapping[str, str], found: Found, of: str, title: str, runs: DigitRuns
) -> Table:
    unit, form = {"fisher": (1, "{:.4f}"), "separated": (100, "{:.1f}")}[of]
    rows = [
        Row([label, *(cell(found[method], part, "accuracy") for part in PARTS),
             *(cell(found[method], part, of, unit=unit, form=form) for part in PARTS)], runs.setting.scale)
        for method, label in labels.items()
    ]  # fmt: skip
    head = ("loss", "accuracy, %: train", "test", f"{title}: train", "test")
    return Table(name, f"{features}: {title}", head, rows, f"Mean, lowest and highest seed. {runs.about}.")


def draw_measures(flat: Found, solid: Found, _: Theme) -> "Drawing":
    """Both measures of the test images over the losses."""
    figure = blank(6.2, 2.5)
    left, right = figure.subplots(1, 2)
    _points(left, {FLAT[name]: values(found, "test", "fisher") for name, found in flat.items()})
    _points(right, {SOLID[name]: [100 * each for each in values(found, "test", "separated")] for name, found in
                    solid.items()})  # fmt: skip
    left.set_title("2-D: angular Fisher score")
    right.set_title("3-D: separated pairs of classes, %")
    left.set_ylim(bottom=0)
    right.set_ylim(0, 100)
    return figure


def _points(axes: "Axes", of: Mapping[str, Sequence[float]]) -> None:
    """A point for each seed and a line through the means."""
    for place, each in enumerate(of.values()):
        axes.scatter([place] * len(each), each, s=16, color=COLOURS[1 + place], linewidths=0, zorder=3)
    axes.plot([np.mean(each) for each in of.values()], color=COLOURS[0], linewidth=1)
    axes.set_xticks(range(len(of)), list(of))
    axes.margins(x=0.12)
    axes.grid(axis="y", alpha=0.2)
