"""Identification among your own people: who is this, and is it anyone we know?

Some photos of a person are enrolled: the mean of their unit features is the person's template. All others are probes,
and a score is the cosine of a probe with a template.

- **Closed set**: everybody is enrolled. A probe's rank is 1 + the number of other people who score at least as high as
  its own person: a tie counts against it. The CMC is the share of probes up to each rank.
- **Open set**: half of the people are enrolled, all photos of the others are probes of strangers. FPIR (false positive
  identification rate) is the share of strangers' probes whose best score reaches the threshold. DIR (detection and
  identification rate) is the share of known people's probes that are at rank 1 and reach it.

Which photos are enrolled, and who is known, falls by lot; several such splits are averaged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sphereface.arrays import Bools, Float64, Int64, unit_rows
from sphereface.errors import UserError
from sphereface.metrics.impostors import SCORES
from sphereface.metrics.rates import ROUNDS, Rate, is_supported, rates_over_people

FPIRS = (1e-1, 1e-2, 1e-3)
RANKS = 20
SPLITS = 10
CLOSE = 1e-12  # a product of matrices may be off by this: scores so close are equal


class OpenSet(NamedTuple):
    """How often a known person is found where few strangers are taken for one."""

    dir: Rate
    threshold: float  # the mean over splits; infinite where in one of them nobody may pass

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinity."""
        return {**self.dir.as_dict(), "threshold": self.threshold if np.isfinite(self.threshold) else None}


@dataclass(frozen=True)
class Identification:
    """Closed-set and open-set identification, averaged over splits; rates with 95 % intervals."""

    gallery_photos: int
    splits: int
    seed: int
    enrolled: int  # people, in the closed set
    probes: int  # in the closed set
    cmc: tuple[float, ...]  # at rank 1, at most 2, ...
    rank1: Rate
    known: int  # people, in the open set
    unknown: int
    known_probes: tuple[int, int]  # the fewest and the most of all splits
    unknown_probes: tuple[int, int]
    open_set: Mapping[float, OpenSet | None]  # by FPIR
    reasons: Mapping[float, str]  # why there is none
    intervals: str  # where they come from

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "rule": {
                "gallery_photos": self.gallery_photos,
                "template": "mean of unit features",
                "ties": "count against the probe's own person",
                "splits": self.splits,
                "seed": self.seed,
            },
            "closed_set": {
                "enrolled": self.enrolled,
                "probes": self.probes,
                "rank1": self.rank1.as_dict(),
                "cmc": list(self.cmc),
            },
            "open_set": {
                "known": self.known,
                "unknown": self.unknown,
                "known_probes": list(self.known_probes),
                "unknown_probes": list(self.unknown_probes),
                "dir_at_fpir": {
                    f"{fpir:g}": None if found is None else found.as_dict() for fpir, found in self.open_set.items()
                },
                "reasons": {f"{fpir:g}": reason for fpir, reason in self.reasons.items()},
            },
            "intervals": self.intervals,
        }

    def table(self) -> str:
        """The numbers as plain text, rates in percent."""
        fewest, most = self.unknown_probes
        strangers = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
        lines = [
            f"closed set: {self.enrolled:,} people, {self.probes:,} probes; photos enrolled: {self.gallery_photos}",
            f"  rank 1: {self.rank1.percent()}",
            *(f"  rank {rank}: {100 * self.cmc[rank - 1]:.2f}" for rank in (5, 10, 20) if rank <= len(self.cmc)),
            f"open set: {self.known:,} people known, {self.unknown:,} not, {strangers} probes of strangers",
        ]
        for fpir, found in self.open_set.items():
            shown = f"none: {self.reasons[fpir]}" if found is None else found.dir.percent()
            lines.append(f"  DIR at FPIR {fpir:g}: {shown}")
        return "\n".join([*lines, f"mean of splits: {self.splits}, seed {self.seed}; 95 % intervals: {self.intervals}"])


class _Probes(NamedTuple):
    """Photos that are looked up, each (N,): whose, and whether and how well they were found in one split."""

    people: Int64
    found: Bools  # at rank 1
    score: Float64  # with its own person (known), or the best with anyone (strangers)


class _Split(NamedTuple):
    closed_people: Int64
    ranks: Int64
    known: _Probes
    strangers: _Probes  # falling in score


def identify(
    features: ArrayLike,
    people: ArrayLike,
    *,
    gallery_photos: int = 1,
    known: float = 0.5,
    fpirs: Sequence[float] = FPIRS,
    ranks: int = RANKS,
    splits: int = SPLITS,
    rounds: int = ROUNDS,
    seed: int = 0,
) -> Identification:
    """Look every photo up among the others; features (N, D) need no length of one, people (N,) says whose they are.

    Only who has more than `gallery_photos` photos can be enrolled and found; others are strangers. `known` is the share
    of those who can that is enrolled in the open set. Intervals come from a bootstrap over the people of the probes,
    galleries and splits being kept. An FPIR that would let less than one probe of a stranger pass has no DIR.
    """
    names, who = np.unique(np.asarray(people), return_inverse=True)
    photos = np.bincount(who, minlength=len(names))
    able = np.flatnonzero(photos > gallery_photos)
    _check(len(able), len(names), gallery_photos, known, fpirs, splits, ranks)
    unit = unit_rows(features)
    if unit.shape[:1] != who.shape:
        raise UserError(f"features {unit.shape} of people {who.shape}; wanted (N, D) and (N,)")
    num_known = min(max(1, round(known * len(able))), len(able) - (len(able) == len(names)))
    made = [_split(unit, who, able, gallery_photos, num_known, _rng(seed, number)) for number in range(splits)]
    fewest, most = _range([len(split.strangers.people) for split in made])
    shown = [fpir for fpir in fpirs if is_supported(fpir, fewest)]
    cmc = np.mean([[(split.ranks <= rank).mean() for rank in range(1, ranks + 1)] for split in made], axis=0)

    def measure(drawn: Float64) -> Float64:
        return np.asarray(np.mean([_measure(split, drawn, shown) for split in made], axis=0))

    everybody = np.arange(len(names))
    rank1, *dirs = rates_over_people(measure, everybody, everybody, rounds=rounds, seed=seed)
    return Identification(
        gallery_photos=gallery_photos,
        splits=splits,
        seed=seed,
        enrolled=len(able),
        probes=len(made[0].ranks),
        cmc=tuple(cmc[: len(able)].tolist()),
        rank1=rank1,
        known=num_known,
        unknown=len(names) - num_known,
        known_probes=_range([len(split.known.people) for split in made]),
        unknown_probes=(fewest, most),
        open_set={
            **dict.fromkeys(fpirs),
            **{
                fpir: OpenSet(rate, float(np.mean([_threshold(split, fpir) for split in made])))
                for fpir, rate in zip(shown, dirs, strict=True)
            },
        },
        reasons={
            fpir: f"{fewest:,} probes of strangers; wanted {int(np.ceil(1 / fpir)):,}, of which one may pass"
            for fpir in fpirs
            if fpir not in shown
        },
        intervals=f"bootstrap over {len(names):,} people, galleries kept",
    )


def _check(
    able: int, people: int, gallery_photos: int, known: float, fpirs: Sequence[float], splits: int, ranks: int
) -> None:
    if gallery_photos < 1 or splits < 1 or ranks < 1:
        raise UserError(f"gallery_photos {gallery_photos}, splits {splits}, ranks {ranks}; wanted at least 1 of each")
    if not 0 < known < 1:
        raise UserError(f"known is {known}; wanted a share of the people, between 0 and 1")
    if not all(0 < fpir <= 1 for fpir in fpirs):
        raise UserError(f"fpirs are {tuple(fpirs)}; wanted shares, above 0 up to 1")
    if able < 2:
        raise UserError(
            f"{able} of {people} people have more than {gallery_photos} photos; wanted at least 2 who can be enrolled "
            "and looked up: enrol fewer photos each, or add people"
        )


def _rng(seed: int, split: int) -> np.random.Generator:
    return np.random.default_rng([seed, split])


def _split(
    unit: Float64, who: Int64, able: Int64, gallery_photos: int, num_known: int, rng: np.random.Generator
) -> _Split:
    """Enrol, look everybody up, and say how it went."""
    enrolled = np.zeros(len(who), dtype=bool)
    templates = np.zeros((len(able), unit.shape[1]))
    photos = np.split(np.argsort(who, kind="stable"), np.cumsum(np.bincount(who))[:-1])
    for place, person in enumerate(able.tolist()):
        chosen = rng.permutation(photos[person])[:gallery_photos]
        enrolled[chosen] = True
        templates[place] = unit[chosen].mean(0)
    templates = unit_rows(templates)
    column = np.full(who.max() + 1, -1)
    column[able] = np.arange(len(able))
    is_known = np.zeros(len(able), dtype=bool)
    is_known[rng.permutation(len(able))[:num_known]] = True
    rank, mate, best_known, best_other = _looked_up(unit, templates, column[who], is_known)
    closed = ~enrolled & (column[who] >= 0)
    of_known = (column[who] >= 0) & is_known[column[who]]
    probes = ~enrolled & of_known
    falling = np.argsort(-best_known[~of_known], kind="stable")
    strangers = _Probes(who[~of_known][falling], np.zeros(len(falling), dtype=bool), best_known[~of_known][falling])
    found = mate[probes] > best_other[probes]
    return _Split(who[closed], rank[closed], _Probes(who[probes], found, mate[probes]), strangers)


def _looked_up(
    unit: Float64, templates: Float64, column: Int64, is_known: Bools
) -> tuple[Int64, Float64, Float64, Float64]:
    """Of each photo: its person's rank among all, the score with it, the best of the known, the best of known others.

    Where a person is not enrolled, rank and score mean nothing. A matrix product finds who is best, but the scores are
    summed in a fixed order: those of copies are equal to the last bit.
    """
    rank = np.zeros(len(unit), dtype=np.int64)
    mate, best, others = np.zeros(len(unit)), np.zeros(len(unit)), np.full(len(unit), -np.inf)
    block = max(1, SCORES // len(templates))
    for start in range(0, len(unit), block):
        rows = slice(start, start + block)
        probes, own = unit[rows], column[rows]
        scores = probes @ templates.T
        mate[rows] = (probes * templates[own]).sum(1)
        rank[rows] = (scores >= mate[rows][:, None] - CLOSE).sum(1)  # itself among them: 1 + the others
        scores[:, ~is_known] = -np.inf
        best[rows] = (probes * templates[scores.argmax(1)]).sum(1)
        enrolled = np.flatnonzero(own >= 0)
        scores[enrolled, own[enrolled]] = -np.inf
        there = scores.max(1) > -np.inf  # with one person known there may be no other
        others[rows][there] = (probes[there] * templates[scores[there].argmax(1)]).sum(1)
    return rank, mate, best, others


def _refused(strangers: _Probes, fpir: float, weights: Float64) -> float:
    """The highest score that must not pass if at most a share of strangers' probes may."""
    passed = np.cumsum(weights)
    last_of_tie = np.append(strangers.score[1:] != strangers.score[:-1], True)
    within = np.flatnonzero(last_of_tie & (passed <= fpir * passed[-1] * (1 + 1e-12)))
    after = within[-1] + 1 if len(within) else 0
    return float(strangers.score[after]) if after < len(strangers.score) else -np.inf


def _threshold(split: _Split, fpir: float) -> float:
    """The lowest score that is accepted; infinite if none is."""
    refused = _refused(split.strangers, fpir, np.ones(len(split.strangers.people)))
    both = np.concatenate([split.known.score, split.strangers.score])
    return float(both[both > refused].min(initial=np.inf))


def _measure(split: _Split, drawn: Float64, fpirs: Sequence[float]) -> Float64:
    """Rank 1 in the closed set, and DIR at each FPIR, where people count so often; nan where nobody is left."""
    closed, known, strangers = (
        drawn[people] for people in (split.closed_people, split.known.people, split.strangers.people)
    )
    if not (closed.any() and known.any() and strangers.any()):
        return np.full(1 + len(fpirs), np.nan)
    rank1 = closed[split.ranks == 1].sum() / closed.sum()
    accepted = (split.known.score > _refused(split.strangers, fpir, strangers) for fpir in fpirs)
    return np.array([rank1, *(known[split.known.found & passed].sum() / known.sum() for passed in accepted)])


def _range(counts: Sequence[int]) -> tuple[int, int]:
    return min(counts), max(counts)
