"""Image bytes to pixels, with limits, for files from cameras, scanners and attackers: upright RGB or an error.

The header is read before decoding, so that a file of a few bytes cannot request gigabytes. Rotation, grey, 16 bits,
palettes, CMYK and transparency are handled here only: the rest of the package gets upright RGB, 8 bits a channel.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sphereface.arrays import Image
from sphereface.errors import UnreadableImage, UserError
from sphereface.faces.headers import BadHeader, Header, first_picture, read_header

JPEG_QUALITY = 95
BLEND = 1 << 20  # pixels per step, to keep the 16-bit copies small


@dataclass(frozen=True)
class Limits:
    """The largest accepted image, as a file and in pixels."""

    bytes: int = 64 << 20
    pixels: int = 100_000_000


LIMITS = Limits()


def read_photo(path: str | Path, *, limits: Limits = LIMITS) -> Image:
    """The photo in a file, (H, W, 3) uint8 RGB, upright.

    >>> read_photo("me.jpg").shape
    (480, 640, 3)
    """
    return decode(read_bytes(path, limits=limits), limits=limits, source=str(path))


def read_bytes(path: str | Path, *, limits: Limits = LIMITS) -> bytes:
    """An image file's bytes; a file over the limit is an error and is not read."""
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise UnreadableImage(path, "not a regular file")  # opening a pipe would wait for its writer
        with Path(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > limits.bytes:
                raise UnreadableImage(path, f"{size:,} bytes; the limit is {limits.bytes:,}")
            return file.read(size)
    except OSError as error:
        raise UnreadableImage(path, f"cannot be read ({error.strerror})") from error


def decode(data: bytes, *, limits: Limits = LIMITS, source: str = "image") -> Image:
    """Encoded bytes as pixels (H, W, 3) uint8 RGB, upright; `source` names them in errors."""
    header = inspect(data, limits=limits, source=source)
    flags = cv2.IMREAD_UNCHANGED if header.alpha else cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    if header.moving:
        data = first_picture(data)
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except (cv2.error, MemoryError) as error:
        raise UnreadableImage(source, f"a damaged {header.format} image") from error
    if pixels is None or set(pixels.shape[:2]) != {header.height, header.width}:
        raise UnreadableImage(source, f"a damaged {header.format} image")
    if header.alpha and pixels.ndim == 3 and pixels.shape[2] == 4:
        bgr = _on_white(_eight_bits(pixels, source), header.premultiplied)
    elif pixels.ndim == 3 and pixels.shape[2] == 3:
        bgr = _eight_bits(pixels, source)
    else:  # grey; the decoder may have dropped its alpha
        bgr = np.repeat(_eight_bits(pixels, source).reshape(*pixels.shape[:2], 1), 3, axis=2)
    return _upright(np.asarray(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB), dtype=np.uint8), header.orientation)


def inspect(data: bytes, *, limits: Limits = LIMITS, source: str = "image") -> Header:
    """The header of an image; raises all errors of `decode` that need no decoding."""
    if len(data) > limits.bytes:
        raise UnreadableImage(source, f"{len(data):,} bytes; the limit is {limits.bytes:,}")
    try:
        header = read_header(data)
    except BadHeader as problem:
        raise UnreadableImage(source, problem) from None
    if header.width < 1 or header.height < 1:
        raise UnreadableImage(source, f"{header.width} x {header.height} pixels; wanted at least 1 x 1")
    if header.width * header.height > limits.pixels:
        raise UnreadableImage(source, f"{header.width} x {header.height} pixels; the limit is {limits.pixels:,} in all")
    return header


def require_photo(photo: NDArray[Any]) -> None:
    """Raise unless an array holds the pixels of a photo."""
    if photo.dtype != np.uint8 or photo.ndim != 3 or photo.shape[2] != 3:
        raise UserError(f"a photo of {photo.dtype} {photo.shape}; wanted uint8 (H, W, 3), RGB")


def encode_png(image: Image) -> bytes:
    """An RGB image as PNG."""
    return _encode(".png", image, [cv2.IMWRITE_PNG_COMPRESSION, 3])


def encode_jpeg(image: Image, *, quality: int = JPEG_QUALITY) -> bytes:
    """An RGB image as JPEG."""
    return _encode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])


def _encode(suffix: str, image: Image, options: list[int]) -> bytes:
    _, data = cv2.imencode(suffix, cv2.cvtColor(image, cv2.COLOR_RGB2BGR), options)
    return data.tobytes()


def _eight_bits(pixels: NDArray[Any], source: str) -> Image:
    if pixels.dtype == np.uint8:
        return np.asarray(pixels, dtype=np.uint8)
    if pixels.dtype == np.uint16:
        upper = np.empty(pixels.shape, np.uint8)
        np.right_shift(pixels, 8, out=upper, casting="unsafe")  # without a second 16-bit copy
        return upper
    raise UnreadableImage(source, f"{pixels.dtype} numbers; wanted 8 or 16 bits a channel: convert it to PNG")


def _on_white(bgra: Image, premultiplied: bool) -> Image:
    """Blend with white by alpha, as image viewers do: the colours of transparent pixels are often meaningless."""
    bgr = np.empty((*bgra.shape[:2], 3), np.uint8)
    rows = max(1, BLEND // bgra.shape[1])
    for start in range(0, len(bgra), rows):
        part = bgra[start : start + rows].astype(np.uint16)
        colours, alpha = part[:, :, :3], part[:, :, 3:]
        if premultiplied:
            bgr[start : start + rows] = np.minimum(colours + (255 - alpha), 255)
        else:
            bgr[start : start + rows] = (colours * alpha + 255 * (255 - alpha) + 127) // 255
    return bgr


def _upright(image: Image, orientation: int) -> Image:
    """Turn and mirror an image by its EXIF orientation, 1..8, until it is upright."""
    if orientation >= 5:
        image = image.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    return np.ascontiguousarray(image)
