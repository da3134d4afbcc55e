"""Our `.safetensors` models as ONNX, without torch: the graph follows from the tensors' names.

`stages.0`, `stages.1`, ... are a sequence: a convolution, an optional batch norm, a PReLU, or a residual unit with the
same layers as `body.0`, `body.1`, ...; `fc1` is the last layer, with an optional batch norm `fc1_norm`. In evaluation a
batch norm is a scale and a shift for each channel, which are merged into the layer before it.
"""

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors import SafetensorError, deserialize

from sphereface.arrays import Float32
from sphereface.contract import METADATA_KEY, STAGES, Architecture, Card, broken_safetensors
from sphereface.data.files.writing import whole_file
from sphereface.errors import ModelFileError
from sphereface.faces.warp import CROPS
from sphereface.graphs import add_constant, add_slopes, new_model, operation, prelu, written
from sphereface.zoo import ModelFile

if TYPE_CHECKING:
    from onnx import GraphProto

VERSION = 4  # of the graphs written here; cached files of other versions are ignored
EPSILON = 1e-5  # torch's, in a batch norm
FC1_NORM = "fc1_norm.running_mean"
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}


def as_onnx(file: ModelFile) -> bytes:
    """A `.safetensors` model as ONNX, from the cache or converted and cached."""
    kept = cache_folder() / f"{file.sha256}-{VERSION}.onnx"
    try:
        return kept.read_bytes()
    except OSError:  # missing or unreadable
        model = convert(file.content, file.card, source=str(file.path))
    with contextlib.suppress(OSError):  # a full or read-only disk: the next start converts again
        kept.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(kept) as place:
            place.write(model)
    return model


def cache_folder() -> Path:
    """The folder of converted models: $SPHEREFACE_CACHE, or `sphereface` in the user's cache folder."""
    own = os.environ.get("SPHEREFACE_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sphereface"


def convert(content: bytes, card: Card, *, source: str) -> bytes:
    """The content of a `.safetensors` model as an ONNX file with the same card; `source` names the model in errors."""
    if card.architecture is None:
        raise ModelFileError(f"{source}: its card names no architecture; save it with sphereface.models.save_model")
    crop = CROPS["112x96"]
    model = new_model(
        card.architecture.name,
        source=("faces", ("N", 3, crop.height, crop.width)),
        target=("features", ("N", card.architecture.features)),
        about={METADATA_KEY: card.model_dump_json()},
    )
    with np.errstate(over="ignore", invalid="ignore"):  # non-finite weights give non-finite features
        _Writer(_tensors(content, source), model.graph, source).network(card.architecture)
    return written(model)


def _tensors(content: bytes, source: str) -> dict[str, Float32]:
    try:
        listed = deserialize(content)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise broken_safetensors(source, error) from error
    tensors = {}
    for name, tensor in listed:
        if name.endswith("num_batches_tracked"):
            continue  # a counter of training
        if tensor["dtype"] == "BF16":  # the upper half of a float32
            values = (np.frombuffer(tensor["data"], "<u2").astype(np.uint32) << 16).view(np.float32)
        elif tensor["dtype"] in TYPES:
            values = np.frombuffer(tensor["data"], TYPES[tensor["dtype"]]).astype(np.float32)
        else:
            raise ModelFileError(f"{source}: tensor {name!r} is of {tensor['dtype']}; wanted floating-point numbers")
        tensors[name] = values.reshape(tensor["shape"])
    return tensors


class _Writer:
    """Writes layers as nodes of a graph; a missing or an unused tensor is an error."""

    def __init__(self, tensors: dict[str, Float32], graph: "GraphProto", source: str) -> None:
        self.tensors, self.graph, self.source = tensors, graph, source
        self.channels = 3
        self.units: list[int] = []  # of each stage so far

    def network(self, architecture: Architecture) -> None:
        """faces -> stages -> fc1 -> features."""
        normed = [name for name in self.tensors if name.endswith("running_mean")]
        on_features = FC1_NORM in self.tensors
        if (architecture.norm is not None) != bool(normed) or (architecture.norm == "batch-all") != on_features:
            raise self.stray(f"norm {architecture.norm!r}")
        x = self.chain("faces", "stages", stride=2)
        self.require_depth(architecture.name)
        crop, halved = CROPS["112x96"], len(self.units)
        flat = self.channels * (crop.height >> halved) * (crop.width >> halved)
        weight = self.take("fc1.weight", (architecture.features, flat))
        bias = self.take("fc1.bias", (architecture.features,))
        self.add_layer("fc1", weight, bias, norm="fc1_norm" if on_features else None)
        if self.tensors:
            raise self.stray(f"tensor {min(self.tensors)!r}")
        end = "fc1" if architecture.last_relu else "features"
        self.graph.node.append(operation("Flatten", [x], "flat"))
        self.graph.node.append(operation("Gemm", ["flat", "fc1.weight", "fc1.bias"], end, transB=1))
        if architecture.last_relu:
            self.graph.node.append(operation("Relu", ["fc1"], "features"))

    def require_depth(self, name: str) -> None:
        """Raise unless the stages are those of the network called `name`."""
        if name not in STAGES:
            raise ModelFileError(f"{self.source}: its card names {name!r}; this version knows {', '.join(STAGES)}")
        if tuple(self.units) != STAGES[name]:
            found = ", ".join(map(str, self.units)) or "no"
            wanted = ", ".join(map(str, STAGES[name]))
            raise self.stray(f"stages of {found} residual units, where {name} has {wanted}")

    def chain(self, x: str, prefix: str, *, stride: int) -> str:
        """The layers of a sequence, applied to x; returns the name of the output."""
        place = 0
        while True:
            here, after = f"{prefix}.{place}", f"{prefix}.{place + 1}"
            if f"{here}.body.0.weight" in self.tensors:
                body = self.chain(x, f"{here}.body", stride=1)
                self.graph.node.append(operation("Add", [x, body], here))
                if not self.units:
                    raise self.stray(f"a residual unit {here!r} before the first stage")
                self.units[-1] += 1
                x, place = here, place + 1
            elif f"{here}.weight" in self.tensors:
                normed = f"{after}.running_mean" in self.tensors
                slope = f"{prefix}.{place + 2}" if normed else after
                self.convolution(x, here, norm=after if normed else None, stride=stride)
                self.prelu(here, slope)
                x, place = slope, place + 2 + normed
            else:
                return x

    def convolution(self, x: str, name: str, *, norm: str | None, stride: int) -> None:
        """A 3x3 convolution, merged with the batch norm after it."""
        width = len(self.tensors[f"{name}.weight"])
        weight = self.take(f"{name}.weight", (width, self.channels, 3, 3))
        bias = self.take(f"{name}.bias", (width,)) if f"{name}.bias" in self.tensors else np.zeros(width, np.float32)
        self.add_layer(name, weight, bias, norm=norm)
        inputs = [x, f"{name}.weight", f"{name}.bias"]
        self.graph.node.append(operation("Conv", inputs, name, strides=(stride, stride), pads=(1, 1, 1, 1)))
        self.channels = width
        self.units += [0] if stride == 2 else []

    def add_layer(self, name: str, weight: Float32, bias: Float32, *, norm: str | None) -> None:
        """Weight and bias, merged with the batch norm after them: (wx + b - mean) / deviation * gain + shift."""
        if norm is not None:
            gain, shift, mean, variance = (
                self.take(f"{norm}.{part}", bias.shape).astype(np.float64)
                for part in ("weight", "bias", "running_mean", "running_var")
            )
            scale = gain / np.sqrt(variance + EPSILON)
            weight = (weight.T * scale).T.astype(np.float32)
            bias = ((bias - mean) * scale + shift).astype(np.float32)
        add_constant(self.graph, f"{name}.weight", weight)
        add_constant(self.graph, f"{name}.bias", bias)

    def prelu(self, x: str, name: str) -> None:
        """PReLU with a slope for each channel."""
        add_slopes(self.graph, f"{name}.weight", self.take(f"{name}.weight", (self.channels,)))
        self.graph.node.extend(prelu(x, f"{name}.weight", name, channels=self.channels))

    def take(self, name: str, shape: tuple[int, ...]) -> Float32:
        """Remove and return a tensor; raise unless it is there with this shape."""
        tensor = self.tensors.pop(name, None)
        if tensor is None or tensor.shape != shape:
            found = None if tensor is None else tensor.shape
            raise self.stray(f"tensor {name!r} of shape {found} where {shape} belongs")
        return tensor

    def stray(self, what: str) -> ModelFileError:
        """The error for weights that do not match the card."""
        return ModelFileError(f"{self.source}: {what}: weights and card do not belong together; save it again")
