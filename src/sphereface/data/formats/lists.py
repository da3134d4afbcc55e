"""Caffe lists of images and labels: `path label` on each line, as a set of faces."""

from array import array
from pathlib import Path, PurePosixPath

import numpy as np

from sphereface.data.files.lines import Line, label_of, read_lines
from sphereface.data.files.writing import whole_file
from sphereface.data.names import LABELS, checked, checked_line, people_by_folder
from sphereface.data.people import FaceSet, ImageFiles
from sphereface.errors import DataFormatError
from sphereface.progress import Progress, silent


class ListSet(ImageFiles):
    """Images of a Caffe list, `path label` on each line; paths begin at `root`, by default the list's folder.

    People are named after their folders if each has one of their own, else after their labels.
    """

    def __init__(self, path: str | Path, root: str | Path | None = None) -> None:
        path = Path(path)
        self.root = path.parent if root is None else Path(root)
        self.paths = []
        labels = array("q")
        for line in read_lines(path):
            name, label = _parse_image(line)
            self.paths.append(checked(_below(self.root, name), line))
            labels.append(label)
        if not self.paths:
            raise DataFormatError(f"{path}: no image in the list; wanted `path label` on each line")
        self.labels = np.array(labels, dtype=np.int64)
        self.people = people_by_folder(self.paths, self.labels)


def _parse_image(line: Line) -> tuple[str, int]:
    name, *rest = line.text.rstrip().rsplit(maxsplit=1)
    label = label_of(rest[0]) if rest else None
    if label is None:
        raise line.wrong(f"`path label` with a label of 0 to {LABELS - 1:,}")
    return name, label


def _below(root: Path, name: str) -> str:
    """A path relative to the root, if it is absolute and below it."""
    path, start = PurePosixPath(name), root.absolute().as_posix()
    return path.relative_to(start).as_posix() if path.is_absolute() and path.is_relative_to(start) else name


def write_list(path: Path, faces: FaceSet, *, progress: Progress = silent) -> None:
    """Write a Caffe list of a set: the paths and labels of its images, without their bytes."""
    with whole_file(path) as file:
        for index, label in enumerate(faces.labels.tolist()):
            file.write(f"{checked_line(faces.paths[index], path)} {label}\n".encode())
            progress(index + 1, len(faces.paths))
