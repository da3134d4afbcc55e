"""The curves of protocols, over rates, ranks and sizes on logarithmic axes: ROC, DET, CMC, rank 1 as a gallery grows.

A curve is a staircase, as the numbers behind it are: nothing between two of its points is made up.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from sphereface.arrays import Float64
from sphereface.metrics.upper_tail import UpperTail
from sphereface.reports.figures import COLOURS, Picture, Theme, blank, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


POINTS = 400  # of a curve: more than a screen can tell apart


class Curve(NamedTuple):
    """A staircase: each y holds from its x on until the next; x rises and is above 0."""

    x: Float64
    y: Float64

    def thinned(self, points: int = POINTS) -> "Curve":
        """About so many of the points, evenly on a logarithmic axis; the first and the last stay, and none is moved."""
        if len(self.x) <= points:
            return self
        last = len(self.x) - 1
        even = np.searchsorted(self.x, np.geomspace(self.x[0], self.x[-1], points), side="right") - 1
        kept = np.unique(np.concatenate([[0], np.clip(even, 0, last), [last]]))
        return Curve(self.x[kept], self.y[kept])


def accepted(tail: UpperTail) -> Curve:
    """TAR over FAR: from one different pair on, below which nothing is seen, to the last rate that is decided.

    Of positives at minus infinity, who are never accepted, there may be any number. Empty if no rate is decided.
    """
    last = 1.0 if tail.is_whole else (len(tail.negatives) - 1) / tail.total
    first = 1 / tail.total
    if last < first:
        return Curve(np.zeros(0), np.zeros(0))
    found = tail.roc()
    far, tar = (values[found.thresholds > -np.inf] for values in (found.far, found.tar))
    x = np.unique(np.concatenate([[first], far[(far > first) & (far < last)], [last]]))
    return Curve(x, tar[np.searchsorted(far, x, side="right") - 1])


def over_ranks(cmc: Float64) -> Curve:
    """The share of probes found at each rank or before, from a list that begins at rank 1."""
    return Curve(np.arange(1.0, len(cmc) + 1), np.asarray(cmc, dtype=np.float64))


def draw_roc(
    curves: Mapping[str, Curve],
    *,
    x: str = "false accept rate",
    y: str = "true accept rate",
    name: str = "ROC",
) -> Picture | None:
    """The rate of what should pass over that of what should not, one line each; None without any point."""

    def finish(axes: "Axes") -> None:
        axes.set_ylim(0, 1.02)
        axes.set_xlabel(x)
        axes.set_ylabel(y)

    return _stairs(curves, finish, f"{name}: {y} over {x}", corner="lower right")


def draw_det(
    curves: Mapping[str, Curve],
    *,
    x: str = "false accept rate",
    y: str = "false reject rate",
) -> Picture | None:
    """Detection error trade-off: both errors on logarithmic axes; None if nobody is ever refused."""
    errors = {name: _errors(curve) for name, curve in curves.items()}

    def finish(axes: "Axes") -> None:
        axes.set_yscale("log")
        axes.set_xlabel(x)
        axes.set_ylabel(y)

    return _stairs(errors, finish, f"DET: {y} over {x}", corner="upper right")


def _errors(curve: Curve) -> Curve:
    """What is left to 1; where nothing is, the staircase leaves a logarithmic axis."""
    left = 1 - curve.y
    some = int((left > 0).sum())  # these come first, for y rises
    end = some + 1 if some else 0
    return Curve(curve.x[:end], np.where(left > 0, left, np.nan)[:end])


def draw_cmc(curves: Mapping[str, Curve]) -> Picture | None:
    """Cumulative match characteristic: the share of probes found at a rank or before."""

    def finish(axes: "Axes") -> None:
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("rank")
        axes.set_ylabel("share of probes found")

    return _stairs(curves, finish, "CMC: share of probes found over rank", corner="lower right")


def draw_growth(lines: Mapping[str, Mapping[int, float]]) -> Picture:
    """Rank 1 over the number of distractors, a line for each way to count."""
    sizes = sorted({size for found in lines.values() for size in found})

    def draw(_: Theme) -> "Figure":
        figure = blank(5.6, 3.2)
        axes = figure.add_subplot()
        for place, (name, found) in enumerate(lines.items()):
            axes.plot(list(found), list(found.values()), marker="o", markersize=4, label=name, color=_colour(place))
        axes.set_xscale("log")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.minorticks_off()
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("distractors")
        axes.set_ylabel("rank-1 rate")
        axes.grid(alpha=0.2)
        axes.legend(loc="lower left", fontsize=8)
        return figure

    told = "; ".join(
        f"{name}: " + ", ".join(f"{rate:.2%} of {size:,}" for size, rate in found.items())
        for name, found in lines.items()
    )
    return picture(draw, f"Rank 1 among distractors: {told}")


def _stairs(
    curves: Mapping[str, Curve],
    finish: "Callable[[Axes], None]",
    what: str,
    *,
    corner: Literal["lower right", "upper right"],
) -> Picture | None:
    """Curves as stairs; where the legend stands is told, for the search of a free place takes seconds at times."""
    shown = {name: curve.thinned() for name, curve in curves.items() if len(curve.x)}
    if not shown:
        return None

    def draw(_: Theme) -> "Figure":
        figure = blank(5.6, 3.6)
        axes = figure.add_subplot()
        axes.set_xscale("log")
        for place, (name, (x, y)) in enumerate(shown.items()):
            lone = "o" if len(x) == 1 else ""  # a lone point has no line to be seen by
            axes.plot(
                x, y, drawstyle="steps-post", marker=lone, label=name, color=_colour(place), linewidth=1.6, markersize=3
            )
        axes.grid(alpha=0.2)
        axes.legend(loc=corner, fontsize=8)
        finish(axes)
        return figure

    told = "; ".join(f"{name} from {_point(curve, 0)} to {_point(curve, -1)}" for name, curve in shown.items())
    return picture(draw, f"{what}; {told}")


def _point(curve: Curve, place: int) -> str:
    y = curve.y[place]
    return f"{0.0 if np.isnan(y) else y:.4g} at {curve.x[place]:.4g}"


def _colour(place: int) -> str:
    return COLOURS[(place + 1) % len(COLOURS)]  # the first is grey, for what stands behind
