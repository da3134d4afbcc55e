"""Figure 6: softmax and A-Softmax with networks of 4 to 64 layers, on LFW and YTF."""

from typing import TYPE_CHECKING

import numpy as np

from sphereface.experiments.paper.comparison import (
    Found,
    cell,
    difference,
    measured,
    note,
    pair_cells,
    seeds_of,
    values,
)
from sphereface.experiments.paper.measures import possible
from sphereface.experiments.paper.methods import METHODS
from sphereface.experiments.paper.published import DEPTH_A_SOFTMAX, DEPTH_GAINS, DEPTH_SOFTMAX
from sphereface.experiments.paper.result import Figure, Result, Row, Table
from sphereface.experiments.paper.runs import Run, Runs, runs_of
from sphereface.experiments.paper.setting import Setting
from sphereface.reports.figures import COLOURS, blank, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

LOSSES = ("softmax", "a_softmax")
PUBLISHED = {"softmax": DEPTH_SOFTMAX, "a_softmax": DEPTH_A_SOFTMAX}
ByDepth = dict[int, dict[str, Found]]  # layers -> loss -> found


def needed(runs: Runs) -> dict[str, list[Run]]:
    """The runs of this figure, by loss and layers."""
    return {f"{loss} {layers}": seeds_of(runs, loss, layers=layers) for layers in runs.plan.depths for loss in LOSSES}


def run(setting: Setting) -> Result:
    """Train both losses at every depth, and draw their accuracies."""
    runs = runs_of(setting)
    found = measured(runs, needed(runs), "lfw", "ytf")
    by_depth = {layers: {loss: found[f"{loss} {layers}"] for loss in LOSSES} for layers in runs.plan.depths}
    gains = {layers: difference(of["a_softmax"], of["softmax"], "accuracy") for layers, of in by_depth.items()}
    sets = {"lfw": "LFW", "ytf": "YTF"}
    shown = {measure: name for measure, name in sets.items() if measure in possible(setting, "lfw", "ytf")}
    says = f"Accuracy of softmax and A-Softmax on {' and '.join(shown.values())} by number of layers"
    low, high = DEPTH_GAINS
    text = ", ".join(f"{layers} layers {each.text()}" for layers, each in gains.items())
    return Result(
        "fig-depth",
        "effect of the network's depth",
        setting.scale,
        findings=[
            f"A-Softmax m = 4 minus softmax in accuracy on LFW, points: {text}. The paper: {low} to {high} (its text)."
        ],
        tables=[
            Table(
                "accuracy", "Softmax and A-Softmax by depth", ("loss", "layers", "LFW, %", "YTF, %", "source"),
                rows(by_depth, runs), note(runs, "lfw", "ytf"),
            )
        ],
        figures=[
            Figure("depth", picture(lambda _: draw(by_depth, shown), says, pdf=True),
                   "Accuracy by number of layers; as Figure 6 of the paper, LFW on the left and YTF on the right.")
        ],
        numbers={"gains": {str(layers): each.paired.difference for layers, each in gains.items()}},
    )  # fmt: skip


def rows(by_depth: ByDepth, runs: Runs) -> list[Row]:
    """Ours, and the paper's where it prints numbers."""
    found = []
    for layers, of in by_depth.items():
        for loss in LOSSES:
            label = METHODS[loss].label
            cells = [cell(of[loss], "lfw", "accuracy"), cell(of[loss], "ytf", "accuracy")]
            found.append(Row([label, str(layers), *cells, "ours"], runs.setting.scale))
            if layers in PUBLISHED[loss]:
                found.append(
                    Row([label, str(layers), *pair_cells(PUBLISHED[loss][layers]), "paper, section 4.2"], "published")
                )
    return found


def draw(by_depth: ByDepth, shown: dict[str, str]) -> "Drawing":
    """Bars side by side, with the lowest and highest seed."""
    figure = blank(4.2 * len(shown), 3.0)
    for axes, (measure, name) in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown.items(), strict=True):
        for place, loss in enumerate(LOSSES):
            each = [[100 * value for value in values(of[loss], measure, "accuracy")] for of in by_depth.values()]
            means = [float(np.mean(some)) for some in each]
            ends = [[mean - min(some), max(some) - mean] for mean, some in zip(means, each, strict=True)]
            at = np.arange(len(by_depth)) + (place - 0.5) * 0.38
            axes.bar(at, means, 0.36, yerr=np.transpose(ends), label=METHODS[loss].label, color=COLOURS[place * 4],
                     error_kw={"linewidth": 0.8, "ecolor": COLOURS[0]})  # fmt: skip
            axes.set_xticks(range(len(by_depth)), [str(layers) for layers in by_depth])
        lowest = min(
            100 * value
            for of in by_depth.values()
            for some in of.values()
            for value in values(some, measure, "accuracy")
        )
        axes.set_ylim(max(0.0, lowest - 5), None)
        axes.set_title(name)
        axes.set_xlabel("layers")
        axes.set_ylabel("accuracy, %")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=8)
    return figure
