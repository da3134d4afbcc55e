"""A photo becomes its faces: boxes, quality and features."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sphereface.arrays import Float32, Image
from sphereface.embed.embedder import Embedder
from sphereface.errors import NoFaceFound, UserError
from sphereface.faces.detections import Detections, choose
from sphereface.faces.detector import Detector
from sphereface.faces.images import decode, read_bytes, require_photo
from sphereface.faces.quality import judge
from sphereface.faces.warp import align
from sphereface.gallery.records import Model
from sphereface.hashes import sha256_of
from sphereface.recognize.quality import Judged, judged

PhotoLike = str | Path | bytes | Image  # a file, its content, or pixels (H, W, 3) uint8 RGB


class Face(NamedTuple):
    """A face in a photo."""

    box: tuple[float, float, float, float]  # x1 y1 x2 y2
    landmarks: Float32  # (5, 2)
    quality: Judged
    feature: Float32  # (D,)

    def as_dict(self) -> dict[str, Any]:
        """For JSON, without the feature."""
        return {
            "box": [round(value, 1) for value in self.box],
            "quality": round(self.quality.value, 3),
            "reasons": list(self.quality.reasons),
        }


@dataclass(frozen=True, eq=False)
class OpenedPhoto:
    """A photo that was read and decoded."""

    source: str  # its path, or a description
    sha256: str  # of the file; of size and pixels if they were given
    pixels: Image


@dataclass(frozen=True, eq=False)
class LoadedPhoto:
    """A photo that was read, and not decoded yet."""

    source: str
    sha256: str
    content: bytes | Image

    def decoded(self) -> OpenedPhoto:
        """The photo with its pixels."""
        given = self.content
        pixels = decode(given, source=self.source) if isinstance(given, bytes) else given
        return OpenedPhoto(self.source, self.sha256, pixels)


class FaceReader:
    """Reads the faces of photos, with a detector and an embedder."""

    def __init__(self, embedder: Embedder, detector: Detector) -> None:
        self.embedder, self.detector = embedder, detector

    def faces(self, photo: OpenedPhoto) -> list[Face]:
        """All faces of a photo, the one nearest the centre first."""
        found = self.detector.detect(photo.pixels)
        return self._read(photo, _from_the_centre(found, photo.pixels))

    def face(self, photo: OpenedPhoto) -> tuple[Face, int]:
        """The face nearest the centre of a photo, and the number of faces in it; an error without one."""
        found = self.detector.detect(photo.pixels)
        if not len(found):
            height, width = photo.pixels.shape[:2]
            raise NoFaceFound(
                f"{photo.source}: no face was found in {width} x {height} pixels; wanted an upright photo of a face"
            )
        (face,) = self._read(photo, choose(found, photo.pixels))
        return face, len(found)

    def _read(self, photo: OpenedPhoto, found: Detections) -> list[Face]:
        if not len(found):
            return []
        how = self.embedder.card.preprocessing
        aligned = [align(photo.pixels, points, how.template, how.crop) for points in found.landmarks]
        features = self.embedder.embed(np.stack(aligned))
        return [
            Face(_corners(box), points, judged(judge(photo.pixels, points)), feature)
            for box, points, feature in zip(found.boxes, found.landmarks, features, strict=True)
        ]

    @cached_property
    def model(self) -> Model:
        """The model, as a gallery knows it."""
        return Model(self.embedder.identity, self.embedder.card.called, self.embedder.dimension)


def load_photo(photo: PhotoLike, *, source: str = "a photo") -> LoadedPhoto:
    """Read a photo; `source` names one that has no path."""
    if isinstance(photo, np.ndarray):
        require_photo(photo)
        return LoadedPhoto(source, sha256_of(str(photo.shape).encode() + photo.tobytes()), photo)
    if isinstance(photo, bytes):
        return LoadedPhoto(source, sha256_of(photo), photo)
    if not isinstance(photo, str | Path):
        raise UserError(f"a photo of type {type(photo).__name__}; wanted a path, bytes, or pixels (H, W, 3)")
    content = read_bytes(photo)
    return LoadedPhoto(str(photo), sha256_of(content), content)


def open_photo(photo: PhotoLike, *, source: str = "a photo") -> OpenedPhoto:
    """Read and decode a photo; `source` names one that has no path."""
    return load_photo(photo, source=source).decoded()


def as_photos(photos: PhotoLike | Sequence[PhotoLike]) -> list[PhotoLike]:
    """One photo, or several, as a list."""
    return [photos] if isinstance(photos, str | Path | bytes | np.ndarray) else list(photos)


def _from_the_centre(found: Detections, photo: Image) -> Detections:
    height, width = photo.shape[:2]
    x1, y1, x2, y2 = found.boxes.T
    return found[np.argsort((x1 + x2 - width) ** 2 + (y1 + y2 - height) ** 2, kind="stable")]


def _corners(box: Float32) -> tuple[float, float, float, float]:
    x1, y1, x2, y2 = box.tolist()
    return x1, y1, x2, y2
