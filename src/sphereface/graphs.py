"""ONNX graphs: writing them, and rewriting them for onnxruntime.

PReLU(x) = a x + (1 - a) max(x, 0) for a slope a per channel: two 1 x 1 depthwise convolutions, a ReLU and a sum. The
runtime has vector code for these but not for PReLU, which took half of the time of MTCNN's networks. Constants that are
listed as inputs, as by older exporters, prevent its graph optimisations; a batch that is fixed at 1 prevents batching.

The `onnx` package is imported inside functions, so that the command line starts without it.
"""

from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sphereface.arrays import Float32
from sphereface.errors import ModelFileError

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

IR_VERSION, OPSET_VERSION = 8, 13  # of 2021, for older readers
SIZES = ("dilations", "group", "kernel_shape", "strides")  # attributes of convolutions and pools

Shape = Sequence[int | str]  # a string names a free dimension


class Fitted(NamedTuple):
    """A network rewritten for onnxruntime."""

    content: bytes
    integers: bool  # True if it computes with integers; otherwise integer tensors are packed float32 weights


def new_model(
    name: str, *, source: tuple[str, Shape], target: tuple[str, Shape], about: Mapping[str, str]
) -> "ModelProto":
    """A model with metadata `about`, one input and one output, and no operations yet."""
    from onnx import TensorProto, helper

    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, shape) for end, shape in (source, target)]
    model = helper.make_model(
        helper.make_graph([], name, ends[:1], ends[1:]),
        producer_name="sphereface",
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET_VERSION)],
    )
    helper.set_model_props(model, dict(about))
    return model


def operation(op: str, inputs: Sequence[str], output: str, **attributes: Any) -> "NodeProto":
    """A node of a graph."""
    from onnx import helper

    return helper.make_node(op, inputs, [output], **attributes)


def add_constant(graph: "GraphProto", name: str, values: Float32) -> None:
    """Add a tensor to a graph."""
    from onnx import TensorProto

    raw = values.astype("<f4", copy=False).tobytes()
    graph.initializer.add(name=name, data_type=TensorProto.FLOAT, dims=values.shape, raw_data=raw)


def written(model: "ModelProto") -> bytes:
    """The file content of a model."""
    from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

    try:
        return bytes(model.SerializeToString())
    except EncodeError as error:
        raise ModelFileError("a model of more than 2 GiB; an ONNX file holds at most 2 GiB") from error


def metadata(content: bytes) -> dict[str, str]:
    """The metadata of an ONNX file, text by key."""
    with _errors_of_the_file():
        return {_text(entry.key): _text(entry.value) for entry in _parsed(content).metadata_props}


def with_metadata(content: bytes, key: str, text: str | None) -> bytes:
    """The file content with the text of a metadata key replaced, added, or removed (None).

    All other bytes stay, so that restoring the older text restores the older file. The onnx package would write all
    fields again, in another order.
    """
    found = metadata(content).get(key)
    before, after = _entry(key, found), _entry(key, text)
    place = content.rfind(before) if before else len(content)
    changed = content[:place] + after + content[place + len(before) :]
    if place < 0 or metadata(changed).get(key) != text:
        raise ModelFileError(f"its metadata has an unusual entry {key!r}; write the model again with the onnx package")
    return changed


def _entry(key: str, text: str | None) -> bytes:
    """The bytes of a metadata entry in a file; empty for None."""
    import onnx

    model = onnx.ModelProto()
    if text is not None:
        model.metadata_props.add(key=key, value=text)
    return written(model)


def for_onnxruntime(content: bytes, *, free_batch: bool = False) -> Fitted:
    """The same network, without PReLU over channels, constant inputs and unused inputs.

    `free_batch` also frees the first axis of inputs and outputs where it was fixed at 1. The caller must test such a
    network with batches: a reshape inside may contain the 1 as well.
    """
    with _errors_of_the_file():
        model = _parsed(content)
        graph = model.graph
        constants = {tensor.name for tensor in graph.initializer}
        _keep(graph.input, _read(graph) - constants)
        _require_convolutions(graph)
        _replace_prelus(graph)
        _keep(graph.initializer, _read(graph))
        for value in (*graph.input, *graph.output):
            _text(value.name)
            dims = value.type.tensor_type.shape.dim
            if free_batch and len(dims) and dims[0].dim_value == 1:
                dims[0].dim_param = "N"
        return Fitted(written(model), any(node.op_type == "QuantizeLinear" for node in _nodes(graph.node)))


def with_float_weights(content: bytes) -> bytes:
    """The same network with float32 constants in place of integer ones that are dequantised at every run.

    OpenCV before 4.11 does not read those with a scale for each block.
    """
    from onnx import numpy_helper

    with _errors_of_the_file():
        model = _parsed(content)
        graph = model.graph
        constants = {tensor.name: tensor for tensor in graph.initializer}
        nodes = list["NodeProto"]()
        for node in graph.node:
            if node.op_type == "DequantizeLinear" and constants.keys() >= set(node.input):
                values, scale, *zero = (numpy_helper.to_array(constants[name]) for name in node.input)
                about = {attribute.name: attribute.i for attribute in node.attribute}
                steps = _along(scale, values.shape, about)
                zeros = _along(zero[0], values.shape, about) if zero else 0
                whole = ((values.astype(np.float32) - zeros) * steps).astype(np.float32)
                graph.initializer.append(numpy_helper.from_array(whole, node.output[0]))
            else:
                nodes.append(node)
        del graph.node[:]
        graph.node.extend(nodes)
        read = _read(graph)
        _keep(graph.initializer, read)
        _keep(graph.input, read - {tensor.name for tensor in graph.initializer})
        return written(model)


def _along(scale: NDArray[Any], shape: Shape, about: Mapping[str, int]) -> NDArray[Any]:
    """Scales or zero points of DequantizeLinear, one each, one a slice or one a block of an axis, for all values."""
    scale, axis = scale.astype(np.float32), about.get("axis", 1)
    if scale.size == 1:
        return scale.reshape(())
    if block := about.get("block_size", 0):
        return np.take(scale.repeat(block, axis=axis), range(int(shape[axis])), axis=axis)
    return scale.reshape([-1 if place == axis % len(shape) else 1 for place in range(len(shape))])


@contextmanager
def _errors_of_the_file() -> Iterator[None]:
    """Convert parse errors to `ModelFileError`."""
    from google.protobuf.message import DecodeError

    try:
        yield
    except ModelFileError:
        raise
    except (DecodeError, ValueError) as error:  # ValueError: invalid UTF-8, a tensor of the wrong size
        raise ModelFileError(f"not an ONNX model ({error})") from error


def _parsed(content: bytes) -> "ModelProto":
    import onnx

    model: ModelProto = onnx.ModelProto.FromString(content)
    if not model.HasField("graph"):
        raise ModelFileError("not an ONNX model: it has no graph")
    for tensor in _tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise ModelFileError(f"the values of its tensor {tensor.name!r} are in another file; save it as one file")
    for tensor in model.graph.initializer:
        try:
            onnx.numpy_helper.to_array(tensor)
        except (ValueError, TypeError, KeyError, OverflowError) as error:  # onnxruntime may crash on such a tensor
            shape = tuple(tensor.dims)
            raise ModelFileError(f"the values of its tensor {tensor.name!r} do not fit the shape {shape}") from error
    return model


def _text(text: str | bytes) -> str:
    """A string of a protocol buffer; protobuf returns invalid UTF-8 as bytes, which raise `UnicodeDecodeError`."""
    return text if isinstance(text, str) else text.decode()


def _nodes(nodes: "Iterable[NodeProto]") -> "Iterator[NodeProto]":
    """All nodes, including those of subgraphs, such as the branches of an If."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph.node)


def _tensors(model: "ModelProto") -> "Iterator[TensorProto]":
    """All tensors of a model: of graphs, subgraphs, functions and attributes."""
    nodes = _nodes((*model.graph.node, *(node for function in model.functions for node in function.node)))
    attributes = [attribute for node in nodes for attribute in node.attribute]
    graphs = [model.graph, *(graph for each in attributes for graph in (each.g, *each.graphs))]
    sparse = [tensor for graph in graphs for tensor in graph.sparse_initializer]
    for graph in graphs:
        yield from graph.initializer
    for each in attributes:
        yield from (each.t, *each.tensors)
        sparse += [each.sparse_tensor, *each.sparse_tensors]
    for tensor in sparse:
        yield from (tensor.values, tensor.indices)


def _read(graph: "GraphProto") -> set[str]:
    """The names of all node inputs and graph outputs."""
    return {name for node in _nodes(graph.node) for name in node.input} | {value.name for value in graph.output}


def _keep(named: "MutableSequence[ValueInfoProto] | MutableSequence[TensorProto]", wanted: set[str]) -> None:
    """Delete the entries with other names; in place, because a new list would copy the weights."""
    for place in reversed(range(len(named))):
        if named[place].name not in wanted:
            del named[place]


def add_slopes(graph: "GraphProto", name: str, a: Float32) -> None:
    """Add the constants that `prelu` reads: a slope for each channel."""
    add_constant(graph, f"{name}/a", a.reshape(-1, 1, 1, 1))
    add_constant(graph, f"{name}/1-a", 1 - a.reshape(-1, 1, 1, 1))


def prelu(x: str, slope: str, y: str, *, channels: int) -> "list[NodeProto]":
    """PReLU with a slope per channel as y = a x + (1 - a) max(x, 0)."""
    return [
        operation("Relu", [x], f"{y}/relu"),
        operation("Conv", [x, f"{slope}/a"], f"{y}/ax", group=channels),
        operation("Conv", [f"{y}/relu", f"{slope}/1-a"], f"{y}/rest", group=channels),
        operation("Add", [f"{y}/ax", f"{y}/rest"], y),
    ]


def _replace_prelus(graph: "GraphProto") -> None:
    """Write each PReLU that has a slope per channel as y = a x + (1 - a) max(x, 0)."""
    from onnx import numpy_helper

    slopes = {tensor.name: tensor for tensor in graph.initializer if _per_channel(tensor)}
    nodes, replaced = list["NodeProto"](), set[str]()
    for node in graph.node:
        if node.op_type != "PRelu" or len(node.input) != 2 or node.input[1] not in slopes:
            nodes.append(node)
            continue
        (x, slope), y = node.input, node.output[0]
        a = numpy_helper.to_array(slopes[slope])
        if slope not in replaced:
            add_slopes(graph, slope, a)
            replaced.add(slope)
        nodes += prelu(x, slope, y, channels=a.size)
    del graph.node[:]
    graph.node.extend(nodes)


def _require_convolutions(graph: "GraphProto") -> None:
    """Raise for filters of fewer than three dimensions and sizes below 1: older versions of onnxruntime crash."""
    ranks = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    for node in _nodes(graph.node):
        for attribute in node.attribute:
            sizes = list(attribute.ints) or [attribute.i]  # `group` is one number
            if attribute.name in SIZES and min(sizes) < 1:
                raise ModelFileError(f"{attribute.name} of a {node.op_type} is {sizes}; wanted 1 or more")
        for name in node.input[:2] if node.op_type in ("Conv", "ConvTranspose") else ():
            if ranks.get(name, 3) < 3:
                raise ModelFileError(f"a convolution reads {name!r} of {ranks[name]} dimensions; wanted 3 or more")


def _per_channel(tensor: "TensorProto") -> bool:
    """True for a float tensor (C, 1, 1) or (1, C, 1, 1): a number for each channel of (N, C, H, W)."""
    from onnx import TensorProto

    *first, channels, height, width = tensor.dims if len(tensor.dims) >= 3 else (0, 0, 0)
    return tensor.data_type == TensorProto.FLOAT and channels > 1 and height == width == 1 and first in ([], [1])
