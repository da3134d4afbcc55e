"""Quality: a head turned by known angles, a photo blurred, darkened, overexposed."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skimage import data as samples

from sphereface import Detector
from sphereface.faces.quality import HEAD, head_pose, judge


def rotation(yaw, pitch, roll):
    """Roll after pitch after yaw, each by Rodrigues' formula."""
    parts = [cv2.Rodrigues(np.radians(angle) * np.array(axis))[0] for angle, axis in
             ((roll, [0.0, 0, 1]), (pitch, [1.0, 0, 0]), (yaw, [0.0, 1, 0]))]  # fmt: skip
    return parts[0] @ parts[1] @ parts[2]


@given(st.floats(-60, 60), st.floats(-45, 45), st.floats(-170, 170), st.floats(5, 300))
def test_a_turned_head_tells_its_angles(yaw, pitch, roll, size):
    seen = (HEAD @ rotation(yaw, pitch, roll).T)[:, :2] * size + [320, 240]
    np.testing.assert_allclose(head_pose(seen), (yaw, pitch, roll), atol=1e-6)


def test_directions_are_as_said():
    straight = HEAD[:, :2] * 50
    assert head_pose(straight + np.outer([0, 0, 1, 0, 0], [8, 0])).yaw > 5  # nose to the right
    assert head_pose(straight - np.outer([0, 0, 1, 0, 0], [0, 8])).pitch > 5  # nose up
    assert head_pose(straight @ [[0.9, 0.43], [-0.43, 0.9]]).roll > 20  # right eye lower


@pytest.fixture(scope="module")
def face():
    photo = samples.astronaut()
    return photo, Detector().detect(photo).landmarks[0]


def test_blur_darkness_and_glare_show(face):
    photo, points = face
    good = judge(photo, points)
    assert judge(cv2.GaussianBlur(photo, (0, 0), 4), points).sharpness < 0.5 * good.sharpness
    assert judge(photo // 4, points).brightness < 0.3 * good.brightness
    assert judge(photo // 4, points).contrast < 0.3 * good.contrast
    assert judge(np.minimum(photo.astype(int) * 3, 255).astype(np.uint8), points).clipped > good.clipped + 0.2
    assert abs(good.pose.yaw) < 30
    assert good.eye_distance == pytest.approx(np.hypot(*(points[1] - points[0])), rel=1e-6)


def test_sharpness_does_not_depend_on_contrast(face):
    photo, points = face
    grey = (photo.astype(int) // 2 + 60).astype(np.uint8)
    assert judge(grey, points).sharpness == pytest.approx(judge(photo, points).sharpness, rel=0.1)


def test_a_flat_face_has_no_sharpness():
    assert judge(np.full((200, 200, 3), 90, np.uint8), HEAD[:, :2] * 40 + 100).sharpness == 0
