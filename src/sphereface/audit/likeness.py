"""Likeness of people by features: wrong labels, and two names of one person.

A person is the mean direction of their features. Likeness (a cosine) of strangers is nearly normal: its quantile for
the number of comparisons bounds strangers from above. Random draws of a few photos of known people bound the likeness
of one person from below. The threshold is the middle of the two bounds, or the strangers' bound where they overlap.

All photos and people are compared in blocks: a matrix product has at most `block` rows and columns. With another block
size, a likeness may differ by the rounding of float32, about 1e-7.
"""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from sphereface.arrays import Float32, Float64, Int64
from sphereface.audit.people import BLOCK, People, blocks
from sphereface.errors import UserError
from sphereface.progress import Progress, silent

COUNTS = (1, 2, 4, 8, 16)  # numbers of photos for which thresholds are calibrated
DRAWS = 5  # random draws per person and number of photos
RARE = 0.01  # quantile of the likeness of true pairs that is its lower bound
STRANGE = 2.0  # deviations above the strangers' median; a photo below is as unlike its own person as a stranger
TRUSTED = 3  # labels of people with fewer photos are not checked
SAMPLE = 2000  # photos compared with all other people to measure the likeness of strangers


class Doubt(NamedTuple):
    """A photo that does not look like its label; `like` is the label that it looks like, or -1."""

    photo: int
    like: int
    own: float  # likeness with the other photos of its label
    other: float  # likeness with the most similar other person


class Scale(NamedTuple):
    """Thresholds of likeness for a set of features, by the smaller number of photos of two people."""

    middle: float  # median likeness of strangers
    spread: float  # its robust standard deviation
    thresholds: dict[int, float]  # by number of photos
    chance: dict[int, float]  # by number of photos: share of true pairs above the threshold

    def threshold(self, counts: Int64) -> Float64:
        """The threshold for each number of photos in `counts`."""
        known = np.array(sorted(self.thresholds))
        place = np.clip(np.searchsorted(known, counts, side="right") - 1, 0, len(known) - 1)
        return np.array([self.thresholds[count] for count in known.tolist()])[place]


def calibrate(people: People, *, comparisons: int, seed: int = 0) -> Scale:
    """Measure thresholds on people with mostly correct labels, for a number of `comparisons`."""
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


def strangers(people: People, *, block: int = BLOCK) -> tuple[float, float]:
    """Median and robust deviation of the likeness of photos with other people."""
    rows = np.linspace(0, len(people.features) - 1, min(len(people.features), SAMPLE)).astype(int)
    photos, labels, centres = people.unit(rows), people.labels[rows], people.directions
    known = np.empty(len(rows) * len(centres), np.float32)
    count = 0
    for part in blocks(len(centres), block):
        likeness = photos @ centres[part].T
        wanted = (labels[:, None] != np.arange(part.start, part.stop)) & (people.counts[part] > 0)
        found = likeness[wanted & np.isfinite(likeness)]
        known[count : count + len(found)] = found
        count += len(found)
    if not count:
        raise UserError("features of one person; wanted at least two people, to measure the likeness of strangers")
    known = known[:count]  # sorted and changed in place: with many people it is as large as all features
    middle = float(np.median(known, overwrite_input=True))
    known -= middle
    return middle, float(1.4826 * np.median(np.abs(known, out=known), overwrite_input=True))


def _true_likeness(people: People, count: int, rng: np.random.Generator) -> Float64:
    """Likeness of `count` random photos of a person with all their others; people need 2 count + 1 photos."""
    found = []
    order = np.argsort(people.labels, kind="stable")
    edges = np.concatenate([[0], np.cumsum(people.counts)])
    for person in np.flatnonzero(people.counts >= 2 * count + 1):
        photos = order[edges[person] : edges[person + 1]]
        for _ in range(DRAWS):
            drawn = people.unit(rng.choice(photos, count, replace=False)).sum(axis=0)
            rest = people.sums[person] - drawn
            found.append(drawn @ rest / max(float(np.linalg.norm(drawn) * np.linalg.norm(rest)), 1e-9))
    return np.array(found)


def doubts(people: People, scale: Scale, *, block: int = BLOCK, progress: Progress = silent) -> list[Doubt]:
    """Photos that look like another person, or as unlike their own label as strangers; the worst first.

    `progress` counts the photos that are compared.
    """
    own = people.own_likeness()
    centres = people.directions
    limit = scale.thresholds[1]
    found = []
    for part in blocks(len(own), block):
        likest, score = _likest(people.unit(part), people.labels[part], centres, block)
        for i, (like, other) in enumerate(zip(likest.tolist(), score.tolist(), strict=True), part.start):
            if people.counts[people.labels[i]] < TRUSTED:
                continue
            if other >= limit and other > own[i]:
                found.append(Doubt(i, like, float(own[i]), other))
            elif own[i] < scale.middle + STRANGE * scale.spread:
                found.append(Doubt(i, -1, float(own[i]), other))
        progress(part.stop, len(own))
    return sorted(found, key=lambda doubt: doubt.own - doubt.other)


def _likest(photos: Float32, labels: Int64, centres: Float32, block: int) -> tuple[Int64, Float32]:
    """The most similar person other than the photo's own, the first of equals, and the likeness; (N,) each."""
    likest, score = np.zeros(len(photos), np.int64), np.full(len(photos), -np.inf, np.float32)
    for part in blocks(len(centres), block):
        likeness = photos @ centres[part].T
        own = np.flatnonzero((labels >= part.start) & (labels < part.stop))
        likeness[own, labels[own] - part.start] = -np.inf
        here = likeness.argmax(axis=1)
        best = likeness[np.arange(len(here)), here]
        better = best > score
        likest[better], score[better] = here[better] + part.start, best[better]
    return likest, score


def one_person(a: People, b: People, scale: Scale, *, within: bool, block: int = BLOCK) -> list[tuple[int, int, float]]:
    """Pairs of people with a likeness above the threshold, highest first; `within` one set each pair once."""
    ours, theirs = a.directions, b.directions
    lowest = min(scale.thresholds.values())
    pairs: list[tuple[int, int, float]] = []
    for rows in blocks(len(ours), block):
        for columns in blocks(len(theirs), block):
            if within and columns.stop <= rows.start:
                continue
            likeness = ours[rows] @ theirs[columns].T
            near, far = np.nonzero(
                likeness >= np.float32(lowest)
            )  # a superset of the pairs: no float32 lies between `lowest` and its float32
            first, second, score = near + rows.start, far + columns.start, likeness[near, far].astype(np.float64)
            fewer = np.minimum(a.counts[first], b.counts[second])
            alike = (score >= scale.threshold(fewer)) & (fewer > 0)
            if within:
                alike &= first < second
            pairs += zip(first[alike].tolist(), second[alike].tolist(), score[alike].tolist(), strict=True)
    return sorted(pairs, key=lambda pair: (-pair[2], pair[:2]))
