"""YouTube Faces: do two videos show one person? Ten splits of video pairs, with a stated policy for the frames.

A video is a folder of aligned frames, `Name/0/0.123.jpg`. The paper does not say how many of them count, and that alone
moves the accuracy by several percent: so every result says it. Videos are embedded one after the other; of each only
its mean is kept, or, for the highest score of two frames, its features in a file that is gone afterwards.
"""

import math
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sphereface.contract import Card
from sphereface.data.formats import open_set
from sphereface.data.manifest import require_faces
from sphereface.data.pairs import Pair
from sphereface.data.people import FaceSet
from sphereface.data.videos import read_video_pairs
from sphereface.errors import DataFormatError
from sphereface.evaluation.gather import Embeds, Progress, gather, silent
from sphereface.evaluation.lfw import people_of
from sphereface.evaluation.pairs import FEATURES, Asked, Missing
from sphereface.evaluation.verification import (
    RULES,
    Bools,
    Floats,
    RuleName,
    Verification,
    VerificationReport,
    as_it_is,
    side_by_side,
    verification_report,
    verify_folds,
)
from sphereface.metrics.rates import FARS, ROUNDS

SPLITS = "splits.txt"  # as YTF calls its list; there is a `splits_corrected.txt` too
FRAMES = 100  # of a video; with so many, users of the paper's model report 97 %, otherwise 91 to 94 %

Policy = Literal["mean feature", "mean score", "max score"]
PathLike = str | Path

POLICIES: dict[Policy, str] = {
    "mean feature": "a video is the mean of the features, each at its own length, of up to {frames} evenly spaced "
    "frames",
    "mean score": "a pair's score is the mean cosine of all pairs of a frame of one video and a frame of the other, up "
    "to {frames} evenly spaced frames of each",
    "max score": "a pair's score is the highest cosine of a frame of one video and a frame of the other, up to "
    "{frames} evenly spaced frames of each",
}
# Where scores are given a rule cannot subtract a mean: what is left of each.
ON_SCORES: dict[RuleName, str] = {
    "authors": "the threshold comes from the pairs of the other splits, no mean is subtracted; 20,001 thresholds over "
    "-1..1, the mean of the best; a score on the threshold is wrong",
    "insightface": "features of image and mirror image are summed, then normalised; squared distances, 2 - 2 cos; of "
    "the thresholds 0, 0.01, ..., 3.99 the first best for the pairs of the other splits; same means below it",
    "best": RULES["best"].sentence,
}
FROM_COSINES: dict[RuleName, Callable[[Floats], Floats]] = {"insightface": lambda cosines: np.asarray(2 * cosines - 2)}


@dataclass(frozen=True)
class VideosResult:
    """What a model does on pairs of videos, and exactly how that was found."""

    data: str
    model: str
    policy: Policy
    frames: int  # of a video at most
    rule: RuleName
    reports: Mapping[RuleName, VerificationReport]  # of the rule, or of all rules side by side
    features: Mapping[RuleName, str]  # what each rule was given, in words
    listed: int  # pairs
    scored: int
    videos: int  # distinct ones, each embedded once
    embedded: int  # frames
    missing: Mapping[str, str]  # videos that could not be used, and why
    unreadable: Mapping[str, str]  # frames that were left out of their videos, and why
    notes: tuple[str, ...] = ()

    @property
    def report(self) -> VerificationReport:
        """The numbers under the rule that was asked for."""
        return self.reports[self.rule]

    @property
    def sentence(self) -> str:
        """Which frames and which rule, in one sentence."""
        return f"{self.frame_policy}; {self.sentence_of(self.rule)}"

    @property
    def frame_policy(self) -> str:
        """What was made of the frames, in words."""
        return POLICIES[self.policy].format(frames=f"{self.frames:,}")

    def sentence_of(self, rule: RuleName) -> str:
        """A rule in words: on features, or what is left of it on scores."""
        return RULES[rule].sentence if self.policy == "mean feature" else ON_SCORES[rule]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "data": self.data,
            "model": self.model,
            "policy": self.policy,
            "frames": self.frames,
            "sentence": self.sentence,
            "pairs_listed": self.listed,
            "pairs_scored": self.scored,
            "videos": self.videos,
            "frames_embedded": self.embedded,
            "missing": dict(self.missing),
            "unreadable_frames": dict(self.unreadable),
            "notes": list(self.notes),
            "rule": self.rule,
            "rules": {
                name: {**report.as_dict(), "sentence": self.sentence_of(name), "features": self.features[name]}
                for name, report in self.reports.items()
            },
        }

    def table(self) -> str:
        """The result as plain text: what was scored, by which policy and rule, and the numbers side by side."""
        lines = [
            f"{self.data}, {self.model}",
            f"{self.scored:,} of {self.listed:,} pairs scored ({self.report.same:,} same, "
            f"{self.report.different:,} different), {self.videos:,} videos, {self.embedded:,} frames",
        ]
        if self.missing:
            lines.append(f"left out: {self.listed - self.scored:,} pairs, for want of {_some(self.missing)}")
        if self.unreadable:
            lines.append(f"left out: {len(self.unreadable):,} frames, {_some(self.unreadable)}")
        lines.append(f"frames: {self.frame_policy}")
        lines += [f"rule {name}: {self.sentence_of(name)}" for name in self.reports]
        lines += [f"features for {name}: {features}" for name, features in self.features.items()]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join([*lines, "", side_by_side(list(self.reports.values()))])


def evaluate_ytf(
    embedder: Embeds,
    root: PathLike,
    splits: PathLike | None = None,
    *,
    frames: int = FRAMES,
    policy: Policy = "mean feature",
    rule: RuleName = "authors",
    all_rules: bool = False,
    missing: Missing = "fail",
    fars: Sequence[float] = FARS,
    rounds: int = ROUNDS,
    seed: int = 0,
    scratch: PathLike | None = None,
    progress: Progress = silent,
) -> VideosResult:
    """Score a model on pairs of videos over held-out splits; `root` holds aligned frames as `Name/0/frame.jpg`.

    `splits` is YTF's list, as published or corrected, or the folder where it lies as `splits.txt`; where it is not
    given, that is `root`. Of each video up to `frames` frames count, evenly spaced in the order of their numbers. A
    listed video that is not there is an error, as is a frame that cannot be read; with `missing="skip"` the pairs of
    such videos are left out, counted and named, and such a frame is left out of its video. Memory holds the pixels and
    features of one video, and one mean for each; `policy="max score"` keeps all features in a file in `scratch`, by
    default where temporary files go: 4 bytes a number, 1.4 GB for the 3,425 videos of YTF with 1,024 numbers a frame.

    >>> print(evaluate_ytf(Embedder.load("model.onnx"), "ytf-112x96", "splits_corrected.txt").table())
    """
    root = Path(root)
    asked = Asked(rule, all_rules, missing, tuple(fars), rounds, seed)
    if policy not in POLICIES:
        raise ValueError(f"unknown policy {policy!r}; choose one of {', '.join(POLICIES)}")
    if frames < 1:
        raise ValueError(f"frames is {frames}; wanted at least 1 of each video")
    if scratch is not None and not Path(scratch).is_dir():
        raise ValueError(f"{scratch}: no such folder; wanted one for a temporary file")
    listing = _listing(root, splits)
    pairs = [Pair(pair.first, pair.second, pair.same, pair.split) for pair in read_video_pairs(listing)]
    _refuse_repeats(pairs, listing)
    if len({pair.fold for pair in pairs}) < 2 and any(RULES[name].holds_out for name in asked.rules):
        raise ValueError(f"{listing}: one split, so that none can be held out; wanted at least two")
    faces = open_set(root)
    note = require_faces(root, faces, embedder.card.preprocessing.alignment)
    names = list(dict.fromkeys(name for pair in pairs for name in (pair.left, pair.right)))
    videos = _frames_of(names, faces.paths)
    absent = [name for name in names if name not in videos]
    if absent and missing == "fail":
        lost = sum(not {pair.left, pair.right} <= videos.keys() for pair in pairs)
        raise DataFormatError(
            f"{root}: {len(absent):,} of {len(names):,} listed videos are not there, such as {absent[0]}, which "
            f'{lost:,} of {len(pairs):,} pairs need; add them, or leave these pairs out with missing="skip"'
        )
    chosen = {name: evenly(places, frames) for name, places in videos.items()}
    with tempfile.TemporaryFile(dir=scratch) as file:
        judge = JUDGES[policy](embedder.card.feature_rule == "concatenate", file)
        seen = _embed_each(embedder, faces, chosen, judge, skip=missing == "skip", progress=progress)
        lost_videos = {**dict.fromkeys(absent, "not in the set"), **seen.lost}
        scored = [pair for pair in pairs if not {pair.left, pair.right} & lost_videos.keys()]
        if not scored:
            raise DataFormatError(
                f"{root}: no pair of {listing.name} has both videos, for want of {_some(lost_videos)}"
            )
        reports = {
            name: verification_report(
                judge.verify(scored, name), people=people_of(scored), fars=asked.fars, rounds=rounds, seed=seed
            )
            for name in asked.rules
        }
    gone = len({pair.fold for pair in pairs}) - len({pair.fold for pair in scored})
    notes = (note, f"{gone} of the splits have no pair left" if gone else None)
    return VideosResult(
        data=f"{root.name} ({listing.name})",
        model=embedder.card.name or "a model without a name",
        policy=policy,
        frames=frames,
        rule=rule,
        reports=reports,
        features={name: _features_for(name, embedder.card) for name in asked.rules},
        listed=len(pairs),
        scored=len(scored),
        videos=len(chosen) - len(seen.lost),
        embedded=seen.frames,
        missing=lost_videos,
        unreadable=seen.unreadable,
        notes=tuple(each for each in notes if each),
    )


def evenly(frames: Sequence[int], most: int) -> list[int]:
    """Up to `most` of some frames in order: all, or the middles of so many equal stretches."""
    if len(frames) <= most:
        return list(frames)
    return [frames[(2 * stretch + 1) * len(frames) // (2 * most)] for stretch in range(most)]


def verify_scores(cosines: ArrayLike, same: ArrayLike, fold: ArrayLike, *, rule: RuleName = "authors") -> Verification:
    """Accuracy over held-out folds of pairs that come with scores, not features: thresholds from the other folds.

    cosines (N,), same bool (N,), fold any integers (N,). `authors` has no mean to subtract here.
    """
    if rule not in RULES:
        raise ValueError(f"unknown rule {rule!r}; choose one of {', '.join(RULES)}")
    scores = FROM_COSINES.get(rule, as_it_is)(np.asarray(cosines, dtype=np.float64))
    truth, (numbers, place) = np.asarray(same).astype(bool), np.unique(np.asarray(fold), return_inverse=True)
    if scores.ndim != 1 or truth.shape != scores.shape or place.shape != scores.shape:
        shapes = ", ".join(str(array.shape) for array in (scores, truth, place))
        raise ValueError(f"cosines, same, fold have shapes {shapes}; wanted (N,) each")
    told = RULES[rule]
    if len(numbers) < (2 if told.holds_out else 1):
        raise ValueError(f"{len(numbers)} fold; wanted at least 2, so that one can be held out")
    correct, thresholds = np.zeros(len(truth), dtype=bool), []
    for held_out in range(len(numbers)):
        test = place == held_out
        fit_on = ~test if told.holds_out else np.ones_like(test)
        threshold = told.threshold(truth[fit_on], scores[fit_on])
        correct[test] = told.correct(truth[test], scores[test], threshold)
        thresholds.append(threshold)
    accuracies = np.array([correct[place == number].mean() for number in range(len(numbers))])
    return Verification(
        float(accuracies.mean()), accuracies, told.cosine(np.array(thresholds)), correct, told.cosine(scores), truth,
        place, rule,
    )  # fmt: skip


class Judge(Protocol):
    """Hears the features of one video after the other, keeps what its policy needs, and judges pairs of them."""

    def add(self, name: str, features: NDArray[np.float32], /) -> None:
        """Take the features (F, D) of a video's frames."""

    def verify(self, pairs: Sequence[Pair], rule: RuleName, /) -> Verification:
        """Judge pairs of videos that were added."""


class MeanFeature:
    """Of each video its mean feature, on which the rules work as on the feature of a photo."""

    def __init__(self, mirrored: bool, _file: IO[bytes]) -> None:
        self.mirrored = mirrored
        self.means: dict[str, Floats] = {}

    def add(self, name: str, features: NDArray[np.float32], /) -> None:
        """Take the features (F, D) of a video's frames."""
        self.means[name] = features.mean(0, dtype=np.float64)

    def verify(self, pairs: Sequence[Pair], rule: RuleName, /) -> Verification:
        """Judge pairs of videos that were added."""
        left = np.stack([self.means[pair.left] for pair in pairs])
        right = np.stack([self.means[pair.right] for pair in pairs])
        return verify_folds(left, right, *_truth(pairs), rule=rule, mirrored=self.mirrored)


class MeanScore:
    """Of each video the mean of its features at length one: the product of two such means is their mean cosine."""

    def __init__(self, mirrored: bool, _file: IO[bytes]) -> None:
        self.mirrored = mirrored
        self.means: dict[tuple[str, bool], Floats] = {}  # by video, and by whether mirror images are summed

    def add(self, name: str, features: NDArray[np.float32], /) -> None:
        """Take the features (F, D) of a video's frames."""
        for summed in {False, self.mirrored}:
            self.means[name, summed] = _directions(features, summed=summed).mean(0)

    def verify(self, pairs: Sequence[Pair], rule: RuleName, /) -> Verification:
        """Judge pairs of videos that were added."""
        summed = self.mirrored and RULES[rule].sums_mirrors
        cosines = [float(self.means[pair.left, summed] @ self.means[pair.right, summed]) for pair in pairs]
        return verify_scores(np.clip(cosines, -1, 1), *_truth(pairs), rule=rule)


class MaxScore:
    """Of each video the features of all its frames, in a file; two videos at a time are in memory."""

    def __init__(self, mirrored: bool, file: IO[bytes]) -> None:
        self.mirrored, self.file = mirrored, file
        self.places: dict[str, tuple[int, tuple[int, ...]]] = {}

    def add(self, name: str, features: NDArray[np.float32], /) -> None:
        """Take the features (F, D) of a video's frames."""
        self.places[name] = self.file.tell(), features.shape
        self.file.write(np.ascontiguousarray(features, dtype=np.float32).tobytes())

    def verify(self, pairs: Sequence[Pair], rule: RuleName, /) -> Verification:
        """Judge pairs of videos that were added."""
        summed = self.mirrored and RULES[rule].sums_mirrors
        cosines = []
        for pair in pairs:
            left, right = (_directions(self._read(name), summed=summed) for name in (pair.left, pair.right))
            cosines.append(float((left @ right.T).max()))
        return verify_scores(np.clip(cosines, -1, 1), *_truth(pairs), rule=rule)

    def _read(self, name: str) -> NDArray[np.float32]:
        start, shape = self.places[name]
        self.file.seek(start)
        stored = self.file.read(4 * math.prod(shape))
        return np.frombuffer(stored, dtype=np.float32).reshape(shape)


JUDGES: dict[Policy, Callable[[bool, IO[bytes]], Judge]] = {
    "mean feature": MeanFeature,
    "mean score": MeanScore,
    "max score": MaxScore,
}


def _directions(features: NDArray[np.float32], *, summed: bool) -> Floats:
    """Features at length one; `summed` adds image and mirror image, which stand side by side, first."""
    told = features.astype(np.float64)
    if summed:
        told = told[:, : told.shape[1] // 2] + told[:, told.shape[1] // 2 :]
    return np.asarray(told / np.maximum(np.linalg.norm(told, axis=1, keepdims=True), 1e-12))


def _truth(pairs: Sequence[Pair]) -> tuple[Bools, NDArray[np.int64]]:
    return np.array([pair.same for pair in pairs]), np.array([pair.fold for pair in pairs])


class _Seen(NamedTuple):
    """What became of the frames of videos."""

    frames: int  # embedded
    lost: dict[str, str]  # videos without any
    unreadable: dict[str, str]  # frames of the others


def _embed_each(
    embedder: Embeds, faces: FaceSet, chosen: Mapping[str, list[int]], judge: Judge, *, skip: bool, progress: Progress
) -> _Seen:
    """Embed one video after the other and show each to the judge."""
    whole, done, embedded = sum(map(len, chosen.values())), 0, 0
    lost: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    for name, places in chosen.items():
        try:
            found = gather(embedder, faces, places, skip=skip)
        except DataFormatError as error:  # none of its frames can be used
            if not skip:
                raise
            lost[name] = str(error)
        else:
            judge.add(name, found.features)
            unreadable |= found.unreadable
            embedded += len(found.features)
        done += len(places)
        progress(done, whole)
    return _Seen(embedded, lost, unreadable)


def _listing(root: Path, splits: PathLike | None) -> Path:
    place = root if splits is None else Path(splits)
    listing = place / SPLITS if place.is_dir() else place
    if not listing.is_file():
        raise DataFormatError(f"{listing}: no such list; name YTF's {SPLITS}, or the folder where it lies")
    return listing


def _refuse_repeats(pairs: Sequence[Pair], source: Path) -> None:
    seen: set[frozenset[str]] = set()
    for pair in pairs:
        both = frozenset((pair.left, pair.right))
        if len(both) == 1:
            raise DataFormatError(f"{source}: {pair.left} is listed with itself; wanted two videos")
        if both in seen:
            raise DataFormatError(f"{source}: {pair.left} and {pair.right} are listed twice; leave one out")
        seen.add(both)


def _frames_of(names: Iterable[str], paths: Sequence[str]) -> dict[str, list[int]]:
    """The places of each listed video's frames in a set, in the order of time; videos that are not there have none."""
    frames: dict[str, list[int]] = {name: [] for name in names}
    for place, path in enumerate(paths):
        folder = path.rpartition("/")[0]
        if folder in frames:
            frames[folder].append(place)
    return {name: sorted(found, key=lambda place: in_time(paths[place])) for name, found in frames.items() if found}


def in_time(path: str) -> tuple[list[int], str]:
    """A key by which frames sort as they were taken: by the numbers in their names, `0.99.jpg` before `0.100.jpg`."""
    name = path.rpartition("/")[2]
    return [int(digits) for digits in re.findall("[0-9]+", name)], name


def _features_for(rule: RuleName, card: Card) -> str:
    summed = card.feature_rule == "concatenate" and RULES[rule].sums_mirrors
    return FEATURES["sum" if summed else card.feature_rule]


def _some(missing: Mapping[str, str]) -> str:
    shown = ", ".join(f"{name} ({reason})" for name, reason in list(missing.items())[:3])
    return shown + (f", and {len(missing) - 3:,} more" if len(missing) > 3 else "")
