"""A small version of the benchmark of installed models."""

import cv2
import numpy as np
import pytest
from skimage import data as samples

from sphereface.bench.models import OpenCV, bench_models, photo_to_feature, share_found
from sphereface.embed.embedder import Embedder
from sphereface.faces.detector import Detector
from sphereface.faces.images import encode_png
from sphereface.faces.yunet import YuNet
from sphereface.zoo import list_models
from tests.shared import MODELS, needs_models

SFACE, YUNET = MODELS / "face_recognition_sface_2021dec.onnx", MODELS / "face_detection_yunet_2023mar.onnx"
needs_wheel = pytest.mark.skipif(
    not any(model.found for model in list_models()), reason="no model is installed; the extra sface brings one"
)


@needs_models
@needs_wheel
def test_every_installed_model_is_measured_against_the_float32_files(tmp_path):
    for number in range(2):
        (tmp_path / f"{number}.png").write_bytes(encode_png(samples.astronaut()))
    said = []
    found = bench_models(tmp_path, SFACE, YUNET, rounds=1, say=said.append)
    names = {model.name for model in list_models() if model.found and model.entry.features}
    assert set(found["embed_milliseconds"]) == {*names, "sface float32"}
    assert set(found["photo_to_feature_milliseconds"]) == {*names, "opencv"}
    assert found["embed_ratio_to_sface_float32"]["sface float32"] == 1
    assert found["yunet_found_of_float32"] == 1
    assert found["photos"] == 2
    assert len(said) == 2


@needs_models
def test_opencvs_recipe_and_ours_find_the_same_person():
    embedder, photo = Embedder.load(SFACE, threads=1), samples.astronaut()
    ours = photo_to_feature(Detector("yunet", model=YUNET), embedder, photo)[0]
    theirs = OpenCV(SFACE, YUNET).feature(photo)[0]
    assert ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs) > 0.95
    assert OpenCV(SFACE, YUNET).feature(np.full((90, 90, 3), 90, np.uint8)) is None
    assert photo_to_feature(Detector("yunet", model=YUNET), embedder, np.full((90, 90, 3), 90, np.uint8)) is None


@needs_models
def test_a_detector_that_misses_faces_has_a_lower_share():
    photos = [samples.astronaut(), cv2.flip(samples.astronaut(), 1)]
    assert share_found(photos, YuNet(YUNET), YuNet(YUNET)) == 1
    assert share_found(photos, YuNet(YUNET, score=0.9999), YuNet(YUNET)) == 0
