"""Any ONNX embedder with a card: the contract decides what enters the network."""

import hashlib
import json

import cv2
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from sphereface.contract import METADATA_KEY, Card, ImpostorTail, Preprocessing, Threshold
from sphereface.data.synthetic import SyntheticPeople
from sphereface.embed.embedder import Embedder
from sphereface.engines.onnxruntime import OnnxNetwork
from sphereface.errors import ContractMismatch, ModelFileError
from tests.shared import MODELS, needs_models


def save(path, *, card=None, batch=1, fixed_reshape=False, size=(112, 96)):
    """A network whose features are the means of the input's rows, channel by channel."""
    nodes = [helper.make_node("ReduceMean", ["x"], ["m"], axes=[3], keepdims=0)]
    tensors = []
    if fixed_reshape:
        tensors.append(numpy_helper.from_array(np.array([1, 3 * size[0]], np.int64), "shape"))
        nodes.append(helper.make_node("Reshape", ["m", "shape"], ["y"]))
    else:
        nodes.append(helper.make_node("Flatten", ["m"], ["y"]))
    graph = helper.make_graph(
        nodes, "rows", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, *size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 3 * size[0]])], tensors,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    if card:
        helper.set_model_props(model, {METADATA_KEY: card.model_dump_json()})
    onnx.save(model, path)
    return path


@pytest.fixture
def faces():
    return np.random.default_rng(0).integers(0, 256, (5, 112, 96, 3), dtype=np.uint8)


def expected(faces, *, mean=127.5, scale=128.0, bgr=False):
    ordered = faces[..., ::-1] if bgr else faces
    return ((ordered.astype(float) - mean) / scale).mean(axis=2).transpose(0, 2, 1).reshape(len(faces), -1)


def test_features_are_image_and_mirror_side_by_side(tmp_path, faces):
    embedder = Embedder.load(save(tmp_path / "m.onnx", card=Card()))
    features = embedder.embed(faces)
    np.testing.assert_allclose(features, np.hstack([expected(faces)] * 2), atol=1e-4)  # rows' means have no direction


def test_the_mirror_image_is_mirrored(faces):
    embedder = Embedder(lambda x: x[:, 0, 0, :3], Card())
    features = embedder.embed(faces)
    np.testing.assert_allclose(features[:, 3:] * 128 + 127.5, faces[:, 0, :-4:-1, 0], atol=1e-4)
    summed = Embedder(lambda x: x[:, 0, 0, :3], Card(feature_rule="sum")).embed(faces)
    np.testing.assert_allclose(summed, features[:, :3] + features[:, 3:], atol=1e-5)


def test_colour_mean_and_scale_are_the_cards(tmp_path, faces):
    card = Card(preprocessing=Preprocessing(colour="BGR", mean=0, scale=1), feature_rule="image")
    features = Embedder.load(save(tmp_path / "m.onnx", card=card)).embed(faces)
    np.testing.assert_allclose(features, expected(faces, mean=0, scale=1, bgr=True), rtol=1e-4)


@pytest.mark.parametrize("fixed_reshape", [False, True])
def test_a_batch_fixed_at_one_is_no_hindrance(tmp_path, faces, fixed_reshape):
    network = OnnxNetwork(save(tmp_path / "m.onnx", card=Card(), fixed_reshape=fixed_reshape))
    assert network.batch == (1 if fixed_reshape else None)
    assert network.size == (112, 96)
    features = Embedder(network.run, Card(feature_rule="image")).embed(faces)
    np.testing.assert_allclose(features, expected(faces), atol=1e-4)


def test_a_card_may_lie_beside_the_file(tmp_path, faces):
    path = save(tmp_path / "m.onnx")
    with pytest.raises(ModelFileError, match=r"without a card; write m\.onnx\.card\.json"):
        Embedder.load(path)
    (tmp_path / "m.onnx.card.json").write_text(Card(feature_rule="image").model_dump_json())
    assert Embedder.load(path).embed(faces).shape == (5, 336)
    (tmp_path / "m.onnx.card.json").write_text(json.dumps({"colour": 3}))
    with pytest.raises(ModelFileError, match="bad colour"):
        Embedder.load(path)


def test_faces_of_another_size_are_refused(tmp_path):
    embedder = Embedder.load(save(tmp_path / "m.onnx", card=Card()))
    assert embedder.embed(np.zeros((2, 112, 112, 3), np.uint8)).shape == (2, 672)  # columns 8:104
    with pytest.raises(ContractMismatch, match="data align"):
        embedder.embed(np.zeros((1, 250, 250, 3), np.uint8))


@pytest.mark.parametrize("content", [b"", b"no model", b"\x08\x07"])
def test_a_file_that_is_no_model_is_a_clear_error(tmp_path, content):
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(ModelFileError, match="model"):
        Embedder.load(tmp_path / "m.onnx")
    with pytest.raises(ModelFileError, match="no such model file"):
        Embedder.load(tmp_path / "n.onnx")
    with pytest.raises(ModelFileError, match=r"wanted an \.onnx"):
        Embedder.load(tmp_path / "n.pth")


@needs_models
def test_sface_is_known_by_its_bytes_and_gives_the_features_that_opencv_itself_gives():
    path = MODELS / "face_recognition_sface_2021dec.onnx"
    embedder = Embedder.load(path)
    assert embedder.card.name == "sface-2021dec"
    faces, _ = SyntheticPeople(seed=0).faces(range(3), 1)
    faces = np.pad(faces, ((0, 0), (0, 0), (8, 8), (0, 0)), mode="edge")
    opencv = cv2.FaceRecognizerSF.create(str(path), "")
    wanted = np.concatenate([opencv.feature(np.ascontiguousarray(face[..., ::-1])) for face in faces])
    np.testing.assert_allclose(embedder.embed(faces), wanted, atol=1e-3)


def test_another_rule_leaves_the_calibration_behind(tmp_path, faces):
    about = {"people": 9, "pairs": 36, "weigh": "people", "feature_rule": "concatenate", "measured_on": "lfw"}
    card = Card(
        thresholds=(Threshold(score=0.3, far=1e-3, measured_on="lfw"),),
        impostor_tail=ImpostorTail(scores=(0.1, 0.3), fars=(0.1, 1e-3), **about),
    )
    path = save(tmp_path / "m.onnx", card=card)
    both, image, summed = (Embedder.load(path, rule=rule) for rule in ("concatenate", "image", "sum"))
    assert (both.card, both.dimension, image.dimension, summed.dimension) == (card, 672, 336, 336)
    assert image.card == Card(feature_rule="image")
    np.testing.assert_allclose(summed.embed(faces), 2 * image.embed(faces), rtol=1e-5)
    with pytest.raises(ValueError, match="choose one of concatenate, sum, image"):
        both.with_rule("mean")


def test_no_faces_have_no_features_of_the_right_length(tmp_path):
    embedder = Embedder.load(save(tmp_path / "m.onnx", card=Card()))
    assert embedder.embed(np.zeros((0, 112, 96, 3), np.uint8)).shape == (0, 672)


def test_a_card_that_speaks_of_other_faces_than_the_network_takes_is_refused(tmp_path):
    path = save(tmp_path / "m.onnx", card=Card(preprocessing=Preprocessing(crop="112x112")))
    with pytest.raises(ContractMismatch, match=r"112 pixels high and 96 wide, but its card's crop 112x112"):
        Embedder.load(path)
    with pytest.raises(ModelFileError, match="crop 'face'; this version knows 112x96"):
        Embedder.load(save(path, card=Card(preprocessing=Preprocessing(crop="face"))))


def test_the_record_says_which_file_and_what_ran_it(tmp_path):
    path = save(tmp_path / "m.onnx", card=Card())
    embedder = Embedder.load(path).with_rule("image")
    assert (embedder.model, embedder.engine) == (hashlib.sha256(path.read_bytes()).hexdigest(), "onnxruntime")
