"""The quality of a face for recognition: size, sharpness, pose and exposure, as numbers without thresholds."""

from typing import NamedTuple

import cv2
import numpy as np

from sphereface.arrays import Floating, Image
from sphereface.faces.warp import align

# The five points of an average head, in units of the distance between the eyes: x to the right as seen, y down, z to
# the camera. Width and height are those of the template; the depths of nose and mouth are rounded anthropometric means.
HEAD = np.array([[-0.5, 0.0, 0.0], [0.5, 0.0, 0.0], [0.0, 0.57, 0.45], [-0.41, 1.15, 0.1], [0.41, 1.15, 0.1]])


class Pose(NamedTuple):
    """Rotation of a head in degrees, approximate: estimated from five points and an average head."""

    yaw: float  # to the right of the photo
    pitch: float  # up
    roll: float  # clockwise


class Quality(NamedTuple):
    """Measures of a face that affect recognition."""

    eye_distance: float  # pixels of the photo
    sharpness: float  # standard deviation of the Laplacian of the aligned face, over that of its grey levels
    pose: Pose
    brightness: float  # mean grey level of the aligned face, 0..1
    contrast: float  # standard deviation of its grey levels, 0..1
    clipped: float  # share of its pixels that are black or white


def head_pose(landmarks: Floating) -> Pose:
    """The pose of a head from its five points: least-squares rotation of an average head under parallel projection."""
    points = np.asarray(landmarks, np.float64)
    flat = points - points.mean(axis=0)
    solid = HEAD - HEAD.mean(axis=0)
    affine = np.linalg.lstsq(solid, flat, rcond=None)[0].T  # (2, 3): scale times the first two rows of a rotation
    u, _, v = np.linalg.svd(affine, full_matrices=False)
    x, y = u @ v  # the nearest pair of orthonormal rows
    z = np.cross(x, y)
    # The rotation is roll after pitch after yaw; its last row and its middle column give the three angles.
    angles = np.arctan2(-z[0], z[2]), np.arcsin(np.clip(z[1], -1, 1)), np.arctan2(-x[1], y[1])
    return Pose(*(float(np.degrees(angle)) for angle in angles))


def judge(photo: Image, landmarks: Floating) -> Quality:
    """The quality of one face of a photo."""
    grey = cv2.cvtColor(align(photo, landmarks), cv2.COLOR_RGB2GRAY)
    spread = float(grey.std())
    edges = float(cv2.Laplacian(grey, cv2.CV_64F).std())
    return Quality(
        eye_distance=float(np.linalg.norm(np.asarray(landmarks[1]) - np.asarray(landmarks[0]))),
        sharpness=edges / spread if spread else 0.0,
        pose=head_pose(landmarks),
        brightness=float(grey.mean()) / 255,
        contrast=spread / 255,
        clipped=float(((grey <= 2) | (grey >= 253)).mean()),
    )
