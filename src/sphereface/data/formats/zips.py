"""Zip files with a folder for each person: `person/photo.jpg`, read without unpacking."""

import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from sphereface.data.files.handles import ByteFile
from sphereface.data.names import checked, placed
from sphereface.data.people import SUFFIXES, FaceSet, label_folders
from sphereface.data.reading import read_image
from sphereface.errors import DataFormatError, UnreadableImage
from sphereface.faces.images import LIMITS
from sphereface.progress import Progress, silent

_LOCAL = struct.Struct("<4s22xHH")  # a member's own header: signature, lengths of its name and its extra field
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_MOST = np.iinfo(np.int64).max  # the directory's fields may be twice as large
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time of the zip format
_BROKEN = (zipfile.BadZipFile, NotImplementedError, EOFError, OSError, RuntimeError, ValueError, struct.error)


class ZipSet:
    """The images of a zip file, in its order; a label is the folder's place in sorted order.

    Files other than images in a person's folder are in `ignored`, as for a folder on disk.
    """

    def __init__(self, path: str | Path) -> None:
        self.file = ByteFile(path)
        self.ignored: list[str] = []
        found = [member for member in _contents(self.file) if self._is_face(member)]
        self.paths = [member.filename for member in found]
        self.people, self.labels = label_folders(self.paths, self.file.path)
        where = [(m.header_offset, m.compress_size, m.file_size, m.compress_type, m.CRC) for m in found]
        self._where = np.minimum(np.array(where, dtype=object), _MOST).astype(np.int64)

    def read(self, index: int) -> bytes:
        """The bytes of one image; unpacking stops at the size in the directory."""
        offset, packed, size, method, checksum = self._where[index].tolist()
        if max(packed, size) > LIMITS.bytes:
            raise UnreadableImage(self.paths[index], f"{size:,} bytes; the limit is {LIMITS.bytes:,}")
        signature, *lengths = _LOCAL.unpack(self.file.read(offset, _LOCAL.size))
        if signature != b"PK\3\4":
            raise self._damaged(index, "its header is not at the directory's offset")
        data = self.file.read(offset + _LOCAL.size + sum(lengths), packed)
        if method == zipfile.ZIP_DEFLATED:
            try:  # at most one byte more than the directory's size: it shows a wrong size, and takes no memory
                data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, size + 1)
            except zlib.error as error:
                raise self._damaged(index, str(error)) from error
        if len(data) != size or zlib.crc32(data) != checksum:
            raise self._damaged(index, "its length or checksum differs from the directory's")
        return data

    def _damaged(self, index: int, reason: str) -> UnreadableImage:
        return UnreadableImage(self.paths[index], f"damaged in {self.file.path.name}: {reason}; copy that file again")

    def _is_face(self, member: zipfile.ZipInfo) -> bool:
        if member.filename.endswith("/"):
            return False
        name = checked(member.filename, self.file.path)
        hidden = any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))
        if hidden or "/" not in name or Path(name).suffix.lower() not in SUFFIXES:
            self.ignored.append(name)
            return False
        if member.flag_bits & 1:
            raise self.file.wrong(f"{name!r} is encrypted; write the zip file without a password")
        if member.compress_type not in _METHODS:
            raise self.file.wrong(f"{name!r} is packed by method {member.compress_type}; wanted stored or deflated")
        return True


def _contents(file: ByteFile) -> list[zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(file.path) as archive:
            return archive.infolist()
    except _BROKEN as error:
        raise file.wrong(f"damaged zip file ({error}); copy or download it again") from error


def write_zip(path: Path, faces: FaceSet, *, progress: Progress = silent) -> None:
    """Write a new zip file, images as they are: they are compressed already. The same set gives the same bytes."""
    seen = set()
    with path.open("xb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for index, label in enumerate(faces.labels.tolist()):
            name = checked(placed(faces.people[label], faces.paths[index]), path)
            if name in seen:
                raise DataFormatError(f"{path}: two images are called {name!r}; a zip file holds a name once")
            seen.add(name)
            member = zipfile.ZipInfo(name, _EPOCH)
            member.external_attr = 0o644 << 16
            member.create_system = 3  # Unix, on every system
            archive.writestr(member, read_image(faces, index))
            progress(index + 1, len(faces.paths))
