"""The faces that a detector finds in a photo, and the choice among them."""

from dataclasses import dataclass

import numpy as np

from sphereface.arrays import Bools, Float32, Float64, Floating, Image, Int64
from sphereface.choices import WhichFace
from sphereface.errors import UserError


@dataclass(frozen=True)
class Detections:
    """Faces of one photo, by falling score.

    boxes (N, 4) x1 y1 x2 y2, in units of pixels from the photo's edge; scores (N,); landmarks (N, 5, 2) x y, with pixel
    centres at whole numbers: left eye, right eye, nose, left and right mouth corner; left as seen in the photo.
    """

    boxes: Float32
    scores: Float32
    landmarks: Float32

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, chosen: Int64 | Bools | slice) -> "Detections":
        return Detections(self.boxes[chosen], self.scores[chosen], self.landmarks[chosen])

    @classmethod
    def none(cls) -> "Detections":
        """An empty result."""
        empty = np.zeros((0, 4), np.float32)
        return cls(empty, empty[:, 0], np.zeros((0, 5, 2), np.float32))


def choose(found: Detections, photo: Image, which: WhichFace = "centre") -> Detections:
    """The face nearest the photo's centre (the paper's rule), the largest, or all of them."""
    if which == "all" or len(found) == 0:
        return found
    x1, y1, x2, y2 = found.boxes.T
    if which == "largest":
        best = np.argmax((x2 - x1) * (y2 - y1))
    elif which == "centre":
        height, width = photo.shape[:2]
        best = np.argmin((x1 + x2 - width) ** 2 + (y1 + y2 - height) ** 2)
    else:
        raise UserError(f"unknown choice {which!r}; choose one of centre, largest, all")
    return found[best : best + 1]  # a slice keeps the first axis


def iou(box: Floating, boxes: Floating) -> Float64:
    """Intersection over union of one box with each of several; (N,)."""
    corner, end = np.maximum(box[:2], boxes[:, :2]), np.minimum(box[2:], boxes[:, 2:])
    shared = np.prod(np.maximum(0, end - corner), axis=1)
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    return np.asarray(shared / (np.prod(box[2:] - box[:2]) + areas - shared), dtype=np.float64)
