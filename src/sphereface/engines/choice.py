"""Engines by name: they open the network of a model file."""

from pathlib import Path
from typing import Literal, Protocol, get_args

from sphereface.arrays import Float32
from sphereface.engines.convert import as_onnx
from sphereface.engines.onnxruntime import OnnxNetwork
from sphereface.engines.torch import TorchNetwork
from sphereface.errors import ModelFileError, UserError
from sphereface.graphs import Fitted
from sphereface.zoo import ModelFile

Engine = Literal["onnxruntime", "torch"]


class Network(Protocol):
    """A network that an engine runs."""

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of its input."""

    def run(self, inputs: Float32) -> Float32:
        """Features (N, D) of preprocessed faces (N, 3, H, W)."""


def choose_engine(path: str | Path, engine: str = "auto", *, device: str = "cpu") -> Engine:
    """The engine for a model file: `auto` is onnxruntime on the cpu, and torch on other devices."""
    path = Path(path)
    if path.suffix not in (".onnx", ".safetensors"):
        raise ModelFileError(f"{path}: wanted an .onnx embedder with a card, or our .safetensors")
    match engine:
        case "auto":
            chosen: Engine = "onnxruntime" if device == "cpu" else "torch"
        case "onnxruntime" | "torch":
            chosen = engine
        case _:
            raise UserError(f"unknown engine {engine!r}; choose one of auto, {', '.join(get_args(Engine))}")
    if chosen == "torch" and path.suffix == ".onnx":
        raise UserError(f"{path}: torch runs our .safetensors only; use the engine onnxruntime on the device cpu")
    if chosen == "onnxruntime" and device != "cpu":
        raise UserError(f"device is {device!r}; onnxruntime runs on the cpu only: use the engine torch")
    return chosen


def open_network(file: ModelFile, engine: Engine, *, threads: int | None = None, device: str = "cpu") -> Network:
    """The network of a model file, run by an engine."""
    if engine == "torch":
        return TorchNetwork(file, threads=threads, device=device)
    content = file.content if file.kind == ".onnx" else Fitted(as_onnx(file), integers=False)
    return OnnxNetwork(content, threads=threads, source=str(file.path))
