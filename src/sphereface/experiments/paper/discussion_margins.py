"""Of section 3.5: cos(m theta) with and without psi, and how the margin of L-Softmax depends on lengths of weights.

- Equation 6, with cos(m theta), and equation 7, with psi, move free features towards fixed class weights.
- The margin is the angle between the boundaries |w1| psi(theta_1) = |w2| cos(theta_2) and |w2| psi(theta_2) =
  |w1| cos(theta_1), between the two weights; A-Softmax has |w1| = |w2|.
"""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from sphereface.arrays import Float64
from sphereface.choices import Scale
from sphereface.experiments.paper.result import Figure, Row, Table
from sphereface.geometry import angular_margin, chebyshev, first_true, psi, reward_angle, rising_arcs
from sphereface.losses.classifier import MarginSoftmax
from sphereface.losses.pairs import unit
from sphereface.reports.figures import COLOURS, INK, Picture, Theme, blank, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

CLASSES, FEATURES, START_LENGTH, DESCENT = 6, 600, 8.0, 400
FORMULAS: dict[str, Callable[[Any, int], Any]] = {"cos(m theta)": chebyshev, "psi": psi}
SPACES, SEVERAL_M, M = (3, 128), (2, 3, 4), 4
RATIOS = tuple(2.0**power for power in (-3, -2, -1, 0, 1, 2, 3))
BETWEEN = (60, 90, 120)  # degrees between two weights


class Compared(NamedTuple):
    """What this part adds to the result."""

    findings: list[str]
    tables: list[Table]
    figures: list[Figure]
    numbers: dict[str, Any]


def compare(scale: Scale) -> Compared:
    """Both comparisons."""
    settled = settle_all()
    return Compared(
        findings=[psi_finding(settled), margin_finding()],
        tables=[*psi_tables(settled, scale), margin_table()],
        figures=[
            Figure("psi", draw_psi(settled), f"m = {M}. Left: the target logit of a feature of length 1. Middle: its "
                   "slope; where it is above 0, on the shaded arcs, the loss falls as the feature turns away from its "
                   "class. Right: where free features in 3-D begin and end.", wide=True),
            Figure("l-softmax", draw_margins(), f"m = {M}. Left: directions between two weights that L-Softmax accepts "
                   "as class 1 and 2, by the ratio of the weights' lengths; dashed: A-Softmax. Right: the angle "
                   "between the two regions.", wide=True),
        ],
        numbers={
            "psi": [
                {"dimensions": dimensions, "m": m, "formula": name, "beyond_at_start": beyond(found.start, m),
                 "beyond_at_end": beyond(found.end, m), "loss": found.loss}
                for (dimensions, m, name), found in settled.items()
            ],
            "l_softmax_margin_degrees": {
                str(between): {str(ratio): math.degrees(l_softmax_margin(ratio, math.radians(between), M))
                               for ratio in RATIOS} for between in BETWEEN
            },
        },
    )  # fmt: skip


class Settled(NamedTuple):
    """Angles (N,) between features and their class weights before and after, in radians, and the mean loss after."""

    start: Float64
    end: Float64
    loss: float


def settle(formula: Callable[[Any, int], Any], m: int, *, dimensions: int, seed: int = 0) -> Settled:
    """Gradient descent on free features from random directions, with fixed class weights at right angles or more.

    The features keep the length that they learn, as in the paper; the target logit is |x| formula(cos theta, m).
    """
    generator = torch.Generator().manual_seed(seed)
    axes = torch.eye(dimensions, dtype=torch.float64)
    weights = torch.cat([axes[: CLASSES // 2], -axes[: CLASSES // 2]])
    loss = MarginSoftmax(dimensions, CLASSES, lambda cos, length: length * formula(cos, m)).double()
    loss.weight.requires_grad_(False).copy_(weights)
    labels = torch.arange(FEATURES) % CLASSES
    directions = torch.randn(FEATURES, dimensions, generator=generator, dtype=torch.float64)
    features = (START_LENGTH * unit(directions)).requires_grad_()

    def angles() -> Float64:
        cos = (unit(features.detach()) * weights[labels]).sum(1)
        return np.asarray(cos.clamp(-1, 1).acos().numpy(), np.float64)

    start = angles()
    optimizer = torch.optim.SGD([features], lr=0.1 * FEATURES, momentum=0.9)  # the loss is a mean over features
    for _ in range(DESCENT):
        optimizer.zero_grad()
        loss(features, labels).backward()
        optimizer.step()
    return Settled(start, angles(), float(loss(features, labels).detach()))


def beyond(angles: Float64, m: int) -> float:
    """The share of angles beyond pi / m, where equation 6 is not defined."""
    return float((angles > math.pi / m + 1e-3).mean())


def settle_all() -> dict[tuple[int, int, str], Settled]:
    """All descents, by dimensions, m and formula."""
    return {
        (dimensions, m, name): settle(formula, m, dimensions=dimensions)
        for dimensions in SPACES for m in SEVERAL_M for name, formula in FORMULAS.items()
    }  # fmt: skip


def psi_tables(settled: Mapping[tuple[int, int, str], Settled], scale: Scale) -> list[Table]:
    """Where cos(m theta) rises, by formula; and where features end with and without psi."""
    arcs = [
        Row([f"{m}", ", ".join(f"{math.degrees(arc.start):.0f} to {math.degrees(arc.stop):.0f}" for arc in rising),
             f"{sum(arc.stop - arc.start for arc in rising) / math.pi:.0%}", f"{math.degrees(reward_angle(m)):.0f}"],
            "derived")
        for m in SEVERAL_M for rising in [rising_arcs(m)]
    ]  # fmt: skip
    ends = []
    for dimensions in SPACES:
        for m in SEVERAL_M:
            plain, ours = (settled[dimensions, m, name] for name in FORMULAS)
            shares = [beyond(plain.start, m), beyond(plain.end, m), beyond(ours.end, m)]
            losses = [f"{plain.loss:.2g}", f"{ours.loss:.2g}"]
            ends.append(Row([f"{dimensions}", f"{m}", *(f"{share:.1%}" for share in shares), *losses], scale))
    return [
        Table("rising", "Angles at which the gradient of cos(m theta) turns a feature away from its class",
              ["m", "rising arcs, degrees", "of all angles", "easier than cos(theta) beyond, degrees"], arcs),
        Table("stuck", "Features beyond pi / m, before and after descent",
              ["dimensions", "m", "at the start", "after cos(m theta)", "after psi", "loss with cos(m theta)",
               "loss with psi"], ends,
              f"{FEATURES} free features from random directions, {CLASSES} fixed class weights, {DESCENT} steps."),
    ]  # fmt: skip


# The margin of L-Softmax.


def accepted_angle(ratio: float, theta12: float, m: int) -> float:
    """How far from w1 towards w2 a feature is accepted as class 1, with |w1| = ratio |w2|; 0 if w1 itself is not."""
    return first_true(lambda turn: ratio * psi(math.cos(turn), m) < math.cos(theta12 - turn), 0.0, theta12)


def l_softmax_margin(ratio: float, theta12: float, m: int) -> float:
    """The angle between the two boundaries of L-Softmax."""
    return theta12 - accepted_angle(ratio, theta12, m) - accepted_angle(1 / ratio, theta12, m)


def margin_table() -> Table:
    """Boundaries and margin of L-Softmax by the ratio of lengths, and A-Softmax's margin."""
    rows = []
    for between in BETWEEN:
        theta12 = math.radians(between)
        for ratio in RATIOS[len(RATIOS) // 2 :]:  # 1 / ratio exchanges the classes
            angles = [accepted_angle(ratio, theta12, M), accepted_angle(1 / ratio, theta12, M),
                      l_softmax_margin(ratio, theta12, M), angular_margin(theta12, M)]  # fmt: skip
            rows.append(Row([f"{between}", f"{ratio:g}", *(f"{math.degrees(each):.1f}" for each in angles)], "derived"))
    head = [
        "between weights",
        "length of w1 / w2",
        "class 1 reaches",
        "class 2 reaches",
        "margin",
        "A-Softmax's margin",
    ]
    note = f"m = {M}, degrees. A class reaches 0 if not even the direction of its own weight is accepted."
    return Table("l-softmax", "The margin of L-Softmax by the lengths of two weights", head, rows, note)


def psi_finding(settled: Mapping[tuple[int, int, str], Settled]) -> str:
    """What psi changes, in words."""
    plain, ours = (settled[SPACES[0], M, name] for name in FORMULAS)
    wide = {name: settled[SPACES[1], M, name] for name in FORMULAS}
    arcs = " and ".join(f"{math.degrees(a.start):.0f} to {math.degrees(a.stop):.0f}" for a in rising_arcs(M))
    return (
        f"Without psi, cos({M} theta) rises from {arcs} degrees: there a feature lowers its loss by turning away from "
        f"its class. In 3-D {beyond(plain.start, M):.0%} of random features begin beyond pi/{M}; after descent "
        f"{beyond(plain.end, M):.0%} are still there with cos({M} theta), at a loss of {plain.loss:.2g}, and "
        f"{beyond(ours.end, M):.0%} with psi. In {SPACES[1]} dimensions, where random directions are nearly at right "
        f"angles, {beyond(wide['cos(m theta)'].end, M):.0%} stay with cos({M} theta), at a loss of "
        f"{wide['cos(m theta)'].loss:.2g}, and {beyond(wide['psi'].end, M):.0%} with psi."
    )


def margin_finding() -> str:
    """How L-Softmax's margin depends on lengths, in words."""
    narrow, right = math.radians(60), math.radians(90)
    reach = [math.degrees(accepted_angle(ratio, narrow, M)) for ratio in (1, 1.5, 1 / 1.5)]
    margins = [math.degrees(l_softmax_margin(ratio, right, M)) for ratio in (1, 8)]
    return (
        f"L-Softmax's boundaries move with the lengths of weights: for weights 60 degrees apart each class reaches "
        f"{reach[0]:.1f} degrees at equal lengths, {reach[1]:.1f} and {reach[2]:.1f} at a ratio of 1.5, and from a "
        f"ratio of {1 / math.cos(narrow):.0f} the class with the shorter weight does not contain its own weight. The "
        f"angle between the regions changes less: at 90 degrees from {margins[0]:.1f} to {margins[1]:.1f} at a ratio "
        f"of 8. A-Softmax's boundaries and its margin of (m - 1) / (m + 1) theta_12 do not depend on lengths."
    )


def draw_psi(settled: Mapping[tuple[int, int, str], Settled]) -> Picture:
    """cos(m theta) and psi, their slopes, and where features begin and end with each."""
    theta = torch.linspace(1e-3, math.pi - 1e-3, 721, dtype=torch.float64)
    colours = dict(zip(FORMULAS, (COLOURS[4], COLOURS[2]), strict=True))
    names = {"cos(m theta)": r"$\cos(m\theta)$", "psi": r"$\psi(\theta)$"}

    def draw(theme: Theme) -> "Drawing":
        figure = blank(8.4, 3.1)
        left, middle, right = (figure.add_subplot(1, 3, place) for place in (1, 2, 3))
        for name, formula in FORMULAS.items():
            angle = theta.clone().requires_grad_()
            value = formula(angle.cos(), M)
            (slope,) = torch.autograd.grad(value.sum(), angle)
            left.plot(np.degrees(theta), value.detach(), color=colours[name], label=names[name])
            middle.plot(np.degrees(theta), slope, color=colours[name])
            found = settled[SPACES[0], M, name]
            right.scatter(np.degrees(found.start), np.degrees(found.end), s=5, color=colours[name], linewidths=0)
        left.plot(np.degrees(theta), theta.cos(), color=INK[theme], linewidth=0.9, linestyle="--",
                  label=r"$\cos\theta$")  # fmt: skip
        middle.axhline(0, color=INK[theme], linewidth=0.8)
        right.axhline(180 / M, color=INK[theme], linewidth=0.8, linestyle=":")
        for axes, title, y in ((left, "target logit", ""), (middle, "its slope", "per radian"),
                               (right, "free features in 3-D", r"$\theta$ at the end, degrees")):  # fmt: skip
            _angle_axis(axes, title, y)
        right.set_yticks(range(0, 181, 45))
        right.set_xlabel(r"$\theta$ at the start, degrees")
        for axes in (left, middle):
            for arc in rising_arcs(M):
                axes.axvspan(math.degrees(arc.start), math.degrees(arc.stop), color=COLOURS[4], alpha=0.13, linewidth=0)
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
        return figure

    return picture(draw, "cos(4 theta) and psi, their slopes, and the angles at which features end with each", pdf=True)


def _angle_axis(axes: "Axes", title: str, y: str) -> None:
    axes.set_title(title)
    axes.set_xlabel(r"$\theta$, degrees")
    axes.set_ylabel(y)
    axes.set_xticks(range(0, 181, 45))
    axes.grid(alpha=0.2)


def draw_margins() -> Picture:
    """The regions of two classes under L-Softmax by the ratio of lengths, and the angle between them."""
    ratios = np.geomspace(RATIOS[0], RATIOS[-1], 97).tolist()
    first, second = (
        np.degrees([accepted_angle(ratio**sign, math.radians(BETWEEN[0]), M) for ratio in ratios]) for sign in (1, -1)
    )
    margins = {
        between: [math.degrees(l_softmax_margin(ratio, math.radians(between), M)) for ratio in ratios]
        for between in BETWEEN
    }

    def draw(theme: Theme) -> "Drawing":
        figure = blank(8.4, 3.3)
        left, right = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
        left.fill_between(ratios, 0, first, color=COLOURS[3], alpha=0.8, linewidth=0)
        left.fill_between(ratios, BETWEEN[0] - second, BETWEEN[0], color=COLOURS[2], alpha=0.8, linewidth=0)
        for boundary in (BETWEEN[0] / (M + 1), BETWEEN[0] * M / (M + 1)):
            left.axhline(boundary, color=INK[theme], linewidth=1, linestyle="--")
        left.text(1, 0.4 * BETWEEN[0] / (M + 1), "class 1", ha="center", va="center", color=INK["light"])
        left.text(1, BETWEEN[0] * (1 - 0.4 / (M + 1)), "class 2", ha="center", va="center", color=INK["light"])
        left.text(1, BETWEEN[0] / 2, "margin", ha="center", va="center")
        left.set_ylim(0, BETWEEN[0])
        left.set_yticks(range(0, BETWEEN[0] + 1, 15))
        left.set_ylabel(f"angle from $w_1$ to $w_2$, of {BETWEEN[0]} degrees")
        for (between, margin), colour in zip(margins.items(), (COLOURS[1], COLOURS[5], COLOURS[4]), strict=True):
            constant = math.degrees(angular_margin(math.radians(between), M))
            right.plot(ratios, margin, color=colour, label=f"weights {between}\u00b0 apart")
            right.axhline(constant, color=colour, linewidth=1, linestyle="--")
        right.set_ylim(0, 100)
        right.set_ylabel("margin, degrees")
        right.legend(loc="upper center", ncols=3, fontsize=7, handlelength=1.2, columnspacing=1)
        for axes in (left, right):
            axes.set_xscale("log", base=2)
            axes.set_xticks(RATIOS, ["1/8", "1/4", "1/2", "1", "2", "4", "8"])
            axes.set_xlabel(r"$\|w_1\| / \|w_2\|$")
            axes.margins(x=0)
        right.grid(alpha=0.2)
        return figure

    says = "Regions and margin of L-Softmax against the ratio of two weights' lengths, beside A-Softmax's"
    return picture(draw, says, pdf=True)
