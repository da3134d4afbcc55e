"""The contents of tar files: one pass over the headers, in every common dialect, without unpacking."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from sphereface.data.files.handles import ByteFile
from sphereface.data.files.lines import whole_number
from sphereface.data.names import checked

BLOCK = 512
LONGEST = 1 << 16  # bytes of a name

_FILE = (b"0", b"\0", b"7")
_WITHOUT_BYTES = (b"1", b"2", b"3", b"4", b"5", b"6")  # links, devices, folders, pipes
_LONG_NAME, _ATTRIBUTES = b"L", b"x"  # GNU's and POSIX's extended header of the next member
_SKIPPED = (b"K", b"g")  # long link names, attributes of all members
_OCTAL = re.compile(rb"[0-7]{1,12}")
_ATTRIBUTE = re.compile(rb"([0-9]{1,5}) ([^=]+)=")


class Member(NamedTuple):
    """A file in a tar file."""

    name: str
    offset: int
    size: int


def members(file: ByteFile) -> Iterator[Member]:
    """All files of a tar file; links, folders and devices are skipped."""
    offset = 0
    extended: dict[str, str] = {}  # path and size of the next member, where its own header is too small for them
    while True:
        header = _header(file, offset)
        if header is None:
            return
        kind, short_name, size = header
        if kind in _WITHOUT_BYTES:
            size = 0
        elif kind in _FILE and "size" in extended:
            size = _extended_size(extended["size"], file, offset)
        start = offset + BLOCK
        file.require(start, size)
        if kind == _LONG_NAME:
            extended["path"] = _text(_short(file, start, size), file, offset).rstrip("\0")
        elif kind == _ATTRIBUTES:
            extended.update(_attributes(_short(file, start, size), file, offset))
        elif kind not in _SKIPPED:
            name = extended["path"] if "path" in extended else _text(short_name, file, offset)
            extended = {}
            if kind in _FILE and not name.endswith("/"):  # the slash marks a folder in old tar files
                yield Member(checked(name.removeprefix("./"), file.path), start, size)
        offset = start + size + -size % BLOCK


def _header(file: ByteFile, offset: int) -> tuple[bytes, bytes, int] | None:
    """The kind, name and size of the member at an offset; None at the end mark.

    A name too long for the header may be cut within a letter; the extended header before it then has the whole name.
    """
    block = file.read(offset, BLOCK)
    if not block.strip(b"\0"):
        return None
    blank = block[:148] + b" " * 8 + block[156:]
    if _octal(block[148:156]) != sum(blank):
        raise file.wrong(f"no header of a member at {offset:,}: not a tar file, or a damaged one")
    kind, size = block[156:157], _size(block[124:136])
    if size is None or kind not in (*_FILE, *_WITHOUT_BYTES, _LONG_NAME, _ATTRIBUTES, *_SKIPPED):
        raise file.wrong(f"a member of kind {kind!r} at {offset:,}; write it with plain files only")
    name, prefix = block[:100].partition(b"\0")[0], block[345:500].partition(b"\0")[0]
    is_posix = block[257:263] == b"ustar\0"  # GNU tar has other fields in place of the prefix
    return kind, prefix + b"/" + name if is_posix and prefix else name, size


def _octal(field: bytes) -> int | None:
    digits = field.strip(b" \0")
    return int(digits, 8) if _OCTAL.fullmatch(digits) else None


def _size(field: bytes) -> int | None:
    """A size in octal letters or, above 8 GiB, as a binary number behind a marked byte."""
    return int.from_bytes(field[1:], "big") if field[0] == 0x80 else _octal(field)


def _extended_size(text: str, file: ByteFile, offset: int) -> int:
    size = whole_number(text)
    if size is None:
        raise file.wrong(f"size {text[:40]!r} of the member at {offset:,}; wanted a number")
    return size


def _short(file: ByteFile, start: int, size: int) -> bytes:
    if size > LONGEST:
        raise file.wrong(f"a name of {size:,} bytes at {start:,}; the limit is {LONGEST:,}")
    return file.read(start, size)


def _attributes(data: bytes, file: ByteFile, offset: int) -> dict[str, str]:
    """Path and size from lines `length key=value`; a length counts its whole line."""
    found = {}
    while data.strip(b"\0"):
        match = _ATTRIBUTE.match(data)
        length = int(match[1]) if match else 0
        if match is None or not match.end() < length <= len(data):
            raise file.wrong(f"damaged attributes at {offset:,}")
        if match[2] in (b"path", b"size"):
            found[match[2].decode()] = _text(data[match.end() : length - 1], file, offset)
        data = data[length:]
    return found


def _text(data: bytes, file: ByteFile, offset: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise file.wrong(f"the name at {offset:,} is not UTF-8; write the file in UTF-8") from None
