"""Pairs of videos scored by their frames, under three policies.

| policy | representation of a video | score of a pair |
|---|---|---|
| mean-feature | the mean of its frames' features | the rule's score of two features |
| mean-score | its frames | the mean cosine over all pairs of a frame of each |
| max-score | its frames | the highest of these cosines |
"""

import math
from collections.abc import Callable, Sequence
from typing import IO

import numpy as np
from numpy.typing import ArrayLike

from sphereface.arrays import Bools, Float32, Float64, Int64, unit_rows
from sphereface.choices import FramePolicy, PairRule
from sphereface.data.lists.pairs import Pair
from sphereface.errors import UserError
from sphereface.evaluation.rules.verification import RULES, Verification, judge_folds, require_rule, verify_folds

POLICIES: dict[FramePolicy, str] = {
    "mean-feature": "a video is the mean of the features, each at its own length, of up to {frames} evenly spaced "
    "frames",
    "mean-score": "a pair's score is the mean cosine of all pairs of a frame of one video and a frame of the other, up "
    "to {frames} evenly spaced frames of each",
    "max-score": "a pair's score is the highest cosine of a frame of one video and a frame of the other, up to "
    "{frames} evenly spaced frames of each",
}

# The rules on given scores, from which no mean feature can be subtracted.
ON_SCORES: dict[PairRule, str] = {
    "authors": "the threshold comes from the pairs of the other splits, no mean is subtracted; 20,001 thresholds over "
    "-1..1, the mean of the best; a score on the threshold is wrong",
    "insightface": "features of image and mirror image are summed, then normalised; squared distances, 2 - 2 cos; of "
    "the thresholds 0, 0.01, ..., 3.99 the first best for the pairs of the other splits; same means below it",
    "best": RULES["best"].sentence,
}


def verify_scores(cosines: ArrayLike, same: ArrayLike, fold: ArrayLike, *, rule: PairRule = "authors") -> Verification:
    """Accuracy over held-out folds of given scores, thresholds from the other folds.

    cosines (N,), same bool (N,), fold any integers (N,). `authors` subtracts no mean here.
    """
    require_rule(rule)
    scores = np.asarray(cosines, dtype=np.float64)
    if rule == "insightface":
        scores = np.asarray(2 * scores - 2)  # minus the squared distance
    truth, folds = np.asarray(same).astype(bool), np.asarray(fold)
    if scores.ndim != 1 or truth.shape != scores.shape or folds.shape != scores.shape:
        shapes = ", ".join(str(array.shape) for array in (scores, truth, folds))
        raise UserError(f"cosines, same, fold have shapes {shapes}; wanted (N,) each")
    if not np.isfinite(scores).all():
        raise UserError(f"{(~np.isfinite(scores)).sum():,} of {len(scores):,} cosines are not finite; wanted numbers")
    return judge_folds(rule, lambda _fit_on: scores, truth, folds)


class MeanFeature:
    """Keeps the mean feature of each video; the rules treat it as the feature of a photo."""

    def __init__(self, mirrored: bool, _file: IO[bytes]) -> None:
        self.mirrored = mirrored
        self.means: dict[str, Float64] = {}

    def add(self, name: str, features: Float32, /) -> None:
        """Take the features (F, D) of a video's frames."""
        self.means[name] = features.mean(0, dtype=np.float64)

    def verify(self, pairs: Sequence[Pair], rule: PairRule, /) -> Verification:
        """Judge pairs of videos that were added."""
        left = np.stack([self.means[pair.left] for pair in pairs])
        right = np.stack([self.means[pair.right] for pair in pairs])
        return verify_folds(left, right, *_truth(pairs), rule=rule, mirrored=self.mirrored)


class MeanScore:
    """Keeps the mean of each video's unit features: the product of two such means is the mean cosine."""

    def __init__(self, mirrored: bool, _file: IO[bytes]) -> None:
        self.mirrored = mirrored
        self.means: dict[tuple[str, bool], Float64] = {}  # by video, and by whether mirror images are summed

    def add(self, name: str, features: Float32, /) -> None:
        """Take the features (F, D) of a video's frames."""
        for summed in {False, self.mirrored}:
            self.means[name, summed] = _directions(features, summed=summed).mean(0)

    def verify(self, pairs: Sequence[Pair], rule: PairRule, /) -> Verification:
        """Judge pairs of videos that were added."""
        summed = self.mirrored and RULES[rule].sums_mirrors
        cosines = [float(self.means[pair.left, summed] @ self.means[pair.right, summed]) for pair in pairs]
        return verify_scores(np.clip(cosines, -1, 1), *_truth(pairs), rule=rule)


class MaxScore:
    """Keeps all features of each video in a file; two videos at a time are in memory."""

    def __init__(self, mirrored: bool, file: IO[bytes]) -> None:
        self.mirrored, self.file = mirrored, file
        self.places: dict[str, tuple[int, tuple[int, ...]]] = {}

    def add(self, name: str, features: Float32, /) -> None:
        """Take the features (F, D) of a video's frames."""
        self.places[name] = self.file.tell(), features.shape
        self.file.write(np.ascontiguousarray(features, dtype=np.float32).tobytes())

    def verify(self, pairs: Sequence[Pair], rule: PairRule, /) -> Verification:
        """Judge pairs of videos that were added."""
        summed = self.mirrored and RULES[rule].sums_mirrors
        cosines = []
        for pair in pairs:
            left, right = (_directions(self._read(name), summed=summed) for name in (pair.left, pair.right))
            cosines.append(float((left @ right.T).max()))
        return verify_scores(np.clip(cosines, -1, 1), *_truth(pairs), rule=rule)

    def _read(self, name: str) -> Float32:
        start, shape = self.places[name]
        self.file.seek(start)
        stored = self.file.read(4 * math.prod(shape))
        return np.frombuffer(stored, dtype=np.float32).reshape(shape)


Judge = MeanFeature | MeanScore | MaxScore  # takes the features of each video, then judges pairs of videos
JUDGES: dict[FramePolicy, Callable[[bool, IO[bytes]], Judge]] = {
    "mean-feature": MeanFeature,
    "mean-score": MeanScore,
    "max-score": MaxScore,
}


def _directions(features: Float32, *, summed: bool) -> Float64:
    """Unit features in float64; `summed` first adds the two halves, those of image and mirror image."""
    wide = features.astype(np.float64)
    if summed:
        wide = wide[:, : wide.shape[1] // 2] + wide[:, wide.shape[1] // 2 :]
    return unit_rows(wide)


def _truth(pairs: Sequence[Pair]) -> tuple[Bools, Int64]:
    return np.array([pair.same for pair in pairs]), np.array([pair.fold for pair in pairs])
