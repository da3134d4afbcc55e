"""Networks in ONNX files, run by onnxruntime."""

from typing import Any

import numpy as np

from sphereface.arrays import Float32
from sphereface.errors import ModelFileError
from sphereface.graphs import Fitted, for_onnxruntime

TYPES: dict[str, type[np.floating]] = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
LONGEST = 1024  # pixels of a side of the input; a larger one means a damaged file


class OnnxNetwork:
    """A network (N, 3, H, W) -> (N, D) for batches of any size, also if the file fixes the batch at 1.

    Faces are cast to the type of the graph's input, float32 or float16; features are float32.
    """

    def __init__(self, content: bytes | Fitted, *, threads: int | None = None, source: str = "model") -> None:
        """`content` is that of an ONNX file, which `source` names in errors, or a network fitted to this runtime."""
        self.source = source
        self.batch: int | None = None
        self._open(content, threads, free_batch=True)
        if not self._takes_batches():
            self.batch = 1
            self._open(content, threads, free_batch=False)
            self.run(self._noise(1))  # a graph that fails is an error at once

    def run(self, inputs: Float32) -> Float32:
        """Features of preprocessed faces."""
        step = self.batch or max(1, len(inputs))
        rows = [self._run(inputs[start : start + step]) for start in range(0, len(inputs), step)]
        return np.concatenate(rows) if rows else np.zeros((0, 0), np.float32)

    def _open(self, content: bytes | Fitted, threads: int | None, *, free_batch: bool) -> None:
        try:
            fitted = content if isinstance(content, Fitted) else for_onnxruntime(content, free_batch=free_batch)
            self._session = session(fitted, threads)
        except ModelFileError as error:
            raise ModelFileError(f"{self.source}: {error}") from error
        inputs = self._session.get_inputs()
        if len(inputs) != 1:
            names = ", ".join(each.name for each in inputs) or "none"
            raise ModelFileError(f"{self.source}: its inputs are {names}; wanted one, of faces")
        (faces,) = inputs
        if faces.type not in TYPES:
            raise ModelFileError(f"{self.source}: its input is {faces.type}; wanted {' or '.join(TYPES)}")
        match faces.shape:
            case [_, 3, int(height), int(width)] if 0 < height <= LONGEST and 0 < width <= LONGEST:
                self._name, self._type, self.size = faces.name, TYPES[faces.type], (height, width)
            case _:
                raise ModelFileError(f"{self.source}: its input is {faces.shape}; wanted (N, 3, height, width)")

    def _run(self, inputs: Float32) -> Float32:
        try:
            features = self._session.run(None, {self._name: inputs.astype(self._type, copy=False)})[0]
        except Exception as error:  # onnxruntime's own classes share no better base
            raise ModelFileError(f"{self.source}: onnxruntime cannot run it ({_first_line(error)})") from error
        found, batch = np.asarray(features), len(inputs)
        if found.ndim != 2 or len(found) != batch or found.dtype.kind != "f":
            given = f"a batch of {batch} gives {found.dtype} {found.shape}"
            raise ModelFileError(f"{self.source}: {given}; wanted floats ({batch}, D)")
        return found.astype(np.float32, copy=False)

    def _takes_batches(self) -> bool:
        """True if a batch of two faces has the features of the single faces."""
        pair = self._noise(2)
        try:
            both = self.run(pair)
        except ModelFileError:  # a reshape inside contains the batch of 1
            return False
        single = np.concatenate([self.run(pair[:1]), self.run(pair[1:])])
        return both.shape == single.shape and bool(np.allclose(both, single, rtol=1e-3, atol=1e-4))

    def _noise(self, faces: int) -> Float32:
        return np.random.default_rng(0).uniform(-1, 1, (faces, 3, *self.size)).astype(np.float32)


def session(fitted: Fitted, threads: int | None) -> Any:
    """An onnxruntime session on the cpu."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.log_severity_level = 4  # no log: errors are raised
    if not fitted.integers:  # convert integer weights to float32 once, not at every call
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    try:
        providers = ["CPUExecutionProvider"]  # without a fallback, which would print a message
        return onnxruntime.InferenceSession(fitted.content, options, providers=providers, enable_fallback=0)
    except Exception as error:  # onnxruntime's own classes share no better base
        raise ModelFileError(f"not a model that onnxruntime reads ({_first_line(error)})") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
