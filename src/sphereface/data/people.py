"""Sets of photos or faces of named people: what every format offers, and the plainest one, a folder for each person."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from sphereface.arrays import Int64
from sphereface.errors import DataFormatError
from sphereface.faces.images import read_bytes

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff"})


class FaceSet(Protocol):
    """Encoded images of people in a fixed order; it can be sent to another process, and reads from there too."""

    @property
    def people(self) -> Sequence[str]:
        """Names; a label is a place in this list."""

    @property
    def labels(self) -> Int64:
        """Whose image each one is, (N,)."""

    @property
    def paths(self) -> Sequence[str]:
        """What each image is called within the set: `person/photo.jpg`, with slashes on every system."""

    def read(self, index: int) -> bytes:
        """The image's encoded bytes; `data.reading` has one error for whatever is wrong with one image."""


def find_images(root: Path) -> tuple[list[str], list[str]]:
    """The images below a folder, in sorted order as `a/b.jpg`, and the other files, which a caller should name.

    Hidden files and folders belong to neither.
    """
    if not root.is_dir():
        raise DataFormatError(f"{root}: no such folder")
    images: list[str] = []
    others: list[str] = []
    for path in _walk(root):
        name = path.relative_to(root).as_posix()
        (images if path.suffix.lower() in SUFFIXES else others).append(name)
    return sorted(images), sorted(others)


def _walk(folder: Path) -> Iterator[Path]:
    """The files below a folder; a link to a folder above it is taken for a file: followed, it would never end."""
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if path.is_dir() and not (path.is_symlink() and path.resolve() in map(Path.resolve, path.parents)):
            yield from _walk(path)
        else:
            yield path


class PeopleFolder:
    """One folder a person: `root/NAME/photo.jpg`; a label is the folder's place in sorted order."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        images, self.ignored = find_images(self.root)
        self.paths = [path for path in images if "/" in path]
        self.ignored += [path for path in images if "/" not in path]
        owners = [path.split("/", 1)[0] for path in self.paths]
        self.people = sorted(set(owners))
        place = {name: label for label, name in enumerate(self.people)}
        self.labels = np.array([place[name] for name in owners], dtype=np.int64)
        if not self.paths:
            raise DataFormatError(
                f"{self.root}: no image in a folder of its person; wanted {self.root.name}/NAME/photo.jpg"
            )

    def read(self, index: int) -> bytes:
        """The bytes of one file."""
        return read_bytes(self.root / self.paths[index])
