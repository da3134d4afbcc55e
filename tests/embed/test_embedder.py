"""Any ONNX embedder with a card: the contract decides what enters the network."""

import hashlib
import json

import cv2
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from skimage import data as samples

from sphereface.contract import METADATA_KEY, Card, ImpostorTail, Preprocessing, Threshold
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.embed.embedder import Embedder
from sphereface.embed.ensemble import Ensemble
from sphereface.engines.onnxruntime import OnnxNetwork
from sphereface.errors import ContractMismatch, ModelFileError, NoFaceFound, UserError
from sphereface.faces.detector import Detector
from sphereface.faces.warp import align
from tests.embed.sets import mixing_embedder
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
    network = OnnxNetwork(save(tmp_path / "m.onnx", card=Card(), fixed_reshape=fixed_reshape).read_bytes())
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


def means():
    return Embedder(lambda inputs: inputs.mean(axis=(2, 3)), Card())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda faces: faces / 255, r"float64 \(5, 112, 96, 3\); wanted uint8 .*\(faces \* 255\)\.round\(\)"),
        (lambda faces: faces.astype(np.float32), r"faces of float32"),
        (lambda faces: faces.astype(np.int64), r"int64 .*faces\.astype\(np\.uint8\)"),
        (
            lambda faces: faces[0],
            r"uint8 \(112, 96, 3\); wanted uint8 \(N, H, W, 3\), RGB: use faces\[None\] for one face",
        ),
        (lambda faces: faces.transpose(0, 3, 1, 2), r"\(5, 3, 112, 96\).*transpose\(0, 2, 3, 1\)"),
        (lambda faces: faces[..., 0], r"\(5, 112, 96\); wanted"),
        (lambda faces: faces[..., :2], r"\(5, 112, 96, 2\); wanted"),
        (lambda faces: [faces[0], faces[1] / 255], r"face 1 of float64 \(112, 96, 3\); wanted uint8 \(H, W, 3\)"),
        (lambda faces: list(faces[0]), r"face 0 of uint8 \(96, 3\)"),
    ],
)
def test_what_is_not_faces_of_bytes_is_refused_with_the_way_out(faces, change, said):
    for embedder in (means(), Ensemble([means(), means()])):
        for embed in (embedder.embed, embedder.embed_batch):
            with pytest.raises(UserError, match=said):
                embed(change(faces))


def test_the_ways_out_that_a_refusal_names_lead_out(faces):
    expected = means().embed(faces)
    np.testing.assert_array_equal(means().embed((faces / 255 * 255).round().astype(np.uint8)), expected)
    np.testing.assert_array_equal(means().embed(faces[0][None]), expected[:1])
    np.testing.assert_array_equal(means().embed(faces.transpose(0, 3, 1, 2).transpose(0, 2, 3, 1)), expected)


def test_faces_may_come_as_a_list_of_both_stored_sizes(faces):
    wide = np.pad(faces, ((0, 0), (0, 0), (8, 8), (0, 0)), mode="edge")
    np.testing.assert_array_equal(means().embed([faces[0], wide[1]]), means().embed(faces[:2]))
    assert means().embed([]).shape == means().embed_batch([]).shape == (0, 6)


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
    both, image, summed = (Embedder.load(path, feature_rule=rule) for rule in ("concatenate", "image", "sum"))
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


@pytest.fixture(scope="module")
def astronaut():
    return samples.astronaut()


def test_a_photo_becomes_a_feature_in_one_call(astronaut):
    embedder = mixing_embedder()
    found = Detector().detect(astronaut)
    face = align(astronaut, found.landmarks[0], "sphereface", "112x96")
    assert (embedder.embed_photo(astronaut) == embedder.embed(face[None])[0]).all()


def test_of_several_faces_the_one_nearest_the_centre_is_embedded(astronaut):
    head = astronaut[:220, 130:330]
    photo = np.zeros((220, 800, 3), np.uint8)
    photo[:, 290:490], photo[:, :200] = head, head[:, ::-1]
    embedder, x = mixing_embedder(), Detector().detect(photo)
    assert len(x) == 2
    centre = int(np.argmin(np.abs(x.boxes[:, [0, 2]].mean(1) - 400)))
    face = align(photo, x.landmarks[centre])
    assert (embedder.embed_photo(photo) == embedder.embed(face[None])[0]).all()


def test_a_photo_without_a_face_is_an_error_of_its_own():
    with pytest.raises(NoFaceFound, match="no face was found in a photo of 80 x 60 pixels"):
        mixing_embedder().embed_photo(np.full((60, 80, 3), 99, np.uint8))
