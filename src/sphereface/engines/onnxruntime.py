"""Networks in ONNX files, run by onnxruntime."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sphereface.contract import Card
from sphereface.errors import ModelFileError
from sphereface.graphs import for_onnxruntime
from sphereface.zoo import card_of

Floats = NDArray[np.float32]


class OnnxNetwork:
    """A network (N, 3, H, W) -> (N, D); batches of any size, even where the file fixes its batch at 1."""

    def __init__(self, path: str | Path, *, threads: int | None = None, content: bytes | None = None) -> None:
        """`content` is the ONNX model where the file is of another kind and was converted."""
        self.path = Path(path)
        if not self.path.is_file():
            raise ModelFileError(f"{path}: no such model file")
        model = self.path.read_bytes() if content is None else content
        self._session = _session(for_onnxruntime(model, free_batch=True), threads, self.path)
        self.batch: int | None = None
        if not self._bears_batches():
            self._session, self.batch = _session(for_onnxruntime(model), threads, self.path), 1

    def run(self, inputs: Floats) -> Floats:
        """Features of preprocessed faces."""
        name = self._session.get_inputs()[0].name
        step = self.batch or max(1, len(inputs))
        rows = [
            np.asarray(self._session.run(None, {name: inputs[start : start + step]})[0], np.float32)
            for start in range(0, len(inputs), step)
        ]
        return np.concatenate(rows) if rows else np.zeros((0, 0), np.float32)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of its input."""
        _, _, height, width = self._session.get_inputs()[0].shape
        return height, width

    def card(self) -> Card:
        """The file's own card, the one beside it (`model.onnx.card.json`), or the one that we know it by."""
        return card_of(self.path)

    def _bears_batches(self) -> bool:
        """Whether two faces at once give what they give one by one."""
        shape = self._session.get_inputs()[0].shape
        if len(shape) != 4 or not all(isinstance(length, int) for length in shape[1:]):
            raise ModelFileError(f"{self.path}: its input is {shape}; wanted (N, 3, height, width)")
        pair = np.random.default_rng(0).uniform(-1, 1, (2, *shape[1:])).astype(np.float32)
        try:
            both = self.run(pair)
        except Exception:  # noqa: BLE001 - onnxruntime's own class: a reshape inside holds the batch of 1
            return False
        single = np.concatenate([self.run(pair[:1]), self.run(pair[1:])])
        return both.shape == single.shape and bool(np.allclose(both, single, rtol=1e-3, atol=1e-4))


def _session(model: bytes, threads: int | None, path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.log_severity_level = 4  # what fails is raised
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own classes share no better base
        first = str(error).splitlines()[0]
        raise ModelFileError(f"{path}: not a model that onnxruntime reads ({first})") from error
