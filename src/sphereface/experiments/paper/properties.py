"""Section 3.4: the properties of A-Softmax, measured on the regions that it accepts.

A class's region is m theta_own < theta_other for every other class. Its extent is measured from the training losses
where m is a whole number, and from that inequality where m is real.
"""

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sphereface.arrays import Float64
from sphereface.experiments.paper.result import Figure, Result, Row, Table
from sphereface.experiments.paper.setting import Setting
from sphereface.experiments.paper.table1 import boundary, loss_of, plane_weights
from sphereface.geometry import effective_m, first_true, minimal_m_binary, minimal_m_uniform
from sphereface.reports.figures import COLOURS, INK, Picture, Theme, blank, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

BOUND, UNIFORM_BOUND = 2 + math.sqrt(3), 3.0  # Properties 2 and 3
MARGINS = (2, 3, 4, 5, 6)  # m of both inequalities
SHOWN = (30, 60, 90, 120, 135, 150, 180)  # theta_12 in degrees, in the tables
RIGHT = math.pi / 2  # theta_12 of Property 1
DIMENSIONS = (2, 3, 8, 512)  # 512: FC1
SAMPLED = (3, 8)  # by Monte Carlo, too
AZIMUTHS = {"tiny": 120, "small": 360, "paper": 720}  # around a weight; every 9 degrees, for the corners of regions
STEP = {"tiny": 15, "small": 5, "paper": 1}  # degrees between the measured theta_12
DRAWN = {"tiny": 4_000_000, "small": 40_000_000, "paper": 400_000_000}  # random directions
SHARE_MARGINS = (1, 2, 3, 4, 5, 6)  # m of Property 1
RINGS = (3, 4, 5, 10)  # classes, evenly spaced on a circle
ALONG = np.array([0.0, math.pi])  # azimuths of the plane: towards the nearest other weight, and away from it
LAMBDA = 5.0  # where the annealing of the appendix ends


# Property 1: the share of the sphere that a class keeps.


def reach(weights: Float64, m: float, azimuths: Float64) -> Float64:
    """The angle that the first class's region, m theta_1 < theta_j for all j, spans in each azimuth (A,); radians.

    `weights` (K, 3) are unit; azimuth 0 points to the nearest other weight. On a great circle from its weight,
    m theta_1 - theta_j only grows with theta_1 for m > 1, so that a bisection finds the end.
    """
    own, turned = weights[0], tangents(weights, azimuths)
    along, across = weights[1:] @ own, turned @ weights[1:].T  # (K-1,) and (A, K-1)
    low, high = np.zeros(len(azimuths)), np.full(len(azimuths), math.pi)
    for _ in range(45):
        middle = (low + high) / 2
        cosines = np.cos(middle)[:, None] * along + np.sin(middle)[:, None] * across
        outside = m * middle >= np.arccos(np.clip(cosines.max(axis=1), -1, 1))
        low, high = np.where(outside, low, middle), np.where(outside, middle, high)
    return low


def tangents(weights: Float64, azimuths: Float64) -> Float64:
    """Unit directions (A, 3) in which to leave the first weight; azimuth 0 is towards the nearest other one."""
    own, nearest = weights[0], weights[1:][np.argmax(weights[1:] @ weights[0])]
    towards = nearest - (nearest @ own) * own
    if np.linalg.norm(towards) < 1e-9:  # the opposite weight: all azimuths are alike; this one stays in the plane
        towards = np.cross(own, [0.0, 0.0, 1.0])
    towards = towards / np.linalg.norm(towards)
    return np.asarray(np.cos(azimuths)[:, None] * towards + np.sin(azimuths)[:, None] * np.cross(own, towards))


def edge(weights: Float64, m: float, azimuths: Float64) -> Float64:
    """The ends (A, 3) of the first class's region in some azimuths, on the unit sphere."""
    angles = reach(weights, m, azimuths)[:, None]
    return np.asarray(np.cos(angles) * weights[0] + np.sin(angles) * tangents(weights, azimuths))


def log10_share(theta12: float, m: float, dimension: int, steps: int = 2_000) -> float:
    """The share of the sphere in a dimension that the region of one of two classes covers, as its logarithm.

    The share of directions within an angle r of a weight is that of the integral of sin^(D-2) up to r; azimuths from
    the plane of the weights have the density sin^(D-3). In logarithms, since 512-D shares are below 1e-300.
    """
    weights = in_space(plane_weights(theta12))
    angles = (np.arange(steps) + 0.5) * math.pi / steps
    within = np.logaddexp.accumulate((dimension - 2) * np.log(np.sin(angles)))
    azimuths = ALONG if dimension == 2 else angles
    density = np.zeros(2) if dimension == 2 else (dimension - 3) * np.log(np.sin(angles))
    # `within` counts a step as a whole: it is exact at the end of its step, not in the middle.
    cover = np.interp(reach(weights, m, azimuths), angles + math.pi / steps / 2, within - within[-1])
    return float(np.logaddexp.reduce(density + cover) - np.logaddexp.reduce(density)) / math.log(10)


def sampled_shares(theta12: float, ms: Sequence[int], dimension: int, count: int, seed: int = 0) -> Float64:
    """The shares (M,) of random directions in the region of one of two classes.

    Two numbers of a direction lie in the plane of the weights; of the others only their squared length matters.
    """
    rng, hits = np.random.default_rng(seed), np.zeros(len(ms))
    for start in range(0, count, 1_000_000):
        size = min(1_000_000, count - start)
        plane = rng.normal(size=(2, size))
        length = np.sqrt((plane**2).sum(axis=0) + rng.chisquare(dimension - 2, size))
        own, other = np.arccos(np.clip(plane_weights(theta12) @ plane / length, -1, 1))
        hits += [(m * own < other).sum() for m in ms]
    return hits / count


def in_space(weights: Float64) -> Float64:
    """Weights of the plane (K, 2) as weights of the space (K, 3)."""
    return np.column_stack([weights, np.zeros(len(weights))])


# Property 2: two classes.


class Sides(NamedTuple):
    """Both sides of the inequality of Property 2's proof; radians."""

    within: float  # the largest angle inside of a class
    between: float  # the smallest angle between two classes


def printed_sides(theta12: float, m: float) -> Sides:
    """The formulas that the paper prints: one pair up to theta_12 = (m-1)/m pi, one above."""
    outer = theta12 / (m - 1) if theta12 <= (m - 1) / m * math.pi else (2 * math.pi - theta12) / (m + 1)
    return Sides(outer + theta12 / (m + 1), (m - 1) * theta12 / (m + 1))


@cache
def measured_sides(theta12: float, m: int) -> Sides:
    """The same from the decision boundaries of the training loss, on the circle of the weights; for m of at least 2."""
    loss = loss_of("a_softmax", plane_weights(theta12), m=m)
    outer, inner = boundary(loss, 0, theta12)
    start, stop = boundary(loss, 1, theta12)
    return Sides(float(min(inner - outer, math.pi)), float(min(start - inner, outer + 2 * math.pi - stop)))


# Properties 2 and 3: the smallest m.


def minimal_m(weights: Float64, azimuths: Float64) -> float:
    """The smallest real m with the largest angle in the first class at most the smallest angle to any other class.

    `weights` (K, 3) lie alike around each of them, so that one class stands for all. With the azimuths `ALONG` features
    stay in the plane of the weights; with a full turn of azimuths they fill the sphere.
    """

    def meets(m: float) -> bool:
        own, *others = [edge(np.roll(weights, -first, axis=0), m, azimuths) for first in range(len(weights))]
        return bool(angles_between(own, own).max() <= min(angles_between(own, each).min() for each in others) + 1e-9)

    return first_true(meets, 1.01, 10.0)


def angles_between(one: Float64, other: Float64) -> Float64:
    """All angles (A, B) between unit vectors (A, 3) and (B, 3)."""
    return np.asarray(np.arccos(np.clip(one @ other.T, -1, 1)))


def ring(k: int) -> Float64:
    """Weights (k, 3) evenly spaced on a circle."""
    turns = 2 * math.pi * np.arange(k) / k
    return in_space(np.stack([np.cos(turns), np.sin(turns)], axis=1))


def solids() -> dict[str, Float64]:
    """Weights at the corners of Platonic solids: evenly spaced on the sphere."""
    signs = np.array([[a, b, c] for a in (1, -1) for b in (1, -1) for c in (1, -1)], dtype=np.float64)
    golden = (1 + math.sqrt(5)) / 2
    icosahedron = [np.roll([0, a, b * golden], turn) for turn in range(3) for a in (1, -1) for b in (1, -1)]
    corners = {
        "tetrahedron, 4 classes": signs[signs.prod(axis=1) > 0],
        "octahedron, 6 classes": np.concatenate([np.eye(3), -np.eye(3)]),
        "cube, 8 classes": signs,
        "icosahedron, 12 classes": np.array(icosahedron),
    }
    return {name: each / np.linalg.norm(each, axis=1, keepdims=True) for name, each in corners.items()}


def printed_minimal_m(theta12: float) -> float:
    """The smallest m that meets the paper's two inequalities for one angle between the weights."""

    def meets(m: float) -> bool:
        sides = printed_sides(theta12, m)
        return sides.within <= sides.between + 1e-12

    return first_true(meets, 1.01, 10.0)


# Tables and pictures.


def shares_table(setting: Setting) -> tuple[Table, dict[int, list[float]], dict[int, Float64]]:
    """Property 1: the share of the sphere by m, integrated (as logarithms) and from random directions."""
    integrated = {d: [log10_share(RIGHT, m, d) for m in SHARE_MARGINS] for d in DIMENSIONS}
    sampled = {d: sampled_shares(RIGHT, SHARE_MARGINS, d, DRAWN[setting.scale]) for d in SAMPLED}
    rows = []
    for d, logarithms in integrated.items():
        rows.append(Row([f"{d}-D", "integral", *map(_share, logarithms)], "derived"))
        if d in sampled:
            errors = np.sqrt(sampled[d] * (1 - sampled[d]) / DRAWN[setting.scale])
            cells = [f"{share:.3g} ± {error:.1g}" for share, error in zip(sampled[d], errors, strict=True)]
            rows.append(Row([f"{d}-D", f"{DRAWN[setting.scale]:,} random directions", *cells], setting.scale))
    head = ["space", "how", *(f"m = {m}" for m in SHARE_MARGINS)]
    title = "Property 1: the share of the sphere in which class 1 accepts features, two classes 90 degrees apart"
    return Table("shares", title, head, rows, "± one standard error."), integrated, sampled


def _share(logarithm: float) -> str:
    return f"{10**logarithm:.3g}" if logarithm > -300 else f"1e{logarithm:.0f}"


def sides_table(step: int) -> tuple[Table, float]:
    """Both sides of Property 2's inequality, measured and printed; and the largest difference, in degrees."""
    rows, worst = [], 0.0
    for m in MARGINS:
        for degrees in range(step, 181, step):
            theta12 = math.radians(degrees)
            measured, printed = measured_sides(theta12, m), printed_sides(theta12, m)
            worst = max(worst, *(math.degrees(abs(a - b)) for a, b in zip(measured, printed, strict=True)))
            if degrees in SHOWN:
                branch = "up to" if theta12 <= (m - 1) / m * math.pi else "above"
                sides = [measured.within, printed.within, measured.between, printed.between]
                meets = "yes" if measured.within <= measured.between + 1e-9 else "no"
                cells = [f"{m}", f"{degrees}", branch, *(f"{math.degrees(side):.3f}" for side in sides), meets]
                rows.append(Row(cells, "derived"))
    head = [
        "m", "theta_12", "branch: (m-1)/m pi", "within, measured", "within, printed", "between, measured",
        "between, printed", "within <= between",
    ]  # fmt: skip
    title = "Property 2: largest angle within a class and smallest between two, degrees"
    note = "Measured: from the decision boundaries of the training loss. Printed: the two inequalities of the proof."
    return Table("inequalities", title, head, rows, note), worst


class Minimal(NamedTuple):
    """The smallest m of an arrangement of classes; None: does not apply."""

    name: str
    planar: float | None  # features in the plane of the weights
    spherical: float  # features on the sphere around it
    printed: float | None


def minimal_ms(setting: Setting) -> tuple[list[Minimal], list[Minimal], list[Minimal]]:
    """The smallest m of two classes by their angle, of rings and of solids."""
    turns = np.arange(AZIMUTHS[setting.scale]) * 2 * math.pi / AZIMUTHS[setting.scale]

    def of(name: str, weights: Float64, printed: float | None, *, flat: bool = True) -> Minimal:
        return Minimal(name, minimal_m(weights, ALONG) if flat else None, minimal_m(weights, turns), printed)

    pairs = [
        of(f"two classes, {degrees} degrees apart", in_space(plane_weights(theta12)), printed_minimal_m(theta12))
        for degrees in SHOWN
        for theta12 in [math.radians(degrees)]
    ]
    rings = [of(f"{k} classes on a circle", ring(k), UNIFORM_BOUND) for k in RINGS]
    return pairs, rings, [of(name, weights, None, flat=False) for name, weights in solids().items()]


def minimal_table(found: Sequence[Minimal]) -> Table:
    """Properties 2 and 3: the smallest m by arrangement."""
    rows = []
    for each in found:
        numbers = ["-" if m is None else f"{m:.4f}" for m in (each.planar, each.spherical, each.printed)]
        rows.append(Row([each.name, *numbers], "derived"))
    head = ["classes", "features in the plane of the weights", "features on the sphere in 3-D", "paper's inequalities"]
    title = "Properties 2 and 3: the smallest m with all angles within a class at most those between classes"
    return Table("minimal-m", title, head, rows)


def draw_bounds(pairs: Sequence[Minimal]) -> Picture:
    """Left: within minus between by theta_12 and m. Right: the smallest m by theta_12."""
    fine, dots = np.radians(np.linspace(1, 180, 359)), np.radians(np.arange(15, 181, 15))
    measured = {m: [measured_sides(float(theta12), m) for theta12 in dots] for m in MARGINS[:4]}

    def draw(theme: Theme) -> "Drawing":
        figure = blank(9.0, 3.9)
        left, right = figure.subplots(1, 2)
        left.axhline(0, color=INK[theme], linewidth=0.8)
        for colour, (m, sides) in zip(COLOURS[1:], measured.items(), strict=False):
            lines = [printed_sides(float(theta12), m) for theta12 in fine]
            left.plot(np.degrees(fine), [_excess(each) for each in lines], color=colour, label=f"m = {m}")
            left.plot(np.degrees(dots), [_excess(each) for each in sides], "o", color=colour, markersize=4)
            left.axvline(180 * (m - 1) / m, color=colour, linewidth=0.8, linestyle=":")
        left.set(ylabel="largest within - smallest between, degrees", ylim=(-70, 118))
        left.set_title("Property 2: the criterion holds below 0")
        left.legend(loc="upper left", fontsize=8, ncols=2)
        right.plot(np.degrees(fine), [printed_minimal_m(float(theta12)) for theta12 in fine], color=COLOURS[1],
                   label="paper's inequalities")  # fmt: skip
        right.plot(SHOWN, [each.planar for each in pairs], "o", color=COLOURS[4], label="measured in the plane")
        right.plot(SHOWN, [each.spherical for each in pairs], "x", color=INK[theme], label="measured on the sphere")
        for bound, name in ((BOUND, r"$2+\sqrt{3}$"), (UNIFORM_BOUND, "3")):
            right.axhline(bound, color=INK[theme], linewidth=0.8, linestyle="--", alpha=0.6)
            right.text(3, bound + 0.03, name)
        right.set(ylim=(2.8, 4.2), ylabel="smallest m")
        right.set_title("Smallest m for two classes")
        right.legend(loc="upper right", fontsize=8)
        for axes in (left, right):
            axes.set(xlim=(0, 182), xlabel=r"$\theta_{12}$, degrees")
            axes.set_xticks(range(0, 181, 30))
        return figure

    return picture(draw, "Both sides of the paper's inequality by angle and m, and the smallest m by angle", pdf=True)


def _excess(sides: Sides) -> float:
    return math.degrees(sides.within - sides.between)


def draw_difficulty(integrated: dict[int, list[float]], sampled: dict[int, Float64]) -> Picture:
    """Property 1: left the margin by m, right the share of the sphere by m."""

    def margins(axes: "Axes") -> None:
        ms = np.linspace(1, SHARE_MARGINS[-1], 100)
        for colour, degrees in zip(COLOURS[1:], (60, 90, 120, 180), strict=False):
            axes.plot(ms, (ms - 1) / (ms + 1) * degrees, color=colour, label=f"{degrees}°")
            measured = [math.degrees(measured_sides(math.radians(degrees), m).between) for m in MARGINS]
            axes.plot(MARGINS, measured, "o", color=colour, markersize=4)
        axes.set(ylabel="angular margin, degrees", title="Margin, measured (dots) and printed", ylim=(-3, 165))
        axes.legend(title=r"$\theta_{12}$", fontsize=8, loc="upper left", ncols=2)

    def shares(axes: "Axes") -> None:
        for colour, dimension in zip(COLOURS[1:], (2, *SAMPLED), strict=False):
            axes.plot(SHARE_MARGINS, 10 ** np.array(integrated[dimension]), color=colour, label=f"{dimension}-D")
            if dimension in sampled:
                axes.plot(SHARE_MARGINS, sampled[dimension], "o", color=colour, markersize=4)
        axes.set_yscale("log")
        axes.set(ylabel="share of the sphere", title=r"Region of a class, $\theta_{12}$ = 90° (dots: sampled)")
        axes.legend(fontsize=8, loc="lower left")

    def draw(theme: Theme) -> "Drawing":  # noqa: ARG001
        figure = blank(9.0, 3.6)
        for axes, fill in zip(figure.subplots(1, 2), (margins, shares), strict=True):
            fill(axes)
            axes.set_xlabel("m")
            axes.grid(alpha=0.2)
        return figure

    return picture(draw, "The angular margin grows with m, the share of the sphere in a class's region falls", pdf=True)


def run(setting: Setting) -> Result:
    """Measure margins, regions and smallest m, and compare them with the paper's formulas."""
    shares, integrated, sampled = shares_table(setting)
    sides, sides_worst = sides_table(STEP[setting.scale])
    pairs, rings, corners = minimal_ms(setting)
    binary, uniform = minimal_m_binary(), [minimal_m_uniform(k) for k in (2, *RINGS)]
    falls = all(a > b for logs in integrated.values() for a, b in pairwise(logs))
    found = np.array([[each.planar, each.spherical, each.printed] for each in pairs], np.float64)
    worst_pair = np.abs(found[:, :2] - found[:, 2:]).max()
    acts_like = [effective_m(math.radians(degrees), 4, LAMBDA) for degrees in range(1, 181)]
    spherical = [each.spherical for each in (*rings, *corners)]
    four = SHARE_MARGINS.index(4)
    findings = [
        f"Property 1 {'holds: the' if falls else 'fails: not every'} region of a class shrinks with a larger m. At 90 "
        f"degrees it covers, from m = 1 to m = 4, {_share(integrated[3][0])} to {_share(integrated[3][four])} of the "
        f"sphere in 3-D, {_share(integrated[8][0])} to {_share(integrated[8][four])} in 8-D, and in 512-D, FC1's "
        f"dimension, 1e{integrated[512][four]:.0f}.",
        f"Property 2's formulas are exact in both branches: both sides, measured on the boundaries of the loss, differ "
        f"by at most {sides_worst:.0e} degrees for m = {MARGINS[0]} to {MARGINS[-1]} and theta_12 up to 180 degrees. "
        f"The smallest angle between two classes is the margin, (m-1)/(m+1) theta_12, in all of them.",
        f"Property 2's bound is tight: the smallest m that serves all pairs of classes is {binary:.6f}, and 2 + sqrt 3 "
        f"is {BOUND:.6f}. Pairs up to {math.degrees(2 * math.pi / (BOUND - 1)):.1f} degrees apart need it; beyond, "
        f"1 + 2 pi / theta_12 is enough, 3 at 180. The proof looks at the plane of the weights only; with features on "
        f"the sphere around it the smallest m is the same to {worst_pair:.0e}.",
        f"Property 3: evenly spaced on a circle, with features in its plane, the smallest m is {max(uniform):.6f} for "
        f"{', '.join(map(str, (2, *RINGS)))} classes. With features on the sphere in 3-D, which the proof leaves out, "
        f"the same classes need {min(each.spherical for each in rings):.2f} to "
        f"{max(each.spherical for each in rings):.2f}, and the corners of regular solids "
        f"{min(each.spherical for each in corners):.2f} to {max(each.spherical for each in corners):.2f}: 3 is a lower "
        f"bound, as stated, and m = 4 {'meets' if max(spherical) <= 4 else 'does not meet'} the criterion in all.",
        f"With lambda = {LAMBDA:g}, where the appendix ends its annealing, m = 4 has the inner boundary of m = "
        f"{min(acts_like):.2f} to {max(acts_like):.2f}, below both bounds: the task that is trained is easier than the "
        f"one that the criterion asks for.",
    ]
    return Result(
        "properties", "The properties of A-Softmax, checked numerically", setting.scale, findings,
        [shares, sides, minimal_table([*pairs, *rings, *corners])],
        [
            Figure("bounds", draw_bounds(pairs), "Lines: the paper's inequalities, with the change of branch dotted. "
                   "Dots: measured on the boundaries of the loss.", wide=True),
            Figure("difficulty", draw_difficulty(integrated, sampled), "Property 1: a larger m has a larger margin and "
                   "a smaller region.", wide=True),
        ],
        numbers={
            "minimal_m_binary": binary, "minimal_m_uniform": uniform, "sides_difference_degrees": sides_worst,
            "minimal_m": {each.name: [each.planar, each.spherical] for each in (*pairs, *rings, *corners)},
            "log10_shares": {str(d): logs for d, logs in integrated.items()},
            "sampled_shares": {str(d): each.tolist() for d, each in sampled.items()},
            "m_4_at_lambda_5": [min(acts_like), max(acts_like)],
        },
    )  # fmt: skip
