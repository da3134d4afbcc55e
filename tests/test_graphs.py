"""Rewritten ONNX networks compute what they computed before."""

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from sphereface.errors import ModelFileError
from sphereface.faces.mtcnn import SHA256, weights
from sphereface.graphs import for_onnxruntime


def run(model, inputs):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: inputs})


def network(*, packed=True, batch=1, constants_as_inputs=True):
    """conv, PReLU over channels, flatten, PReLU over a vector; slopes below 0 and above 1."""
    rng = np.random.default_rng(0)
    values = {
        "kernel": rng.normal(size=(4, 3, 3, 3)),
        "slope": np.array([-0.7, 0.0, 0.3, 1.8]).reshape(4, 1, 1),
        "vector": rng.normal(size=(4 * 36,)),
    }
    tensors = [
        numpy_helper.from_array(value.astype(np.float32), name)
        if packed
        else helper.make_tensor(name, TensorProto.FLOAT, value.shape, value.ravel().tolist())
        for name, value in values.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["c"]),
        helper.make_node("PRelu", ["c", "slope"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("PRelu", ["f", "vector"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 8, 8])]
    if constants_as_inputs:
        inputs += [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(v.shape)) for n, v in values.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 4 * 36])
    graph = helper.make_graph(nodes, "small", inputs, [output], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    return model


@pytest.mark.parametrize("packed", [True, False])
def test_prelus_over_channels_go_and_the_outputs_stay(packed):
    model = network(packed=packed)
    inputs = np.random.default_rng(1).normal(size=(1, 3, 8, 8)).astype(np.float32)
    rewritten = for_onnxruntime(model.SerializeToString())
    onnx.checker.check_model(onnx.load_from_string(rewritten))
    np.testing.assert_allclose(run(rewritten, inputs)[0], run(model.SerializeToString(), inputs)[0], atol=1e-5)
    graph = onnx.load_from_string(rewritten).graph
    assert [node.op_type for node in graph.node].count("PRelu") == 1  # the one over a vector stays
    assert [value.name for value in graph.input] == ["x"]


def test_a_free_batch_gives_each_face_what_it_gets_alone():
    model = network().SerializeToString()
    inputs = np.random.default_rng(1).normal(size=(5, 3, 8, 8)).astype(np.float32)
    together = run(for_onnxruntime(model, free_batch=True), inputs)[0]
    alone = np.concatenate([run(model, one[None])[0] for one in inputs])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_a_larger_fixed_batch_is_left_alone():
    model = onnx.load_from_string(for_onnxruntime(network(batch=3).SerializeToString(), free_batch=True))
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 3


@pytest.mark.parametrize("name", sorted(SHA256))
def test_mtcnns_networks_compute_what_they_did(name):
    shape = {"pnet": (2, 31, 27, 3), "rnet": (7, 24, 24, 3), "onet": (3, 48, 48, 3)}[name]
    inputs = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    rewritten = for_onnxruntime(weights(name))
    assert not any(
        node.op_type == "PRelu" and len(node.input) and "re_lu" in node.input[1] and _channels(rewritten, node.input[1])
        for node in onnx.load_from_string(rewritten).graph.node
    )
    for new, old in zip(run(rewritten, inputs), run(weights(name), inputs), strict=True):
        np.testing.assert_allclose(new, old, atol=2e-5)


def _channels(model, name):
    return any(len(t.dims) > 2 for t in onnx.load_from_string(model).graph.initializer if t.name == name)


@given(st.binary(max_size=60), st.floats(0, 1))
def test_broken_files_are_a_clear_error_or_stay_broken(noise, place):
    whole = network().SerializeToString()
    at = int(place * len(whole))
    for broken in (noise, whole[:at], whole[:at] + noise + whole[at:]):
        try:
            assert isinstance(for_onnxruntime(broken), bytes)
        except ModelFileError:
            continue
