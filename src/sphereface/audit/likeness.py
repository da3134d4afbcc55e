"""People by features: who looks like whom, and how much likeness means anything.

A person is the mean direction of their features. Likeness of strangers is nearly normal, so its tail says where a
stranger hardly reaches, however many are compared; drawing a few photos of known people says where a person begins.
Half way between the two, or at the strangers' end where they overlap, two count as one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

COUNTS = (1, 2, 4, 8, 16)  # of photos for which likeness is calibrated
DRAWS = 5  # per person and count
RARE = 0.01  # share of true pairs that may lie below where a person begins
STRANGE = 2.0  # deviations above the strangers' median, below which a photo is no more like its name than like others
TRUSTED = 3  # photos that a person needs before any of them is doubted

Floats = NDArray[np.float32]


class Doubt(NamedTuple):
    """A photo that does not look like its name; `like` is whom it does look like, or -1."""

    photo: int
    like: int
    own: float  # likeness with the other photos of its name
    other: float  # with the likest other person


@dataclass(frozen=True)
class People:
    """Features of faces at length one, grouped."""

    features: Floats  # (N, D)
    labels: NDArray[np.int64]  # (N,)
    sums: Floats  # (K, D)
    counts: NDArray[np.int64]  # (K,)

    @classmethod
    def of(cls, features: Floats, labels: NDArray[np.int64], people: int) -> "People":
        """Group features (N, D) by labels 0..K-1; a person may have none."""
        lengths = np.linalg.norm(features, axis=1, keepdims=True)
        unit = np.divide(features, lengths, out=np.zeros_like(features), where=lengths > 0)
        sums = np.zeros((people, features.shape[1]), np.float32)
        np.add.at(sums, labels, unit)
        return cls(unit, labels, sums, np.bincount(labels, minlength=people))

    @property
    def directions(self) -> Floats:
        """Mean directions (K, D)."""
        return directions(self.sums)

    def merged(self, pairs: Iterable[tuple[int, int]]) -> "People":
        """The same photos, with each second person of a pair counted as the first; the second has none left."""
        owner = np.arange(len(self.counts))
        for first, second in pairs:
            owner[owner == owner[second]] = owner[first]
        return People.of(self.features, owner[self.labels], len(self.counts))

    def own_likeness(self) -> Floats:
        """Likeness (N,) of each photo with the others of its person."""
        rest = directions(self.sums[self.labels] - self.features)
        return np.asarray(np.einsum("nd,nd->n", self.features, rest))


def directions(sums: Floats) -> Floats:
    """Rows at length one; zeros stay."""
    length = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.asarray(np.divide(sums, length, out=np.zeros_like(sums), where=length > 1e-6))


class Scale(NamedTuple):
    """What likeness means for these features: from which on, by the fewer photos of two, they are one person."""

    middle: float  # of strangers
    spread: float
    thresholds: dict[int, float]  # by number of photos
    chance: dict[int, float]  # that a true pair lies above

    def threshold(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """The threshold for each number of photos."""
        known = np.array(sorted(self.thresholds))
        place = np.clip(np.searchsorted(known, counts, side="right") - 1, 0, len(known) - 1)
        return np.array([self.thresholds[count] for count in known.tolist()])[place]


def calibrate(people: People, *, comparisons: int, seed: int = 0) -> Scale:
    """The scale of likeness, from people that are mostly labelled right; `comparisons` will be made with it."""
    middle, spread = strangers(people)
    end = middle + spread * NormalDist().inv_cdf(1 - 0.5 / max(comparisons, 2))
    thresholds: dict[int, float] = {}
    chance: dict[int, float] = {}
    for count in COUNTS:
        true = _true_likeness(people, count, np.random.default_rng([seed, count]))
        if not len(true):
            break
        begin = float(np.quantile(true, RARE))
        thresholds[count] = (end + begin) / 2 if begin > end else end
        chance[count] = float((true >= thresholds[count]).mean())
    return Scale(middle, spread, thresholds or {1: end}, chance)


def strangers(people: People) -> tuple[float, float]:
    """Median and robust deviation of the likeness of photos with other people."""
    rows = np.linspace(0, len(people.features) - 1, min(len(people.features), 2000)).astype(int)
    likeness = people.features[rows] @ people.directions.T
    likeness[np.arange(len(rows)), people.labels[rows]] = np.nan
    likeness[:, people.counts == 0] = np.nan
    known = likeness[np.isfinite(likeness)]
    if not len(known):
        raise ValueError("features of one person; likeness of strangers needs at least two")
    middle = float(np.median(known))
    return middle, float(1.4826 * np.median(np.abs(known - middle)))


def _true_likeness(people: People, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Likeness of `count` photos of a person with all their others, over people who have enough."""
    found = []
    order = np.argsort(people.labels, kind="stable")
    edges = np.concatenate([[0], np.cumsum(people.counts)])
    for person in np.flatnonzero(people.counts >= 2 * count + 1):
        photos = order[edges[person] : edges[person + 1]]
        for _ in range(DRAWS):
            drawn = people.features[rng.choice(photos, count, replace=False)].sum(axis=0)
            rest = people.sums[person] - drawn
            found.append(drawn @ rest / max(float(np.linalg.norm(drawn) * np.linalg.norm(rest)), 1e-9))
    return np.array(found)


def doubts(people: People, scale: Scale) -> list[Doubt]:
    """Photos that look like another person, or no more like their own name than strangers do; the worst first."""
    own = people.own_likeness()
    centres = people.directions
    limit = scale.thresholds[1]
    found = []
    for start in range(0, len(own), 4096):
        part = slice(start, start + 4096)
        likeness = people.features[part] @ centres.T
        likeness[np.arange(len(likeness)), people.labels[part]] = -np.inf
        likest, score = likeness.argmax(axis=1), likeness.max(axis=1)
        for i, (like, other) in enumerate(zip(likest.tolist(), score.tolist(), strict=True), start):
            if people.counts[people.labels[i]] < TRUSTED:
                continue
            if other >= limit and other > own[i]:
                found.append(Doubt(i, like, float(own[i]), other))
            elif own[i] < scale.middle + STRANGE * scale.spread:
                found.append(Doubt(i, -1, float(own[i]), other))
    return sorted(found, key=lambda doubt: doubt.own - doubt.other)


def one_person(a: People, b: People, scale: Scale, *, within: bool) -> list[tuple[int, int, float]]:
    """Pairs of people who look like one; `within` a set each pair is named once. The likest first."""
    likeness = (a.directions @ b.directions.T).astype(np.float64)
    fewer = np.minimum(a.counts[:, None], b.counts[None])
    alike = (likeness >= scale.threshold(fewer)) & (fewer > 0)
    if within:
        alike = np.triu(alike, 1)
    pairs = [(int(i), int(j), float(likeness[i, j])) for i, j in zip(*np.nonzero(alike), strict=True)]
    return sorted(pairs, key=lambda pair: -pair[2])
