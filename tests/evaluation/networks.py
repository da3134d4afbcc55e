"""A small ONNX embedder, made without torch, for the tests of protocols."""

import onnx
from onnx import TensorProto, helper

from sphereface.contract import METADATA_KEY, Card
from sphereface.embed.embedder import Embedder


def tiles(path, *, card=None):
    """An embedder whose features are the mean colours of tiles of 16 x 16: (N, 126), with the mirror image (N, 252)."""
    nodes = [
        helper.make_node("AveragePool", ["x"], ["m"], kernel_shape=[16, 16], strides=[16, 16]),
        helper.make_node("Flatten", ["m"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "tiles", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 112, 96])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 126])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    helper.set_model_props(model, {METADATA_KEY: (card or Card(name="tiles")).model_dump_json()})
    onnx.save(model, path)
    return Embedder.load(path, threads=1)
