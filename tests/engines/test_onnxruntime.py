"""ONNX embedders of others: half precision, packed weights, and what is no embedder."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from sphereface.contract import METADATA_KEY, Card
from sphereface.embed.embedder import Embedder
from sphereface.engines.onnxruntime import OnnxNetwork
from sphereface.errors import ModelFileError

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16
TILES = 3 * 7 * 6  # colours of 16 x 16 pixels each


def model(*nodes, tensors=(), kind=FLOAT, out=FLOAT, shape=("N", 3, 112, 96), more=(), opset=21, card=None):
    """An ONNX file: tiles of x, flat, then the nodes given, to y."""
    first = [
        helper.make_node("AveragePool", ["x"], ["tiles"], kernel_shape=[16, 16], strides=[16, 16]),
        helper.make_node("Flatten", ["tiles"], ["flat"]),
    ]
    ends = [helper.make_tensor_value_info("x", kind, shape)], [helper.make_tensor_value_info("y", out, None)]
    graph = helper.make_graph([*first, *nodes], "tiles", [*ends[0], *more], ends[1], tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    helper.set_model_props(made, {METADATA_KEY: (card or Card(feature_rule="image")).model_dump_json()})
    return made.SerializeToString()


def linear(weight="weight"):
    return helper.make_node("MatMul", ["flat", weight], ["y"])


def tensor(name, values, dtype=np.float32):
    return numpy_helper.from_array(np.asarray(values).astype(dtype), name)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def inputs(rng):
    return rng.uniform(-1, 1, (3, 3, 112, 96)).astype(np.float32)


def flat(inputs):
    """The tiles of inputs, in float64."""
    return inputs.astype(float).reshape(len(inputs), 3, 7, 16, 6, 16).mean(axis=(3, 5)).reshape(len(inputs), -1)


@pytest.mark.parametrize("cast", [False, True])
def test_a_network_in_half_precision_gives_float32_features(tmp_path, rng, cast):
    """Half precision throughout, or inside of a network that takes and gives float32."""
    weight = rng.normal(size=(TILES, 5))
    if cast:
        inside = helper.make_node("Cast", ["flat"], ["half"], to=HALF)
        nodes = inside, helper.make_node("MatMul", ["half", "weight"], ["product"])
        content = model(
            *nodes,
            helper.make_node("Cast", ["product"], ["y"], to=FLOAT),
            tensors=[tensor("weight", weight, np.float16)],
        )
    else:
        content = model(linear(), tensors=[tensor("weight", weight, np.float16)], kind=HALF, out=HALF)
    (tmp_path / "half.onnx").write_bytes(content)
    faces = rng.integers(0, 256, (3, 112, 96, 3), dtype=np.uint8)
    features = Embedder.load(tmp_path / "half.onnx", threads=1).embed(faces)
    assert features.dtype == np.float32
    expected = flat((faces.transpose(0, 3, 1, 2).astype(float) - 127.5) / 128) @ weight
    np.testing.assert_allclose(features, expected, atol=2e-2)


@pytest.mark.parametrize("kind", [TensorProto.DOUBLE, TensorProto.UINT8, TensorProto.BFLOAT16])
def test_other_types_of_input_are_refused_at_load(kind):
    nodes = helper.make_node("Cast", ["x"], ["z"], to=FLOAT), helper.make_node("Flatten", ["z"], ["y"])
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", kind, ["N", 3, 112, 96])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
    )  # fmt: skip
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    with pytest.raises(
        ModelFileError, match=r"theirs: its input is tensor\(.*; wanted tensor\(float\) or tensor\(float16"
    ):
        OnnxNetwork(content, source="theirs")


FLAT = helper.make_node("Flatten", ["x"], ["y"])
SUM = helper.make_node("Add", ["flat", "more"], ["y"])
MORE = helper.make_tensor_value_info("more", FLOAT, ["N", TILES])
CONSTANT = helper.make_node("Constant", [], ["y"], value=tensor("values", np.zeros((3, 5))))
COUNT = helper.make_node("Shape", ["flat"], ["y"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (model(FLAT, shape=("N", 112, 96, 3)), r"its input is .*; wanted \(N, 3, height, width\)"),
        (model(FLAT, shape=("N", 3, "H", "W")), r"its input is .*; wanted \(N, 3, height, width\)"),
        (model(FLAT, shape=("N", 3, 1 << 20, 1 << 20)), r"its input is .*; wanted \(N, 3, height, width\)"),
        (model(SUM, more=[MORE]), "its inputs are x, more; wanted one"),
        (model(CONSTANT), r"a batch of 1 gives float32 \(3, 5\); wanted floats \(1, D\)"),
        (model(COUNT, out=TensorProto.INT64), r"a batch of 1 gives int64 \(2,\); wanted floats \(1, D\)"),
        (model(linear("absent")), "not a model that onnxruntime reads"),
        (model(linear(), tensors=[tensor("weight", np.zeros((7, 5)))]), "not a model that onnxruntime reads"),
        (b"", "not an ONNX model"),
    ],
)
def test_what_takes_or_gives_something_else_is_refused_at_load(content, said):
    with pytest.raises(ModelFileError, match=f"^theirs: {said}"):
        OnnxNetwork(content, source="theirs", threads=1)


PACKED = {  # how weights (126, 5) are packed: scale, zero point, attributes, and the scale of each weight
    "tensor": ((), {}, lambda scale: scale),
    "axis": ((5,), {"axis": 1}, lambda scale: scale),
    "blocks": ((2, 5), {"axis": 0, "block_size": 64}, lambda scale: np.repeat(scale, 64, axis=0)[:TILES]),
}


def packed(rng, shape, attributes, *, dtype=np.int8):
    """DequantizeLinear of weights, their tensors, and the numbers in them."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    stored = rng.integers(low, high, (TILES, 5), endpoint=True)
    scale, zero = rng.uniform(0.01, 0.02, shape).astype(np.float32), rng.integers(0, 9, shape)
    tensors = tensor("stored", stored, dtype), tensor("scale", scale), tensor("zero", zero, dtype)
    return helper.make_node("DequantizeLinear", ["stored", "scale", "zero"], ["weight"], **attributes), tensors, (
        stored, scale, zero,
    )  # fmt: skip


def optimised(monkeypatch, path, content):
    """A network, and the operations that onnxruntime made of it."""

    class Options(onnxruntime.SessionOptions):
        def __init__(self):
            super().__init__()
            self.optimized_model_filepath = str(path)

    monkeypatch.setattr(onnxruntime, "SessionOptions", Options)
    network = OnnxNetwork(content, threads=1)
    return network, {node.op_type for node in onnx.load(path).graph.node}


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("how", PACKED)
def test_packed_weights_are_unpacked_once_at_load(tmp_path, monkeypatch, rng, inputs, how, dtype):
    """As in OpenCV's files by blocks, an input of a weight's old name is listed that no node reads."""
    shape, attributes, spread = PACKED[how]
    node, tensors, (stored, scale, zero) = packed(rng, shape, attributes, dtype=dtype)
    unread = helper.make_tensor_value_info("old_weight", FLOAT, [TILES, 5])
    content = model(node, linear(), tensors=tensors, more=[unread])
    network, operations = optimised(monkeypatch, tmp_path / "optimised.onnx", content)
    expected = flat(inputs) @ ((stored - spread(zero)) * spread(scale).astype(float))
    np.testing.assert_allclose(network.run(inputs), expected, rtol=1e-4, atol=1e-3)
    assert "DequantizeLinear" not in operations
    assert "MatMul" in operations


def test_a_network_that_computes_with_integers_goes_on_doing_so(tmp_path, monkeypatch, rng, inputs):
    node, tensors, (stored, scale, zero) = packed(rng, (), {}, dtype=np.uint8)
    ends = ["activation_scale", "activation_zero"]
    nodes = [
        node,
        helper.make_node("QuantizeLinear", ["flat", *ends], ["q"]),
        helper.make_node("DequantizeLinear", ["q", *ends], ["dq"]),
        helper.make_node("MatMul", ["dq", "weight"], ["y"]),
    ]
    content = model(*nodes, tensors=[*tensors, tensor(ends[0], 1 / 1024), tensor(ends[1], 128, np.uint8)])
    network, operations = optimised(monkeypatch, tmp_path / "optimised.onnx", content)
    assert operations & {"MatMulIntegerToFloat", "QLinearMatMul"}
    rounded = np.clip(np.rint(flat(inputs) * 1024) + 128, 0, 255) - 128
    np.testing.assert_allclose(network.run(inputs), rounded / 1024 @ ((stored - zero) * scale), rtol=1e-3, atol=2e-2)
