"""The photos of LFW's view 1, or of another list of pairs: aligned by our own detector; without torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sphereface.arrays import Bools, Int64, UInt8
from sphereface.contract import Alignment
from sphereface.data.aligning.run import Job, align_folder
from sphereface.data.lists.pairs import read_pairs
from sphereface.data.manifest import require_faces
from sphereface.data.people import PeopleFolder
from sphereface.data.reading import read_face
from sphereface.errors import JobFailed
from sphereface.faces.images import inspect
from sphereface.faces.warp import CROPS
from sphereface.progress import Say

# People of the training set that are also in LFW, found by `data audit --against` (results/audit.md).
IN_LFW = ("p012", "p129", "p281")
ALIGNED = "lfw-dev-112x112"  # in a folder of runs
VIEW_1, VIEW_2 = ("pairsDevTrain.txt", "pairsDevTest.txt"), "pairs.txt"


class Unseen(NamedTuple):
    """The test faces: pixels (N, 112, 112, 3) or (N, 112, 96, 3), their people (N,), and the pairs of a view."""

    pixels: UInt8
    people: Int64
    left: Int64
    right: Int64
    same: Bools
    tested: Bools  # view 1: the pairs of DevTest; mean and threshold are from the others, DevTrain
    fold: Int64 | None = None  # view 2: mean and threshold are from the other folds


def align_test(photos: Path, aligned: Path, *, workers: int, say: Say) -> Path:
    """Align the test photos; a photo without a face is an error, because every loss is tested on all of them."""
    say(f"aligning {photos}")
    report = align_folder(Job(photos, aligned, crop="112x112", format="png"), workers=workers)
    lost = len(report.none) + len(report.unreadable)
    if lost:
        raise JobFailed(f"{aligned}: {lost} photos without a face, listed in its report.json; wanted a face in each")
    return aligned


def gather_test(faces: Path, aligned: Path) -> Unseen:
    """The aligned test faces with the pairs of view 1, whose lists are in the folder `faces`."""
    return gather_pairs(aligned, [faces / name for name in VIEW_1])


def gather_pairs(aligned: Path, lists: Sequence[Path]) -> Unseen:
    """The aligned faces of a folder with the pairs of one list with folds, or of the two lists of view 1."""
    images = PeopleFolder(aligned)
    require_faces(aligned, images, Alignment())
    crop = crop_of(images.read(0)) or "112x96"
    place = {path.rsplit(".", 1)[0]: row for row, path in enumerate(images.paths)}
    read = [read_pairs(path) for path in lists]
    pairs = [pair for each in read for pair in each]

    def side(name: str) -> Int64:
        return np.array([place[getattr(pair, name).rsplit(".", 1)[0]] for pair in pairs])

    has_folds = len(read) == 1
    return Unseen(
        pixels=np.stack([read_face(images, row, crop) for row in range(len(images.paths))]),
        people=images.labels,
        left=side("left"),
        right=side("right"),
        same=np.array([pair.same for pair in pairs]),
        tested=np.full(len(pairs), True) if has_folds else np.arange(len(pairs)) >= len(read[0]),
        fold=np.array([pair.fold for pair in pairs]) if has_folds else None,
    )


def crop_of(image: bytes) -> str | None:
    """The crop that an encoded image is, by its size; None: a photo that is not aligned."""
    header = inspect(image)
    for crop in ("112x112", "112x96"):
        if (header.height, header.width) == (CROPS[crop].height, CROPS[crop].width):
            return crop
    return None


def align_and_gather(faces: Path, runs: Path, aligned: Path | None = None, *, jobs: int, say: Say) -> Unseen:
    """The test faces; aligned on the first call, unless they are given."""
    runs.mkdir(parents=True, exist_ok=True)
    if aligned is None:
        aligned = align_test(faces / "lfw-dev", runs / ALIGNED, workers=jobs, say=say)
    return gather_test(faces, aligned)


def people_of_dev_train(test: Unseen) -> Int64:
    """The rows of the faces of all people in pairs of DevTrain, on whom a model may be calibrated."""
    people = np.unique(test.people[np.concatenate([test.left[~test.tested], test.right[~test.tested]])])
    return np.flatnonzero(np.isin(test.people, people))


def people_of_dev_test(test: Unseen) -> Int64:
    """The rows of the faces of all people in pairs of DevTest; none of them is in pairs of DevTrain."""
    people = np.unique(test.people[np.concatenate([test.left[test.tested], test.right[test.tested]])])
    return np.setdiff1d(np.flatnonzero(np.isin(test.people, people)), people_of_dev_train(test))
