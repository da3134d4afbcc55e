"""Networks in ONNX files, run by onnxruntime."""

from typing import Any

import numpy as np

from sphereface.arrays import Float32
from sphereface.errors import ModelFileError
from sphereface.graphs import Fitted, for_onnxruntime

TYPES: dict[str, type[np.floating]] = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
LONGEST = 1024  # pixels of a face's side; a file that asks for more is broken


class OnnxNetwork:
    """A network (N, 3, H, W) -> (N, D); batches of any size, even where the file fixes its batch at 1.

    Faces enter in the type that the graph wants, float32 or float16; features are float32.
    """

    def __init__(self, content: bytes, *, threads: int | None = None, source: str = "model") -> None:
        """`content` are the bytes of an ONNX file, which `source` names in errors."""
        self.source = source
        self.batch: int | None = None
        self._open(content, threads, free_batch=True)
        if not self._bears_batches():
            self.batch = 1
            self._open(content, threads, free_batch=False)
            self.run(self._noise(1))  # what fails is said now

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of its input."""
        return self._size

    def run(self, inputs: Float32) -> Float32:
        """Features of preprocessed faces."""
        step = self.batch or max(1, len(inputs))
        rows = [self._run(inputs[start : start + step]) for start in range(0, len(inputs), step)]
        return np.concatenate(rows) if rows else np.zeros((0, 0), np.float32)

    def _open(self, content: bytes, threads: int | None, *, free_batch: bool) -> None:
        try:
            self._session = session(for_onnxruntime(content, free_batch=free_batch), threads)
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
                self._name, self._type, self._size = faces.name, TYPES[faces.type], (height, width)
            case _:
                raise ModelFileError(f"{self.source}: its input is {faces.shape}; wanted (N, 3, height, width)")

    def _run(self, inputs: Float32) -> Float32:
        try:
            features = self._session.run(None, {self._name: inputs.astype(self._type, copy=False)})[0]
        except Exception as error:  # onnxruntime's own classes share no better base
            raise ModelFileError(f"{self.source}: onnxruntime cannot run it ({_first_line(error)})") from error
        found = np.asarray(features)
        if found.ndim != 2 or len(found) != len(inputs) or found.dtype.kind != "f":
            raise ModelFileError(
                f"{self.source}: a batch of {len(inputs)} gives {found.dtype} {found.shape}; "
                f"wanted numbers ({len(inputs)}, D)"
            )
        return found.astype(np.float32, copy=False)

    def _bears_batches(self) -> bool:
        """Whether two faces at once give what they give one by one."""
        pair = self._noise(2)
        try:
            both = self.run(pair)
        except ModelFileError:  # a reshape inside holds the batch of 1
            return False
        single = np.concatenate([self.run(pair[:1]), self.run(pair[1:])])
        return both.shape == single.shape and bool(np.allclose(both, single, rtol=1e-3, atol=1e-4))

    def _noise(self, faces: int) -> Float32:
        return np.random.default_rng(0).uniform(-1, 1, (faces, 3, *self._size)).astype(np.float32)


def session(fitted: Fitted, threads: int | None) -> Any:
    """An onnxruntime session of a network."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.log_severity_level = 4  # what fails is raised
    if not fitted.integers:  # weights that are stored as integers become float32 once, and not at every call
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    try:
        providers = ["CPUExecutionProvider"]  # and no other to fall back to, which would be printed
        return onnxruntime.InferenceSession(fitted.content, options, providers=providers, enable_fallback=0)
    except Exception as error:  # onnxruntime's own classes share no better base
        raise ModelFileError(f"not a model that onnxruntime reads ({_first_line(error)})") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
