"""Appendix C: the biases that softmax learns on faces."""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from sphereface.arrays import Float64
from sphereface.experiments.paper.comparison import difference, measured, note, seeds_of
from sphereface.experiments.paper.published import ABLATION
from sphereface.experiments.paper.result import Figure, Result, Row, Table
from sphereface.experiments.paper.runs import Run, Runs, runs_of
from sphereface.experiments.paper.setting import Setting
from sphereface.reports.figures import COLOURS, SAME, Theme, blank, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

WITH, WITHOUT = "softmax", "softmax_no_bias"  # rows B and C of the ablation


def needed(runs: Runs) -> dict[str, list[Run]]:
    """The runs of this experiment: softmax with and without biases."""
    return {method: seeds_of(runs, method) for method in (WITH, WITHOUT)}


def run(setting: Setting) -> Result:
    """Draw the biases of all classes, and compare recognition with and without them."""
    runs = runs_of(setting)
    found = measured(runs, needed(runs), "lfw", "training")
    biases = np.array([each["training"]["biases"] for each in found[WITH]])  # (seeds, classes)
    lengths = np.array([each["training"]["lengths"] for each in found[WITH]])
    gain = {name: difference(found[WITHOUT], found[WITH], name) for name in ("tar", "accuracy")}
    rows = [
        Row([str(seed), f"{each.mean():+.4f}", f"{each.std():.4f}", f"{np.abs(each).max():.4f}", f"{size.mean():.3f}"],
            setting.scale)
        for seed, each, size in zip(setting.seeds, biases, lengths, strict=True)
    ]  # fmt: skip
    theirs = ABLATION["C"][0] - ABLATION["B"][0]
    return Result(
        "app-biases",
        "learned biases of the last layer",
        setting.scale,
        findings=[
            f"The {biases.shape[1]:,} biases have mean {biases.mean():+.4f} and deviation {biases.std():.4f}; the "
            f"class weights have length {lengths.mean():.3f}. The paper: most biases are near zero.",
            f"Without biases minus with them: {gain['accuracy'].text()} points of accuracy, {gain['tar'].text()} of "
            f"TAR (rows C and B of the ablation; the paper has {theirs:+.2f} of accuracy).",
        ],
        tables=[
            Table("biases", "Biases of softmax", ("seed", "mean", "deviation", "largest", "mean length of weights"),
                  rows, note(runs))
        ],
        figures=[
            Figure("biases", picture(partial(draw, biases[0]), "Bias of each class, and their histogram", pdf=True),
                   "The bias of each class, in the order of classes, and their histogram; as the figure of appendix C.")
        ],
    )  # fmt: skip


def draw(biases: Float64, _: Theme) -> "Drawing":
    """The biases by class, and their histogram beside them on the same axis."""
    figure = blank(7.0, 2.6)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 1))
    left.scatter(np.arange(len(biases)), biases, s=6, color=COLOURS[1], linewidths=0)
    left.axhline(0, color=SAME, linewidth=0.8)
    left.set_xlabel("class")
    left.set_ylabel("bias")
    right.hist(biases, bins=30, orientation="horizontal", color=COLOURS[1])
    right.set_xlabel("classes")
    return figure
