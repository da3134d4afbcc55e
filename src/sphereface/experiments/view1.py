"""View 1 of LFW as a test: its faces, aligned by our own detector, and a network's statistics on them."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sphereface.arrays import Bools, Float32, Float64, Int64, UInt8
from sphereface.contract import read_card
from sphereface.data.aligning.run import Job, align_folder
from sphereface.data.lists.pairs import read_pairs
from sphereface.data.manifest import require_faces
from sphereface.data.people import PeopleFolder
from sphereface.data.reading import read_face
from sphereface.errors import JobFailed
from sphereface.evaluation import verify_held_out
from sphereface.experiments.loop import extract
from sphereface.faces.images import inspect
from sphereface.faces.warp import CROPS, as_crop
from sphereface.metrics import AllPairs
from sphereface.metrics.bootstrap import pair_weights
from sphereface.models import load_model
from sphereface.models.inputs import to_tensor
from sphereface.progress import Say
from sphereface.training.recipes import small

FAR = 1e-3
STATISTICS = ("accuracy", "tar")
# People of the training set that are also in LFW, found by `data audit --against` (results/audit.md).
IN_LFW = ("p012", "p129", "p281")


class Unseen(NamedTuple):
    """The test faces: pixels (N, 112, 112, 3) or (N, 112, 96, 3), their people (N,), and the pairs of view 1."""

    pixels: UInt8
    people: Int64
    left: Int64
    right: Int64
    same: Bools
    tested: Bools  # pairs of DevTest; mean and threshold are from the others, DevTrain


@dataclass(frozen=True, eq=False)
class Measured:
    """Statistics of a network's features (N, 2 D) of the test faces; `drawn` weights people, for a bootstrap."""

    features: Float32
    test: Unseen

    @cached_property
    def correct(self) -> Bools:
        """A mask of the pairs of DevTest that are decided correctly, with mean and threshold from DevTrain."""
        left, right = self.features[self.test.left], self.features[self.test.right]
        return verify_held_out(left, right, self.test.same, self.test.tested).correct

    @cached_property
    def all_pairs(self) -> AllPairs:
        """All pairs of test faces; of the different ones only those that can matter for a FAR of 1e-3 in any draw."""
        many = len(self.features) > 1_000
        return AllPairs(self.features, self.test.people, highest=20 * FAR if many else 1.0)

    def accuracy(self, drawn: Float64 | None = None) -> float:
        """The accuracy on DevTest."""
        if drawn is None:
            return float(self.correct.mean())
        tested = self.test.tested
        pairs = self.test.people[self.test.left[tested]], self.test.people[self.test.right[tested]]
        return float(np.average(self.correct, weights=pair_weights(drawn, *pairs)))

    def tar(self, drawn: Float64 | None = None) -> float:
        """The true accept rate at a false accept rate of 1e-3 over all pairs."""
        return self.all_pairs.tar_at_far(FAR, drawn)


def align_test(photos: Path, aligned: Path, *, workers: int, say: Say) -> Path:
    """Align the test photos; a photo without a face is an error, because every loss is tested on all of them."""
    say(f"aligning {photos}")
    report = align_folder(Job(photos, aligned, crop="112x112", format="png"), workers=workers)
    lost = len(report.none) + len(report.unreadable)
    if lost:
        raise JobFailed(f"{aligned}: {lost} photos without a face, listed in its report.json; wanted a face in each")
    return aligned


def gather_test(faces: Path, aligned: Path) -> Unseen:
    """The aligned test faces with the pairs of view 1."""
    require_faces(aligned, PeopleFolder(aligned), small().alignment)
    images = PeopleFolder(aligned)
    crop = "112x112" if inspect(images.read(0)).width == CROPS["112x112"].width else "112x96"
    place = {path.rsplit(".", 1)[0]: row for row, path in enumerate(images.paths)}
    dev_train, dev_test = (read_pairs(faces / f"pairsDev{part}.txt") for part in ("Train", "Test"))
    pairs = [*dev_train, *dev_test]

    def side(name: str) -> Int64:
        return np.array([place[getattr(pair, name).rsplit(".", 1)[0]] for pair in pairs])

    return Unseen(
        pixels=np.stack([read_face(images, row, crop) for row in range(len(images.paths))]),
        people=images.labels,
        left=side("left"),
        right=side("right"),
        same=np.array([pair.same for pair in pairs]),
        tested=np.arange(len(pairs)) >= len(dev_train),
    )


def row(measured: Measured) -> dict[str, float]:
    """Each statistic by its name."""
    return {statistic: getattr(measured, statistic)() for statistic in STATISTICS}


def measure(model: Path, test: Unseen) -> Measured:
    """A trained network on the test faces, by the feature rule on its card."""
    mirror = read_card(model).feature_rule != "image"
    faces = np.stack([as_crop(face, "112x96") for face in test.pixels])
    return Measured(extract(load_model(model), to_tensor(faces), mirror=mirror), test)


def people_of_dev_train(test: Unseen) -> Int64:
    """The rows of the faces of all people in pairs of DevTrain, on whom a model may be calibrated."""
    people = np.unique(test.people[np.concatenate([test.left[~test.tested], test.right[~test.tested]])])
    return np.flatnonzero(np.isin(test.people, people))
