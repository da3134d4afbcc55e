"""Figure 7: CMC and ROC curves of all losses on MegaFace."""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sphereface.experiments.paper import table5
from sphereface.experiments.paper.comparison import Found, measured
from sphereface.experiments.paper.measures import PROBES
from sphereface.experiments.paper.methods import METHODS
from sphereface.experiments.paper.result import Figure, Result, Row, Table
from sphereface.experiments.paper.runs import Run, Runs, runs_of
from sphereface.experiments.paper.setting import Setting
from sphereface.reports.figures import COLOURS, Theme, blank, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

Curve = dict[float, float]


def needed(runs: Runs) -> dict[str, list[Run]]:
    """The runs of this figure, which are those of Table 5."""
    return table5.needed(runs)


def run(setting: Setting) -> Result:
    """Draw the mean curves over seeds, for each probe set."""
    runs = runs_of(setting)
    found = measured(runs, needed(runs), "megaface")
    result = Result("fig-megaface", "CMC and ROC curves on MegaFace", setting.scale)
    if not found:
        result.findings.append("Not measured: no folder of MegaFace is given (--megaface).")
        return result
    for probes in (name for name, _, _ in PROBES if name in table5.first(found)):
        cmc, roc = ({method: mean_curve(of, probes, kind) for method, of in found.items()} for kind in ("cmc", "roc"))
        one = found["softmax"][0]["megaface"][probes]
        says = f"CMC and ROC curves of {', '.join(METHODS[method].label for method in found)} with {probes} probes"
        caption = (
            f"{probes} probes against {one['distractors']:,} distractors: identification rate by rank, and true accept "
            "rate over false accept rate. As Figure 7 of the paper, which has a million distractors."
        )
        drawn = picture(partial(draw, cmc, roc), says, pdf=True)
        result.figures.append(Figure(f"curves-{probes.lower()}", drawn, caption))
        result.tables += [points(f"cmc-{probes.lower()}", f"{probes}: CMC, %", "rank", cmc, setting),
                          points(f"roc-{probes.lower()}", f"{probes}: ROC, TAR in %", "FAR", roc, setting)]  # fmt: skip
        best = max(cmc, key=lambda method: next(iter(cmc[method].values())))
        result.findings.append(f"{probes} probes: {METHODS[best].label} has the highest identification rate at rank 1.")
    return result


def mean_curve(found: Found, probes: str, kind: str) -> Curve:
    """The mean over seeds at each rank, or rate, that all of them have."""
    curves: list[dict[str, Any]] = [each["megaface"][probes][kind] for each in found]
    shared = [at for at in curves[0] if all(at in curve for curve in curves)]
    return {float(at): float(np.mean([curve[at] for curve in curves])) for at in shared}


def draw(cmc: dict[str, Curve], roc: dict[str, Curve], _: Theme) -> "Drawing":
    """CMC on the left, ROC on the right; A-Softmax thick."""
    figure = blank(8.4, 3.6)
    left, right = figure.subplots(1, 2)
    for axes, curves, name, value in (
        (left, cmc, "rank", "identification rate, %"), (right, roc, "false accept rate", "true accept rate, %"),
    ):  # fmt: skip
        for place, (method, curve) in enumerate(curves.items()):
            axes.plot(
                list(curve), [100 * each for each in curve.values()], label=METHODS[method].label,
                color=COLOURS[place % len(COLOURS)], linewidth=2.4 if method == "a_softmax" else 1.3,
                marker="o", markersize=2.5,
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_xlabel(name)
        axes.set_ylabel(value)
        axes.grid(alpha=0.2)
    right.legend(loc="lower right", fontsize=7)
    return figure


def points(name: str, title: str, at: str, curves: dict[str, Curve], setting: Setting) -> Table:
    """The drawn points."""
    places = list(next(iter(curves.values())))
    rows = [Row([METHODS[method].label, *(f"{100 * curve[each]:.2f}" for each in places)], setting.scale)
            for method, curve in curves.items()]  # fmt: skip
    return Table(name, title, (at, *(f"{each:g}" for each in places)), rows)
