"""Five points to a face: the similarity transform from landmarks to a template, and the warp with it."""

from typing import NamedTuple

import cv2
import numpy as np

from sphereface.arrays import Float64, Floating, Image
from sphereface.errors import ContractMismatch, UserError
from sphereface.faces.images import require_photo

# Left eye, right eye, nose, left and right corner of the mouth, as (x, y) in a crop 112 high and 96 wide.
PRINTED = np.array([[30.2946, 51.6963], [65.5318, 51.5014], [48.0252, 71.7366], [33.5493, 92.3655], [62.7299, 92.2041]])
# The printed numbers count pixels from 1, as MATLAB does; all Python ports, and so the common data sets, count from 0,
# which moves the face by a pixel. A model needs the template that it was trained with.
TEMPLATES: dict[str, Float64] = {"sphereface": PRINTED, "matlab": PRINTED - 1}


class Crop(NamedTuple):
    """A window on the template: its point p lies at zoom * p + shift in the crop."""

    height: int
    width: int
    zoom: float
    shift: tuple[float, float]


# The paper shows its three patches only in a figure; `wide` and `upper` are our choice.
CROPS = {
    "112x96": Crop(112, 96, 1.0, (0.0, 0.0)),
    "112x112": Crop(112, 112, 1.0, (8.0, 0.0)),  # columns 8:104 are the 112x96 crop
    "wide": Crop(112, 96, 0.8, (9.5, 11.1)),  # hair and chin: zoomed out about the crop's centre (47.5, 55.5)
    "upper": Crop(112, 96, 1.4, (-19.7, -25.7)),  # eyes and nose: zoomed in, with (48, 58) at the centre
}
LEFT, RIGHT = 8, 104  # the columns of 112x112 that are the crop 112x96


def targets(template: str = "sphereface", crop: str = "112x96") -> Float64:
    """The positions (5, 2) of a face's five points in a crop."""
    if template not in TEMPLATES:
        raise UserError(f"unknown template {template!r}; choose one of {', '.join(TEMPLATES)}")
    if crop not in CROPS:
        raise UserError(f"unknown crop {crop!r}; choose one of {', '.join(CROPS)}")
    return TEMPLATES[template] * CROPS[crop].zoom + CROPS[crop].shift


def similarity(source: Floating, target: Floating, *, reflect: bool = False) -> Float64:
    """The matrix (2, 3) of rotation, scale and shift that maps source points nearest to target points.

    Least squares after Umeyama (1991), eq. 40 to 42. With `reflect` the matrix may also mirror the points.
    """
    source, target = np.asarray(source, np.float64), np.asarray(target, np.float64)
    if source.shape != target.shape or source.ndim != 2 or source.shape[1] != 2 or len(source) < 2:
        raise UserError(f"points {source.shape} and {target.shape}; wanted (N, 2) for both, with N at least 2")
    if not (np.isfinite(source).all() and np.isfinite(target).all()):
        raise UserError("points with NaN or infinite coordinates; wanted finite ones")
    from_mean, to_mean = source.mean(axis=0), target.mean(axis=0)
    x, y = source - from_mean, target - to_mean
    spread = (x**2).sum()
    if spread <= 1e-12 * max(1.0, float((from_mean**2).sum())):
        raise UserError("points that all lie in one place; wanted five different ones")
    u, s, v = np.linalg.svd(y.T @ x)
    signs = np.ones(2)
    if not reflect and np.linalg.det(u) * np.linalg.det(v) < 0:
        signs[1] = -1
    turn = (u * signs) @ v * (s @ signs) / spread
    return np.column_stack([turn, to_mean - turn @ from_mean])


def align(
    photo: Image, landmarks: Floating, template: str = "sphereface", crop: str = "112x96", *, antialias: bool = True
) -> Image:
    """The face of a photo (H, W, 3) with five landmarks (5, 2), as a crop; black outside the photo.

    >>> face = align(photo, Detector().detect(photo).landmarks[0])
    """
    require_photo(photo)
    landmarks = np.asarray(landmarks)
    if landmarks.shape != (5, 2):
        raise UserError(f"landmarks {landmarks.shape}; wanted (5, 2), one face")
    matrix = similarity(landmarks, targets(template, crop))
    height, width, _, _ = CROPS[crop]
    if antialias:
        photo, matrix = prefilter(photo, matrix, (height, width))
    return np.asarray(cv2.warpAffine(photo, matrix, (width, height), flags=cv2.INTER_LINEAR), dtype=np.uint8)


def prefilter(photo: Image, matrix: Float64, shape: tuple[int, int]) -> tuple[Image, Float64]:
    """Low-pass filter before a shrinking warp: the part of the photo that the warp reads, and the matrix from there.

    Halvings by area, then a Gaussian of width (1/s - 1) / 2 for the remaining scale s between 1/2 and 1: its width goes
    to 0 as s goes to 1, so that a face of the crop's own size stays sharp.
    """
    scale = float(np.sqrt(abs(np.linalg.det(matrix[:, :2]))))
    if scale >= 1:
        return photo, matrix
    halvings = int(np.log2(1 / scale))
    x1, y1, x2, y2 = _needed(photo, matrix, shape, margin=3 / scale, grid=2**halvings)
    part, matrix = photo[y1:y2, x1:x2], matrix @ np.array([[1, 0, x1], [0, 1, y1], [0, 0, 1.0]])
    for _ in range(halvings):
        height, width = max(1, part.shape[0] // 2), max(1, part.shape[1] // 2)
        part = np.asarray(cv2.resize(part[: 2 * height, : 2 * width], (width, height), interpolation=cv2.INTER_AREA))
        matrix = matrix @ np.array([[2, 0, 0.5], [0, 2, 0.5], [0, 0, 1]])  # pixel i covers pixels 2i and 2i + 1
    sigma = max((1 / (scale * 2**halvings) - 1) / 2, 1e-3)
    part = np.asarray(cv2.GaussianBlur(part, (0, 0), sigma, borderType=cv2.BORDER_REPLICATE))
    return np.asarray(part, dtype=np.uint8), matrix


def _needed(
    photo: Image, matrix: Float64, shape: tuple[int, int], *, margin: float, grid: int
) -> tuple[int, int, int, int]:
    """The part of a photo that a warp reads, x1 y1 x2 y2; begins on a grid, so that crops filter equal pixels."""
    height, width = shape
    back = cv2.invertAffineTransform(matrix)
    corners = np.array([[0, 0, 1], [width, 0, 1], [0, height, 1], [width, height, 1]]) @ back.T
    size = np.array(photo.shape[1::-1])
    low = np.clip(np.floor(corners.min(axis=0) - margin), 0, size - 1).astype(int) // grid * grid
    high = np.clip(np.ceil(corners.max(axis=0) + margin), low + 1, size).astype(int)
    return int(low[0]), int(low[1]), int(high[0]), int(high[1])


def centre_crop(photo: Image, crop: str = "112x96") -> Image:
    """The middle of a photo in a crop's shape, not aligned: for photos in which no face was found."""
    height, width, _, _ = CROPS[crop]
    scale = max(height / photo.shape[0], width / photo.shape[1])
    shift = (np.array([width, height]) - 1 - scale * (np.array(photo.shape[1::-1]) - 1)) / 2
    part, matrix = prefilter(photo, np.column_stack([scale * np.eye(2), shift]), (height, width))
    face = cv2.warpAffine(part, matrix, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(face, dtype=np.uint8)


def as_crop(face: Image, crop: str, *, source: str = "a face") -> Image:
    """A stored face as the crop that a model needs; 112x96 is columns 8:104 of 112x112."""
    wanted = CROPS[crop]
    if face.shape == (wanted.height, wanted.width, 3):
        return face
    if crop == "112x96" and face.shape == (112, 112, 3):
        return face[:, LEFT:RIGHT]
    raise ContractMismatch(
        f"{source}: {face.shape[0]} pixels high and {face.shape[1]} wide, wanted {wanted.height} and {wanted.width}; "
        "make faces of photos first: sphereface data align SRC DST"
    )
