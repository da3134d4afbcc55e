"""Headers of image files, read without decoding the pixels.

The sizes are those that OpenCV's decoders use, so that a limit holds for the decoders, too. Truncated files, which the
decoders would complete without an error, and files that take minutes to decode are rejected here.
"""

import re
import struct
from collections.abc import Iterator
from typing import Literal, NamedTuple

Format = Literal["JPEG", "PNG", "WebP", "BMP", "TIFF"]

PARTS = 100_000  # limit on markers before a JPEG's pixels and on chunks of a PNG; usual files have ten to ten thousand
MOVING = {b"acTL", b"fcTL", b"fdAT"}  # chunks of an animated PNG
TILE = 1 << 22  # pixels; limit on a TIFF tile that is larger than the picture
SCANS = 100  # limit on scans of a JPEG; progressive files have about ten, and each may need a pass over all pixels

_MARKER = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")  # inside a scan, where ff 00 and restart markers are data
_NUMBERS = {3: "H", 4: "I"}  # TIFF's short and long


class Header(NamedTuple):
    """The header of an image; width and height as stored, before any rotation."""

    format: Format
    width: int
    height: int
    alpha: bool = False
    orientation: int = 1  # EXIF: 1 upright, 2..8 mirrored or turned
    premultiplied: bool = False  # the decoder returns colours times alpha
    moving: bool = False  # an animated PNG


class BadHeader(Exception):
    """A problem of an image's bytes; the caller adds the name of the image."""


def read_header(data: bytes) -> Header:
    """The header of encoded bytes; raises `BadHeader`."""
    try:
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
    except (struct.error, IndexError):
        raise BadHeader("cut off within its header; copy or download it again") from None
    raise BadHeader(f"starts with {data[:8]!r}; wanted a JPEG, PNG, WebP, BMP or TIFF image" if data else "no bytes")


def _jpeg(data: bytes) -> Header:
    place, size, orientation, adobe, components, many_scans = 2, None, 1, False, 0, False
    for _ in range(PARTS):
        mark, marker = data[place], data[place + 1]
        if mark != 0xFF:
            raise BadHeader("a damaged JPEG header")
        if marker == 0xFF:
            place += 1  # a fill byte
            continue
        place += 2
        if marker == 0x01 or 0xD0 <= marker <= 0xD7:
            continue  # markers without a body
        (length,) = struct.unpack_from(">H", data, place)
        body = data[place + 2 : place + length]
        if marker in (0xC0, 0xC1, 0xC2):
            height, width, components = struct.unpack_from(">HHB", body, 1)
            size, many_scans = (width, height), marker == 0xC2
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
            many_scans = many_scans or body[0] < components
            break
    else:
        raise BadHeader(f"a JPEG with over {PARTS:,} markers before its pixels; save it again")
    if size is None:
        raise BadHeader("a JPEG without a size")
    if data.rfind(b"\xff\xd9") < place:
        raise BadHeader("a JPEG that is cut off; copy or download it again")
    if components == 4 and not adobe:
        raise BadHeader("a CMYK JPEG without the Adobe marker that says which end is black; save it as RGB")
    if many_scans and _scans(data, place) > SCANS:
        raise BadHeader(f"a JPEG with over {SCANS} scans; save it again")
    return Header("JPEG", *size, orientation=orientation)


def _scans(data: bytes, place: int) -> int:
    """The number of scans of a JPEG; the data of the first begin at `place`."""
    scans = 1
    for _ in range(PARTS):
        found = _MARKER.search(data, place)
        if found is None or found[1] == b"\xd9":
            return scans
        scans += found[1] == b"\xda"
        place = found.end()
        if found[1] != b"\x01":
            place += int.from_bytes(data[place : place + 2], "big")
    return PARTS


def _png(data: bytes) -> Header:
    length, kind, width, height, _, colour = struct.unpack_from(">I4sIIBB", data, 8)
    if kind != b"IHDR" or length != 13:
        raise BadHeader("a damaged PNG header")
    chunks = {kind: (start, end) for kind, start, end in _chunks(data)}
    if b"IDAT" not in chunks:
        raise BadHeader("a PNG without pixels")
    alpha = colour in (4, 6) or b"tRNS" in chunks
    start, end = chunks.get(b"eXIf", (len(data), len(data)))
    orientation = _exif_orientation(data[start + 8 : end - 4])
    return Header("PNG", width, height, alpha, orientation, moving=not MOVING.isdisjoint(chunks))


def _chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The chunks of a PNG after the first: type, start and end."""
    start = 33
    for _ in range(PARTS):
        if start + 12 > len(data):
            raise BadHeader("a PNG that is cut off; copy or download it again")
        length, kind = struct.unpack_from(">I4s", data, start)
        yield kind, start, start + 12 + length
        if kind == b"IEND":
            return
        start += 12 + length
    raise BadHeader(f"a PNG of over {PARTS:,} chunks; save it again")


def first_picture(data: bytes) -> bytes:
    """An animated PNG reduced to its first picture: OpenCV 4.11 and later may crash on damaged further pictures."""
    return data[:33] + b"".join(data[start:end] for kind, start, end in _chunks(data) if kind not in MOVING)


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
        raise BadHeader("an animated WebP; save one picture of it")
    width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
    exif = _webp_exif(data) if data[20] & 0x08 else b""
    return Header("WebP", width, height, bool(data[20] & 0x10), _exif_orientation(exif.removeprefix(b"Exif\0\0")))


def _webp_exif(data: bytes) -> bytes:
    """The EXIF chunk of a WebP, which follows the pixels."""
    place = 12
    for _ in range(PARTS):
        if place + 8 > len(data):
            break
        kind, length = struct.unpack_from("<4sI", data, place)
        if kind == b"EXIF":
            return data[place + 8 : place + 8 + length]
        place += 8 + length + length % 2
    return b""


def _bmp(data: bytes) -> Header:
    start, size = struct.unpack_from("<II", data, 10)
    if size < 40:
        raise BadHeader(f"a BMP with an old header of {size} bytes; save it as PNG")
    width, height, _, bits, packed = struct.unpack_from("<iiHHI", data, 18)
    if packed == 0 and len(data) < start + abs(height) * ((width * bits + 31) // 32 * 4):
        raise BadHeader("a BMP that is cut off; copy or download it again")
    return Header("BMP", width, abs(height))


def _tiff(data: bytes) -> Header:
    """The first picture's header, as upright: the decoder applies the orientation itself."""
    tags = dict(_directory(data, {256, 257, 258, 262, 273, 277, 279, 284, 322, 323, 338}))
    size, tile = tags.get(256, ()) + tags.get(257, ()), tags.get(322, (0,)) + tags.get(323, (0,))
    if len(size) != 2:
        raise BadHeader("a TIFF without a size")
    if len(tile) != 2 or tile[0] * tile[1] > max(size[0] * size[1], TILE):
        raise BadHeader("a damaged TIFF header")
    bits = max(tags.get(258, (1,)), default=1)
    if bits > 16:
        raise BadHeader(f"{bits} bits a channel; wanted 8 or 16: convert it to PNG")
    ends = map(sum, zip(tags.get(273, ()), tags.get(279, ()), strict=False))
    if tags.get(284) == (2,) and max(ends, default=0) > len(data):
        raise BadHeader("a TIFF that is cut off; copy or download it again")  # the decoder would omit colours
    extra = tags.get(338, ())[:1]  # the fourth number of a pixel: 1 is alpha with colours times alpha, 2 is alpha
    alpha = extra in ((1,), (2,)) and tags.get(262) == (2,) and tags.get(277) == (4,)
    return Header("TIFF", *size, alpha, premultiplied=alpha and (extra == (1,) or bits == 8))


def _exif_orientation(data: bytes) -> int:
    """The orientation tag of an EXIF block; a damaged block counts as upright, as in image viewers."""
    try:
        ((_, (value, *_)),) = _directory(data, {274})
    except (BadHeader, struct.error, ValueError):
        return 1
    return value if 1 <= value <= 8 else 1


def _directory(data: bytes, wanted: set[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The wanted tags of a TIFF's first directory with their numbers; the first of equal tags, as in the decoder.

    Tags of other types than short and long, or with over `PARTS` numbers, have no numbers here.
    """
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(data[:4])
    if order is None:
        raise BadHeader("a damaged TIFF header")
    (place,) = struct.unpack_from(order + "I", data, 4)
    (count,) = struct.unpack_from(order + "H", data, place)
    wanted = set(wanted)
    for at in range(place + 2, place + 2 + 12 * count, 12):
        tag, kind, number = struct.unpack_from(order + "HHI", data, at)
        if tag not in wanted:
            continue
        wanted.remove(tag)
        if kind not in _NUMBERS or number > PARTS:
            yield tag, ()
            continue
        numbers, at_values = f"{order}{number}{_NUMBERS[kind]}", at + 8
        if struct.calcsize(numbers) > 4:
            (at_values,) = struct.unpack_from(order + "I", data, at_values)
        yield tag, struct.unpack_from(numbers, data, at_values)
