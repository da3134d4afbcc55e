"""ONNX files made fit for onnxruntime, without the `onnx` package: a file is a protocol buffer, and few fields matter.

PReLU(x) = a x + (1 - a) max(x, 0) for a slope a per channel: two 1 x 1 depthwise convolutions, a ReLU and a sum. The
runtime has vector code for these and none for PReLU, which cost MTCNN's networks half of their time. Constants that are
listed as inputs, as older exporters did, keep it from simplifying the graph; and a batch that is fixed at 1 wastes what
the processor could do at once.

A network whose layers are known can also be written down: an `onnx_file` of some `operation`s and `initializer`s.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from sphereface.errors import ModelFileError

IR, PRODUCER, GRAPH, OPSET, METADATA = 1, 2, 7, 8, 14  # of a model
IR_VERSION, OPSET_VERSION = 8, 13  # of 2021: whatever reads ONNX today reads these
NODE, INITIALIZER, GRAPH_INPUT, GRAPH_OUTPUT = 1, 5, 11, 12  # of a graph
INPUT, OUTPUT, OP, ATTRIBUTE = 1, 2, 4, 5  # of a node
DIMS, TYPE, FLOATS, NAME, RAW = 1, 2, 4, 8, 9  # of a tensor
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5  # wire types
FLOAT = 1  # a tensor's type

Field = tuple[int, int, bytes]  # number, wire type, value; a varint's value stays encoded
Shape = tuple[int | str, ...]  # a name stands for a free length


def onnx_file(
    name: str, parts: Iterable[bytes], *, source: tuple[str, Shape], target: tuple[str, Shape], about: Mapping[str, str]
) -> bytes:
    """An ONNX file: operations and tensors in the order of their use, from a source to a target, and its metadata."""
    graph = [*parts, _field(2, name.encode()), _value(GRAPH_INPUT, *source), _value(GRAPH_OUTPUT, *target)]
    return b"".join(
        [
            _integer(IR, IR_VERSION),
            _field(PRODUCER, b"sphereface"),
            _field(OPSET, _field(1, b"") + _integer(2, OPSET_VERSION)),
            *(_field(METADATA, _field(1, key.encode()) + _field(2, text.encode())) for key, text in about.items()),
            _field(GRAPH, b"".join(graph)),
        ]
    )


def operation(op: str, inputs: Iterable[str], output: str, **attributes: int | tuple[int, ...]) -> bytes:
    """One operation of a graph, with attributes that are integers or lists of them."""
    body = b"".join(_field(INPUT, name.encode()) for name in inputs) + _field(OUTPUT, output.encode())
    body += _field(OP, op.encode())
    for name, value in attributes.items():  # an attribute: name = 1, integer = 3, integers = 8, kind = 20: 2 or 7
        if isinstance(value, int):
            typed = _integer(3, value) + _integer(20, 2)
        else:
            typed = b"".join(_integer(8, each) for each in value) + _integer(20, 7)
        body += _field(ATTRIBUTE, _field(1, name.encode()) + typed)
    return _field(NODE, body)


def initializer(name: str, values: NDArray[np.float32]) -> bytes:
    """A tensor of a graph."""
    body = b"".join(_integer(DIMS, length) for length in values.shape) + _integer(TYPE, FLOAT)
    return _field(INITIALIZER, body + _field(NAME, name.encode()) + _field(RAW, values.astype("<f4").tobytes()))


def _value(number: int, name: str, shape: Shape) -> bytes:
    """What enters or leaves a graph: name (1) and type (2), a tensor (1) of floats (1) and a shape (2) of dims (1)."""
    dims = (_field(2, axis.encode()) if isinstance(axis, str) else _integer(1, axis) for axis in shape)
    tensor = _integer(1, FLOAT) + _field(2, b"".join(_field(1, dim) for dim in dims))
    return _field(number, _field(1, name.encode()) + _field(2, _field(1, tensor)))


def metadata(model: bytes) -> dict[str, str]:
    """What an ONNX file says of itself: entries of a key (1) and a text (2)."""
    entries = [value for number, _, value in _fields(model) if number == METADATA]
    try:
        return {_first(entry, 1).decode(): _first(entry, 2).decode() for entry in entries}
    except UnicodeDecodeError as error:
        raise ModelFileError(f"not an ONNX model ({error})") from error


def with_metadata(model: bytes, key: str, text: str | None) -> bytes:
    """The same network with another text under a key, in the place of an older one, or without any."""
    entry = b"" if text is None else _field(METADATA, _field(1, key.encode()) + _field(2, text.encode()))
    parts, found = [], False
    for number, kind, value in _fields(model):
        if number != METADATA or _first(value, 1) != key.encode():
            parts.append(_raw(number, kind, value))
        elif not found:
            found = True
            parts.append(entry)
    return b"".join(parts if found else [*parts, entry])


def for_onnxruntime(model: bytes, *, free_batch: bool = False) -> bytes:
    """The same network, without PReLU over channels and without constants among its inputs.

    `free_batch` also sets the first axis of inputs and outputs free where it was fixed at 1. Whether the graph bears
    that must be tried: a reshape inside may hold the 1 as well.
    """
    try:
        return b"".join(
            _field(GRAPH, _graph(value, free_batch)) if number == GRAPH else _raw(number, kind, value)
            for number, kind, value in _fields(model)
        )
    except (UnicodeDecodeError, IndexError, ValueError) as error:
        raise ModelFileError(f"not an ONNX model ({error})") from error


def _graph(graph: bytes, free_batch: bool) -> bytes:
    fields = list(_fields(graph))
    tensors = dict(_tensor(value) for number, _, value in fields if number == INITIALIZER)
    slopes = {name: values for name, values in tensors.items() if values.ndim >= 3 and values.squeeze().ndim == 1}
    replaced = {names[1] for number, _, value in fields if number == NODE and (names := _prelu(value, slopes))}
    parts = []
    for number, kind, value in fields:
        names = _prelu(value, slopes) if number == NODE else None
        if names:
            parts += _sum(*names, slopes[names[1]].reshape(-1, 1, 1, 1))
        elif number in (GRAPH_INPUT, GRAPH_OUTPUT):
            if _first(value, 1).decode() not in tensors:
                parts.append(_field(number, _with_free_batch(value) if free_batch else value))
        elif number != INITIALIZER or _tensor(value)[0] not in replaced:
            parts.append(_raw(number, kind, value))
    return b"".join(parts)


def _with_free_batch(value: bytes) -> bytes:
    """A value's description with N for a first axis of 1: type (2), tensor (1), shape (2), its first dim (1)."""
    return _edit(value, (2, 1, 2, 1), lambda dim: _field(2, b"N") if dim == b"\x08\x01" else dim)


def _edit(message: bytes, path: tuple[int, ...], change: Callable[[bytes], bytes]) -> bytes:
    """A message with one field changed, the first at the end of a path of field numbers."""
    parts, found = [], False
    for number, kind, value in _fields(message):
        if number == path[0] and not found:
            found = True
            parts.append(_field(number, _edit(value, path[1:], change) if path[1:] else change(value)))
        else:
            parts.append(_raw(number, kind, value))
    return b"".join(parts)


def _first(message: bytes, wanted: int) -> bytes:
    return next((value for number, _, value in _fields(message) if number == wanted), b"")


def _prelu(node: bytes, slopes: dict[str, NDArray[np.float32]]) -> tuple[str, str, str] | None:
    """The names of input, slope and output, if a node is a PReLU over channels."""
    fields = list(_fields(node))
    inputs, outputs, ops = (
        [value.decode() for number, _, value in fields if number == wanted] for wanted in (INPUT, OUTPUT, OP)
    )
    return (inputs[0], inputs[1], outputs[0]) if ops == ["PRelu"] and inputs[1] in slopes else None


def _sum(x: str, slope: str, y: str, a: NDArray[np.float32]) -> list[bytes]:
    """The fields that stand for y = PReLU(x): a x + (1 - a) max(x, 0)."""
    return [
        initializer(f"{slope}/a", a),
        initializer(f"{slope}/1-a", 1 - a),
        operation("Relu", [x], f"{y}/relu"),
        operation("Conv", [x, f"{slope}/a"], f"{y}/ax", group=len(a)),
        operation("Conv", [f"{y}/relu", f"{slope}/1-a"], f"{y}/rest", group=len(a)),
        operation("Add", [f"{y}/ax", f"{y}/rest"], y),
    ]


def _tensor(tensor: bytes) -> tuple[str, NDArray[np.float32]]:
    """A tensor's name and values; one that is not of floats has none."""
    name, dims, kind, data = "", [], 0, b""
    for number, wire, value in _fields(tensor):
        if number == NAME:
            name = value.decode()
        elif number == DIMS:
            place = 0
            while place < len(value):  # packed or one by one
                length, place = _read_varint(value, place)
                dims.append(length)
        elif number == TYPE:
            kind, _ = _read_varint(value, 0)
        elif number == RAW or (number == FLOATS and wire in (LENGTH, FIXED32)):
            data += value
    values = np.frombuffer(data, "<f4") if kind == FLOAT else np.zeros(0, np.float32)
    return name, values.reshape(dims) if values.size == np.prod(dims) else values


def _fields(message: bytes) -> Iterator[Field]:
    place = 0
    while place < len(message):
        key, place = _read_varint(message, place)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            _, end = _read_varint(message, place)
        elif kind == LENGTH:
            length, place = _read_varint(message, place)
            end = place + length
        elif kind in (FIXED32, FIXED64):
            end = place + (4 if kind == FIXED32 else 8)
        else:
            raise ModelFileError(f"not an ONNX model: wire type {kind} at byte {place}")
        if end > len(message):
            raise ModelFileError(f"an ONNX model that is cut off at byte {place}")
        yield number, kind, message[place:end]
        place = end


def _raw(number: int, kind: int, value: bytes) -> bytes:
    return _field(number, value) if kind == LENGTH else _varint(number << 3 | kind) + value


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | LENGTH) + _varint(len(value)) + value


def _integer(number: int, value: int) -> bytes:
    return _varint(number << 3 | VARINT) + _varint(value)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _read_varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if place >= len(message) or shift > 63:
            raise ModelFileError(f"an ONNX model that is cut off at byte {place}")
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
