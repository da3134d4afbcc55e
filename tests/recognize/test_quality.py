"""The quality of a face: its lowest measure, and reasons that name it."""

import cv2
import numpy as np
import pytest

from sphereface.faces.quality import Pose, Quality, judge
from sphereface.recognize.quality import judged
from tests.recognize.drawn import detector, photo

GOOD = Quality(60.0, 0.3, Pose(3.0, 5.0, 0.0), 0.45, 0.2, 0.0)


def test_a_good_face_has_no_reason():
    assert judged(GOOD) == (1.0, ())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"eye_distance": 12.0}, "too small: 12 pixels between the eyes"),
        ({"sharpness": 0.07}, "blurred"),
        ({"pose": Pose(-52.0, 0.0, 0.0)}, "turned away by about 52 degrees"),
        ({"pose": Pose(0.0, 40.0, 0.0)}, "tilted up or down by about 40 degrees"),
        ({"brightness": 0.1}, "dark"),
        ({"brightness": 0.9}, "too bright"),
        ({"contrast": 0.04}, "little contrast"),
    ],
)
def test_each_fault_is_named_alone_and_lowers_the_quality(changes, reason):
    found = judged(GOOD._replace(**changes))
    assert found.reasons == (reason,)
    assert 0 <= found.value < 0.5


def test_blur_and_darkness_of_a_real_picture_are_seen():
    picture = photo(3)
    (points,) = detector().detect(picture).landmarks
    sharp = judged(judge(picture, points)).value
    blurred = judged(judge(cv2.GaussianBlur(picture, (0, 0), 5), points))
    dark = judged(judge((picture * 0.15).astype(np.uint8), points))
    assert "blurred" in blurred.reasons
    assert "dark" in dark.reasons
    assert max(blurred.value, dark.value) < sharp
