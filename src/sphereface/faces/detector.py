"""Detectors by name."""

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from sphereface.arrays import Image
from sphereface.choices import DetectorName
from sphereface.errors import UserError
from sphereface.faces.detections import Detections
from sphereface.faces.mtcnn import MTCNN, Preset
from sphereface.faces.yunet import YuNet

NAMES = get_args(DetectorName)


class Detector:
    """Finds faces and their five points in photos.

    `mtcnn` includes its weights and takes a preset, `paper` or `fast`. `yunet`, also called `fast`, has its file from
    the extra `sface` or from `models pull yunet`; `model` is the path of another.

    >>> Detector().detect(photo).boxes.shape
    (1, 4)
    """

    def __init__(
        self,
        name: str = "mtcnn",
        preset: str | Preset = "paper",
        model: str | Path | None = None,
        *,
        threads: int | None = None,
    ) -> None:
        if name not in NAMES:
            raise UserError(f"unknown detector {name!r}; choose one of {', '.join(NAMES)}")
        if name == "mtcnn" and model is not None:
            raise UserError(f"model is {str(model)!r}, but the detector mtcnn has its own weights; leave model out")
        self.name = "yunet" if name == "fast" else name
        self._detector = MTCNN(preset, threads=threads) if name == "mtcnn" else YuNet(model, threads=threads)

    def detect(self, photo: Image) -> Detections:
        """The faces of one photo (H, W, 3) uint8 RGB."""
        return self._detector.detect(photo)

    def detect_many(self, photos: Sequence[Image]) -> list[Detections]:
        """The faces of each photo; faster per photo than `detect`."""
        return self._detector.detect_many(photos)
