"""Boxes and names drawn into a photo."""

import cv2
import numpy as np

from sphereface.arrays import Image
from sphereface.recognize.answers import Identified

KNOWN, UNKNOWN = (47, 178, 138), (224, 161, 46)  # RGB: a name, unknown
UNKNOWN_NAME = "unknown"


def draw_names(photo: Image, faces: list[Identified] | tuple[Identified, ...]) -> Image:
    """A copy of the photo with a box around each face, and the name or `unknown` below it."""
    drawn = photo.copy()
    size = max(1.0, min(photo.shape[:2]) / 500)
    for each in faces:
        colour = UNKNOWN if each.name is None else KNOWN
        x1, y1, x2, y2 = (round(value) for value in each.face.box)
        cv2.rectangle(drawn, (x1, y1), (x2, y2), colour, max(1, round(2 * size)))
        label = UNKNOWN_NAME if each.name is None else each.name
        if each.score is not None:
            label += f" {each.score:.2f}"
        _write(drawn, label, (x1, y2), colour, 0.45 * size)
    return drawn


def _write(photo: Image, text: str, corner: tuple[int, int], colour: tuple[int, int, int], scale: float) -> None:
    """Write a text below a corner, inside the photo, on a background; OpenCV's font has ASCII only."""
    ascii_text = text.encode("ascii", "replace").decode()
    thickness = max(1, round(1.5 * scale))
    (width, height), base = cv2.getTextSize(ascii_text, cv2.FONT_HERSHEY_SIMPLEX, scale, thickness)
    x = int(np.clip(corner[0], 0, max(0, photo.shape[1] - width - 4)))
    y = int(np.clip(corner[1], 0, max(0, photo.shape[0] - height - base - 4)))
    cv2.rectangle(photo, (x, y), (x + width + 4, y + height + base + 4), colour, cv2.FILLED)
    cv2.putText(
        photo, ascii_text, (x + 2, y + height + 2), cv2.FONT_HERSHEY_SIMPLEX, scale, (0, 0, 0), thickness, cv2.LINE_AA
    )
