"""A subset of the images of a set, and the fingerprint of a set."""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sphereface.arrays import Bools, Int64
from sphereface.data.names import Names
from sphereface.data.people import FaceSet
from sphereface.errors import UserError


@dataclass(frozen=True, eq=False)
class Subset:
    """Chosen rows of a set, in their order, with people and labels of their own."""

    faces: FaceSet
    rows: Int64
    people: Sequence[str]
    labels: Int64

    @cached_property
    def paths(self) -> Sequence[str]:
        """The path of each image in the set."""
        paths = self.faces.paths
        return paths.at(self.rows) if isinstance(paths, Names) else [paths[row] for row in self.rows]

    def read(self, index: int) -> bytes:
        """The image's encoded bytes."""
        return self.faces.read(int(self.rows[index]))

    def keep(self, kept: Bools) -> "Subset":
        """The images with a true `kept` (N,); people and labels stay the same, even of people without images."""
        return Subset(self, np.flatnonzero(kept), self.people, self.labels[kept])


def without(faces: FaceSet, names: Collection[str]) -> tuple[Subset, tuple[str, ...]]:
    """A set without some people and images, given by person's name or image's path, and the names without a match.

    People without images are dropped, and the others get new labels 0, 1, 2, ..., in their old order. Without names
    the set keeps its labels.
    """
    labels = np.asarray(faces.labels, np.int64)
    if not names:
        return Subset(faces, np.arange(len(labels)), faces.people, labels), ()
    unwanted = set(names)
    person_stays = np.array([name not in unwanted for name in faces.people])
    image_stays = np.array([path not in unwanted for path in faces.paths])
    rows = np.flatnonzero(person_stays[labels] & image_stays)
    if not len(rows):
        raise UserError(f"all {len(labels):,} images are excluded; exclude fewer")
    old, new = np.unique(labels[rows], return_inverse=True)
    unknown = unwanted.difference(faces.people, faces.paths)
    return Subset(faces, rows, [faces.people[label] for label in old], new.astype(np.int64)), tuple(sorted(unknown))


def fingerprint(faces: FaceSet) -> str:
    """SHA-256 over paths and labels in their order; fast, since it reads no pixels."""
    digest = hashlib.sha256(np.asarray(faces.labels, "<i8").tobytes())
    digest.update("\0".join(faces.paths).encode(errors="surrogateescape"))  # a file name may be invalid UTF-8
    return digest.hexdigest()
