"""The files of the MegaFace devkit: matrices of features, lists of images, lists of noise, curves.

A matrix is a header of four little-endian int32, then its numbers, row by row, little-endian:

    rows, columns, bytes from one row to the next, OpenCV type (5 = float32, 6 = float64)

The devkit wants one file for each image, a column of D rows, so the third number is 4. Many writers put the size of one
number there for every shape; both are read. The file of an image has the image's name, plus an ending that names the
model, such as `_sphereface.bin`.
"""

import json
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sphereface.arrays import Bools, Floating, Int64
from sphereface.data.files.handles import ByteFile
from sphereface.data.files.lines import open_list, read_lines
from sphereface.data.files.writing import open_private, whole_file
from sphereface.data.lists.megaface import MegaFaceImage, read_megaface
from sphereface.errors import DataFormatError, UserError
from sphereface.progress import Progress, silent

HEADER = struct.Struct("<4i")
FLOAT, DOUBLE = np.dtype("<f4"), np.dtype("<f8")
TYPES: dict[int, np.dtype[Any]] = {5: FLOAT, 6: DOUBLE}


def map_matrix(path: str | Path) -> Floating:
    """A matrix (rows, columns) of a file as a memory map."""
    file = ByteFile(path, keep=False)
    path, size = file.path, file.size
    if size < HEADER.size:
        raise DataFormatError(f"{path}: {size} bytes; wanted a matrix, which begins with {HEADER.size}")
    rows, columns, step, kind = HEADER.unpack(file.read(0, HEADER.size))
    number = TYPES[kind].itemsize if kind in TYPES else 0
    if not number or rows < 1 or columns < 1 or step not in (number, columns * number):
        found = f"a header of {rows} rows, {columns} columns, step {step}, type {kind}"
        raise DataFormatError(f"{path}: {found}; wanted a whole matrix of type 5 (float32) or 6 (float64)")
    wanted = HEADER.size + rows * columns * number
    if size != wanted:
        reason = "it was cut off: write or copy it again" if size < wanted else "it is longer than its header says"
        raise DataFormatError(f"{path}: {size:,} bytes; wanted {wanted:,} for {rows:,} x {columns:,} numbers; {reason}")
    return np.memmap(path, dtype=TYPES[kind], mode="r", offset=HEADER.size, shape=(rows, columns))


def read_matrix(path: str | Path) -> Floating:
    """A matrix (rows, columns) of a file."""
    return np.array(map_matrix(path))


def write_matrix(path: str | Path, matrix: Floating) -> None:
    """Write a matrix (rows, columns), or (D,) as a column, in float32; float64 stays float64."""
    with whole_file(path, private=True) as file:
        file.write(_header(matrix))
        np.ascontiguousarray(matrix, dtype=TYPES[_kind(matrix)]).tofile(file)


def _kind(matrix: Floating) -> int:
    return 6 if matrix.dtype == np.float64 else 5


def _header(matrix: Floating) -> bytes:
    if matrix.ndim not in (1, 2) or 0 in matrix.shape or not np.issubdtype(matrix.dtype, np.floating):
        raise UserError(f"a matrix of {matrix.dtype} {matrix.shape}; wanted floating-point numbers (rows, columns)")
    rows, columns = matrix.shape if matrix.ndim == 2 else (len(matrix), 1)
    kind = _kind(matrix)
    return HEADER.pack(rows, columns, columns * TYPES[kind].itemsize, kind)


def collect_features(
    images: Sequence[MegaFaceImage], root: str | Path, ending: str, out: str | Path, *, progress: Progress = silent
) -> None:
    """Gather the matrices of listed images into one `.npy` file (N, D) of float32, in the order of the list."""
    if not images:
        raise UserError("a list without images; wanted at least one")
    root, length = Path(root), 0
    with whole_file(out, private=True) as file:
        for number, image in enumerate(images):
            path = root / f"{image.path}{ending}"
            with np.errstate(over="ignore"):  # numbers beyond float32 become infinite, and are refused below
                feature = np.asarray(map_matrix(path), dtype=np.float32)
            if 1 not in feature.shape or (length and feature.size != length):
                wanted = f"{length} numbers, as before" if length else "one column"
                raise DataFormatError(f"{path}: a matrix {feature.shape}; wanted {wanted}")
            if not np.isfinite(feature).all():
                raise DataFormatError(f"{path}: a number that is not finite; embed this image again")
            if not length:
                length = feature.size
                layout = {"descr": "<f4", "fortran_order": False, "shape": (len(images), length)}
                np.lib.format.write_array_header_1_0(file, layout)
            file.write(feature.astype("<f4").tobytes())
            progress(number + 1, len(images))


def spread_features(
    features: Floating, images: Sequence[MegaFaceImage], root: str | Path, ending: str, *, progress: Progress = silent
) -> None:
    """Write features (N, D) of listed images in the devkit's form: a matrix for each image."""
    if features.ndim != 2 or len(features) != len(images):
        raise UserError(f"features {features.shape} of {len(images):,} images; wanted (N, D), a row for each image")
    root, made = Path(root), set[Path]()
    for number, (feature, image) in enumerate(zip(features, images, strict=True)):
        path = root / f"{image.path}{ending}"
        if path.parent not in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            made.add(path.parent)
        column = np.asarray(feature, dtype=np.float32)
        with open_private(path) as file:  # no fsync: a million would take hours
            file.truncate(0)
            file.write(_header(column) + column.astype("<f4").tobytes())
        progress(number + 1, len(images))


def read_probes(path: str | Path) -> tuple[tuple[MegaFaceImage, ...], NDArray[np.str_]]:
    """A list of probes, each image once, and the person of each (N,)."""
    images = read_distractors(path)
    unknown = next((number for number, image in enumerate(images) if image.id is None), None)
    if unknown is not None:
        found = f"image {unknown}, {images[unknown].path!r}, is of an unknown person"
        raise DataFormatError(f"{path}: {found}; wanted an id for each probe")
    return images, np.array([image.id for image in images], dtype=np.str_)


def read_distractors(path: str | Path) -> tuple[MegaFaceImage, ...]:
    """A list of images, each once."""
    images = read_megaface(path)
    if not images:
        raise DataFormatError(f"{path}: no image in the list; wanted at least one")
    seen: dict[str, int] = {}
    for number, image in enumerate(images):
        first = seen.setdefault(image.path, number)
        if first != number:
            raise DataFormatError(f"{path}: images {first} and {number} are both {image.path!r}; wanted each once")
    return images


def rows_of(images: Iterable[MegaFaceImage], among: Sequence[MegaFaceImage]) -> Int64:
    """The places of one list's images, such as the devkit's 10,000 distractors, in another, such as its million."""
    places = {image.path: number for number, image in enumerate(among)}
    names = [image.path for image in images]
    unknown = next((name for name in names if name not in places), None)
    if unknown is not None:
        raise UserError(f"{unknown!r} is not among the {len(among):,} images; wanted a list of some of them")
    return np.array([places[name] for name in names], dtype=np.int64)


def read_noise(path: str | Path) -> frozenset[str]:
    """Names of images to leave out, one a line; `#` begins a comment line, and text before a tab is ignored."""
    names: set[str] = set()
    for line in read_lines(Path(path)):
        if line.text.startswith("#"):
            continue
        name = line.text.split("\t")[-1].strip()
        if not name or name in names:
            raise line.wrong("the name of an image that no other line has")
        names.add(name)
    return frozenset(names)


def find_noise(images: Sequence[MegaFaceImage], noise: Iterable[str]) -> tuple[Bools, list[str]]:
    """The images (N,) that a list of noise names, and, sorted, the names without an image.

    An image is named by its path, or by the end of it, as FaceScrub's list has file names alone. Spaces and underscores
    are equal: the published lists and the published images differ in them.
    """
    names = {name: _plain(name) for name in noise}
    wanted, met = set(names.values()), set[str]()
    found = np.zeros(len(images), dtype=bool)
    for number, image in enumerate(images):
        parts = _plain(image.path).split("/")
        called = wanted.intersection("/".join(parts[start:]) for start in range(len(parts)))
        found[number] = bool(called)
        met |= called
    return found, sorted(name for name, plain in names.items() if plain not in met)


def _plain(name: str) -> str:
    return name.replace(" ", "_")


def write_curves(path: str | Path, cmc: Sequence[float], far: Sequence[float], tar: Sequence[float]) -> None:
    """Write the devkit's result file, `cmc_facescrub_megaface_MODEL_SIZE_SET.json`; its ranks begin at 0."""
    curves = {"cmc": [list(range(len(cmc))), list(cmc)], "roc": [list(far), list(tar)]}
    with whole_file(path) as file:
        file.write(json.dumps(curves).encode())


def read_curves(path: str | Path) -> tuple[list[float], list[float], list[float]]:
    """The devkit's result file: the rates at ranks 1, 2, ..., and false and true accept rates."""
    path = Path(path)
    with open_list(path) as file:
        try:
            curves = json.load(file)
            (_, cmc), (far, tar) = curves["cmc"], curves["roc"]
            return list(map(float, cmc)), list(map(float, far)), list(map(float, tar))
        except (ValueError, TypeError, KeyError, RecursionError):
            wanted = 'wanted JSON, {"cmc": [ranks, rates], "roc": [far, tar]}'
            raise DataFormatError(f"{path}: not a result of the devkit; {wanted}") from None
