"""Figure 5: 3-D features of the six people with the most photos on the unit sphere, for m = 1, 2, 3, 4; and a page.

Positive pairs are two photos of one person, negative pairs two of two people. The figure's histograms are of class 1
and class 2, as the paper's; the findings are also of all 15 pairs of people.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sphereface.arrays import Float64, Floating, unit_rows
from sphereface.experiments.paper.result import Figure, Result, Row, Table
from sphereface.experiments.paper.setting import Setting
from sphereface.experiments.paper.sphere_page import sphere_page
from sphereface.experiments.paper.toy import (
    PLANS,
    PairAngles,
    Toy,
    Trained,
    degrees,
    nearest_weight_accuracy,
    pair_angles,
    percent,
    spread,
    train_all,
)
from sphereface.geometry import effective_m
from sphereface.metrics import angular_fisher_score
from sphereface.metrics.bootstrap import middle_95
from sphereface.reports.figures import COLOURS, DIFFERENT, INK, SAME, Picture, Theme, blank, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

METHODS = {1: "modified_softmax", 2: "a_softmax_m2", 3: "a_softmax_m3", 4: "a_softmax"}  # by m
PEOPLE = 6
PAIRS = tuple(combinations(range(PEOPLE), 2))
PAPERS = (0, 1)  # class 1 and class 2
PERSON = tuple(COLOURS[place] for place in (1, 2, 3, 4, 5, 7))  # as in the paper, class 1 is blue and class 2 green


class Measured(NamedTuple):
    """What is measured of one run; angles in degrees."""

    two: PairAngles  # of class 1 and class 2
    everyone: PairAngles
    distances: Sequence[float]  # mean negative - mean positive angle, of each of the 15 pairs of people
    fisher: float
    accuracy: float  # of the class weight at the smallest angle


def measure(trained: Trained) -> Measured:
    """All measures of a run."""
    features, labels = trained.features, trained.labels
    return Measured(
        pair_angles(features, labels, PAPERS),
        pair_angles(features, labels),
        [math.degrees(pair_angles(features, labels, pair).distance) for pair in PAIRS],
        angular_fisher_score(features, labels),
        nearest_weight_accuracy(trained),
    )


def run(setting: Setting) -> Result:
    """Train with each m, measure and draw; the page has the first seed's snapshots."""
    toys = [Toy(method, PEOPLE, 3, seed, watched=True) for method in METHODS.values() for seed in setting.seeds]
    trained = iter(train_all(setting, toys))
    runs = {m: [next(trained) for _ in setting.seeds] for m in METHODS}
    measured = {m: [measure(each) for each in some] for m, some in runs.items()}
    first = {m: some[0] for m, some in runs.items()}
    view = facing([unit_rows(each.weight) for each in first.values()])
    return Result(
        "fig-sphere",
        "3-D features of six people on the sphere, and their angles",
        setting.scale,
        findings=[_of_two(measured), _of_all(measured), _criterion(measured), _softened(first)],
        tables=[_table_of_two(measured, setting), _table_of_all(measured, setting)],
        figures=[Figure("fig-sphere", draw(first, view), CAPTION, wide=True)],
        pages={"sphere.html": sphere_page(first, view=view, colours=PERSON, about=_about(setting, first))},
        numbers={
            str(m): [
                {"same": math.degrees(each.two.same.mean()), "different": math.degrees(each.two.different.mean()),
                 "eer": each.two.eer(), "distances": list(each.distances), "gap": math.degrees(each.everyone.gap),
                 "eer_of_all": each.everyone.eer(), "fisher": each.fisher, "accuracy": each.accuracy}
                for each in some
            ] for m, some in measured.items()
        },
    )  # fmt: skip


CAPTION = (
    "Top: 3-D features of the training photos of six people, projected on the unit sphere, all seen from one side; "
    "pale ones are on the far side. Numbers stand at the class weights. Bottom: angles of positive pairs (orange) and "
    "negative pairs (blue) of class 1 (blue dots) and class 2 (green dots), in radian. m = 1 is modified softmax."
)


# Findings.


def _each(measured: Mapping[int, Sequence[Measured]], values: Sequence[str]) -> str:
    return ", ".join(f"m = {m} {value}" for m, value in zip(measured, values, strict=True))


def _falls(values: Sequence[float]) -> bool:
    return all(after < before for before, after in pairwise(values))


def _of_two(measured: Mapping[int, Sequence[Measured]]) -> str:
    same = [float(np.mean([each.two.same.mean() for each in some])) for some in measured.values()]
    different = [float(np.mean([each.two.different.mean() for each in some])) for some in measured.values()]
    overlap = [float(np.mean([each.two.eer() for each in some])) for some in measured.values()]
    distance = [high - low for low, high in zip(same, different, strict=True)]
    steps = _falls([-each for each in distance])
    said = "as the paper says, each larger m separates them more" if steps else (
        "the paper says that each larger m separates them more, which " +
        ("holds from m = 1 to m = 4, not at each step" if distance[-1] > distance[0] else "does not hold here")
    )  # fmt: skip
    return (
        f"Class 1 and class 2: mean positive angle {_each(measured, [degrees(math.degrees(each)) for each in same])}; "
        f"mean negative angle {_each(measured, [degrees(math.degrees(each)) for each in different])}; overlap (equal "
        f"error rate) {_each(measured, [percent(each) for each in overlap])}. By the difference of the means, {said}."
    )


def _of_all(measured: Mapping[int, Sequence[Measured]]) -> str:
    by_m = {m: np.concatenate([each.distances for each in some]) for m, some in measured.items()}
    shown = [f"{degrees(each.mean())} ({degrees(each.min())} to {degrees(each.max())})" for each in by_m.values()]
    gained = by_m[4] - by_m[1]
    low, high = middle_95(gained)
    return (
        f"All 15 pairs of people: mean negative less mean positive angle, with the lowest and highest pair: "
        f"{_each(measured, shown)}. From m = 1 to m = 4 it grows in {(gained > 0).sum()} of {len(gained)}, by "
        f"{gained.mean():.1f}° on average (middle 95 % of the pairs: {low:.1f}° to {high:.1f}°)."
    )


def _criterion(measured: Mapping[int, Sequence[Measured]]) -> str:
    gaps = [float(np.mean([math.degrees(each.everyone.gap) for each in some])) for some in measured.values()]
    holds = [m for m, gap in zip(measured, gaps, strict=True) if gap > 0]
    said = f"it holds for m = {', '.join(map(str, holds))}" if holds else "it holds for no m here"
    return (
        "The paper's criterion, the largest angle within a class below the smallest one between classes, but for one "
        f"pair in a hundred of each kind: the gap is {_each(measured, [degrees(gap) for gap in gaps])} over all six "
        f"people; {said}."
    )


def _softened(first: Mapping[int, Trained]) -> str:
    run, m = first[4], 4
    unit = unit_rows(run.weight)
    least, most = sorted(math.acos(np.clip(unit[a] @ unit[b], -1, 1)) for a, b in PAIRS)[:: len(PAIRS) - 1]
    lambda_ = float(run.lambda_)
    low, high = sorted(effective_m(angle, m, lambda_) for angle in (least, most))
    return (
        f"Lambda ends at {lambda_:g}, as in the released layer, so that m = {m} acts like m = {low:.2f} to {high:.2f} "
        f"between class weights {degrees(math.degrees(least))} to {degrees(math.degrees(most))} apart: the four runs "
        "differ by less than their m."
    )


def _about(setting: Setting, first: Mapping[int, Trained]) -> str:
    faces = "real photos" if setting.data.faces else "drawn, synthetic faces"
    run, plan = first[1], PLANS[setting.scale]
    return (
        f"Figure 5 of SphereFace (CVPR 2017) at the scale {setting.scale}: six people, {len(run.labels):,} "
        f"{faces}, of which {len(run.shown):,} are shown; sphereface4 at width {plan.width:g} with 3 features, "
        f"{plan.budget.steps:,} steps from the same first weights for each m. Lambda ends at "
        f"{float(first[4].lambda_):g}. Between two snapshots, positions are interpolated. Made by: sphereface "
        "reproduce fig-sphere."
    )


# Tables.


def _table_of_two(measured: Mapping[int, Sequence[Measured]], setting: Setting) -> Table:
    rows = [
        Row([
            str(m),
            spread([math.degrees(each.two.same.mean()) for each in some], degrees),
            spread([math.degrees(each.two.different.mean()) for each in some], degrees),
            spread([math.degrees(each.two.distance) for each in some], degrees),
            spread([each.two.eer() for each in some], percent),
        ], setting.scale)
        for m, some in measured.items()
    ]  # fmt: skip
    head = ("m", "positive, mean", "negative, mean", "difference", "equal error rate")
    return Table("two-people", "Angles of pairs of class 1 and class 2", head, rows)


def _table_of_all(measured: Mapping[int, Sequence[Measured]], setting: Setting) -> Table:
    rows = []
    for m, some in measured.items():
        cells = [
            spread([value for each in some for value in each.distances], degrees),
            spread([math.degrees(each.everyone.widest) for each in some], degrees),
            spread([math.degrees(each.everyone.nearest) for each in some], degrees),
            spread([each.everyone.eer() for each in some], percent),
            spread([each.fisher for each in some], "{:.3f}".format),
            spread([each.accuracy for each in some], percent),
        ]
        rows.append(Row([str(m), *cells], setting.scale))
    return Table(
        "six-people",
        "Angles of all six people",
        ("m", "difference, over pairs of people", "positive, 99th percentile", "negative, 1st percentile",
         "equal error rate", "Fisher score", "accuracy by angle"),
        rows,
        "Difference: mean negative less mean positive angle, mean of the 15 pairs of people (lowest to highest). "
        "Fisher score: scatter within over scatter between people, lower is better. Accuracy: the class weight at the "
        "smallest angle is the right one, on the training photos.",
    )  # fmt: skip


# Drawing.


def facing(weights: Sequence[Float64]) -> Float64:
    """A view of the sphere, three rows to the right, up and to the viewer: class 1 and 2 in front, then most others."""
    turns = math.pi * (1 + math.sqrt(5)) * np.arange(800)  # a spiral: directions of nearly equal distance
    z = 1 - (2 * np.arange(800) + 1) / 800
    eyes = np.stack([np.sqrt(1 - z**2) * np.cos(turns), np.sqrt(1 - z**2) * np.sin(turns), z], axis=1)
    depths = np.stack(weights) @ eyes.T  # (runs, people, 800)
    far = np.clip(depths, -0.3, 0.5)  # what is in front should be well inside the rim; no need of the centre
    toward = eyes[np.argmax(far.mean(axis=(0, 1)) + far[:, list(PAPERS)].min(axis=(0, 1)))]
    side = np.cross([0, 1, 0] if abs(toward[1]) < 0.9 else [1, 0, 0], toward)
    right = side / np.linalg.norm(side)
    return np.stack([right, np.cross(toward, right), toward])


def draw(runs: Mapping[int, Trained], view: Float64) -> Picture:
    """Two rows, a column for each m: the sphere, and the angles of the pairs of class 1 and class 2."""

    def whole(theme: Theme) -> "Drawing":
        figure = blank(8.4, 4.1)
        axes = figure.subplots(2, len(runs), height_ratios=(1.75, 1))
        for column, (m, trained) in enumerate(runs.items()):
            draw_sphere(axes[0, column], trained, view, theme)
            axes[0, column].set_title(f"m = {m}")
            draw_angles(axes[1, column], pair_angles(trained.features, trained.labels, PAPERS))
        figure.legend(*axes[1, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8.5)
        return figure

    ms = ", ".join(map(str, runs))
    return picture(whole, f"3-D features of six people on the unit sphere, and angles of pairs, for m = {ms}", pdf=True)


def draw_sphere(axes: "Axes", trained: Trained, view: Float64, theme: Theme) -> None:
    """Features and class weights of a run on the unit sphere, seen from far away; the far side is pale."""
    turns = np.linspace(0, 2 * math.pi, 181)
    axes.fill(np.cos(turns), np.sin(turns), color=COLOURS[0], alpha=0.1, linewidth=0, zorder=0)
    axes.plot(np.cos(turns), np.sin(turns), color=INK[theme], linewidth=0.7, alpha=0.7, zorder=4)
    x, y, z = view @ _grid(turns)
    for front in (False, True):
        shown = np.where((z >= 0) == front, y, np.nan)
        axes.plot(x, shown, color=INK[theme], linewidth=0.4, alpha=0.3 if front else 0.12, zorder=2)
    seen = unit_rows(trained.features) @ view.T
    colours = np.array(PERSON)[trained.labels]
    order = np.argsort(seen[:, 2])
    for front in (False, True):
        kept = order[(seen[order, 2] >= 0) == front]
        axes.scatter(
            seen[kept, 0], seen[kept, 1], s=7 if front else 5, c=colours[kept].tolist(), linewidths=0,
            alpha=0.85 if front else 0.28, zorder=3 if front else 1,
        )  # fmt: skip
    weights = unit_rows(trained.weight) @ view.T
    rim = np.linalg.norm(weights[:, :2], axis=1, keepdims=True)
    places = weights[:, :2] * np.where(rim > 0.8, 1.13 / np.maximum(rim, 0.8), 1.0)  # beside the sphere, near its rim
    for person, (x, y) in enumerate(spaced(places, 0.23)):
        frame = {"boxstyle": "circle,pad=0.18", "linewidth": 1.1, "edgecolor": PERSON[person]}
        frame["facecolor"] = "#ffffff" if theme == "light" else "#15181c"
        axes.text(
            x, y, str(person + 1), ha="center", va="center", fontsize=6.5, bbox=frame, zorder=5,
            alpha=1.0 if weights[person, 2] >= 0 else 0.5,
        )  # fmt: skip
    axes.set(xlim=(-1.28, 1.28), ylim=(-1.28, 1.28), aspect="equal")
    axes.axis("off")


def spaced(places: Float64, least: float) -> Float64:
    """Places (N, 2) of labels, moved apart until no two are closer than `least`."""
    moved = places.copy()
    for _ in range(200):
        for a, b in combinations(range(len(moved)), 2):
            between = moved[b] - moved[a]
            distance = float(np.linalg.norm(between))
            if distance < least:
                along = between / distance if distance else np.array([1.0, 0.0])
                push = (least - distance) / 2 + 1e-9
                moved[a], moved[b] = moved[a] - push * along, moved[b] + push * along
    return moved


def _grid(turns: Floating) -> Float64:
    """Meridians and parallels 30 degrees apart, (3, N), with a gap after each."""
    steps, heights = np.radians(np.arange(0, 180, 30)), np.radians([-60, -30, 0, 30, 60])
    lines = [np.stack([np.cos(turns) * np.cos(b), np.sin(turns), np.cos(turns) * np.sin(b)]) for b in steps]
    lines += [
        np.stack([np.cos(b) * np.cos(turns), np.full_like(turns, np.sin(b)), np.cos(b) * np.sin(turns)])
        for b in heights
    ]
    return np.concatenate([np.pad(line, ((0, 0), (0, 1)), constant_values=np.nan) for line in lines], axis=1)


def draw_angles(axes: "Axes", angles: PairAngles) -> None:
    """The histograms of both kinds of pairs, in radian, and below them their means in degrees."""
    bins = np.linspace(0, math.pi, 61)
    for values, colour, alpha, name in (
        (angles.same, SAME, 0.75, "positive pairs"), (angles.different, DIFFERENT, 0.65, "negative pairs"),
    ):  # fmt: skip
        density = np.histogram(values, bins, density=True)[0]
        axes.stairs(density, bins, fill=True, color=colour, alpha=alpha, label=name)
    axes.set(xlim=(0, math.pi), yticks=[])
    axes.set_ylim(bottom=0)
    axes.spines["left"].set_visible(False)
    axes.set_xticks([0, math.pi / 4, math.pi / 2, 3 * math.pi / 4, math.pi], ["0", "π/4", "π/2", "3π/4", "π"])
    axes.tick_params(labelsize=8)
    means = [degrees(math.degrees(each.mean())) for each in (angles.same, angles.different)]
    axes.set_xlabel(f"angle; means {means[0]}, {means[1]}", fontsize=8.5)
