"""Appendix B: lengths of class weights against sizes of classes, on digits and faces; rows C and D on a long tail."""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from sphereface.arrays import Float64
from sphereface.experiments.paper import digits, splits
from sphereface.experiments.paper.comparison import NOTHING, Found, cell, difference, measured, note, seeds_of
from sphereface.experiments.paper.methods import METHODS
from sphereface.experiments.paper.result import Figure, Result, Row, Table
from sphereface.experiments.paper.runs import Run, Runs, runs_of
from sphereface.experiments.paper.setting import Setting
from sphereface.reports.figures import COLOURS, Theme, blank, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

C, D = "softmax_no_bias", "modified_softmax"  # rows of the ablation: weights free, weights normalised


def needed(runs: Runs) -> dict[str, list[Run]]:
    """The runs of this experiment: softmax on all faces and on the long tail, and normalised weights on the latter."""
    tail = splits.LONG_TAILED
    return {"whole": seeds_of(runs, "softmax"), **{each: seeds_of(runs, each, split=tail) for each in (C, D)}}


def run(setting: Setting) -> Result:
    """Compare lengths with sizes, and normalised weights with free ones where classes have very different sizes."""
    runs = runs_of(setting)
    wanted = needed(runs)
    found = {
        **measured(runs, {"whole": wanted["whole"]}, "training"),
        **measured(runs, {each: wanted[each] for each in (C, D)}, "lfw", "training"),
    }
    sizes = {name: class_sizes(runs, splits.WHOLE if name == "whole" else splits.LONG_TAILED) for name in ("whole", C)}
    points = {
        "digits, long tail": digits.weight_lengths(setting),
        "faces": (sizes["whole"], lengths(found["whole"])),
        "faces, long tail": (sizes[C], lengths(found[C])),
    }
    ranks = {name: rank_correlation(*each) for name, each in points.items()}
    gain = {name: difference(found[D], found[C], name) for name in ("tar", "accuracy")}
    correlations = [
        Row([name, f"{len(points[name][0]):,}", shown(rank)], setting.scale) for name, rank in ranks.items()
    ]
    rows = [
        Row([METHODS[each].label, *(cell(found[each], "lfw", of) for of in ("accuracy", "tar"))], setting.scale)
        for each in (C, D)
    ]
    rows.append(Row(["D - C", gain["accuracy"].text(), gain["tar"].text()], setting.scale))
    says = "Length of each class weight over the number of images of its class, on digits and on faces"
    text = ", ".join(f"{name} {shown(rank)}" for name, rank in ranks.items())
    return Result(
        "app-norms",
        "lengths of class weights against sizes of classes",
        setting.scale,
        findings=[
            f"Rank correlation of a class's size with the length of its weight: {text}. The paper: larger classes tend "
            "to have longer weights.",
            f"On the long tail, unit weights (row D) minus free ones (row C): {gain['tar'].text()} points of TAR.",
        ],
        tables=[
            Table("correlation", "Size of a class and length of its weight", ("data", "classes", "rank correlation"),
                  correlations, "Softmax; mean length over seeds. " + note(runs)),
            Table("long-tail", "Rows C and D, trained on a long tail",
                  ("loss", "LFW, %", f"TAR at FAR {runs.plan.far:g}, %"), rows,
                  f"A long tail: {splits.HEAD:.0%} of the people keep all photos, the others {splits.TAIL}. "
                  + note(runs)),
        ],
        figures=[
            Figure("lengths", picture(partial(draw, points), says, pdf=True),
                   "Length of each class weight over the number of images of its class; as the figure of appendix B.",
                   wide=True)
        ],
        numbers={"rank_correlation": {name: None if np.isnan(rank) else rank for name, rank in ranks.items()}},
    )  # fmt: skip


def class_sizes(runs: Runs, split: str) -> Float64:
    """The number of training images of each person of a split."""
    left = splits.SPLITS[split](runs.known)
    return np.bincount(np.asarray(runs.known.labels)[~left], minlength=len(runs.known.people)).astype(np.float64)


def lengths(found: Found) -> Float64:
    """The length of each class weight, the mean over seeds."""
    return np.asarray(np.mean([each["training"]["lengths"] for each in found], axis=0))


def shown(rank: float) -> str:
    """A rank correlation; "-" where all classes have one size."""
    return NOTHING if np.isnan(rank) else f"{rank:+.2f}"


def rank_correlation(a: Float64, b: Float64) -> float:
    """Spearman's: the correlation of ranks, equal values sharing their mean rank; nan if all are equal."""
    if min(np.ptp(a), np.ptp(b)) == 0:
        return float("nan")
    return float(np.corrcoef(mean_ranks(a), mean_ranks(b))[0, 1])


def mean_ranks(values: Float64) -> Float64:
    """The rank of each value from 0, the mean rank where values are equal."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts + 1) / 2)[group])


def draw(points: dict[str, tuple[Float64, Float64]], _: Theme) -> "Drawing":
    """A panel for each set: a point for each class."""
    figure = blank(3.1 * len(points), 2.8)
    for place, (axes, (name, (sizes, each))) in enumerate(
        zip(figure.subplots(1, len(points)), points.items(), strict=True)
    ):
        axes.scatter(sizes, each, s=9 if len(sizes) > 20 else 30, color=COLOURS[1 + place], alpha=0.7, linewidths=0)
        axes.set_xscale("log")
        axes.set_title(name)
        axes.set_xlabel("images of the class")
        axes.set_ylabel("length of its weight")
        axes.grid(alpha=0.2)
    return figure
