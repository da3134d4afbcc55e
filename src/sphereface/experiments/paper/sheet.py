"""A drawing of images, boxes, arrows and words at places in inches, for schematic figures."""

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sphereface.arrays import Floating, Image
from sphereface.reports.figures import INK, Theme, blank

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Sheet:
    """One pair of axes over a whole figure; places are inches from the lower left corner."""

    def __init__(self, width: float, height: float, theme: Theme) -> None:
        self.width, self.height, self.ink = width, height, INK[theme]
        self.figure = blank(width, height)
        self.figure.set_layout_engine("none")  # places are given
        self.axes: Axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_axis_off()
        self._limit()
        self.layers = 2.0  # later images and frames cover earlier ones

    def _limit(self) -> None:
        self.axes.set(xlim=(0, self.width), ylim=(0, self.height), aspect="auto")

    def image(
        self, pixels: Image | Floating, x: float, y: float, width: float, height: float, *, cmap: str | None = None
    ) -> None:
        """Pixels with a thin frame; numbers (H, W) in the colours of a map."""
        extent = (x, x + width, y, y + height)
        self.axes.imshow(pixels, extent=extent, cmap=cmap, interpolation="nearest", zorder=self.layers)
        self._limit()  # imshow changes it
        self.frame(x, y, width, height, line=0.6)

    def frame(self, x: float, y: float, width: float, height: float, *, edge: str = "", line: float = 1.2) -> None:
        """A rectangle."""
        from matplotlib.patches import Rectangle

        style: dict[str, Any] = {"fill": False, "edgecolor": edge or self.ink, "linewidth": line}
        self.axes.add_patch(Rectangle((x, y), width, height, zorder=self.layers, **style))
        self.layers += 0.01

    def text(self, x: float, y: float, words: str, *, size: float = 8.5, ha: str = "center", **style: Any) -> None:
        """Words around a point, or beside it."""
        self.axes.text(x, y, words, fontsize=size, ha=ha, va="center", linespacing=1.35, zorder=9, **style)

    def box(
        self, x: float, y: float, width: float, height: float, words: str, *, edge: str = "", size: float = 8.5
    ) -> None:
        """Words in a frame."""
        self.frame(x, y, width, height, edge=edge)
        self.text(x + width / 2, y + height / 2, words, size=size)

    def arrow(self, *points: tuple[float, float]) -> None:
        """A line through points with a head at the last one."""
        for start, end in pairwise(points[:-1]):
            self.axes.plot(*zip(start, end, strict=True), color=self.ink, linewidth=1.1, zorder=1)
        style = {"color": self.ink, "linewidth": 1.1, "arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0}
        self.axes.annotate("", points[-1], points[-2], arrowprops=style, zorder=1)
