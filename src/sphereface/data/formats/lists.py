"""Caffe lists of images and labels: `path label` on each line, as a set of faces."""

from array import array
from pathlib import Path, PurePosixPath

import numpy as np

from sphereface.data.files.lines import Line, label_of, read_lines
from sphereface.data.files.writing import whole_file
from sphereface.data.names import LABELS, checked, people_by_folder
from sphereface.data.people import FaceSet
from sphereface.errors import DataFormatError
from sphereface.faces.images import read_bytes
from sphereface.progress import Progress, silent


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
            progress(index + 1, len(faces.paths))
