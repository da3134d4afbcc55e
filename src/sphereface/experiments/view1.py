"""LFW as a test, by view 1 or by folds: a network's statistics on its faces."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from sphereface.arrays import Bools, Float32, Float64
from sphereface.contract import read_card
from sphereface.evaluation import verify_folds, verify_held_out
from sphereface.experiments.lfw_dev import Unseen
from sphereface.experiments.loop import extract
from sphereface.faces.warp import as_crop
from sphereface.metrics import AllPairs
from sphereface.metrics.bootstrap import pair_weights
from sphereface.models import load_model
from sphereface.models.inputs import to_tensor

FAR = 1e-3
STATISTICS = ("accuracy", "tar")


@dataclass(frozen=True, eq=False)
class Measured:
    """Statistics of a network's features (N, 2 D) of the test faces; `drawn` weights people, for a bootstrap."""

    features: Float32
    test: Unseen

    @cached_property
    def correct(self) -> Bools:
        """A mask of the tested pairs that are decided correctly: mean and threshold from DevTrain, or other folds."""
        left, right = self.features[self.test.left], self.features[self.test.right]
        if self.test.fold is not None:
            return verify_folds(left, right, self.test.same, self.test.fold).correct
        return verify_held_out(left, right, self.test.same, self.test.tested).correct

    @cached_property
    def all_pairs(self) -> AllPairs:
        """All pairs of test faces; of the different ones only those that can matter for a FAR of 1e-3 in any draw."""
        many = len(self.features) > 1_000
        return AllPairs(self.features, self.test.people, highest=20 * FAR if many else 1.0)

    def accuracy(self, drawn: Float64 | None = None) -> float:
        """The accuracy on the tested pairs: those of DevTest, or of all folds."""
        if drawn is None:
            return float(self.correct.mean())
        tested = self.test.tested
        pairs = self.test.people[self.test.left[tested]], self.test.people[self.test.right[tested]]
        return float(np.average(self.correct, weights=pair_weights(drawn, *pairs)))

    def tar(self, drawn: Float64 | None = None) -> float:
        """The true accept rate at a false accept rate of 1e-3 over all pairs."""
        return self.all_pairs.tar_at_far(FAR, drawn)


def row(measured: Measured) -> dict[str, float]:
    """Each statistic by its name."""
    return {statistic: getattr(measured, statistic)() for statistic in STATISTICS}


def measure(model: Path, test: Unseen) -> Measured:
    """A trained network on the test faces, by the feature rule on its card."""
    mirror = read_card(model).feature_rule != "image"
    faces = np.stack([as_crop(face, "112x96") for face in test.pixels])
    return Measured(extract(load_model(model), to_tensor(faces), mirror=mirror), test)
