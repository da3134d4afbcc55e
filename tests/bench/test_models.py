"""A small version of the benchmark of installed models."""

import cv2
import numpy as np
import pytest
from skimage import data as samples

from sphereface.bench.models import OpenCV, bench_models, photo_to_feature, share_found
from sphereface.data.synthetic.people import SyntheticPeople
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
@needs_wheel
def test_installed_models_are_compared_on_aligned_faces_by_features_and_by_view_1(tmp_path):
    photos, people, aligned = tmp_path / "photos", SyntheticPeople(seed=3), tmp_path / "aligned"
    photos.mkdir()
    (photos / "0.png").write_bytes(encode_png(samples.astronaut()))
    for person in range(6):
        (aligned / f"p{person}").mkdir(parents=True)
        for photo in range(2):
            face = np.pad(people.face(person, photo), ((0, 0), (8, 8), (0, 0)), mode="edge")
            (aligned / f"p{person}" / f"p{person}_{photo + 1:04d}.png").write_bytes(encode_png(face))
    for part, some in {"Train": range(3), "Test": range(3, 6)}.items():
        same = [f"p{one}\t1\t2" for one in some]
        different = [f"p{one}\t1\tp{some[one - some[0] - 1]}\t2" for one in some]
        (tmp_path / f"pairsDev{part}.txt").write_text("\n".join(["3", *same, *different]) + "\n")
    found = bench_models(photos, SFACE, YUNET, aligned=aligned, pairs=tmp_path, rounds=1)["aligned"]
    assert found["sface float32"]["mean_cosine"] == pytest.approx(1)
    assert all(0 <= each["accuracy"] <= 1 for each in found.values())
    if "sface" in found:
        assert 0.99 < found["sface"]["mean_cosine"] < 1


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
