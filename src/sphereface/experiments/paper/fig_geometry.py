"""Figure 3: the regions that Euclidean margin, modified softmax and A-Softmax leave to two classes, in 2-D and 3-D.

Each picture is computed point by point from the inequality of its loss: on a grid of the plane, and on the surfaces
that a viewer sees, of two balls or of the unit sphere.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sphereface.arrays import Float64
from sphereface.experiments.paper.properties import angles_between, edge, in_space, log10_share, reach
from sphereface.experiments.paper.result import Figure, Result, Row, Table
from sphereface.experiments.paper.setting import Setting
from sphereface.experiments.paper.table1 import CLASSES, plane_weights, to_page
from sphereface.geometry import Acceptance, angular_margin, decision_boundary
from sphereface.reports.figures import INK, Picture, Theme, blank, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

THETA_12 = math.radians(80)
M = 4
TO_PAGE = to_page(THETA_12)
WEIGHTS = plane_weights(THETA_12) @ TO_PAGE
CENTERS = np.array([[-0.8, 0.0], [0.8, 0.0]])  # of the Euclidean losses, which have no sphere
EUCLIDEAN_MARGIN = 0.7
POINTS = {"tiny": 200_000, "small": 2_000_000, "paper": 2_000_000}  # on the sphere, to count shares
PIXELS = 700  # of a picture of the sphere
NEITHER, PEN = (0.87, 0.89, 0.92), INK["light"]  # of the sphere and on it: light on light and on dark pages
SAMPLE = math.radians(-22)  # direction of the sample x of class 1, from W1 towards W2


# The three constraints: values above 0 for features (..., D) that a class accepts; its center or weight is (2, D).


def euclidean(x: Float64, centers: Float64) -> Acceptance:
    """|x - c_1| < (|c_1 - c_2| - M) / 2 for class 1: the balls whose features are M or more from the other class's.

    Contrastive, triplet and center loss pull features to their class and keep classes apart in Euclidean distance;
    these balls are the largest ones around the centers that leave such a margin between the classes.
    """
    radius = (np.linalg.norm(centers[0] - centers[1]) - EUCLIDEAN_MARGIN) / 2
    return Acceptance(*(radius - np.linalg.norm(x - center, axis=-1) for center in centers))


def modified_softmax(x: Float64, weights: Float64) -> Acceptance:
    """omega_1 < omega_2 for class 1: cos theta_1 > cos theta_2."""
    return decision_boundary("modified_softmax", x, *weights)


def a_softmax(x: Float64, weights: Float64) -> Acceptance:
    """m omega_1 < omega_2 for class 1: psi(theta_1) > cos theta_2."""
    return decision_boundary("a_softmax", x, *weights, m=M)


class Panel(NamedTuple):
    """A column of the figure: a loss, and its weights or centers (2, 2) on the page."""

    title: str
    rule: str
    constraint: Callable[[Float64, Float64], Acceptance]
    points: Float64
    name: str  # of a weight or center
    spherical: bool = True  # on the unit sphere; else in the whole space


PANELS = (
    Panel("Euclidean margin loss", r"$|x - c_1| < (|c_1 - c_2| - M)\,/\,2$", euclidean, CENTERS, "c", spherical=False),
    Panel("Modified softmax loss", r"$\omega_1 < \omega_2$", modified_softmax, WEIGHTS, "W"),
    Panel(f"A-Softmax loss, m = {M}", r"$m\,\omega_1 < \omega_2$", a_softmax, WEIGHTS, "W"),
)


# First row: the plane.


def draw_plane(axes: "Axes", panel: Panel, theme: Theme) -> None:
    """The regions in the plane, and on the unit circle where the loss looks at angles only."""
    side = np.linspace(-1.75, 1.75, 500)  # even: the origin has no angle
    accepted = panel.constraint(np.stack(np.meshgrid(side, side), axis=-1), panel.points)
    for colour, values in zip(CLASSES, accepted, strict=True):
        alpha = 0.25 if panel.spherical else 0.6
        axes.contourf(side, side, values, levels=[0, 1e9], colors=[colour], alpha=alpha)
        axes.contour(side, side, values, levels=[0], colors=[colour], linewidths=1.2)
    if panel.spherical:
        turns = np.linspace(0, 2 * math.pi, 2_001)
        circle = np.stack([np.cos(turns), np.sin(turns)], axis=-1)
        axes.plot(*circle.T, color=INK[theme], linewidth=0.8)
        for colour, values in zip(CLASSES, panel.constraint(circle, panel.points), strict=True):
            axes.plot(*np.where(values[:, None] > 0, circle, np.nan).T, color=colour, linewidth=4.5)
    for number, weight in enumerate(panel.points, start=1):
        if panel.spherical:
            style = {"arrowstyle": "-|>", "color": INK[theme], "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", weight, (0, 0), arrowprops=style)
        else:
            axes.plot(*weight, "o", color=INK[theme], markersize=4)
        place = 1.2 * weight if panel.spherical else weight + np.array([0, 0.17])
        axes.text(place[0], place[1], f"${panel.name}_{number}$", ha="center", va="center")
    if panel.spherical:
        _draw_sample(axes, theme)
    if panel.constraint is a_softmax:
        turns = math.pi / 2 + np.linspace(-0.5, 0.5, 50) * angular_margin(THETA_12, M)
        axes.plot(1.42 * np.cos(turns), 1.42 * np.sin(turns), color=INK[theme], linewidth=1.6)
        axes.text(0, 1.5, "angular margin", ha="center", va="bottom", fontsize=8)
    elif panel.constraint is modified_softmax:
        axes.text(0.05, 1.5, "angular bisector", ha="left", va="bottom", fontsize=8)
    else:
        style = {"arrowstyle": "<->", "color": INK[theme], "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (-EUCLIDEAN_MARGIN / 2, 0), (EUCLIDEAN_MARGIN / 2, 0), arrowprops=style)
        axes.text(0, 0.55, "Euclidean margin M", ha="center", fontsize=8)
    axes.set(xlim=(-1.75, 1.75), ylim=(-1.45, 1.75), aspect="equal", title=f"{panel.title}\n{panel.rule}")
    axes.axis("off")


def _draw_sample(axes: "Axes", theme: Theme) -> None:
    """A sample x of class 1 with its angles to both weights, which are arcs on the unit circle."""
    x = np.array([math.cos(SAMPLE), math.sin(SAMPLE)]) @ TO_PAGE
    axes.plot([0, x[0]], [0, x[1]], color=INK[theme], linewidth=0.8)
    axes.plot(*x, "o", color=INK[theme], markersize=3.5)
    axes.text(1.17 * x[0], 1.17 * x[1], "$x$", ha="center", va="center")
    for stop, length, name, at in ((0.0, 0.6, r"$\omega_1$", 0.74), (THETA_12, 0.42, r"$\omega_2$", 0.63)):
        turns = np.linspace(SAMPLE, stop, 50)
        arc = np.stack([np.cos(turns), np.sin(turns)], axis=1) @ TO_PAGE
        axes.plot(*(length * arc).T, color=INK[theme], linewidth=0.8)
        place = at * arc[25 if stop == 0 else 35]
        axes.text(place[0], place[1], name, ha="center", va="center", fontsize=8)


# Second row: space, as a distant viewer sees it.


ABOVE = math.radians(28)  # height of the viewer over the plane of the weights
# Axes of the picture in space, where the page of the first row lies flat, its upper side towards the viewer.
RIGHT = np.array([1.0, 0.0, 0.0])
UP = np.array([0.0, -math.sin(ABOVE), math.cos(ABOVE)])
TOWARDS = np.array([0.0, math.cos(ABOVE), math.sin(ABOVE)])
SCREEN = np.stack([RIGHT, UP])


def surface(center: Float64, radius: float, screen: Float64) -> Float64:
    """The point (H, W, 3) of a ball that the viewer sees in each pixel of a picture (H, W, 2); nan beside the ball."""
    off = screen - SCREEN @ center
    squared = radius**2 - (off**2).sum(axis=-1)
    depth = np.sqrt(np.where(squared >= 0, squared, np.nan))
    return np.asarray(center + off @ SCREEN + depth[..., None] * TOWARDS)


def draw_space(axes: "Axes", panel: Panel) -> None:
    """The regions in space: on the unit sphere, or as balls."""
    points = in_space(panel.points)
    if panel.spherical:
        paint(axes, panel, np.zeros(3), 1.0)
        arc = np.linspace(0, THETA_12, 200)
        arc = in_space(np.stack([np.cos(arc), np.sin(arc)], axis=1) @ TO_PAGE)
        axes.plot(*SCREEN @ arc.T, color=PEN, linewidth=0.9, linestyle="--")
        accepted = panel.constraint(arc, points)
        free = (accepted.first <= 0) & (accepted.second <= 0)
        if free.sum() > 1:
            axes.plot(*SCREEN @ arc[free].T, color=PEN, linewidth=2.2)
            place = SCREEN @ arc[free].mean(axis=0) - np.array([0, 0.16])
            axes.text(place[0], place[1], "angular margin", color=PEN, ha="center", va="top", fontsize=8)
    else:
        for own, center in enumerate(points):
            paint(axes, panel, center, float(panel.constraint(center, points)[own]))  # its distance to the rim
    for number, place in enumerate((SCREEN @ points.T).T, start=1):
        axes.plot(*place, "o", color=PEN, markersize=4)
        axes.text(place[0], place[1] + 0.07, f"${panel.name}_{number}$", color=PEN, ha="center", va="bottom")
    axes.set(xlim=(-1.3, 1.3), ylim=(-1.04, 1.04), aspect="equal")
    axes.axis("off")


def paint(axes: "Axes", panel: Panel, center: Float64, radius: float) -> None:
    """A ball, each point in the colour of the class that accepts it, in the light of a lamp at the upper left."""
    from matplotlib.colors import to_rgb

    side = np.linspace(-1.5, 1.5, PIXELS)
    seen = surface(center, radius, np.stack(np.meshgrid(side, side), axis=-1))
    there = np.isfinite(seen[..., :1])
    inside = np.where(there, center + (seen - center) * (1 - 1e-9), 1.0)  # the rim of a ball is no part of its region
    colours = np.broadcast_to(NEITHER, seen.shape).copy()
    for colour, values in zip(CLASSES, panel.constraint(inside, in_space(panel.points)), strict=True):
        colours[values > 0] = to_rgb(colour)
    lamp = TOWARDS + 0.5 * UP - 0.5 * RIGHT
    shade = 0.55 + 0.5 * np.clip((inside - center) @ lamp / radius / np.linalg.norm(lamp), 0, 1)
    pixels = np.concatenate([np.clip(colours * shade[..., None], 0, 1), there], axis=-1)
    axes.imshow(pixels, origin="lower", extent=(-1.5, 1.5, -1.5, 1.5), interpolation="antialiased")


def draw() -> Picture:
    """Both rows for all three losses."""

    def whole(theme: Theme) -> "Drawing":
        figure = blank(8.6, 5.9)
        axes = figure.subplots(2, len(PANELS), height_ratios=(1, 1))
        for column, panel in enumerate(PANELS):
            draw_plane(axes[0, column], panel, theme)
            draw_space(axes[1, column], panel)
        for row, name in enumerate(("2-D", "3-D")):
            axes[row, 0].text(-0.04, 0.5, name, transform=axes[row, 0].transAxes, rotation=90, va="center", fontsize=11)
        return figure

    says = "Regions of two classes for a Euclidean margin, modified softmax and A-Softmax, in the plane and in space"
    return picture(whole, says, pdf=True)


# Numbers.


class Region(NamedTuple):
    """The region of class 1 on the sphere at one m; angles in radians."""

    towards: float
    away: float
    aside: float
    radii: tuple[float, float]  # smallest and largest, from the middle of its longest line
    counted: float  # share of points
    integrated: float  # share of the sphere

    @property
    def of_circle(self) -> float:
        """Share of the unit circle."""
        return (self.towards + self.away) / 2 / math.pi


def region(m: int, points: Float64) -> Region:
    """Measure the region of class 1 at one m."""
    weights = in_space(plane_weights(THETA_12))
    towards, aside, away = reach(weights, m, np.array([0, math.pi / 2, math.pi])).tolist()
    rim = edge(weights, m, np.linspace(0, 2 * math.pi, 360, endpoint=False))
    middle = (towards - away) / 2
    center = np.array([[math.cos(middle), math.sin(middle), 0.0]])
    radii = angles_between(center, rim)
    counted = float((decision_boundary("a_softmax", points, *weights, m=m).first > 0).mean())
    return Region(
        towards, away, aside, (float(radii.min()), float(radii.max())), counted, 10 ** log10_share(THETA_12, m, 3)
    )


def spread_points(count: int) -> Float64:
    """Points (N, 3) evenly spread on the unit sphere: along a spiral, with equal steps in height."""
    step = np.arange(count) + 0.5
    height, turn = 1 - 2 * step / count, math.pi * (1 + math.sqrt(5)) * step
    flat = np.sqrt(1 - height**2)
    return np.stack([flat * np.cos(turn), flat * np.sin(turn), height], axis=1)


def run(setting: Setting) -> Result:
    """Compute and draw the regions, and measure those on the sphere."""
    points = spread_points(POINTS[setting.scale])
    regions = {m: region(m, points) for m in (1, 2, 3, 4)}
    rows = []
    for m, each in regions.items():
        angles = [each.towards, each.away, each.aside, *each.radii, angular_margin(THETA_12, m)]
        shares = [f"{each.of_circle:.2%}", f"{each.integrated:.3%}", f"{each.counted:.3%}"]
        rows.append(Row([f"{m}", *(f"{math.degrees(angle):.2f}" for angle in angles), *shares], "derived"))
    head = [
        "m", "reach towards W2", "away from W2", "aside", "smallest radius", "largest radius", "margin",
        "share of the circle", "share of the sphere", "counted on points",
    ]  # fmt: skip
    note = (
        "m = 1 is modified softmax. Radii: from the middle of the region's line through W1 and W2 to its rim. Counted: "
        f"of {len(points):,} points, evenly spread, those with psi(theta_1) > cos theta_2."
    )
    title = "The region of class 1 on the unit circle and sphere, weights 80 degrees apart; angles in degrees"
    table = Table("regions", title, head, rows, note)
    most = max(abs(each.counted - each.integrated) for each in regions.values())
    four = regions[M]
    low, high = (math.degrees(radius) for radius in four.radii)
    findings = [
        f"With weights 80 degrees apart, modified softmax leaves each class half of the sphere; A-Softmax with m = {M} "
        f"leaves {four.integrated:.1%} of it, {four.of_circle:.1%} of the circle, and a margin of "
        f"{math.degrees(angular_margin(THETA_12, M)):.0f} degrees. Counts of points agree to {most:.0e}.",
        f"The region on the sphere is circle-like, as the paper says, but its middle is not W1: at m = {M} it reaches "
        f"{math.degrees(four.towards):.1f} degrees towards W2 and {math.degrees(four.away):.1f} away from it. Around "
        f"its own middle its radius is {low:.2f} to {high:.2f} degrees.",
    ]
    caption = (
        "Orange: class 1, green: class 2, as in the paper; grey: neither. First row in the plane, second row in space. "
        f"Euclidean margin: balls with M = {EUCLIDEAN_MARGIN:g} and centers 1.6 apart. Weights are 80 degrees apart; "
        "omega is an angle, and so the length of its arc on the unit circle or sphere."
    )
    return Result(
        "fig-geometry", "Regions of the constraints of three losses, in 2-D and 3-D", setting.scale, findings, [table],
        [Figure("geometry", draw(), caption, wide=True)],
        numbers={"regions": {str(m): each._asdict() for m, each in regions.items()}},
    )  # fmt: skip
