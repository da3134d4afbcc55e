"""One number for how well a face can be recognised, and the reasons when it is low.

Each measure of `faces.quality` is mapped to 0..1, linearly between a value at which recognition rarely works and one at
which it no longer matters; the quality is the lowest of them, and measures below one half are named as reasons. The
ends were set by looking at photos and follow no model: quality is advice, and no error rate is promised for it.
"""

from typing import NamedTuple

import numpy as np

from sphereface.faces.quality import Quality

REASON = 0.5  # a measure below it is a reason

# (value with quality 0, value with quality 1)
EYES = (5.0, 35.0)  # distance in pixels
SHARPNESS = (0.05, 0.17)
TURN = (60.0, 30.0)  # degrees of yaw
NOD = (45.0, 25.0)  # degrees of pitch
DARK = (0.08, 0.28)  # mean grey level
BRIGHT = (0.95, 0.75)
CONTRAST = (0.02, 0.10)


class Judged(NamedTuple):
    """The quality of a face, 0..1, and what lowers it."""

    value: float
    reasons: tuple[str, ...]


def judged(quality: Quality) -> Judged:
    """The quality of a face from its measures."""
    pose = quality.pose
    measures = {
        f"too small: {quality.eye_distance:.0f} pixels between the eyes": _share(quality.eye_distance, EYES),
        "blurred": _share(quality.sharpness, SHARPNESS),
        f"turned away by about {abs(pose.yaw):.0f} degrees": _share(abs(pose.yaw), TURN),
        f"tilted up or down by about {abs(pose.pitch):.0f} degrees": _share(abs(pose.pitch), NOD),
        "dark": _share(quality.brightness, DARK),
        "too bright": _share(quality.brightness, BRIGHT),
        "little contrast": _share(quality.contrast, CONTRAST),
    }
    return Judged(min(measures.values()), tuple(reason for reason, value in measures.items() if value < REASON))


def _share(value: float, ends: tuple[float, float]) -> float:
    worst, best = ends
    return float(np.clip((value - worst) / (best - worst), 0, 1))
