import cv2
import numpy as np
import pytest
from skimage import data as samples

from sphereface import Detector
from sphereface.errors import ModelFileError, UserError
from sphereface.faces.images import read_photo
from tests.shared import FACES, MODELS, needs_faces, needs_models

YUNET = MODELS / "face_detection_yunet_2023mar.onnx"


@needs_models
def test_yunet_and_mtcnn_see_the_same_face():
    photo = samples.astronaut()
    quick, slow = Detector("yunet", model=YUNET).detect(photo), Detector().detect(photo)
    eyes = np.linalg.norm(slow.landmarks[0, 1] - slow.landmarks[0, 0])
    assert np.abs(quick.landmarks[0] - slow.landmarks[0]).max() < 0.3 * eyes


@needs_models
def test_a_large_photo_is_shrunk_first_and_answers_in_its_own_pixels():
    photo = cv2.resize(samples.astronaut(), (640, 640))
    large = photo.repeat(2, axis=0).repeat(2, axis=1)  # shrunk, it is the photo again, bit for bit
    detector = Detector("yunet", model=YUNET, threads=2)
    here, there = detector.detect_many([photo, large])
    assert (there.boxes == 2 * here.boxes).all()  # pixel 3 lies between the edges 3 and 4, and became 6 to 8
    assert (there.landmarks == 2 * here.landmarks + 0.5).all()  # its centre, 3, became 6.5
    assert len(detector.detect(np.full((300, 200, 3), 90, np.uint8))) == 0


@needs_models
def test_the_detector_writes_nothing_and_leaves_opencvs_messages_as_they_were(capfd):
    log = getattr(cv2.utils, "logging", cv2)  # 4.10 has these functions elsewhere
    before = log.getLogLevel()
    Detector("yunet", model=YUNET).detect(samples.astronaut())
    assert log.getLogLevel() == before
    assert capfd.readouterr() == ("", "")


@needs_faces
@needs_models
def test_the_points_of_enlarged_photos_lie_where_the_smaller_ones_do():
    detector = Detector("yunet", model=YUNET)
    shifts = []
    for path in sorted((FACES / "photos").rglob("*.jpg"))[::8]:
        photo = read_photo(path)
        height, width = (round(side * 640 / max(photo.shape)) for side in photo.shape[:2])
        small = cv2.resize(photo, (width, height), interpolation=cv2.INTER_AREA)
        large = cv2.resize(small, (2 * width, 2 * height), interpolation=cv2.INTER_CUBIC)
        here, there = detector.detect(small), detector.detect(large)
        if len(here) == len(there) == 1:
            shifts.append((there.landmarks[0] + 0.5) / 2 - 0.5 - here.landmarks[0])
    assert len(shifts) >= 8
    assert np.abs(np.mean(shifts, axis=(0, 1))).max() < 0.12  # without the half pixel it is a quarter


@needs_models
def test_a_photo_of_the_wrong_kind_is_refused_and_an_empty_one_has_no_face():
    detector = Detector("yunet", model=YUNET)
    with pytest.raises(UserError, match=r"float64 \(30, 40, 3\); wanted uint8"):
        detector.detect(np.zeros((30, 40, 3)))
    assert len(detector.detect(np.zeros((0, 40, 3), np.uint8))) == 0


def test_a_file_that_is_no_model_is_refused(tmp_path, capfd):
    (tmp_path / "m.onnx").write_bytes(b"no model")
    with pytest.raises(ModelFileError, match="not a YuNet model"):
        Detector("yunet", model=tmp_path / "m.onnx")
