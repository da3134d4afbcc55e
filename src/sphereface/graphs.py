"""ONNX graphs: written, and made fit for onnxruntime.

PReLU(x) = a x + (1 - a) max(x, 0) for a slope a per channel: two 1 x 1 depthwise convolutions, a ReLU and a sum. The
runtime has vector code for these and none for PReLU, which cost MTCNN's networks half of their time. Constants that are
listed as inputs, as older exporters did, keep it from simplifying the graph; and a batch that is fixed at 1 wastes what
the processor could do at once.

The `onnx` package is imported inside functions, where a model is at hand: the command line starts without it.
"""

from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from sphereface.arrays import Float32
from sphereface.errors import ModelFileError

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

IR_VERSION, OPSET_VERSION = 8, 13  # of 2021: whatever reads ONNX today reads these

Shape = Sequence[int | str]  # a name stands for a free length


class Fitted(NamedTuple):
    """A network that is fit for onnxruntime."""

    content: bytes
    integers: bool  # whether it computes with integers; if not, those in it are packed float32 weights


def new_model(
    name: str, *, source: tuple[str, Shape], target: tuple[str, Shape], about: Mapping[str, str]
) -> "ModelProto":
    """A model with metadata, whose graph from a source to a target has no operations yet."""
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
    """One operation of a graph."""
    from onnx import helper

    return helper.make_node(op, inputs, [output], **attributes)


def add_constant(graph: "GraphProto", name: str, values: Float32) -> None:
    """Add a tensor to a graph."""
    from onnx import TensorProto

    raw = values.astype("<f4", copy=False).tobytes()
    graph.initializer.add(name=name, data_type=TensorProto.FLOAT, dims=values.shape, raw_data=raw)


def written(model: "ModelProto") -> bytes:
    """A model as the bytes of its file."""
    from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

    try:
        return bytes(model.SerializeToString())
    except EncodeError as error:
        raise ModelFileError("a model of more than 2 GiB, which an ONNX file cannot hold") from error


def metadata(content: bytes) -> dict[str, str]:
    """The metadata of an ONNX file: texts by key."""
    with _errors_of_the_file():
        return {_text(entry.key): _text(entry.value) for entry in _parsed(content).metadata_props}


def with_metadata(content: bytes, key: str, text: str | None) -> bytes:
    """The same network with another text under a key, in the place of an older one, or without any.

    All other bytes stay, so that the older text, put back, gives the older file. The package would write them anew, in
    an order of its own.
    """
    found = metadata(content).get(key)
    before, after = _entry(key, found), _entry(key, text)
    place = content.rfind(before) if before else len(content)
    changed = content[:place] + after + content[place + len(before) :]
    if place < 0 or metadata(changed).get(key) != text:
        raise ModelFileError(f"its metadata has an unusual entry {key!r}; write the model again with the onnx package")
    return changed


def _entry(key: str, text: str | None) -> bytes:
    """An entry of the metadata as it stands in a file."""
    import onnx

    model = onnx.ModelProto()
    if text is not None:
        model.metadata_props.add(key=key, value=text)
    return written(model)


def for_onnxruntime(content: bytes, *, free_batch: bool = False) -> Fitted:
    """The same network, without PReLU over channels, and without inputs that are constants or that no node reads.

    `free_batch` also sets the first axis of inputs and outputs free where it was fixed at 1. Whether the graph bears
    that must be tried: a reshape inside may hold the 1 as well.
    """
    with _errors_of_the_file():
        model = _parsed(content)
        graph = model.graph
        constants = {tensor.name for tensor in graph.initializer}
        _keep(graph.input, _read(graph) - constants)
        _replace_prelus(graph)
        _keep(graph.initializer, _read(graph))
        for value in (*graph.input, *graph.output):
            _text(value.name)
            dims = value.type.tensor_type.shape.dim
            if free_batch and len(dims) and dims[0].dim_value == 1:
                dims[0].dim_param = "N"
        return Fitted(written(model), any(node.op_type == "QuantizeLinear" for node in _nodes(graph.node)))


@contextmanager
def _errors_of_the_file() -> Iterator[None]:
    """Raise what is wrong with a file as our error."""
    from google.protobuf.message import DecodeError

    try:
        yield
    except ModelFileError:
        raise
    except (DecodeError, ValueError) as error:  # ValueError: bytes that are no text, a tensor of another size than said
        raise ModelFileError(f"not an ONNX model ({error})") from error


def _parsed(content: bytes) -> "ModelProto":
    import onnx

    model: ModelProto = onnx.ModelProto.FromString(content)
    if not model.HasField("graph"):
        raise ModelFileError("not an ONNX model: it has no graph")
    for tensor in _tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise ModelFileError(f"the values of its tensor {tensor.name!r} are in another file; save it as one file")
    return model


def _text(text: str | bytes) -> str:
    """A text of a protocol buffer, which comes as bytes where it is not UTF-8."""
    return text if isinstance(text, str) else text.decode()


def _nodes(nodes: "Iterable[NodeProto]") -> "Iterator[NodeProto]":
    """Nodes, and those of the graphs inside of them, such as the branches of an If."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph.node)


def _tensors(model: "ModelProto") -> "Iterator[TensorProto]":
    """All tensors of a model, wherever they stand."""
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
    """The names that nodes read and those that leave the graph."""
    return {name for node in _nodes(graph.node) for name in node.input} | {value.name for value in graph.output}


def _keep(named: "MutableSequence[ValueInfoProto] | MutableSequence[TensorProto]", wanted: set[str]) -> None:
    """Delete what has no wanted name; in place, since a new list would copy the weights."""
    for place in reversed(range(len(named))):
        if named[place].name not in wanted:
            del named[place]


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
        a = numpy_helper.to_array(slopes[slope]).reshape(-1, 1, 1, 1)
        if slope not in replaced:
            add_constant(graph, f"{slope}/a", a)
            add_constant(graph, f"{slope}/1-a", 1 - a)
            replaced.add(slope)
        nodes += [
            operation("Relu", [x], f"{y}/relu"),
            operation("Conv", [x, f"{slope}/a"], f"{y}/ax", group=len(a)),
            operation("Conv", [f"{y}/relu", f"{slope}/1-a"], f"{y}/rest", group=len(a)),
            operation("Add", [f"{y}/ax", f"{y}/rest"], y),
        ]
    del graph.node[:]
    graph.node.extend(nodes)


def _per_channel(tensor: "TensorProto") -> bool:
    """Whether a tensor is of floats with the shape (C, 1, 1) or (1, C, 1, 1): along the channels of (N, C, H, W)."""
    from onnx import TensorProto

    *first, channels, height, width = tensor.dims if len(tensor.dims) >= 3 else (0, 0, 0)
    return tensor.data_type == TensorProto.FLOAT and channels > 1 and height == width == 1 and first in ([], [1])
