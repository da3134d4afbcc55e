"""Pictures of features on the sphere, angles, curves and faces, each drawn for light and for dark pages."""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from sphereface.arrays import Floating, Integers, UInt8, unit_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Theme = Literal["light", "dark"]
Corner = Literal["lower left", "lower right", "upper left", "upper right"]
INK: dict[Theme, str] = {"light": "#23262b", "dark": "#dfe3e8"}
INKED = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
HIDDEN = ("axes.spines.top", "axes.spines.right", "legend.frameon")
COLOURS = ("#8a93a0", "#3b9ddd", "#2fb28a", "#e0a12e", "#e0564c", "#9a6bd1", "#6b7f3a", "#c05f9d")
SAME, DIFFERENT = "#e0862e", "#3b7ddd"  # pairs of one person, and of two


class Picture(NamedTuple):
    """One figure as PNG, for a light and for a dark page, with an alternative text."""

    light: bytes
    dark: bytes
    says: str
    pdf: bytes = b""  # for print, where it was asked for

    def uri(self, theme: Theme) -> str:
        """The picture as part of a page."""
        return "data:image/png;base64," + base64.b64encode(getattr(self, theme)).decode()


def require_matplotlib() -> None:
    """Raise if matplotlib is missing, to call before a long run that ends in a report."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("a report needs matplotlib, which is not installed", name="matplotlib") from error


def picture(draw: "Callable[[Theme], Figure]", says: str, *, crop: bool = False, pdf: bool = False) -> Picture:
    """Draw a figure in both themes, and for print; `crop` cuts off empty margins, which takes as long again."""
    pngs = _drawn(draw, "light", crop, "png"), _drawn(draw, "dark", crop, "png")
    return Picture(*pngs, says, _drawn(draw, "light", crop, "pdf") if pdf else b"")


def _drawn(draw: "Callable[[Theme], Figure]", theme: Theme, crop: bool, form: Literal["png", "pdf"]) -> bytes:
    import matplotlib as mpl

    buffer = io.BytesIO()
    style: dict[Any, Any] = dict.fromkeys(INKED, INK[theme]) | dict.fromkeys(HIDDEN, False)
    with mpl.rc_context(style | {"font.size": 9.0, "axes.titlesize": 10.0}):
        draw(theme).savefig(
            buffer, format=form, dpi=130, transparent=form == "png", bbox_inches="tight" if crop else None,
            metadata={"CreationDate": None} if form == "pdf" else None,  # the same bytes each time
        )  # fmt: skip
    return buffer.getvalue()


def blank(width: float, height: float) -> "Figure":
    """An empty figure; width and height in inches."""
    from matplotlib.figure import Figure  # not pyplot: no global state, no window

    return Figure(figsize=(width, height), layout="constrained")


def chart(
    draw: "Callable[[Axes, Theme], None]",
    says: str,
    *,
    height: float,
    x: str,
    y: str,
    loc: Corner,
    grid: bool = True,
    pdf: bool = False,
) -> Picture:
    """A picture of one pair of axes, filled by `draw`, with their names, a legend at `loc` and a grid."""

    def whole(theme: Theme) -> "Figure":
        figure = blank(5.6, height)
        axes = figure.add_subplot()
        draw(axes, theme)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        if grid:
            axes.grid(alpha=0.2)
        axes.legend(loc=loc, fontsize=8)
        return figure

    return picture(whole, says, pdf=pdf)


def spheres(features: Mapping[str, Floating], labels: Integers) -> Picture:
    """3-D features (N, 3) of each loss on the unit sphere, one colour per person: top row of the paper's figure 5."""

    def draw(theme: Theme) -> "Figure":
        figure = blank(2.1 * len(features), 2.4)
        u, v = np.mgrid[0 : 2 * np.pi : 25j, 0 : np.pi : 13j]
        sphere = np.cos(u) * np.sin(v), np.sin(u) * np.sin(v), np.cos(v)
        for place, (name, points) in enumerate(features.items()):
            axes = figure.add_subplot(1, len(features), place + 1, projection="3d")
            axes.plot_wireframe(*sphere, color=INK[theme], linewidth=0.3, alpha=0.25)
            unit = unit_rows(points)
            for person in np.unique(labels):
                mine = unit[labels == person]
                colour = COLOURS[(int(person) + 1) % len(COLOURS)]
                axes.scatter(mine[:, 0], mine[:, 1], mine[:, 2], s=5, color=colour, alpha=0.8, linewidths=0)
            axes.set_title(name)
            axes.set_axis_off()
            axes.set_box_aspect((1, 1, 1), zoom=1.35)
        return figure

    return picture(draw, f"3-D features on the unit sphere for {', '.join(features)}; one colour per person", crop=True)


def angle_histograms(same: Mapping[str, Floating], different: Mapping[str, Floating]) -> Picture:
    """Angles, in radians, of same and of different pairs for each loss: figure 5 of the paper, bottom row."""

    def draw(_: Theme) -> "Figure":
        figure = blank(2.1 * len(same), 1.9)
        bins = np.linspace(0, np.pi, 60)
        first: Axes | None = None
        for place, name in enumerate(same):
            axes = figure.add_subplot(1, len(same), place + 1, sharey=first)
            first = first or axes
            axes.hist(same[name], bins=list(bins), density=True, color=SAME, alpha=0.75, label="same person")
            axes.hist(different[name], bins=list(bins), density=True, color=DIFFERENT, alpha=0.65, label="different")
            axes.set_title(name)
            axes.set_xlabel("angle")
            axes.set_yticks([])
        assert first is not None, "no loss to draw"
        first.legend(loc="upper right", fontsize=7)
        return figure

    return picture(draw, f"Angles between features of the same and of different people for {', '.join(same)}")


def roc_curves(curves: Mapping[str, tuple[Floating, Floating]]) -> Picture:
    """True over false accept rate, the latter on a logarithmic axis, one line per method."""

    def draw(axes: "Axes", _: Theme) -> None:
        for place, (name, (far, tar)) in enumerate(curves.items()):
            seen = far > 0
            axes.plot(far[seen], tar[seen], label=name, color=COLOURS[place % len(COLOURS)], linewidth=1.6)
        axes.set_xscale("log")
        axes.set_xlim(1e-4, 1)
        axes.set_ylim(0, 1)

    says = f"ROC curves of {', '.join(curves)}"
    return chart(draw, says, height=3.8, x="false accept rate", y="true accept rate", loc="lower right")


def training_curves(losses: Mapping[str, Sequence[float]]) -> Picture:
    """The training loss of each method over its steps, smoothed."""

    def draw(axes: "Axes", _: Theme) -> None:
        for place, (name, values) in enumerate(losses.items()):
            window = max(1, len(values) // 50)
            smooth = np.convolve(values, np.ones(window) / window, mode="valid")
            steps = np.arange(len(smooth)) + window
            axes.plot(steps, smooth, label=name, color=COLOURS[place % len(COLOURS)], linewidth=1.4)

    says = f"Training loss of {', '.join(losses)}"
    return chart(draw, says, height=3.2, x="step", y="training loss", loc="upper right")


def contact_sheet(faces: UInt8, columns: int, *, says: str) -> Picture:
    """Faces (N, H, W, 3) in rows of `columns`; the last row is filled up with grey."""
    import cv2

    empty = np.full((-len(faces) % columns, *faces.shape[1:]), 128, np.uint8)
    whole = np.concatenate([faces, empty])
    rows = [np.hstack(list(whole[start : start + columns])) for start in range(0, len(whole), columns)]
    _, png = cv2.imencode(".png", np.vstack(rows)[:, :, ::-1])
    return Picture(png.tobytes(), png.tobytes(), says)


class Line(NamedTuple):
    """Values over the steps of a run; None, nan and infinity are gaps. A faint line is drawn in the background."""

    name: str
    steps: Sequence[float]
    values: Sequence[float | None]
    faint: bool = False


class Panel(NamedTuple):
    """Lines that share an axis of values; `logarithmic` applies only if all values are above 0."""

    title: str
    lines: Sequence[Line]
    logarithmic: bool = False


def over_steps(panels: Sequence[Panel], *, says: str, marks: Sequence[float] = ()) -> Picture:
    """Panels one above the other over the same steps; `marks` are steps to mark, such as resumes and rollbacks."""

    def draw(theme: Theme) -> "Figure":
        figure = blank(5.6, 0.5 + 1.8 * len(panels))
        first: Axes | None = None
        for place, panel in enumerate(panels):
            axes = figure.add_subplot(len(panels), 1, place + 1, sharex=first)
            first = first or axes
            _draw_panel(axes, panel)
            for mark in marks:
                axes.axvline(mark, color=INK[theme], linewidth=0.8, linestyle=":", alpha=0.6)
            axes.tick_params(labelbottom=place == len(panels) - 1)
        axes.set_xlabel("step")
        return figure

    return picture(draw, says)


def _draw_panel(axes: "Axes", panel: Panel) -> None:
    lowest = np.inf
    for place, line in enumerate(panel.lines):
        values = np.array([np.nan if value is None else value for value in line.values], dtype=np.float64)
        values[~np.isfinite(values)] = np.nan
        lowest = min(lowest, np.nanmin(values, initial=np.inf))
        axes.plot(
            line.steps,
            values,
            label=f"_{line.name}" if line.faint else line.name,  # an underscore keeps it out of the legend
            color=COLOURS[0] if line.faint else COLOURS[1 + place % (len(COLOURS) - 1)],
            linewidth=0.7 if line.faint else 1.5,
            alpha=0.6 if line.faint else 1.0,
            marker="o" if np.isfinite(values).sum() <= 30 else "",  # a single point has no line
            markersize=2.5,
        )
    if panel.logarithmic and 0 < lowest < np.inf:
        axes.set_yscale("log")
    axes.set_ylabel(panel.title)
    axes.grid(alpha=0.2)
    if sum(not line.faint for line in panel.lines) > 1:
        axes.legend(loc="lower right", fontsize=7)  # margins and rates grow, and leave it free


def pair_angles(
    same: Floating,
    different: Floating,
    *,
    threshold: float | None,
    says: str = "Angles between photos of the same and of different people, with the best threshold",
) -> Picture:
    """Histograms of the angles of same and of different pairs, with the threshold up to which pairs pass; radians."""

    def draw(axes: "Axes", theme: Theme) -> None:
        bins = list(np.linspace(0, 180, 91))
        axes.hist(np.degrees(same), bins=bins, density=True, color=SAME, alpha=0.75, label="same person")
        axes.hist(np.degrees(different), bins=bins, density=True, color=DIFFERENT, alpha=0.65, label="different people")
        if threshold is not None:
            axes.axvline(np.degrees(threshold), color=INK[theme], linewidth=1, linestyle="--", label="threshold")
        axes.set_yticks([])

    return chart(draw, says, height=2.8, x="angle between two photos, degrees", y="", loc="upper right", grid=False)


def tail_angles(
    same: Floating, different: Floating, *, total: int, thresholds: Mapping[str, float], says: str
) -> Picture | None:
    """The share of same and of different pairs at each degree, if only the nearest different pairs are known; radians.

    `total` is the number of all different pairs. These are drawn up to the last degree that is known in full; None
    without such a degree.
    """
    bins = np.arange(181.0)
    near = np.degrees(different)
    whole = 180 if len(near) == total else int(np.floor(near.max(initial=0.0)))  # degrees known in full
    if not whole or not len(near):
        return None
    known = np.histogram(near, bins=bins)[0][:whole] / total

    def draw(axes: "Axes", theme: Theme) -> None:
        shares = np.histogram(np.degrees(same), bins=bins)[0] / len(same)
        axes.stairs(shares, bins, fill=True, color=SAME, alpha=0.75, label="same person")
        axes.stairs(known, bins[: whole + 1], fill=True, color=DIFFERENT, alpha=0.65, label="different people")
        for place, (name, angle) in enumerate(thresholds.items()):
            style = ("--", "-.", ":")[place % 3]
            axes.axvline(np.degrees(angle), color=INK[theme], linewidth=1, linestyle=style, label=name)
        axes.set_yscale("log")

    y = "share of pairs at a degree"
    return chart(draw, says, height=2.8, x="angle, degrees", y=y, loc="upper right", grid=False)


def heat_map(values: Floating, names: Sequence[str], *, says: str) -> Picture:
    """A square of shares (G, G) with a number in each cell; nan is shown as "-"."""

    def draw(_: Theme) -> "Figure":
        side = 1.2 + 0.65 * len(names)
        figure = blank(side + 0.8, side)
        axes = figure.add_subplot()
        highest = float(np.nanmax(values, initial=0.0)) or 1.0
        axes.imshow(np.ma.masked_invalid(values), cmap="Blues", vmin=0, vmax=highest)
        for row, column in np.ndindex(values.shape):
            value = values[row, column]
            shown = "-" if np.isnan(value) else f"{value:.2g}"
            ink = None if np.isnan(value) else INK["dark" if value > 0.55 * highest else "light"]  # legible on a shade
            axes.text(column, row, shown, ha="center", va="center", fontsize=8, color=ink)
        axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
        axes.set_yticks(range(len(names)), names)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        return figure

    return picture(draw, says)
