"""Drawing of coloured polygons and lines, in pixels of the crop or on a surface that is projected to it."""

import math
from collections.abc import Callable
from typing import NamedTuple

import cv2
import numpy as np

from sphereface.arrays import Float64, Image

SUBPIXEL = 4  # OpenCV draws on a grid of 1/16 pixel

Colour = tuple[float, float, float]
Lift = float | Float64


def mix(a: Colour, b: Colour, share: float) -> Colour:
    """A colour between two."""
    share = min(1.0, max(0.0, share))
    return a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1]), a[2] + share * (b[2] - a[2])


def some_colour(rng: np.random.Generator, low: float, high: float) -> Colour:
    """A random colour."""
    return rng.uniform(low, high), rng.uniform(low, high), rng.uniform(low, high)


class _Shape(NamedTuple):
    points: Float64  # (N, 2)
    lift: Lift | None  # above the face; None: the points are pixels of the crop
    colour: Colour
    thickness: int  # 0 fills
    closed: bool = True


class Canvas:
    """A crop to draw on; `lay` maps points (N, 2) of the face, and their lifts above it, to pixels.

    Shapes are queued and projected all at once, which is much faster.
    """

    def __init__(self, image: Image, lay: Callable[[Float64, Float64], Float64]) -> None:
        self.image, self.lay = image, lay
        self.waiting: list[_Shape] = []

    def fill(self, points: Float64, colour: Colour) -> None:
        """Fill a polygon (N, 2) in crop pixels."""
        self.waiting.append(_Shape(points, None, colour, 0))

    def stroke(self, points: Float64, colour: Colour, thickness: int = 1, *, closed: bool = False) -> None:
        """Draw a line through points (N, 2) in crop pixels."""
        self.waiting.append(_Shape(points, None, colour, thickness, closed))

    def patch(self, xy: Float64, colour: Colour, lift: Lift = 0.0) -> None:
        """Fill a polygon (N, 2) that lies on the face, or `lift` above it."""
        self.waiting.append(_Shape(xy, lift, colour, 0))

    def crease(
        self, xy: Float64, colour: Colour, thickness: int = 1, lift: Lift = 0.0, *, closed: bool = False
    ) -> None:
        """Draw a line that lies on the face, or `lift` above it."""
        self.waiting.append(_Shape(xy, lift, colour, thickness, closed))

    def paint(self) -> Image:
        """Draw the queued shapes in order."""
        on_face = [shape for shape in self.waiting if shape.lift is not None]
        lifts = [np.broadcast_to(shape.lift, len(shape.points)) for shape in on_face]  # type: ignore[arg-type]
        laid = self.lay(np.concatenate([shape.points for shape in on_face]), np.concatenate(lifts))
        places = iter(np.split(laid, np.cumsum([len(shape.points) for shape in on_face])[:-1]))
        for shape in self.waiting:
            points = shape.points if shape.lift is None else next(places)
            grid = np.rint(points * (1 << SUBPIXEL)).astype(np.int32)
            if shape.thickness:
                cv2.polylines(self.image, [grid], shape.closed, shape.colour, shape.thickness, cv2.LINE_AA, SUBPIXEL)
            else:
                cv2.fillPoly(self.image, [grid], shape.colour, cv2.LINE_AA, SUBPIXEL)
        return self.image


_TURN = np.linspace(0, 2 * np.pi, 18, endpoint=False)
_CIRCLE = np.column_stack([np.cos(_TURN), np.sin(_TURN)])


def ellipse(x: float, y: float, rx: float, ry: float, tilt: float = 0.0) -> Float64:
    """A closed curve (18, 2)."""
    c, s = math.cos(tilt), math.sin(tilt)
    return np.asarray(_CIRCLE * (rx, ry) @ np.array([[c, s], [-s, c]]) + (x, y))


def moved(points: list[list[float]], across: float) -> Float64:
    """Points (N, 2), shifted sideways."""
    return np.asarray(np.array(points) + np.array([across, 0.0]))
