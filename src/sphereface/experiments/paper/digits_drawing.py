"""2-D features of digits as points in the plane, a column for each run: the figures of appendices A, C and D."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sphereface.arrays import Float64
from sphereface.experiments.outcomes import Outcome
from sphereface.experiments.paper.digit_images import CLASSES, PARTS, Part
from sphereface.reports.figures import INK, Picture, Theme, blank, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES: dict[Part, str] = {"train": "training images", "test": "test images"}
# One for each digit; the page's colours are eight.
TEN = ("#3b9ddd", "#e0862e", "#2fb28a", "#e0564c", "#9a6bd1", "#a0714f", "#e07ab8", "#8a93a0", "#b5b52c", "#25b5c4")
LIMIT = 1.28  # of the axes, in lengths of the longest features; class names stand at 1.13
APART = np.radians(11)  # of two names
NAMED = 0.04  # a class whose mean is shorter than this share of the longest features has no direction to speak of


def scatter(columns: Mapping[str, Outcome], *, width: float = 1.85) -> Picture:
    """Features of training and of test images, a column for each outcome of `DigitRuns.drawn`; with class weights."""

    def draw(theme: Theme) -> "Figure":
        figure = blank(width * len(columns) + 0.3, 2 * width + 0.4)
        grid = figure.subplots(len(PARTS), len(columns), squeeze=False)
        for row, part in zip(grid, PARTS, strict=True):
            for axes, (name, found) in zip(row, columns.items(), strict=True):
                _draw_plane(axes, found[part], found["weights"], theme)
                if part == PARTS[0]:
                    axes.set_title(name)
            row[0].set_ylabel(NAMES[part])
        return figure

    says = f"2-D features of training images (top) and test images (bottom) for {', '.join(columns)}, coloured by digit"
    return picture(draw, says, pdf=True)


def _draw_plane(axes: "Axes", part: Outcome, weights: Sequence[Sequence[float]], theme: Theme) -> None:
    """The features of one part around the origin, lines along the class weights, and the name of each class."""
    features, labels = np.array(part["features"]), np.array(part["labels"])
    longest = float(np.percentile(np.linalg.norm(features, axis=1), 99.5)) or 1.0
    for value in (axes.axhline, axes.axvline):
        value(0, color=INK[theme], linewidth=0.5, alpha=0.35)
    for digit, (x, y) in enumerate(np.array(weights) / np.linalg.norm(weights, axis=1, keepdims=True)):
        axes.plot([0, longest * x], [0, longest * y], color=TEN[digit], linewidth=0.6, alpha=0.7)
    axes.scatter(
        features[:, 0], features[:, 1], s=2.5, c=[TEN[label] for label in labels], linewidths=0, rasterized=True
    )
    means = np.array([features[labels == digit].mean(axis=0) for digit in range(CLASSES)])
    named = np.flatnonzero(np.linalg.norm(means, axis=1) > NAMED * longest)
    for digit, angle in zip(named.tolist(), spread(np.arctan2(means[named, 1], means[named, 0])), strict=True):
        x, y = 1.13 * longest * np.cos(angle), 1.13 * longest * np.sin(angle)
        axes.text(x, y, str(digit), color=TEN[digit], ha="center", va="center", fontsize=9.5)
    axes.set(xlim=(-LIMIT * longest, LIMIT * longest), ylim=(-LIMIT * longest, LIMIT * longest), aspect="equal")
    axes.locator_params(nbins=5)
    axes.tick_params(labelsize=6.5)


def spread(angles: Float64, apart: float = APART) -> Float64:
    """Angles moved as little as it takes, in a few hundred small steps, to be some distance apart on the circle."""
    order = np.argsort(angles)
    moved = angles[order].copy()
    for _ in range(300):
        gap = np.diff(moved, append=moved[0] + 2 * np.pi)  # to the next one
        push = np.maximum(apart - gap, 0) / 4
        moved += np.roll(push, 1) - push
    found = np.empty_like(angles)
    found[order] = moved
    return found
