"""MNIST's idx files, plain or gzipped: the digits of the feature plots in section 3 of the paper."""

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from sphereface.arrays import UInt8
from sphereface.data.files.writing import whole_file
from sphereface.data.names import numbers
from sphereface.errors import DataFormatError, UserError
from sphereface.faces.images import encode_png

IMAGES, LABELS = "images-idx3-ubyte", "labels-idx1-ubyte"
LIMIT = 1 << 30  # bytes of an array; the largest of the family has about half of that
CHUNK = 1 << 20
SIDE = 1 << 12  # pixels of an image's side; digits have 28

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


class MnistSet:
    """Digits as people, with images `7/00042.png`; `path` is a file of images, or a folder with one."""

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        images = find_images(path) if path.is_dir() else path
        if images is None or IMAGES not in images.name:
            raise DataFormatError(f"{path}: no MNIST images; wanted train-{IMAGES}, plain or with .gz")
        self.images: UInt8 = read_idx(images)
        digits = read_idx(_beside(images))
        if self.images.ndim != 3 or self.images.dtype != np.uint8 or 0 in self.images.shape:
            raise DataFormatError(f"{images}: {self.images.dtype} {self.images.shape}; wanted images, uint8 (N, H, W)")
        if max(self.images.shape[1:]) > SIDE:
            raise DataFormatError(f"{images}: images {self.images.shape[1:]}; wanted at most {SIDE:,} pixels a side")
        if digits.shape != self.images.shape[:1] or digits.dtype != np.uint8:
            wanted = f"wanted uint8, one for each of {len(self.images):,} images"
            raise DataFormatError(f"{images}: labels {digits.dtype} {digits.shape}; {wanted}")
        self.labels = digits.astype(np.int64)
        self.people = numbers(max(10, int(self.labels.max()) + 1))
        width = len(str(len(digits) - 1))
        self.paths = [f"{self.people[digit]}/{index:0{width}d}.png" for index, digit in enumerate(self.labels.tolist())]

    def read(self, index: int) -> bytes:
        """One digit as a PNG, grey in all three channels."""
        return encode_png(np.repeat(self.images[index][:, :, None], 3, axis=2))


def find_images(folder: Path) -> Path | None:
    """A folder's file of training images, or of test images if it has no others."""
    names = (f"{part}-{IMAGES}{ending}" for part in ("train", "t10k") for ending in ("", ".gz"))
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _beside(images: Path) -> Path:
    """The labels of a file of images; either may be gzipped."""
    labels = images.with_name(images.name.replace(IMAGES, LABELS))
    other = labels.with_suffix("") if labels.suffix == ".gz" else labels.with_name(f"{labels.name}.gz")
    return other if other.is_file() and not labels.is_file() else labels


def read_idx(path: str | Path) -> NDArray[Any]:
    """The array in an idx file, in this machine's byte order; memory is allocated only as bytes arrive."""
    path = Path(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return _read_array(file, path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataFormatError(f"{path}: damaged gzip file ({error}); copy or download it again") from error
    except OSError as error:
        raise DataFormatError(f"{path}: cannot be read ({error.strerror})") from error


def _read_array(file: BinaryIO | gzip.GzipFile, path: Path) -> NDArray[Any]:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in TYPES or not 1 <= magic[3] <= 8:
        wanted = "wanted an idx file: 0000, a known type and 1 to 8 axes"
        raise DataFormatError(f"{path}: starts with {magic.hex()!r}; {wanted}")
    dtype = np.dtype(TYPES[magic[2]])
    axes = file.read(4 * magic[3])
    if len(axes) < 4 * magic[3]:
        raise DataFormatError(f"{path}: cut off within its header; copy or download it again")
    shape = struct.unpack(f">{magic[3]}I", axes)
    wanted = math.prod(shape) * dtype.itemsize
    if math.prod(max(axis, 1) for axis in shape) * dtype.itemsize > LIMIT:  # an empty array has axes, too
        raise DataFormatError(f"{path}: {shape} numbers of {dtype.itemsize} bytes; the limit is {LIMIT:,} bytes in all")
    data = bytearray()
    while len(data) <= wanted and (chunk := file.read(min(CHUNK, wanted + 1 - len(data)))):
        data += chunk
    if len(data) != wanted:
        more = "more" if len(data) > wanted else f"{len(data):,}"
        raise DataFormatError(f"{path}: {shape} numbers are {wanted:,} bytes, the file holds {more}; copy it again")
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def write_idx(path: str | Path, array: NDArray[Any]) -> None:
    """Write an array as an idx file, gzipped if the path ends in `.gz`; the same array gives the same bytes."""
    path = Path(path)
    codes = {np.dtype(name): code for code, name in TYPES.items()}
    big_endian = array.dtype.newbyteorder(">")
    if big_endian not in codes or not 1 <= array.ndim <= 8:
        raise UserError(f"{array.dtype} {array.shape}; an idx file holds {', '.join(map(str, codes))} in 1 to 8 axes")
    data = bytes([0, 0, codes[big_endian], array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    data += array.astype(big_endian).tobytes()
    with whole_file(path) as file:
        file.write(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
