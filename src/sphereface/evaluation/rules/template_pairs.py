"""Pairs of templates, 1:1: scored in blocks; the scores of same pairs and the highest of different pairs are kept."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from sphereface.arrays import Bools, Float32, Float64, Int64, Integers
from sphereface.errors import UserError
from sphereface.evaluation.streaming.scores import StreamedScores
from sphereface.metrics.rates import ROUNDS, Rate, is_supported, rates_over_people, wilson_rate
from sphereface.metrics.upper_tail import UpperTail, allowed

FARS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
BLOCK = 1 << 20  # pairs scored at a time
SPARE = 2
ROOM = 1 << 16  # scores beyond twice those to keep that are collected before any is dropped


@dataclass(frozen=True, eq=False)
class TemplateVerification:
    """True accept rates of pairs of templates at low false accept rates."""

    same: int
    different: int
    tar: Mapping[float, Rate | None]  # by FAR; None where there are too few different pairs
    thresholds: Mapping[float, float | None]
    tail: UpperTail  # the exact curve, as far as the largest FAR
    intervals: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "same": self.same,
            "different": self.different,
            "tar_at_far": {f"{far:g}": rate and rate.as_dict() for far, rate in self.tar.items()},
            "threshold_at_far": {  # null for an infinite threshold, where no pair passes
                f"{far:g}": None if cut is None or math.isinf(cut) else cut for far, cut in self.thresholds.items()
            },
            "intervals": self.intervals,
        }


def verify_templates(
    features: Float32,
    first: Integers,
    second: Integers,
    same: Bools,
    *,
    subjects: Integers | None = None,
    fars: Sequence[float] = FARS,
    rounds: int = ROUNDS,
    seed: int = 0,
    block: int = BLOCK,
    spare: int = SPARE,
) -> TemplateVerification:
    """True accept rates of pairs (N,) of rows of features (T, D), scored in blocks of `block` pairs.

    With `subjects` (T,), which must agree with `same`, intervals are from a bootstrap over people, else Wilson's. Kept
    are `spare` times the different pairs that the largest FAR needs: draws of people that need more are left out.
    """
    total, positive = len(same), int(same.sum())
    if not 0 < positive < total:
        raise UserError(f"{positive:,} of {total:,} pairs are the same person; wanted some of either kind")
    supported = [far for far in fars if is_supported(far, total - positive)]
    needed = allowed(max(supported, default=0.0), total - positive)
    tail, kept = _tail(features, first, second, same, min(total - positive, spare * needed + 1), block)
    if subjects is None or not supported:
        found = [wilson_rate(tail.tar_at_far(far), positive) for far in supported]
    else:
        people, meetings = _meetings(subjects, first, second, same)
        found = rates_over_people(
            partial(_tars, tail, meetings, supported),
            np.concatenate([subjects[first[kept]], people]),
            np.concatenate([subjects[second[kept]], people]),
            rounds=rounds,
            seed=seed,
        )
    rates = dict(zip(supported, found, strict=True))
    return TemplateVerification(
        same=positive,
        different=total - positive,
        tar={far: rates.get(far) for far in fars},
        thresholds={far: tail.threshold_at_far(far) if far in rates else None for far in fars},
        tail=tail,
        intervals=f"Wilson's over {positive:,} same pairs, as if they were independent"
        if subjects is None
        else f"bootstrap over people, {rounds:,} draws",
    )


def _tail(
    features: Float32, first: Integers, second: Integers, same: Bools, keep: int, block: int
) -> tuple[UpperTail, Int64]:
    """Scores of all same pairs and of the `keep` highest different pairs; and the places of both among all pairs."""
    scores, highest = StreamedScores(features, features), HighestScores(keep)
    parts = [np.zeros(0)]
    for start in range(0, len(same), block):
        chunk = slice(start, start + block)
        found, different = scores.among_probes(first[chunk], second[chunk]), np.flatnonzero(~same[chunk])
        parts.append(found[same[chunk]])
        highest.add(found[different], different + start)
    positives = np.concatenate(parts)
    falling = np.argsort(-positives, kind="stable")
    negatives, places = highest.falling()
    tail = UpperTail(positives[falling], negatives, len(same) - len(positives))
    return tail, np.concatenate([np.flatnonzero(same)[falling], places])


class HighestScores:
    """The `keep` highest of a stream of scores, with their places."""

    def __init__(self, keep: int, *, room: int = ROOM) -> None:
        self.keep, self._room, self._cut = keep, room, -np.inf
        self._parts: list[tuple[Float64, Integers]] = [(np.zeros(0), np.zeros(0, dtype=np.int64))]
        self._held = 0

    def add(self, scores: Float64, places: Integers) -> None:
        """Take scores and their places."""
        near = np.flatnonzero(scores >= self._cut)
        self._parts.append((scores[near], places[near]))
        self._held += len(near)
        if self._held > 2 * self.keep + self._room:
            scores, places = (np.concatenate(part) for part in zip(*self._parts, strict=True))
            best = np.argpartition(-scores, self.keep - 1)[: self.keep]
            self._parts, self._held = [(scores[best], places[best])], self.keep
            self._cut = float(scores[best].min())

    def falling(self) -> tuple[Float64, Integers]:
        """The highest scores, falling, and their places."""
        scores, places = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        order = np.argsort(-scores, kind="stable")[: self.keep]
        return scores[order], places[order]


def _meetings(subjects: Integers, first: Integers, second: Integers, same: Bools) -> tuple[Integers, Float64]:
    """All people of the pairs, (P,), and the number of different pairs between each two of them, (P, P).

    This gives the weight of all different pairs in a draw of people: 100 MB for IJB-C's fifteen million pairs.
    """
    people = np.unique(subjects[np.unique(np.concatenate([first, second]))])
    person = np.searchsorted(people, subjects)
    met = person[first[~same]] * len(people) + person[second[~same]]
    counts = np.bincount(met, minlength=len(people) ** 2).reshape(len(people), len(people))
    return people, counts.astype(np.float64)


def _tars(tail: UpperTail, meetings: Float64, fars: Sequence[float], weights: Float64) -> Float64:
    """True accept rates with weights: of the same pairs, of the kept different pairs, and of each person.

    nan if a kind of pairs has no weight, or if more different pairs than the kept ones are needed.
    """
    same, kept, drawn = np.split(weights, [len(tail.positives), len(tail.positives) + len(tail.negatives)])
    accepted, passed, total = np.append(0.0, np.cumsum(same)), np.cumsum(kept), float(drawn @ meetings @ drawn)
    if not accepted[-1] or not total:
        return np.full(len(fars), np.nan)
    rates = []
    for far in fars:
        refused = int(np.searchsorted(passed, far * total * (1 + 1e-12), side="right"))
        if refused < len(passed):
            above = np.searchsorted(-tail.positives, -tail.negatives[refused], side="left")
            rates.append(accepted[above] / accepted[-1])
        else:
            rates.append(1.0 if tail.is_whole else np.nan)
    return np.array(rates)
