"""Sets of photos or faces of named people: the interface of all formats, and the simplest one, a folder per person."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from sphereface.arrays import Int64
from sphereface.errors import DataFormatError
from sphereface.faces.images import read_bytes

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff"})


class FaceSet(Protocol):
    """Encoded images of people in a fixed order; it can be pickled and read in another process."""

    @property
    def people(self) -> Sequence[str]:
        """Names; a label is a place in this list."""

    @property
    def labels(self) -> Int64:
        """The label of each image, (N,)."""

    @property
    def paths(self) -> Sequence[str]:
        """The name of each image within the set: `person/photo.jpg`, with slashes on every system."""

    def read(self, index: int) -> bytes:
        """The image's encoded bytes; `data.reading` turns every error into `UnreadableImage`."""


def find_images(root: Path) -> tuple[list[str], list[str]]:
    """The images below a folder, in sorted order as `a/b.jpg`, and the other files, for the caller to report.

    Hidden files and folders are in neither.
    """
    if not root.is_dir():
        raise DataFormatError(f"{root}: no such folder")
    files = sorted((path.relative_to(root).as_posix(), path.suffix.lower() in SUFFIXES) for path in _walk(root))
    return [name for name, is_image in files if is_image], [name for name, is_image in files if not is_image]


def _walk(folder: Path) -> Iterator[Path]:
    """The files below a folder; a link to a folder above it counts as a file: following it would never end."""
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if path.is_dir() and not (path.is_symlink() and path.resolve() in map(Path.resolve, path.parents)):
            yield from _walk(path)
        else:
            yield path


def label_folders(paths: Sequence[str], source: Path) -> tuple[list[str], Int64]:
    """The people, and the label of each path `NAME/photo.jpg`: the place of its folder in sorted order."""
    if not paths:
        raise DataFormatError(f"{source}: no image in a folder of its person; wanted NAME/photo.jpg in it")
    owners = [path.split("/", 1)[0] for path in paths]
    people = sorted(set(owners))
    places = {name: label for label, name in enumerate(people)}
    return people, np.array([places[name] for name in owners], dtype=np.int64)


class ImageFiles:
    """Image files, by their paths below a folder."""

    root: Path
    paths: list[str]

    def read(self, index: int) -> bytes:
        """The bytes of one file."""
        return read_bytes(self.root / self.paths[index])


class PeopleFolder(ImageFiles):
    """A folder for each person: `root/NAME/photo.jpg`; a label is the folder's place in sorted order."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        images, self.ignored = find_images(self.root)
        self.paths = [path for path in images if "/" in path]
        self.ignored += [path for path in images if "/" not in path]
        self.people, self.labels = label_folders(self.paths, self.root)
