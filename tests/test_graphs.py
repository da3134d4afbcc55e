"""Rewritten ONNX networks compute what they computed before."""

import subprocess
import sys

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from sphereface.errors import ModelFileError
from sphereface.faces.mtcnn import SHA256, weights
from sphereface.graphs import for_onnxruntime, metadata, with_float_weights, with_metadata


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
    rewritten = for_onnxruntime(model.SerializeToString()).content
    onnx.checker.check_model(onnx.load_from_string(rewritten))
    np.testing.assert_allclose(run(rewritten, inputs)[0], run(model.SerializeToString(), inputs)[0], atol=1e-5)
    graph = onnx.load_from_string(rewritten).graph
    assert [node.op_type for node in graph.node].count("PRelu") == 1  # the one over a vector stays
    assert [value.name for value in graph.input] == ["x"]


def prelus(*slopes, side=6):
    """PReLUs one after another on (1, 6, 6, 6)."""
    nodes = [helper.make_node("PRelu", [f"x{i}", name], [f"x{i + 1}"]) for i, name in enumerate(slopes)]
    ends = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, [1, side, side, side]) for i in (0, len(nodes))]
    graph = helper.make_graph(nodes, "prelus", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    return model


@pytest.mark.parametrize(
    ("shape", "left"),
    [
        ((6, 1, 1), 0), ((1, 6, 1, 1), 0), ((1, 6, 1), 1), ((1, 1, 6), 1), ((1, 1, 6, 1), 1), ((1, 1, 1, 6), 1),
        ((6,), 1), ((1, 1, 1), 1), ((6, 6, 1), 1), ((1, 6, 6, 6), 1),
    ],
)  # fmt: skip
def test_a_slope_along_height_or_width_is_not_taken_for_channels(shape, left):
    rng = np.random.default_rng(0)
    model, slope = prelus("slope"), rng.normal(size=shape).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(slope, "slope"))
    x = rng.normal(size=(1, 6, 6, 6)).astype(np.float32)
    rewritten = for_onnxruntime(model.SerializeToString()).content
    np.testing.assert_allclose(run(rewritten, x)[0], np.where(x > 0, x, slope * x), atol=1e-6)
    assert sum(node.op_type == "PRelu" for node in onnx.load_from_string(rewritten).graph.node) == left


def test_two_prelus_may_share_their_slopes():
    model, slope = prelus("slope", "slope"), np.linspace(-1, 2, 6, dtype=np.float32).reshape(6, 1, 1)
    model.graph.initializer.append(numpy_helper.from_array(slope, "slope"))
    x = np.random.default_rng(0).normal(size=(1, 6, 6, 6)).astype(np.float32)
    once = np.where(x > 0, x, slope * x)
    found = run(for_onnxruntime(model.SerializeToString()).content, x)[0]
    np.testing.assert_allclose(found, np.where(once > 0, once, slope * once), atol=1e-6)


def test_inputs_that_no_node_reads_go_and_those_that_a_branch_reads_stay():
    def branch(name, op):
        return helper.make_graph(
            [helper.make_node(op, ["x"], [name])],
            name,
            [],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])],
        )

    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("unread", "x", "kept")]
    inputs.append(helper.make_tensor_value_info("which", TensorProto.BOOL, []))
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("y", "kept")]
    choice = helper.make_node("If", ["which"], ["y"], then_branch=branch("a", "Neg"), else_branch=branch("b", "Abs"))
    model = helper.make_model(helper.make_graph([choice], "choice", inputs, outputs))
    rewritten = onnx.load_from_string(for_onnxruntime(model.SerializeToString()).content)
    assert [value.name for value in rewritten.graph.input] == ["x", "kept", "which"]


def test_values_in_another_file_are_refused_wherever_they_stand(tmp_path):
    def outside(name):
        tensor = numpy_helper.from_array(np.zeros(2, np.float32), name)
        onnx.external_data_helper.set_external_data(tensor, "/etc/passwd")
        tensor.data_location = TensorProto.EXTERNAL
        return tensor

    def graph(*nodes, tensors=()):
        return helper.make_graph(nodes, "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])], tensors)

    constant = graph(helper.make_node("Constant", [], ["y"], value=outside("secret")))
    which = helper.make_node("Constant", [], ["which"], value=numpy_helper.from_array(np.array(True), "which"))
    inside = graph(which, helper.make_node("If", ["which"], ["y"], then_branch=constant, else_branch=constant))
    listed = graph(helper.make_node("Identity", ["secret"], ["y"]), tensors=[outside("secret")])
    for each in (constant, inside, listed):
        content = helper.make_model(each).SerializeToString()
        for reader in (for_onnxruntime, metadata):
            with pytest.raises(ModelFileError, match="tensor 'secret' are in another file"):
                reader(content)


def test_another_text_in_the_metadata_leaves_all_other_bytes():
    """The entry stands before the graph, where the package itself would write it after."""
    graph, entry = network().SerializeToString(), onnx.ModelProto()
    entry.metadata_props.add(key="ours", value="first")
    entry.metadata_props.add(key="theirs", value="kept")
    content = entry.SerializeToString() + graph
    changed = with_metadata(content, "ours", "second, and longer")
    assert metadata(changed) == {"ours": "second, and longer", "theirs": "kept"}
    assert changed.endswith(graph)
    assert with_metadata(changed, "ours", "first") == content
    assert metadata(with_metadata(content, "ours", None)) == {"theirs": "kept"}
    assert with_metadata(with_metadata(graph, "ours", "new"), "ours", None) == graph
    swapped = b"\x72\x09\x12\x01v\x0a\x04ours" + graph  # an entry with its value before its key
    assert metadata(swapped) == {"ours": "v"}
    with pytest.raises(ModelFileError, match="unusual entry 'ours'"):
        with_metadata(swapped, "ours", "w")


def test_what_starts_without_a_model_does_not_import_onnx():
    code = "import sphereface, sphereface.cli, sphereface.evaluation, sphereface.embed.embedder, sys\n"
    ran = subprocess.run(
        [sys.executable, "-c", f"{code}print('onnx' in sys.modules)"], capture_output=True, text=True, check=False
    )
    assert ran.stdout.strip() == "False", ran.stderr


def test_a_free_batch_gives_each_face_what_it_gets_alone():
    model = network().SerializeToString()
    inputs = np.random.default_rng(1).normal(size=(5, 3, 8, 8)).astype(np.float32)
    together = run(for_onnxruntime(model, free_batch=True).content, inputs)[0]
    alone = np.concatenate([run(model, one[None])[0] for one in inputs])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_a_larger_fixed_batch_is_left_alone():
    model = onnx.load_from_string(for_onnxruntime(network(batch=3).SerializeToString(), free_batch=True).content)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 3


@pytest.mark.parametrize("name", sorted(SHA256))
def test_mtcnns_networks_compute_what_they_did(name):
    shape = {"pnet": (2, 31, 27, 3), "rnet": (7, 24, 24, 3), "onet": (3, 48, 48, 3)}[name]
    inputs = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    rewritten = for_onnxruntime(weights(name)).content
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
            assert isinstance(for_onnxruntime(broken).content, bytes)
        except ModelFileError:
            continue


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (
            lambda graph: graph.node[0].attribute.append(helper.make_attribute("strides", [0, 2])),
            r"strides .* \[0, 2\]",
        ),
        (lambda graph: graph.node[0].attribute.append(helper.make_attribute("group", 0)), r"group of a Conv is \[0\]"),
        (lambda graph: graph.node[0].input.__setitem__(1, "vector"), "'vector' of 1 dimensions; wanted 3 or more"),
        (lambda graph: graph.initializer[0].dims.append(7), r"'kernel' do not fit the shape \(4, 3, 3, 3, 7\)"),
    ],
)
def test_what_crashes_older_versions_of_the_runtime_is_refused(spoil, reason):
    model = network()
    spoil(model.graph)
    with pytest.raises(ModelFileError, match=reason):
        for_onnxruntime(model.SerializeToString())


@pytest.mark.parametrize(
    ("scale", "about"),
    [((), {}), ((1,), {}), ((4,), {"axis": 0}), ((6,), {"axis": 1}), ((4, 2), {"axis": 1, "block_size": 3})],
    ids=["one", "one in a row", "rows", "columns", "blocks"],
)
@pytest.mark.parametrize("with_zero", [True, False])
def test_integer_weights_become_the_floats_that_onnx_computes_of_them(scale, about, with_zero):
    rng = np.random.default_rng(0)
    tensors = {
        "w": rng.integers(-128, 128, (4, 6)).astype(np.int8),
        "s": rng.uniform(0.01, 0.1, scale).astype(np.float32),
        "z": rng.integers(-9, 9, scale).astype(np.int8),
    }
    if not with_zero:
        del tensors["z"]
    nodes = [
        helper.make_node("DequantizeLinear", list(tensors), ["v"], **about),
        helper.make_node("MatMul", ["x", "v"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, 1, ["N", size]) for name, size in (("x", 4), ("y", 6))]
    initializers = [numpy_helper.from_array(value, name) for name, value in tensors.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], initializers)
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString()
    x = rng.normal(size=(3, 4)).astype(np.float32)
    (wanted,) = onnx.reference.ReferenceEvaluator(onnx.ModelProto.FromString(content)).run(None, {"x": x})
    folded = onnx.ModelProto.FromString(with_float_weights(content))
    assert [node.op_type for node in folded.graph.node] == ["MatMul"]
    assert [tensor.name for tensor in folded.graph.initializer] == ["v"]
    (found,) = onnx.reference.ReferenceEvaluator(folded).run(None, {"x": x})
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
