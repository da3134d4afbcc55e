import cv2
import numpy as np
import pytest
from skimage import data as samples

from sphereface import Detector
from sphereface.errors import ModelFileError
from tests.shared import MODELS, needs_models

YUNET = MODELS / "face_detection_yunet_2023mar.onnx"


@needs_models
def test_yunet_and_mtcnn_see_the_same_face():
    photo = samples.astronaut()
    quick, slow = Detector("yunet", model=YUNET).detect(photo), Detector().detect(photo)
    eyes = np.linalg.norm(slow.landmarks[0, 1] - slow.landmarks[0, 0])
    assert np.abs(quick.landmarks[0] - slow.landmarks[0]).max() < 0.3 * eyes


@needs_models
def test_a_large_photo_is_shrunk_first_and_answers_in_its_own_pixels():
    photo = samples.astronaut()
    large = cv2.resize(photo, None, fx=4, fy=4)
    detector = Detector("yunet", model=YUNET, threads=2)
    here, there = detector.detect_many([photo, large])
    eyes = np.linalg.norm(here.landmarks[0, 1] - here.landmarks[0, 0])
    assert np.abs(there.landmarks[0] / 4 - here.landmarks[0]).max() < 0.15 * eyes
    assert len(detector.detect(np.full((300, 200, 3), 90, np.uint8))) == 0


def test_a_file_that_is_no_model_is_refused(tmp_path, capfd):
    (tmp_path / "m.onnx").write_bytes(b"no model")
    with pytest.raises(ModelFileError, match="not a YuNet model"):
        Detector("yunet", model=tmp_path / "m.onnx")
