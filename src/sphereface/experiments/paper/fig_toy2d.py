"""Figure 2: 2-D features of two people with softmax, modified softmax and A-Softmax, and their angles.

The losses learn from two people alone, as the figure shows them, and from six, of whom the first two are drawn: six
directions do not fit into a plane as easily as two, so that angles are scarce.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sphereface.arrays import Bools, Float64, unit_rows
from sphereface.experiments.paper.result import Figure, Result, Row, Table
from sphereface.experiments.paper.setting import Setting
from sphereface.experiments.paper.toy import (
    Toy,
    Trained,
    best_arc_accuracy,
    degrees,
    nearest_weight_accuracy,
    pair_angles,
    percent,
    spread,
    train_all,
)
from sphereface.geometry import Acceptance, decision_boundary, effective_m
from sphereface.metrics import angular_fisher_score
from sphereface.reports.figures import COLOURS, INK, Picture, Theme, blank, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

METHODS = ("softmax", "modified_softmax", "a_softmax")
NAMES = ("softmax", "modified softmax", "A-Softmax, m = 4")
M = 4
FEW, MANY = 2, 6  # people who are learned from
YELLOW, PURPLE, GREY = COLOURS[3], COLOURS[5], COLOURS[0]  # the paper's colours; grey: the other four people
PAPER: dict[Theme, str] = {"light": "#fcfcfd", "dark": "#15181c"}  # of the report
SEPARABLE = 0.99  # accuracy of a rule that is called enough


class Measured(NamedTuple):
    """What is measured of one run; angles are in degrees, and of the first two people."""

    classifier: float  # accuracy of w x + b
    weights: float  # accuracy of the class weight at the smallest angle
    arc: float  # accuracy of the best rule by angle alone, between the first two people
    same: float  # mean angle of two photos of one person
    different: float  # and of two people
    gap: float  # 1st percentile of different pairs - 99th percentile of same pairs
    fisher: float  # angular Fisher score
    own: float  # mean angle of a photo to its class weight
    apart: float  # angle between the first two class weights


def measure(trained: Trained) -> Measured:
    """All measures of a run."""
    features, labels = trained.features.astype(np.float64), trained.labels
    unit, weight = unit_rows(features), unit_rows(trained.weight)
    two = labels < FEW
    angles = pair_angles(features, labels, range(FEW))
    cosines = np.clip((unit * weight[labels]).sum(1), -1, 1)
    return Measured(
        classifier=float((trained.logits.argmax(1) == labels).mean()),
        weights=nearest_weight_accuracy(trained),
        arc=best_arc_accuracy(features[two], labels[two] == 0),
        same=math.degrees(angles.same.mean()),
        different=math.degrees(angles.different.mean()),
        gap=math.degrees(angles.gap),
        fisher=angular_fisher_score(features, labels),
        own=float(np.degrees(np.arccos(cosines))[two].mean()),
        apart=math.degrees(math.acos(np.clip(weight[0] @ weight[1], -1, 1))),
    )


class Compared(NamedTuple):
    """The three losses on a number of people: the first seed's run of each, and what all seeds' runs measure."""

    people: int
    runs: Sequence[Trained]
    measured: Sequence[Sequence[Measured]]  # by loss and seed

    def mean(self, name: str) -> list[float]:
        """A measure of each loss, as the mean over seeds."""
        return [float(np.mean([getattr(each, name) for each in found])) for found in self.measured]

    def shown(self, name: str, form: Callable[[float], str]) -> list[str]:
        """A measure of each loss as text: the mean over seeds, and the lowest and highest of several."""
        return [spread([getattr(each, name) for each in found], form) for found in self.measured]


def compare(setting: Setting, people: int) -> Compared:
    """Train and measure the three losses on the people with the most photos."""
    runs = [Toy(method, people, 2, seed) for method in METHODS for seed in setting.seeds]
    trained = train_all(setting, runs)
    seeds = len(setting.seeds)
    by_loss = [trained[start : start + seeds] for start in range(0, len(trained), seeds)]
    return Compared(people, [each[0] for each in by_loss], [[measure(run) for run in each] for each in by_loss])


def run(setting: Setting) -> Result:
    """Train, measure and draw the three losses on two people and on six."""
    few, many = compare(setting, FEW), compare(setting, MANY)
    return Result(
        "fig-toy2d",
        "2-D features of two people with three losses",
        setting.scale,
        findings=[_by_angle(few), _crowded(many), _margin(few, many), _to_weights(few)],
        tables=[_accuracies((few, many), setting), _angles((few, many), setting)],
        figures=[
            Figure("fig-toy2d", draw(few, "two people alone"), CAPTION, wide=True),
            Figure("fig-toy2d-six", draw(many, "two of six people"), CAPTION_OF_SIX, wide=True),
        ],
        numbers={
            str(each.people): {
                method: [one._asdict() for one in found] for method, found in zip(METHODS, each.measured, strict=True)
            }
            for each in (few, many)
        },
    )


CAPTION = (
    "Top: features of the training photos of the two people with the most photos (yellow, purple), the class weights "
    "as arrows, and the lines on which the classifier of each loss decides; A-Softmax has two, with a margin that "
    "belongs to no class (grey). Its lines are those of the loss at the end of the run, where lambda is 5. Arrows are "
    "lengthened by one factor for each panel. Bottom: the same features by angle alone, on the unit circle, with the "
    "share of each person's photos at each angle outside it; dotted, where the angles to both weights are equal."
)
CAPTION_OF_SIX = (
    "The same after training with six people, so that six classes share the plane; the other four people are grey. "
    "Top: features with the class weights. Bottom: the same features by angle alone."
)


# Findings.


def _list(values: Sequence[str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in zip(NAMES, values, strict=True))


def _by_angle(few: Compared) -> str:
    softmax, modified, _ = few.mean("arc")
    found = (
        f"Two people alone: the best rule that looks at the angle only is right for "
        f"{_list([percent(each) for each in few.mean('arc')])} of the photos; mean angles between two people are "
        f"{_list([degrees(each) for each in few.mean('different')])}. "
    )
    if softmax < SEPARABLE <= modified:
        return found + "As in the paper, angles separate the features of modified softmax, and not those of softmax."
    if softmax >= SEPARABLE:
        return found + (
            "The paper says that features of softmax cannot be classified by angles alone; with two people they can "
            "here, since softmax turns two classes to opposite sides of the origin."
        )
    return found + "Unlike in the paper, angles do not separate the features of modified softmax either."


def _crowded(many: Compared) -> str:
    (classifier, *_), (softmax, modified, margin) = many.mean("classifier"), many.mean("weights")
    drop = 100 * (classifier - softmax)
    said = "as the paper says of softmax" if drop >= 1 else "so that angles are enough here, unlike in the paper"
    return (
        f"Six people in the plane: the classifier of softmax, with lengths and biases, is right for "
        f"{percent(classifier)} of the photos, and the class weight at the smallest angle for {percent(softmax)}: "
        f"{drop:.1f} points less, {said}. For modified softmax and A-Softmax the two are one rule, right for "
        f"{percent(modified)} and {percent(margin)}."
    )


def _margin(few: Compared, many: Compared) -> str:
    parts, larger = [], 0
    for compared, name in ((few, "two people alone"), (many, "the same two among six")):
        gaps = compared.mean("gap")
        larger += gaps[2] > gaps[1]
        parts.append(f"{name}: {_list([degrees(gap) for gap in gaps])}")
    return (
        "Angular margin (1st percentile of the angles between people less the 99th of those within): "
        f"{'; '.join(parts)}. The paper says that A-Softmax increases the margin of modified softmax: it does in "
        f"{larger} of these 2 cases."
    )


def _to_weights(few: Compared) -> str:
    apart, lambda_ = few.mean("apart")[-1], float(few.runs[-1].lambda_)
    own = few.mean("own")
    said = "A-Softmax has the smallest one" if own[-1] == min(own) else "A-Softmax does not have the smallest one"
    return (
        f"Two people alone: the mean angle of a photo to its class weight is {_list([degrees(each) for each in own])}: "
        f"{said}, as m theta_1 < theta_2 asks for. With lambda at {lambda_:g} at the end of the run, m = {M} "
        f"acts like m = {effective_m(math.radians(apart), M, lambda_):.2f} for weights {degrees(apart)} apart."
    )


# Tables.


def _rows(
    compared: Sequence[Compared], setting: Setting, columns: Sequence[tuple[str, Callable[[float], str]]]
) -> list[Row]:
    rows = []
    for each in compared:
        cells = [each.shown(name, form) for name, form in columns]
        rows += [
            Row([str(each.people), name, *texts], setting.scale)
            for name, *texts in zip(NAMES, *cells, strict=True)
        ]  # fmt: skip
    return rows


def _accuracies(compared: Sequence[Compared], setting: Setting) -> Table:
    return Table(
        "accuracy",
        "Accuracy on the training photos, by rule",
        ("people", "loss", "classifier, w x + b", "weight at the smallest angle", "best arc, first two people"),
        _rows(compared, setting, [("classifier", percent), ("weights", percent), ("arc", percent)]),
        "The best arc is the best rule by angle alone: inside an arc of the circle is the first person.",
    )


def _angles(compared: Sequence[Compared], setting: Setting) -> Table:
    return Table(
        "angles",
        "Angles of the first two people, and the angular Fisher score of all",
        ("people", "loss", "one person", "two people", "margin", "Fisher score", "to own weight", "W1 to W2"),
        _rows(
            compared, setting,
            [("same", degrees), ("different", degrees), ("gap", degrees), ("fisher", "{:.3f}".format),
             ("own", degrees), ("apart", degrees)],
        ),
        "One person, two people: the mean angle of two photos. Margin: 1st percentile of the angles between people "
        "less the 99th percentile of those within; below 0, they overlap. Fisher score: scatter within over scatter "
        "between people, lower is better. Last two: mean angle of a photo to its class weight, and of the weights.",
    )  # fmt: skip


# Drawing.


def boundaries(name: str, trained: Trained, x: Float64) -> Acceptance:
    """Table 1 for a run: how far features (..., 2) are inside the region of each of the first two classes.

    With lambda, the target logit is (lambda cos + psi) / (1 + lambda), a mean of the two lower rows of the table.
    """
    w1, w2 = trained.weight[:FEW].astype(np.float64)
    if name == "softmax":
        b1, b2 = trained.bias[:FEW].tolist()
        return decision_boundary("softmax", x, w1, w2, b1=b1, b2=b2)
    plain = decision_boundary("modified_softmax", x, w1, w2)
    if name == "modified_softmax":
        return plain
    margin, lambda_ = decision_boundary("a_softmax", x, w1, w2, m=M), float(trained.lambda_)
    mixed = [(lambda_ * one + other) / (1 + lambda_) for one, other in zip(plain, margin, strict=True)]
    return Acceptance(*mixed)


def draw(compared: Compared, what: str) -> Picture:
    """Two rows, a column for each loss: the plane, and the unit circle."""

    def whole(theme: Theme) -> "Drawing":
        figure = blank(7.6, 5.3)
        axes = figure.subplots(2, len(METHODS))
        for column, (method, name, trained) in enumerate(zip(METHODS, NAMES, compared.runs, strict=True)):
            bounds = compared.people == FEW
            _draw_plane(axes[0, column], method, trained, theme, bounds=bounds)
            _draw_circle(axes[1, column], method, trained, theme, bounds=bounds)
            axes[0, column].set_title(name)
            found = compared.measured[column][0]
            rule = f"by angle alone {percent(found.arc)}" if bounds else f"nearest weight {percent(found.weights)}"
            own = f"classifier {percent(found.classifier)}"
            axes[1, column].set_xlabel(f"{rule}\n{own}", fontsize=8.5)
        axes[0, 0].set_ylabel("features")
        axes[1, 0].set_ylabel("their angles")
        return figure

    return picture(whole, f"2-D features of {what} with {', '.join(NAMES)}, in the plane and by angle", pdf=True)


def _colours(labels: Any) -> list[str]:
    return [(YELLOW, PURPLE, GREY)[min(label, FEW)] for label in labels]


def _mixed(trained: Trained) -> Any:
    """The rows of a run in a fixed random order, grey ones first, so that no person's points cover another's."""
    order = np.random.default_rng(0).permutation(len(trained.labels))
    return order[np.argsort(trained.labels[order] < FEW, kind="stable")]


def _draw_plane(axes: "Axes", method: str, trained: Trained, theme: Theme, *, bounds: bool) -> None:
    """Features, weights and decision lines; with three classes or more, whose regions are many, no lines."""
    order = _mixed(trained)
    x = trained.features[order]
    limit = 1.08 * float(np.abs(trained.features).max())
    if bounds:
        _draw_boundaries(axes, method, trained, limit, theme)
    axes.axhline(0, color=INK[theme], linewidth=0.4, alpha=0.35, zorder=0)
    axes.axvline(0, color=INK[theme], linewidth=0.4, alpha=0.35, zorder=0)
    axes.scatter(x[:, 0], x[:, 1], s=9, c=_colours(trained.labels[order]), alpha=0.75, linewidths=0, zorder=2)
    longest = float(np.linalg.norm(trained.weight, axis=1).max())
    _draw_weights(axes, trained.weight * (0.5 * limit / longest), limit, theme, only=len(trained.weight))
    axes.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal")
    axes.locator_params(nbins=5)
    axes.tick_params(labelsize=7.5)


def _draw_boundaries(
    axes: "Axes", method: str, trained: Trained, limit: float, theme: Theme, radius: float = 9
) -> None:
    """Lines where a class begins to accept, and in grey what neither accepts; up to a radius, in limits."""
    side = np.linspace(-limit, limit, 400)  # even: the origin has no angle
    grid = np.stack(np.meshgrid(side, side), axis=-1)
    beyond: Bools = np.linalg.norm(grid, axis=-1) > radius * limit
    first, second = (np.ma.array(each, mask=beyond) for each in boundaries(method, trained, grid))
    lines = [first] if method != "a_softmax" else [first, second]  # the two of a single line are one
    if method == "a_softmax":
        axes.contourf(side, side, np.maximum(first, second), levels=[-1e9, 0], colors=[GREY], alpha=0.28, zorder=0)
    for values in lines:
        axes.contour(side, side, values, levels=[0], colors=[INK[theme]], linewidths=1.1, linestyles="--", zorder=1)


def _draw_weights(axes: "Axes", tips: Float64 | Any, limit: float, theme: Theme, *, only: int) -> None:
    """Arrows from the origin to points (K, 2), with names for the first two, on the sides that face away."""
    from matplotlib.patheffects import withStroke

    style = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "linewidth": 1.3}
    halo = [withStroke(linewidth=2.5, foreground=PAPER[theme], alpha=0.7)]  # names may stand on points
    for place in reversed(range(only)):
        colour = INK[theme] if place < FEW else GREY
        axes.annotate("", tips[place], (0, 0), arrowprops={**style, "color": colour}, zorder=3)
    side = 1 if tips[0, 0] * tips[1, 1] < tips[0, 1] * tips[1, 0] else -1  # 1: W1 is to the left of W2
    for place in range(FEW):
        along = tips[place] / np.linalg.norm(tips[place])
        left = np.array([-along[1], along[0]]) * (side if place == 0 else -side)
        x, y = tips[place] + limit * (0.06 * along + 0.16 * left)
        axes.text(x, y, f"$W_{place + 1}$", ha="center", va="center", fontsize=9.5, zorder=4, path_effects=halo)


def _draw_circle(axes: "Axes", method: str, trained: Trained, theme: Theme, *, bounds: bool) -> None:
    """Features on the unit circle; outside it, the share of each person's photos at each angle."""
    limit, bins = 1.62, np.linspace(-math.pi, math.pi, 91)
    turns = np.linspace(0, 2 * math.pi, 361)
    axes.plot(np.cos(turns), np.sin(turns), color=INK[theme], linewidth=0.6, alpha=0.6, zorder=1)
    unit = unit_rows(trained.features)
    at = np.arctan2(unit[:, 1], unit[:, 0])
    heights = [np.histogram(at[trained.labels == person], bins)[0] for person in range(len(trained.weight))]
    shares = [height / height.sum() for height in heights]
    highest = max(share.max() for share in shares[:FEW])
    for person in reversed(range(len(shares))):
        _draw_rose(axes, bins, 1.05 + 0.5 * shares[person] / highest, _colours([person])[0])
    order = _mixed(trained)
    points = unit[order]
    axes.scatter(points[:, 0], points[:, 1], s=8, c=_colours(trained.labels[order]), alpha=0.6, linewidths=0, zorder=2)
    if bounds and method == "a_softmax":
        _draw_boundaries(axes, method, trained, limit, theme, radius=1 / limit)
    directions = unit_rows(trained.weight)
    if bounds:
        middle = directions[0] + directions[1]
        end = middle / np.linalg.norm(middle)
        style: dict[str, Any] = {"color": INK[theme], "linewidth": 1.1, "linestyle": ":", "zorder": 1}
        axes.plot([-end[0], end[0]], [-end[1], end[1]], **style)
    _draw_weights(axes, 0.72 * directions, 1.25, theme, only=len(directions))
    axes.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def _draw_rose(axes: "Axes", bins: Float64, radii: Float64, colour: str) -> None:
    """A histogram around the circle: a step at each bin, from 1.05 outwards."""
    fine = np.repeat(bins, 2)[1:-1]
    outer = np.repeat(radii, 2)
    x = np.concatenate([outer * np.cos(fine), 1.05 * np.cos(fine[::-1])])
    y = np.concatenate([outer * np.sin(fine), 1.05 * np.sin(fine[::-1])])
    axes.fill(x, y, color=colour, alpha=0.65, linewidth=0, zorder=1)
