"""Bytes to pixels, with limits: whatever a camera, a scanner or an attacker wrote becomes RGB or a clear error.

The header is read before anything is decoded, so that a file of a few bytes cannot ask for gigabytes. Rotation, grey,
16 bits, palettes, CMYK and transparency are dealt with here, once: everything else sees upright RGB, 8 bits a channel.
"""

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from sphereface.errors import UnreadableImage

Image = NDArray[np.uint8]  # (H, W, 3) RGB
Format = Literal["JPEG", "PNG", "WebP", "BMP", "TIFF"]

JPEG_QUALITY = 95


@dataclass(frozen=True)
class Limits:
    """How large an image may be, as a file and as pixels."""

    bytes: int = 64 << 20
    pixels: int = 100_000_000


LIMITS = Limits()


class Header(NamedTuple):
    """What an image says of itself before it is decoded; width and height as stored, before any rotation."""

    format: Format
    width: int
    height: int
    alpha: bool = False
    orientation: int = 1  # EXIF: 1 upright, 2..8 mirrored or turned


class BadHeader(Exception):
    """What is wrong with an image's bytes; `decode` adds whose they are."""


def read_photo(path: str | Path, *, limits: Limits = LIMITS) -> Image:
    """The photo in a file, (H, W, 3) uint8 RGB, upright.

    >>> read_photo("me.jpg").shape
    (480, 640, 3)
    """
    return decode(read_bytes(path, limits=limits), limits=limits, source=str(path))


def read_bytes(path: str | Path, *, limits: Limits = LIMITS) -> bytes:
    """An image file's bytes; a file over the limit is refused unread."""
    try:
        with Path(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > limits.bytes:
                raise UnreadableImage(f"{path}: {size:,} bytes; the limit is {limits.bytes:,}")
            return file.read()
    except OSError as error:
        raise UnreadableImage(f"{path}: cannot be read ({error.strerror})") from error


def decode(data: bytes, *, limits: Limits = LIMITS, source: str = "image") -> Image:
    """Encoded bytes as pixels (H, W, 3) uint8 RGB, upright; `source` names them in errors."""
    header = inspect(data, limits=limits, source=source)
    flags = cv2.IMREAD_UNCHANGED if header.alpha else cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except (cv2.error, MemoryError) as error:
        raise UnreadableImage(f"{source}: a damaged {header.format} image") from error
    if pixels is None or pixels.size == 0:
        raise UnreadableImage(f"{source}: a damaged {header.format} image")
    if header.alpha and pixels.ndim == 3 and pixels.shape[2] == 4:
        bgr = _on_white(pixels)
    elif pixels.ndim == 3 and pixels.shape[2] == 3:
        bgr = _eight_bits(pixels)
    else:  # grey, with or without alpha that the decoder dropped
        bgr = np.repeat(_eight_bits(pixels).reshape(*pixels.shape[:2], 1), 3, axis=2)
    return _upright(np.asarray(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB), dtype=np.uint8), header.orientation)


def inspect(data: bytes, *, limits: Limits = LIMITS, source: str = "image") -> Header:
    """What an image is, from its header alone; raises for whatever `decode` would refuse unseen."""
    if len(data) > limits.bytes:
        raise UnreadableImage(f"{source}: {len(data):,} bytes; the limit is {limits.bytes:,}")
    try:
        header = _header(data)
    except BadHeader as problem:
        raise UnreadableImage(f"{source}: {problem}") from None
    except (struct.error, IndexError):
        raise UnreadableImage(f"{source}: cut off within its header") from None
    if header.width < 1 or header.height < 1:
        raise UnreadableImage(f"{source}: {header.width} x {header.height} pixels; nothing to see")
    if header.width * header.height > limits.pixels:
        raise UnreadableImage(
            f"{source}: {header.width} x {header.height} pixels; the limit is {limits.pixels:,} in all"
        )
    return header


def encode_png(image: Image) -> bytes:
    """An RGB image as PNG."""
    return _encode(".png", image, [cv2.IMWRITE_PNG_COMPRESSION, 3])


def encode_jpeg(image: Image, *, quality: int = JPEG_QUALITY) -> bytes:
    """An RGB image as JPEG."""
    return _encode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])


def _encode(suffix: str, image: Image, options: list[int]) -> bytes:
    _, data = cv2.imencode(suffix, cv2.cvtColor(image, cv2.COLOR_RGB2BGR), options)
    return data.tobytes()


def _eight_bits(pixels: NDArray[Any]) -> Image:
    if pixels.dtype == np.uint8:
        return np.asarray(pixels, dtype=np.uint8)
    if pixels.dtype == np.uint16:
        return np.asarray(pixels >> 8, dtype=np.uint8)
    raise UnreadableImage(f"an image of {pixels.dtype} numbers; wanted 8 or 16 bits a channel: convert it to PNG")


def _on_white(bgra: NDArray[Any]) -> Image:
    """Blend transparency with white, as viewers show it: the colours behind it are often rubbish."""
    whole = _eight_bits(bgra).astype(np.uint16)
    alpha = whole[:, :, 3:]
    return ((whole[:, :, :3] * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)


def _upright(image: Image, orientation: int) -> Image:
    """Undo what EXIF says about how the camera was held."""
    if orientation >= 5:
        image = image.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    return np.ascontiguousarray(image)


def _header(data: bytes) -> Header:
    if data[:3] == b"\xff\xd8\xff":
        return _jpeg(data)
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return _png(data)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp(data)
    if data[:2] == b"BM":
        return _bmp(data)
    if data[:4] in (b"II*\0", b"MM\0*"):
        return _tiff(data)
    raise BadHeader(f"starts with {data[:8]!r}; wanted a JPEG, PNG, WebP, BMP or TIFF image" if data else "no bytes")


def _jpeg(data: bytes) -> Header:
    place, size, orientation, adobe, components = 2, None, 1, False, 0
    while True:
        while data[place] == 0xFF and data[place + 1] == 0xFF:
            place += 1  # fill bytes
        mark, marker = data[place], data[place + 1]
        if mark != 0xFF:
            raise BadHeader("a damaged JPEG header")
        place += 2
        if marker == 0x01 or 0xD0 <= marker <= 0xD7:
            continue  # these stand alone
        (length,) = struct.unpack_from(">H", data, place)
        body = data[place + 2 : place + length]
        if marker in (0xC0, 0xC1, 0xC2):
            height, width, components = struct.unpack_from(">HHB", body, 1)
            size = width, height
        elif 0xC3 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            raise BadHeader("a lossless or arithmetic JPEG; save it as a common JPEG or as PNG")
        elif marker == 0xE1 and body[:6] == b"Exif\0\0":
            orientation = _exif_orientation(body[6:])
        elif marker == 0xEE and body[:5] == b"Adobe":
            adobe = True
        elif marker == 0xD9:
            raise BadHeader("a JPEG without pixels")
        place += length
        if marker == 0xDA:
            break
    if size is None:
        raise BadHeader("a JPEG without a size")
    if data.rfind(b"\xff\xd9") < place:
        raise BadHeader("a JPEG that is cut off; copy or download it again")
    if components == 4 and not adobe:
        raise BadHeader("a CMYK JPEG that does not say which end is black; save it as RGB")
    return Header("JPEG", *size, orientation=orientation)


def _png(data: bytes) -> Header:
    width, height, _, colour = struct.unpack_from(">IIBB", data, 16)
    alpha, orientation, place, pixels = colour in (4, 6), 1, 8, False
    while True:
        if place + 12 > len(data):
            raise BadHeader("a PNG that is cut off; copy or download it again")
        length, kind = struct.unpack_from(">I4s", data, place)
        if kind == b"IEND":
            break
        if kind == b"tRNS":
            alpha = True
        elif kind == b"eXIf":
            orientation = _exif_orientation(data[place + 8 : place + 8 + length])
        pixels = pixels or kind == b"IDAT"
        place += 12 + length
    if not pixels:
        raise BadHeader("a PNG without pixels")
    return Header("PNG", width, height, alpha, orientation)


def _webp(data: bytes) -> Header:
    (size,) = struct.unpack_from("<I", data, 4)
    if len(data) < size + 8:
        raise BadHeader("a WebP that is cut off; copy or download it again")
    kind = data[12:16]
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return Header("WebP", width & 0x3FFF, height & 0x3FFF)
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return Header("WebP", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, bool(bits >> 28 & 1))
    if kind != b"VP8X":
        raise BadHeader("a damaged WebP header")
    if data[20] & 0x02:
        raise BadHeader("a moving WebP; save one picture of it")
    width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
    orientation = 1
    if data[20] & 0x08:
        at = data.find(b"EXIF", 30)
        orientation = _exif_orientation(data[at + 8 :].removeprefix(b"Exif\0\0")) if at >= 0 else 1
    return Header("WebP", width, height, bool(data[20] & 0x10), orientation)


def _bmp(data: bytes) -> Header:
    start, size = struct.unpack_from("<II", data, 10)
    if size < 40:
        raise BadHeader("a BMP of the old kind; save it as PNG")
    width, height, _, bits, packed = struct.unpack_from("<iiHHI", data, 18)
    if packed == 0 and len(data) < start + abs(height) * ((width * bits + 31) // 32 * 4):
        raise BadHeader("a BMP that is cut off; copy or download it again")
    return Header("BMP", width, abs(height))


def _tiff(data: bytes) -> Header:
    tags = _first_directory(data)
    if 256 not in tags or 257 not in tags:
        raise BadHeader("a TIFF without a size")
    return Header("TIFF", tags[256], tags[257])  # the decoder itself minds a TIFF's orientation


def _exif_orientation(data: bytes) -> int:
    """The orientation tag of an EXIF block; whatever is broken there counts as upright, as viewers do."""
    try:
        value = _first_directory(data).get(274, 1)
    except (BadHeader, struct.error):
        return 1
    return value if 1 <= value <= 8 else 1


def _first_directory(data: bytes) -> dict[int, int]:
    """The short and long numbers of a TIFF's first directory, by tag."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(data[:4])
    if order is None:
        raise BadHeader("a damaged TIFF header")
    (place,) = struct.unpack_from(order + "I", data, 4)
    (count,) = struct.unpack_from(order + "H", data, place)
    tags = {}
    for at in range(place + 2, place + 2 + 12 * count, 12):
        tag, kind, number = struct.unpack_from(order + "HHI", data, at)
        if number == 1 and kind in (3, 4):
            (tags[tag],) = struct.unpack_from(order + ("H" if kind == 3 else "I"), data, at + 8)
    return tags
