"""A head in three dimensions: turned, projected, and aligned to the template.

Lengths are in pixels of the crop, the origin between nose and upper lip of an average face, x right, y down, z towards
the camera.
"""

import math

import numpy as np

from sphereface.arrays import Float64
from sphereface.data.synthetic.canvas import Lift
from sphereface.data.synthetic.traits import Shot, Traits

TEMPLATE = np.array(
    [[30.2946, 51.6963], [65.5318, 51.5014], [48.0252, 71.7366], [33.5493, 92.3655], [62.7299, 92.2041]]
)


class Head:
    """A turned head, which maps points of the face to the crop."""

    def __init__(self, person: Traits, shot: Shot) -> None:
        self.half_width = 35.5 + 2.4 * person.head_width
        self.top = -58 - 3.5 * person.forehead - 2.0 * person.head_height
        self.bottom = 41 + 2.6 * person.chin + 2.0 * person.head_height
        self.depth = 36.0
        self.centre = np.array([0.0, (self.top + self.bottom) / 2, -26.0])
        cy, sy, cp, sp = math.cos(shot.yaw), math.sin(shot.yaw), math.cos(shot.pitch), math.sin(shot.pitch)
        turn = np.array([[cy, 0.0, sy], [0.0, 1.0, 0.0], [-sy, 0.0, cy]])
        nod = np.array([[1.0, 0.0, 0.0], [0.0, cp, -sp], [0.0, sp, cp]])
        self.rotation = nod @ turn
        self.similarity = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])

    def surface(self, xy: Float64, lift: Lift = 0.0) -> Float64:
        """Points (N, 2) of a frontal face on the rounded head, (N, 3); `lift` raises them above it."""
        across = xy[:, 0] / (self.half_width + 3)
        along = (xy[:, 1] - self.centre[1]) / ((self.bottom - self.top) / 2 + 6)
        z = self.depth * np.sqrt(np.clip(1 - across**2 - along**2, 0.02, None)) + self.centre[2] + lift
        return np.column_stack([xy, z])

    def lay(self, xy: Float64, lift: Lift) -> Float64:
        """Points (N, 2) of a frontal face in the crop."""
        return self.view(self.surface(xy, lift))

    def view(self, points: Float64) -> Float64:
        """Points (N, 3) of the head in the crop, (N, 2): turned, with a little perspective."""
        turned = (points - self.centre) @ self.rotation.T
        return self.place(turned[:, :2] / (1 - turned[:, 2:] / 420) + self.centre[:2])

    def place(self, film: Float64) -> Float64:
        """Points (N, 2) of the projected head in the crop."""
        return np.asarray(film @ self.similarity[:, :2].T + self.similarity[:, 2])

    def align(self, landmarks: Float64, shot: Shot) -> None:
        """Align the five landmarks (5, 3) to the template, with the error of a detector."""
        source = self.view(landmarks)
        mean_s, mean_t = source.mean(0), TEMPLATE.mean(0)
        s, t = source - mean_s, TEMPLATE - mean_t
        a, b = (s * t).sum(), (s[:, 0] * t[:, 1] - s[:, 1] * t[:, 0]).sum()
        scale, angle = math.hypot(a, b) / (s**2).sum() * shot.zoom, math.atan2(b, a) + shot.roll
        linear = scale * np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        offset = mean_t - linear @ mean_s + np.array(shot.shift)
        self.similarity = np.column_stack([linear, offset])


def landmarks(person: Traits, shot: Shot, head: Head) -> Float64:
    """Eyes, nose tip and mouth corners, (5, 3)."""
    eye_x, eye_y = eye_place(person)
    nose_y = 0.5 + 2.2 * person.nose_length
    mouth_x, mouth_y = 14.2 + 1.5 * person.mouth_width + 2.0 * shot.smile, mouth_place(person)
    corners = mouth_y - 1.6 * shot.smile
    flat = np.array([[-eye_x, eye_y], [eye_x, eye_y], [0.0, nose_y], [-mouth_x, corners], [mouth_x, corners]])
    return head.surface(flat, np.array([-2.0, -2.0, nose_lift(person), 1.0, 1.0]))


def eye_place(person: Traits) -> tuple[float, float]:
    """The position of the right eye in the picture."""
    return 17.4 + 1.3 * person.eye_gap, -20.0 + 1.3 * person.eye_height


def mouth_place(person: Traits) -> float:
    """The height of the mouth, y."""
    return 20.5 + 1.5 * person.mouth_height


def nose_lift(person: Traits) -> float:
    """The lift of the tip of the nose."""
    return 11.0 + 2.5 * person.nose_depth
