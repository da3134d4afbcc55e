"""YuNet (Wu et al., 2023) through OpenCV: a fast detector for services."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from sphereface.arrays import Image
from sphereface.errors import ModelFileError
from sphereface.faces.detections import Detections
from sphereface.faces.images import require_photo
from sphereface.graphs import with_float_weights
from sphereface.hashes import sha256_of
from sphereface.zoo import Found, find_detector

SCORE, OVERLAP, MOST = 0.9, 0.3, 5000  # the values of OpenCV's own sample
LONGEST = 640  # pixels of a side
LOGGING = threading.Lock()  # OpenCV's level of messages is one for all threads


class YuNet:
    """A single network over the whole photo.

    Photos with a side over `longest` pixels are shrunk first, which limits the time; faces under about ten pixels in
    the shrunk photo are not found.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        score: float = SCORE,
        longest: int = LONGEST,
        threads: int | None = None,
    ) -> None:
        """`model` is the path of its file; None: the installed one."""
        found = find_detector("yunet") if model is None else Found(Path(model))
        self.model, self.score, self.longest, self.threads = found.path, score, longest, threads or 1
        if not self.model.is_file():
            raise ModelFileError(f"{model}: no such file; wanted YuNet's .onnx, as face_detection_yunet_2023mar.onnx")
        content = self.model.read_bytes()
        found.check(sha256_of(content))
        self._content = np.frombuffer(with_float_weights(content) if found.sha256 else content, np.uint8)
        self._local = threading.local()
        self._net()  # a damaged file is an error at once

    def detect(self, photo: Image) -> Detections:
        """The faces of one photo (H, W, 3) uint8 RGB."""
        require_photo(photo)
        if not photo.size:
            return Detections.none()
        height, width = photo.shape[:2]
        scale = min(1.0, self.longest / max(height, width))
        small = photo
        if scale < 1:
            size = max(1, round(width * scale)), max(1, round(height * scale))
            small = np.asarray(cv2.resize(photo, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
        net = self._net()
        net.setInputSize((small.shape[1], small.shape[0]))
        found: Any = net.detect(cv2.cvtColor(small, cv2.COLOR_RGB2BGR))[1]  # None for no faces
        rows = np.zeros((0, 15), np.float32) if found is None else np.asarray(found, np.float32)
        rows = rows[np.argsort(-rows[:, 14], kind="stable")]
        back = np.array([width / small.shape[1], height / small.shape[0]], np.float32)
        boxes = np.concatenate([rows[:, :2] * back, (rows[:, :2] + rows[:, 2:4]) * back], axis=1)
        shift = np.asarray((back - 1) / 2, np.float32)  # points are centres of pixels: (p + 1/2) back - 1/2
        return Detections(boxes, rows[:, 14], rows[:, 4:14].reshape(-1, 5, 2) * back + shift)

    def detect_many(self, photos: Sequence[Image]) -> list[Detections]:
        """The faces of each photo."""
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(self.detect, photos))

    def _net(self) -> cv2.FaceDetectorYN:
        """The network of this thread: OpenCV's object stores its input size, and so cannot be shared."""
        if not hasattr(self._local, "net"):
            try:
                nothing = np.zeros(0, np.uint8)  # of a second file, which ONNX has not
                with errors_only():
                    self._local.net = cv2.FaceDetectorYN.create(
                        "onnx", self._content, nothing, (32, 32), self.score, OVERLAP, MOST
                    )
            except cv2.error as error:
                raise ModelFileError(f"{self.model}: not a YuNet model that OpenCV {cv2.__version__} reads") from error
        net: cv2.FaceDetectorYN = self._local.net
        return net


@contextmanager
def errors_only() -> Iterator[None]:
    """Errors of OpenCV alone: version 5 warns of a setting that its own constructor makes."""
    log = getattr(cv2.utils, "logging", None)
    if log is None:  # a version that does not warn
        yield
        return
    with LOGGING:
        before = log.getLogLevel()
        log.setLogLevel(log.LOG_LEVEL_ERROR)
        try:
            yield
        finally:
            log.setLogLevel(before)
