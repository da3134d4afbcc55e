"""The curves of protocols, over rates, ranks and sizes on logarithmic axes: ROC, DET, CMC, rank 1 over gallery size.

A curve is a staircase, as the measured rates are: there is no interpolation between two of its points.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sphereface.arrays import Float64
from sphereface.metrics.upper_tail import UpperTail
from sphereface.reports.figures import COLOURS, Corner, Picture, Theme, chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 400  # of a curve: more than a screen resolves


class Curve(NamedTuple):
    """A staircase: each y holds from its x to the next; x is above 0 and ascending."""

    x: Float64
    y: Float64

    def thinned(self, points: int = POINTS) -> "Curve":
        """About `points` of the points, evenly on a logarithmic axis, the first and the last among them."""
        if len(self.x) <= points:
            return self
        last = len(self.x) - 1
        even = np.searchsorted(self.x, np.geomspace(self.x[0], self.x[-1], points), side="right") - 1
        kept = np.unique(np.concatenate([[0], np.clip(even, 0, last), [last]]))
        return Curve(self.x[kept], self.y[kept])


def accepted(tail: UpperTail) -> Curve:
    """TAR over FAR, from a FAR of one different pair, the least that is measured, to the last rate that is decided.

    Positives at minus infinity are never accepted, in any number. Empty if no rate is decided.
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
    """The share of probes found at each rank or before, from an array that begins at rank 1."""
    return Curve(np.arange(1.0, len(cmc) + 1), np.asarray(cmc, dtype=np.float64))


def draw_roc(
    curves: Mapping[str, Curve], *, x: str = "false accept rate", y: str = "true accept rate", name: str = "ROC"
) -> Picture | None:
    """The true over the false accept rate, one line for each curve; None without any point."""
    return _stairs(curves, name, x=x, y=y)


def draw_det(
    curves: Mapping[str, Curve], *, x: str = "false accept rate", y: str = "false reject rate"
) -> Picture | None:
    """Detection error trade-off: both errors on logarithmic axes; None if every same pair is always accepted."""
    return _stairs({name: _errors(curve) for name, curve in curves.items()}, "DET", x=x, y=y, logarithmic=True)


def _errors(curve: Curve) -> Curve:
    """1 - y, up to the first 0, which is a nan: it has no place on a logarithmic axis."""
    left = 1 - curve.y
    some = int((left > 0).sum())  # these come first, since y is ascending
    end = some + 1 if some else 0
    return Curve(curve.x[:end], np.where(left > 0, left, np.nan)[:end])


def draw_cmc(curves: Mapping[str, Curve]) -> Picture | None:
    """Cumulative match characteristic: the share of probes found at a rank or before."""
    return _stairs(curves, "CMC", x="rank", y="share of probes found")


def draw_growth(lines: Mapping[str, Mapping[int, float]]) -> Picture:
    """Rank 1 over the number of distractors, a line for each way to count."""
    sizes = sorted({size for found in lines.values() for size in found})

    def draw(axes: "Axes", _: Theme) -> None:
        for place, (name, found) in enumerate(lines.items()):
            axes.plot(list(found), list(found.values()), marker="o", markersize=4, label=name, color=_colour(place))
        axes.set_xscale("log")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.minorticks_off()
        axes.set_ylim(0, 1.02)

    points = "; ".join(
        f"{name}: " + ", ".join(f"{rate:.2%} of {size:,}" for size, rate in found.items())
        for name, found in lines.items()
    )
    says = f"Rank 1 among distractors: {points}"
    return chart(draw, says, height=3.2, x="distractors", y="rank-1 rate", loc="lower left")


def _stairs(curves: Mapping[str, Curve], title: str, *, x: str, y: str, logarithmic: bool = False) -> Picture | None:
    """Curves as stairs, with y on a linear or logarithmic axis; None without any point."""
    shown = {name: curve.thinned() for name, curve in curves.items() if len(curve.x)}
    if not shown:
        return None

    def draw(axes: "Axes", _: Theme) -> None:
        axes.set_xscale("log")
        for place, (name, curve) in enumerate(shown.items()):
            (line,) = axes.plot(*curve, drawstyle="steps-post", label=name, color=_colour(place), linewidth=1.6)
            line.set(marker="o" if len(curve.x) == 1 else "", markersize=3)  # a single point has no line
        if logarithmic:
            axes.set_yscale("log")
        else:
            axes.set_ylim(0, 1.02)

    ends = "; ".join(f"{name} from {_point(curve, 0)} to {_point(curve, -1)}" for name, curve in shown.items())
    loc: Corner = "upper right" if logarithmic else "lower right"  # matplotlib's search for a place can take seconds
    return chart(draw, f"{title}: {y} over {x}; {ends}", height=3.6, x=x, y=y, loc=loc)


def _point(curve: Curve, place: int) -> str:
    y = curve.y[place]
    return f"{0.0 if np.isnan(y) else y:.4g} at {curve.x[place]:.4g}"


def _colour(place: int) -> str:
    return COLOURS[(place + 1) % len(COLOURS)]  # the first is grey, for the background
