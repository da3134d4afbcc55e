"""Lists in plain text: Caffe's images and labels, what to leave out, landmarks; and MegaFace's lists in JSON."""

import json
import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from sphereface.data.lines import Line, label_of, open_list, read_lines
from sphereface.data.names import LABELS, checked, people_by_folder
from sphereface.data.people import FaceSet
from sphereface.data.writing import Progress, silent, whole_file
from sphereface.errors import DataFormatError
from sphereface.faces.images import read_bytes


class ListSet:
    """Images that a Caffe list names, `path label` on each line; paths begin at `root`, else where the list is.

    People are called as their folders if each has one of their own, else by their labels.
    """

    def __init__(self, path: str | Path, root: str | Path | None = None) -> None:
        path = Path(path)
        self.root = path.parent if root is None else Path(root)
        self.paths: list[str] = []
        labels = array("q")
        for line in read_lines(path):
            name, label = _parse_image(line)
            self.paths.append(checked(_below(self.root, name), line))
            labels.append(label)
        if not self.paths:
            raise DataFormatError(f"{path}: no image in the list; wanted `path label` on each line")
        self.labels = np.array(labels, dtype=np.int64)
        self.people = people_by_folder(self.paths, self.labels)

    def read(self, index: int) -> bytes:
        """The bytes of one file."""
        return read_bytes(self.root / self.paths[index])


def _parse_image(line: Line) -> tuple[str, int]:
    name, *rest = line.text.rstrip().rsplit(maxsplit=1)
    label = label_of(rest[0]) if rest else None
    if label is None:
        raise line.wrong(f"`path label` with a label of 0 to {LABELS - 1:,}")
    return name, label


def _below(root: Path, name: str) -> str:
    """A path as seen from the root, if it is an absolute one below it."""
    path = PurePosixPath(name)
    if path.is_absolute() and path.is_relative_to(root.absolute().as_posix()):
        return path.relative_to(root.absolute().as_posix()).as_posix()
    return name


def write_list(path: Path, faces: FaceSet, *, progress: Progress = silent) -> None:
    """Write a Caffe list of a set's images; it names them and holds none."""
    with whole_file(path) as file:
        for index, label in enumerate(faces.labels.tolist()):
            name = checked(faces.paths[index], path)
            if name != name.strip():
                raise DataFormatError(f"{path}: the name {name!r}; a list of lines cannot hold a space at its ends")
            file.write(f"{name} {label}\n".encode())
            progress(index + 1)


def read_exclude(path: str | Path) -> frozenset[str]:
    """Paths or people to leave out, one a line; a line that begins with `#` is a comment."""
    names = (line.text.strip() for line in read_lines(Path(path)))
    return frozenset(name for name in names if not name.startswith("#"))


def read_landmarks(path: str | Path) -> dict[str, NDArray[np.float64]]:
    """The five points of each face of an image, (N, 5, 2): lines of `path x1 y1 ... x5 y5`, one a face."""
    points: dict[str, list[list[float]]] = {}
    for line in read_lines(Path(path)):
        name, *fields = line.text.rstrip().rsplit(maxsplit=10)
        values = [value for value in map(_finite, fields) if value is not None]
        if len(values) != 10:
            raise line.wrong("`path x1 y1 x2 y2 x3 y3 x4 y4 x5 y5`")
        points.setdefault(checked(name, line), []).append(values)
    return {name: np.array(faces, dtype=np.float64).reshape(-1, 5, 2) for name, faces in points.items()}


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and text.isascii() and "_" not in text else None


def write_landmarks(path: str | Path, landmarks: Mapping[str, NDArray[np.floating]]) -> None:
    """Write what `read_landmarks` reads, each number in full: points (N, 5, 2), or (5, 2) for one face."""
    with whole_file(path) as file:
        for name, points in landmarks.items():
            if points.shape[-2:] != (5, 2) or not np.isfinite(points).all() or name != name.strip():
                raise ValueError(f"{name!r} with landmarks {points.shape}; wanted finite points (N, 5, 2)")
            for face in points.reshape(-1, 10).tolist():
                file.write(f"{checked(name, path)} {' '.join(map(repr, face))}\n".encode())


@dataclass(frozen=True)
class MegaFaceImage:
    """One entry of a MegaFace list; `id` is the person, and None for a distractor whose list names none."""

    path: str
    id: str | None


def read_megaface(path: str | Path) -> tuple[MegaFaceImage, ...]:
    """A list of probes or distractors: JSON with `path` and, usually, `id`, lists of one length."""
    path = Path(path)
    with open_list(path) as file:
        try:
            told = json.load(file)
        except (ValueError, RecursionError) as error:
            raise DataFormatError(f"{path}: no JSON ({error}); wanted a MegaFace list") from None
    if not isinstance(told, dict) or not isinstance(told.get("path"), list):
        raise DataFormatError(f'{path}: wanted a MegaFace list, {{"path": [...], "id": [...]}}')
    paths, ids = told["path"], told.get("id", [None] * len(told["path"]))
    if not isinstance(ids, list) or len(ids) != len(paths):
        raise DataFormatError(
            f"{path}: {len(paths):,} paths and ids that do not match them; wanted lists of one length"
        )
    return tuple(
        MegaFaceImage(_megaface_path(name, path, number), _megaface_id(person, path, number))
        for number, (name, person) in enumerate(zip(paths, ids, strict=True))
    )


def _megaface_path(name: object, path: Path, number: int) -> str:
    if not isinstance(name, str):
        raise DataFormatError(f"{path}: path {number} is a {type(name).__name__}; wanted text")
    return checked(name, f"{path}: path {number}")


def _megaface_id(person: object, path: Path, number: int) -> str | None:
    if person is not None and (isinstance(person, bool) or not isinstance(person, str | int)):
        raise DataFormatError(f"{path}: id {number} is a {type(person).__name__}; wanted a name or a number")
    return None if person is None else str(person)


def write_megaface(path: str | Path, images: Iterable[MegaFaceImage]) -> None:
    """Write what `read_megaface` reads."""
    listed = list(images)
    told = {"path": [image.path for image in listed], "id": [image.id for image in listed]}
    with whole_file(path) as file:
        file.write(json.dumps(told, ensure_ascii=False, indent=1).encode())
