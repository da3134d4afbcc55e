"""Table 1: decision boundaries of two classes, found as zeros of the training losses and compared with the table.

For two classes a softmax loss is log(1 + exp(f_other - f_true)), so that its decision boundary for a class is where the
logits f of a feature of that class are equal: where the loss is log 2. The zeros are searched along the circle of the
two weights, without the formulas of the table.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from sphereface.arrays import Float64
from sphereface.experiments.paper.result import Figure, Result, Row, Table
from sphereface.experiments.paper.setting import Setting
from sphereface.geometry import BoundaryOf, angular_margin, decision_boundary
from sphereface.losses import create_loss
from sphereface.losses.classifier import MarginSoftmax
from sphereface.losses.softmax import Shard, Wanted
from sphereface.reports.figures import COLOURS, INK, Picture, Theme, blank, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

DEGREES = (30, 60, 90, 120, 150)  # between the two weights
SIXTY = math.radians(60)  # between the weights of softmax
MARGINS = (1, 2, 3, 4)  # m
LENGTHS = (0.5, 1.0, 4.0)  # |x|
FEATURES = {"tiny": 20_000, "small": 200_000, "paper": 200_000}  # random ones, in each dimension
DIMENSIONS = (2, 3, 16)
CLASSES = ("#e0862e", COLOURS[2])  # orange and green, as in the paper's Figure 3
PRINTED = {
    "softmax": "(W1 - W2) x + b1 - b2 = 0",
    "modified_softmax": "|x| (cos theta_1 - cos theta_2) = 0",
    "a_softmax": "|x| (cos m theta_1 - cos theta_2) = 0 for class 1, |x| (cos theta_1 - cos m theta_2) = 0 for class 2",
}


class Case(NamedTuple):
    """A softmax with free weights: their lengths, and the biases."""

    name: str
    lengths: tuple[float, float] = (1.0, 1.0)
    biases: tuple[float, float] = (0.0, 0.0)


SOFTMAX = (
    Case("unit weights, no bias"),
    Case("unit weights, bias 0.3 and -0.1", biases=(0.3, -0.1)),
    Case("|W1| = 1, |W2| = 2, no bias", lengths=(1.0, 2.0)),
    Case("|W1| = 1, |W2| = 2, bias 0.3 and -0.1", lengths=(1.0, 2.0), biases=(0.3, -0.1)),
)


def plane_weights(theta12: float, lengths: tuple[float, float] = (1.0, 1.0)) -> Float64:
    """Two weights (2, 2), theta12 apart: the first points along the first axis."""
    return np.array([[lengths[0], 0.0], [lengths[1] * math.cos(theta12), lengths[1] * math.sin(theta12)]])


def loss_of(
    name: BoundaryOf, weights: Float64, *, m: int = 4, biases: tuple[float, float] = (0.0, 0.0)
) -> MarginSoftmax:
    """The training loss of two classes with given weights (2, D)."""
    options = {"m": m, "annealing": None} if name == "a_softmax" else {}
    loss = create_loss(name, weights.shape[1], 2, **options).double().eval()
    assert isinstance(loss, MarginSoftmax)
    with torch.no_grad():
        loss.weight.copy_(torch.from_numpy(weights))
        if loss.bias is not None:
            loss.bias.copy_(torch.tensor(biases, dtype=torch.float64))
    return loss


def lead(loss: MarginSoftmax, features: Float64, label: int) -> Float64:
    """True logit minus that of the other class (N,) for features (N, D) of class `label`: the loss is log(1 + e^-lead).

    Above 0 the feature is in the region of its class.
    """
    labels = torch.full((len(features),), label)
    bias = None if loss.bias is None else loss.bias.detach()
    nothing = Wanted(features=False, weight=False, bias=False)
    part = Shard(torch.from_numpy(features), loss.weight.detach(), bias, labels, loss.form(), nothing).partial()
    return (part.target - part.log_others()).numpy()


def around(turn: Float64, length: float = 1.0) -> Float64:
    """Features (N, 2) of a length in the directions `turn`, counted from W1 towards W2; radians."""
    return length * np.stack([np.cos(turn), np.sin(turn)], axis=1)


def crossings(values: Callable[[Float64], Float64], start: float, stop: float, steps: int = 1_440) -> Float64:
    """The places in [start, stop] where the sign of a function changes: found on a grid, then bisected."""
    grid = np.linspace(start, stop, steps + 1)
    above = values(grid) > 0
    at = np.flatnonzero(above[1:] != above[:-1])
    low, high, before = grid[at], grid[at + 1], above[at]
    for _ in range(36):  # a step of the grid over 2^36 is below 1e-12 for all ranges here
        middle = (low + high) / 2
        same = (values(middle) > 0) == before
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return np.asarray((low + high) / 2)


def boundary(loss: MarginSoftmax, label: int, theta12: float, length: float = 1.0) -> Float64:
    """The directions of the boundary of a class, rising from opposite the bisector; radians from W1 towards W2."""
    opposite = theta12 / 2 - math.pi - 1e-9  # a boundary may lie there: it shall not be at both ends of the range
    return crossings(lambda turn: lead(loss, around(turn, length), label), opposite, opposite + 2 * math.pi)


def softmax_closed_form(case: Case, theta12: float, length: float) -> Float64:
    """The directions with (W1 - W2) x + b1 - b2 = 0 on the circle |x| = length, rising; empty if all is one region."""
    w1, w2 = plane_weights(theta12, case.lengths)
    normal = w1 - w2
    cos = (case.biases[1] - case.biases[0]) / (length * math.hypot(*normal))
    if abs(cos) > 1:
        return np.zeros(0)
    turns = math.atan2(normal[1], normal[0]) + np.array([-1, 1]) * math.acos(cos)
    first = theta12 / 2 - math.pi - 1e-9
    return np.sort((turns - first) % (2 * math.pi) + first)


def angular_closed_form(theta12: float, m: int) -> Float64:
    """The directions of class 1's boundary, m theta_1 = theta_2, away from W2 and towards it.

    Away from W2, theta_2 is theta_12 + theta_1, or the shorter way round if that is above pi.
    """
    near_way = theta12 / (m - 1) if m > 1 else math.inf
    outer = near_way if theta12 + near_way <= math.pi else (2 * math.pi - theta12) / (m + 1)
    return np.array([-outer, theta12 / (m + 1)])


def softmax_table() -> tuple[Table, float]:
    """Softmax at 60 degrees: its boundary by weights, biases and |x|; and the largest difference in degrees."""
    theta12, rows, worst = SIXTY, [], 0.0
    for case in SOFTMAX:
        loss = loss_of("softmax", plane_weights(theta12, case.lengths), biases=case.biases)
        for length in LENGTHS:
            found, wanted = boundary(loss, 0, theta12, length), softmax_closed_form(case, theta12, length)
            difference = math.degrees(furthest(found, wanted))
            worst = max(worst, difference)
            cells = [case.name, f"{length:g}", _degrees(found), _degrees(wanted), f"{difference:.0e}"]
            rows.append(Row(cells, "derived"))
    head = ["softmax", "|x|", "zeros of the loss's logits", "Table 1", "difference"]
    title = "Softmax, weights 60 degrees apart: directions of the boundary, degrees from W1 towards W2"
    note = "Without biases the boundary is a line through the origin; unequal lengths turn it off the bisector at 30."
    return Table("softmax", title, head, rows, note), worst


def _degrees(turns: Float64) -> str:
    rounded = np.round(np.degrees(turns), 3) + 0.0  # no -0
    return ", ".join(f"{turn:.3f}" for turn in rounded) or "none: all of one class"


class Angular(NamedTuple):
    """Boundaries of modified softmax or A-Softmax, measured; degrees from W1 towards W2."""

    name: BoundaryOf
    m: int
    theta12: int
    first: float  # boundary of class 1 between the weights
    outer: float  # its other one, on the side of W1 that is away from W2
    second: float  # boundary of class 2 between the weights
    difference: float  # of all four boundaries from the closed form
    printed_zeros: int  # of the printed formula, in which cos m theta rises again

    @property
    def margin(self) -> float:
        """The free angle between the regions."""
        return self.second - self.first


def measure(name: BoundaryOf, m: int, degrees: int) -> Angular:
    """The boundaries of both classes on the circle, against m theta_1 = theta_2 and m theta_2 = theta_1."""
    theta12 = math.radians(degrees)
    loss, wanted = loss_of(name, plane_weights(theta12), m=m), angular_closed_form(theta12, m)
    found = [boundary(loss, label, theta12) for label in (0, 1)]
    between = [float(turns[(turns > 0) & (turns < theta12)].item()) for turns in found]
    difference = max(furthest(found[0], wanted), furthest(found[1], theta12 - wanted))
    printed = crossings(lambda turn: np.cos(m * np.abs(turn)) - np.cos(turn - theta12), 1e-9 - math.pi, math.pi + 1e-9)
    first, outer, second = np.degrees([between[0], found[0].min(), between[1]]).tolist()
    return Angular(name, m, degrees, first, outer, second, math.degrees(difference), len(printed))


def furthest(found: Float64, wanted: Float64) -> float:
    """The largest angle from a wanted direction to the nearest found one; radians. Their numbers have to agree."""
    assert found.shape == wanted.shape, f"boundaries at {found}; wanted {wanted}"
    turns = np.angle(np.exp(1j * (found[:, None] - wanted)))
    return float(np.abs(turns).min(axis=0).max(initial=0.0)) if len(found) else 0.0


def angular_table(measured: list[Angular]) -> Table:
    """Boundaries and margins of modified softmax and A-Softmax at several angles between the weights."""
    rows = []
    for each in measured:
        name = "modified softmax" if each.name == "modified_softmax" else f"A-Softmax, m = {each.m}"
        closed = angular_margin(float(each.theta12), each.m)
        cells = [
            name, f"{each.theta12}", f"{each.first:.3f}", f"{each.outer:.3f}", f"{each.second:.3f}",
            f"{each.margin:.3f}", f"{closed:.3f}", f"{each.difference:.0e}", f"{each.printed_zeros}",
        ]  # fmt: skip
        rows.append(Row(cells, "derived"))
    head = [
        "loss", "theta_12", "class 1, towards W2", "class 1, away from W2", "class 2, towards W1", "margin",
        "(m-1)/(m+1) theta_12", "largest difference from Table 1", "zeros of cos m theta_1 - cos theta_2",
    ]  # fmt: skip
    title = "Modified softmax and A-Softmax: boundaries on the unit circle, degrees from W1 towards W2"
    note = (
        "Boundaries are zeros of the logits of the training losses; Table 1's are the first solutions of m theta_1 = "
        "theta_2. The last column counts the zeros of the printed formula on the whole circle; the loss, with psi in "
        "place of cos m theta, has two. Where the largest difference is above 1e-10, both sides are flat at the zero."
    )
    return Table("angular", title, head, rows, note)


class Agreement(NamedTuple):
    """Random features: largest difference of loss and formula, and the share that the printed formula misjudges."""

    difference: float
    misjudged: float


def agreement(name: BoundaryOf, m: int, count: int) -> Agreement:
    """Logits of the loss against `geometry.decision_boundary`, on random features and weights of several dimensions.

    A feature is misjudged if it is in the region of class 1 by the printed cos m theta_1 > cos theta_2, and not by psi.
    """
    rng, worst, wrong = np.random.default_rng(m), 0.0, 0
    for dimension in DIMENSIONS:
        weights, x = rng.normal(size=(2, dimension)), rng.normal(size=(count, dimension))
        biases = (0.3, -0.1) if name == "softmax" else (0.0, 0.0)
        loss = loss_of(name, weights, m=m, biases=biases)
        formula = decision_boundary(name, x, *weights, b1=biases[0], b2=biases[1], m=m)
        for label, values in enumerate(formula):
            worst = max(worst, float(np.abs(lead(loss, x, label) - values).max()))
        unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        cos1, cos2 = np.clip(unit @ (weights / np.linalg.norm(weights, axis=1, keepdims=True)).T, -1, 1).T
        wrong += int(((np.cos(m * np.arccos(cos1)) > cos2) & (formula.first <= 0)).sum())
    return Agreement(worst, wrong / (count * len(DIMENSIONS)))


def to_page(theta12: float) -> Float64:
    """The reflection (2, 2) between `plane_weights` and a page with W1 to the left of W2, the bisector upright."""
    left = math.pi / 2 + theta12 / 2
    return np.array([[math.cos(left), math.sin(left)], [math.sin(left), -math.cos(left)]])


def draw_regions(theta12: float = math.radians(80), m: int = 4) -> Picture:
    """Regions and boundaries of softmax, modified softmax and A-Softmax with m = 2 and m, in the plane."""
    weights, skewed = plane_weights(theta12), plane_weights(theta12, (1.0, 1.6))
    panels = {
        "softmax\n|W1| = 1, |W2| = 1.6, $b_1 - b_2$ = 0.6": (loss_of("softmax", skewed, biases=(0.35, -0.25)), 1),
        "modified softmax\nthe bisector, margin 0°": (loss_of("modified_softmax", weights), 1),
        **{
            f"A-Softmax, m = {each}\n{_margin_text(theta12, each)}": (loss_of("a_softmax", weights, m=each), each)
            for each in (2, m)
        },
    }
    side, page = np.linspace(-2, 2, 401), to_page(theta12)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2) @ page

    def draw(theme: Theme) -> "Drawing":
        figure = blank(7.4, 7.6)
        for place, (title, (loss, power)) in enumerate(panels.items()):
            axes = figure.add_subplot(2, 2, place + 1)
            for label, (colour, style) in enumerate(zip(CLASSES, ("-", "--"), strict=True)):
                values = lead(loss, grid, label).reshape(len(side), -1)
                axes.contourf(side, side, values, levels=[0, 1e9], colors=[colour], alpha=0.35)
                axes.contour(side, side, values, levels=[0], colors=[colour], linestyles=style, linewidths=1.6)
            for number, (x, y) in enumerate((loss.weight.detach().numpy() @ page).tolist(), start=1):
                arrow = {"arrowstyle": "-|>", "color": INK[theme], "shrinkA": 0, "shrinkB": 0}
                axes.annotate("", (x, y), (0, 0), arrowprops=arrow)
                beyond = 1 + 0.14 / math.hypot(x, y)
                axes.text(beyond * x, beyond * y, f"W{number}", ha="center", va="center", color=INK[theme])
            turns = math.pi / 2 + np.linspace(-0.5, 0.5, 50) * angular_margin(theta12, power)
            if power > 1:
                axes.plot(1.45 * np.cos(turns), 1.45 * np.sin(turns), color=INK[theme], linewidth=2)
            axes.set(xlim=(-2, 2), ylim=(-2, 2), xticks=[], yticks=[], aspect="equal", title=title)
            axes.spines[:].set_visible(False)
        return figure

    return picture(draw, "Regions of two classes in the plane for softmax, modified softmax and A-Softmax", pdf=True)


def _margin_text(theta12: float, m: int) -> str:
    return f"margin $(m-1)/(m+1)\\,\\theta_{{12}}$ = {math.degrees(angular_margin(theta12, m)):.0f}°"


def draw_leads(theta12: float = math.radians(80)) -> Picture:
    """Logits of class 1 minus those of class 2 around the circle, for features of class 1; and the printed formula."""
    turns = np.linspace(-math.pi, math.pi, 1_441)

    def draw(theme: Theme) -> "Drawing":
        figure = blank(6.4, 4.2)
        axes = figure.add_subplot()
        axes.axhline(0, color=INK[theme], linewidth=0.8)
        for m, colour in zip(MARGINS, (COLOURS[0], COLOURS[1], COLOURS[3], COLOURS[4]), strict=True):
            loss = loss_of("a_softmax", plane_weights(theta12), m=m)
            label = "modified softmax, m = 1" if m == 1 else f"A-Softmax, m = {m}"
            axes.plot(np.degrees(turns), lead(loss, around(turns), 0), color=colour, label=label)
            axes.plot(np.degrees(boundary(loss, 0, theta12)), [0, 0], "o", color=colour, markersize=5)
        printed = np.cos(4 * turns) - np.cos(turns - theta12)
        axes.plot(
            np.degrees(turns), printed, ":", color=COLOURS[4], label=r"$\cos 4\theta_1 - \cos\theta_2$ as printed"
        )
        for name, at in (("W1", 0.0), ("W2", math.degrees(theta12))):
            axes.axvline(at, color=INK[theme], linewidth=0.8, linestyle="--", alpha=0.6)
            axes.text(at + 2, 1.75, name)
        axes.set(xlim=(-180, 180), ylim=(-4, 2.2), xlabel="direction of x from W1 towards W2, degrees")
        axes.set(ylabel="logit of class 1 minus class 2")
        axes.set_xticks(range(-180, 181, 45))
        figure.legend(loc="outside lower center", ncols=3, fontsize=8)
        return figure

    return picture(draw, "Difference of the logits around the circle for m = 1 to 4; zeros are boundaries", pdf=True)


def run(setting: Setting) -> Result:
    """Derive the boundaries from the losses, compare them with Table 1, and draw them."""
    by_softmax, softmax_worst = softmax_table()
    losses: list[tuple[BoundaryOf, int]] = [("modified_softmax", 1), *(("a_softmax", m) for m in MARGINS)]
    measured = [measure(name, m, degrees) for name, m in losses for degrees in DEGREES]
    count = FEATURES[setting.scale]
    random = {(name, m): agreement(name, m, count) for name, m in [("softmax", 1), *losses]}
    worst = {
        "softmax": softmax_worst,
        **{name: max(each.difference for each in measured if each.name == name) for name, _ in losses},
    }
    off = {name: max(each.difference for (loss, _), each in random.items() if loss == name) for name in worst}
    rows = [
        Row([name.replace("_", " "), PRINTED[name], f"{worst[name]:.0e}", f"{off[name]:.0e}"], "derived")
        for name in worst
    ]
    head = [
        "loss",
        "decision boundary (Table 1)",
        "boundary: largest difference, degrees",
        "logits: largest difference",
    ]
    features = f"{count:,} random features in each of {len(DIMENSIONS)} dimensions ({', '.join(map(str, DIMENSIONS))})"
    note = f"Boundaries on circles; logits on {features}, with geometry.decision_boundary."
    table = Table(
        "table1", "Decision boundaries in the binary case: printed, and derived from the losses", head, rows, note
    )
    margin_worst = max(abs(each.margin - angular_margin(float(each.theta12), each.m)) for each in measured)
    right = [f"{each.margin:.0f}" for each in measured if each.name == "a_softmax" and each.theta12 == 90]
    most = max(measured, key=lambda each: each.printed_zeros)
    misjudged = random["a_softmax", 4].misjudged
    biased = loss_of("softmax", plane_weights(SIXTY), biases=SOFTMAX[1].biases)
    moved = [math.degrees(boundary(biased, 0, SIXTY, length)[0]) for length in LENGTHS[1:]]
    listed = f"{', '.join(right[:-1])} and {right[-1]}"
    findings = [
        f"The zeros of the losses' logits lie where Table 1 has them: largest difference {max(worst.values()):.0e} "
        f"degrees over {len(measured)} pairs of loss and angle and {len(by_softmax.rows)} cases of softmax.",
        f"The free angle between the regions of A-Softmax is (m-1)/(m+1) theta_12, to {margin_worst:.0e} degrees: with "
        f"weights 90 degrees apart it is {listed} for m = 1 to {MARGINS[-1]}.",
        f"As printed, with cos m theta_1, the table's formula has up to {most.printed_zeros} zeros on the circle (m = "
        f"{most.m}, theta_12 = {most.theta12}); the loss has psi there and two zeros. Without psi, at m = 4, "
        f"{misjudged:.1%} of random features would be in the region of class 1 although A-Softmax refuses them.",
        f"Softmax with a bias has no boundary of angles alone: with b1 - b2 = 0.4 and weights 60 degrees apart it "
        f"moves from {moved[0]:.1f} to {moved[1]:.1f} degrees as |x| grows from {LENGTHS[1]:g} to {LENGTHS[2]:g}.",
    ]
    captions = (
        "Regions of class 1 (orange) and class 2 (green) and their boundaries, from the training losses; weights 80 "
        "degrees apart. Without colour: features that neither class accepts.",
        "Features of class 1 around the unit circle, weights 80 degrees apart: the region is where the difference is "
        "above 0. Dotted: the printed formula for m = 4, without psi.",
    )
    return Result(
        "table1", "Decision boundaries of two classes, derived numerically", setting.scale, findings,
        [table, angular_table(measured), by_softmax],
        [Figure("regions", draw_regions(), captions[0]), Figure("logits", draw_leads(), captions[1])],
        numbers={
            "largest_difference_degrees": worst, "margin_difference_degrees": margin_worst,
            "logit_difference": off, "printed_zeros": most.printed_zeros, "misjudged": misjudged,
        },
    )  # fmt: skip
