"""RecordIO, the container of mxnet: records with a magic number, a length, and an image with its header.

A record is `magic, flag and length, bytes, padding to four`. Where the bytes contain the magic number, on a
multiple of four, the writer cuts the record there and drops those four bytes: its parts carry the flags 1, 2, ..., 2,
3, and the reader puts the number back between them.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sphereface.data.files.handles import ByteFile
from sphereface.errors import DataFormatError
from sphereface.faces.images import LIMITS

MAGIC = struct.pack("<I", 0xCED7230A)
WHOLE, FIRST, MIDDLE, LAST = range(4)
LENGTH_BITS = 29
_PART = struct.Struct("<4sI")
_ENTRY = struct.Struct("<IfQQ")  # flag, label, id, id2
HEAD = _ENTRY.size + 8  # bytes of an entry that hold up to two labels

LIMIT = LIMITS.bytes + HEAD  # bytes of one record


class Entry(NamedTuple):
    """The contents of a record: its labels (one, or the first two), its own number, and the image.

    Records about the set have no image: record 0 has the range of the people's records, and each of these has the range
    of a person's images.
    """

    labels: tuple[float, ...]
    number: int
    image: bytes

    @property
    def is_about_the_set(self) -> bool:
        """True if the labels are a range of records."""
        return len(self.labels) == 2 and not self.image


def pack_record(data: bytes) -> bytes:
    """One record as the bytes of the file."""
    if len(data) > LIMIT:
        raise DataFormatError(f"a record of {len(data):,} bytes; the limit is {LIMIT:,}")
    cuts = list(_cuts(data))
    starts, ends = [0, *(cut + 4 for cut in cuts)], [*cuts, len(data)]
    flags = [FIRST] + [MIDDLE] * (len(cuts) - 1) + [LAST] if cuts else [WHOLE]
    framed = b"".join(
        _PART.pack(MAGIC, flag << LENGTH_BITS | end - start) + data[start:end]
        for flag, start, end in zip(flags, starts, ends, strict=True)
    )
    return framed + bytes(-len(data) % 4)


def _cuts(data: bytes) -> Iterator[int]:
    place = data.find(MAGIC)
    while place >= 0:
        if place % 4 == 0:
            yield place
        place = data.find(MAGIC, place + 1)


def read_record(file: ByteFile, offset: int, *, most: int | None = None) -> tuple[bytes, int]:
    """The record at an offset, or its first `most` bytes, and the offset after it."""
    parts: list[bytes] = []
    start, total = offset, 0
    while True:
        flag, length = _part(file, offset, begun=bool(parts))
        total += length + (len(MAGIC) if parts else 0)
        if total > LIMIT and most is None:
            raise file.wrong(f"the record at {start:,} has over {LIMIT:,} bytes")
        parts.append(file.read(offset + _PART.size, length if most is None else min(length, most)))
        offset += _PART.size + length + -length % 4
        if flag in (WHOLE, LAST) or (most is not None and total >= most):
            data = MAGIC.join(parts)
            return (data if most is None else data[:most]), offset


def _part(file: ByteFile, offset: int, *, begun: bool) -> tuple[int, int]:
    magic, word = _PART.unpack(file.read(offset, _PART.size))
    flag, length = word >> LENGTH_BITS, word & (1 << LENGTH_BITS) - 1
    if magic != MAGIC:
        wanted = f"wanted {MAGIC.hex()}, the magic number of a record"
        raise file.wrong(f"{magic.hex()} at {offset:,}; {wanted}: not a record file, or a damaged one")
    if flag not in ((MIDDLE, LAST) if begun else (WHOLE, FIRST)):
        raise file.wrong(f"a part with flag {flag} at {offset:,}; its record is incomplete")
    file.require(offset + _PART.size, length)
    return flag, length


def scan(file: ByteFile) -> list[int]:
    """The offset of each record: the contents of a missing `.idx` file."""
    offsets, offset, begun = [], 0, False
    while offset < file.size:
        flag, length = _part(file, offset, begun=begun)
        if not begun:
            offsets.append(offset)
        begun = flag in (FIRST, MIDDLE)
        offset += _PART.size + length + -length % 4
    if begun:
        raise file.wrong("cut off: its last record is incomplete; copy or download it again")
    return offsets


def pack_entry(labels: float | Sequence[float], number: int, image: bytes) -> bytes:
    """An image, or a record about the set, with its header: one label in the header itself, several behind it."""
    if isinstance(labels, Sequence):
        return _ENTRY.pack(len(labels), 0.0, number, 0) + struct.pack(f"<{len(labels)}f", *labels) + image
    return _ENTRY.pack(0, labels, number, 0) + image


def read_entry(file: ByteFile, offset: int) -> Entry:
    """The whole entry at an offset."""
    data, _ = read_record(file, offset)
    return _unpack(data, f"{file.path}: the record at {offset:,}")


def read_head(file: ByteFile, offset: int, *, peek: int = 1) -> Entry:
    """The entry at an offset, with only the first bytes of its image."""
    source = f"{file.path}: the record at {offset:,}"
    data, _ = read_record(file, offset, most=HEAD + peek)
    labels = _flag(data, source)
    if labels > 2:
        data, _ = read_record(file, offset, most=min(_ENTRY.size + 4 * labels, LIMIT) + peek)
    return _unpack(data, source)


def _flag(data: bytes, source: str) -> int:
    """The number of labels behind the header; 0 if the header has the only one."""
    if len(data) < _ENTRY.size:
        raise DataFormatError(f"{source} has {len(data)} bytes; wanted {_ENTRY.size} or more, the header of an image")
    return int.from_bytes(data[:4], "little")


def _unpack(data: bytes, source: str) -> Entry:
    flag = _flag(data, source)
    _, label, number, _ = _ENTRY.unpack_from(data)
    if flag == 0:
        return Entry((label,), number, data[_ENTRY.size :])
    if len(data) < _ENTRY.size + 4 * flag:
        raise DataFormatError(f"{source} promises {flag:,} labels; it has only {len(data):,} bytes")
    labels = struct.unpack_from(f"<{min(flag, 2)}f", data, _ENTRY.size)
    return Entry(labels, number, data[_ENTRY.size + 4 * flag :])
