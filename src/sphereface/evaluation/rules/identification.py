"""Identification among your own people, closed set and open set.

Some photos of a person are enrolled: the mean of their unit features is the person's template. All others are probes,
and a score is the cosine of a probe with a template.

- **Closed set**: all people are enrolled. A probe's rank is 1 + the number of other people with at least the score of
  its own person: a tie counts against it. The CMC is the share of probes up to each rank.
- **Open set**: half of the people are enrolled, all photos of the others are probes of strangers. FPIR (false positive
  identification rate) is the share of strangers' probes with a best score at or above the threshold. DIR (detection
  and identification rate) is the share of known people's probes that are at rank 1 and at or above it.

The enrolled photos and the known people are drawn at random; several such splits are averaged.
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
CLOSE = 1e-12  # error of a matrix product in float64: closer scores are equal


class OpenSet(NamedTuple):
    """Detection and identification rate at one FPIR."""

    dir: Rate
    threshold: float  # the mean over splits; infinite if no probe passes in one of them

    def as_dict(self) -> dict[str, Any]:
        """For JSON; an infinite threshold is null."""
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
    reasons: Mapping[float, str]  # for each FPIR without a DIR
    intervals: str  # their method

    @property
    def strangers(self) -> str:
        """The number of strangers' probes as text; a range if it differs between splits."""
        fewest, most = self.unknown_probes
        return f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"

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
                "dir_at_fpir": {f"{fpir:g}": found and found.as_dict() for fpir, found in self.open_set.items()},
                "reasons": {f"{fpir:g}": reason for fpir, reason in self.reasons.items()},
            },
            "intervals": self.intervals,
        }

    def table(self) -> str:
        """The numbers as plain text, rates in percent."""
        lines = [
            f"closed set: {self.enrolled:,} people, {self.probes:,} probes; photos enrolled: {self.gallery_photos}",
            f"  rank 1: {self.rank1.percent()}",
            *(f"  rank {rank}: {100 * self.cmc[rank - 1]:.2f}" for rank in (5, 10, 20) if rank <= len(self.cmc)),
            f"open set: {self.known:,} people known, {self.unknown:,} not, {self.strangers} probes of strangers",
        ]
        for fpir, found in self.open_set.items():
            shown = f"none: {self.reasons[fpir]}" if found is None else found.dir.percent()
            lines.append(f"  DIR at FPIR {fpir:g}: {shown}")
        return "\n".join([*lines, f"mean of splits: {self.splits}, seed {self.seed}; 95 % intervals: {self.intervals}"])


class _Probes(NamedTuple):
    """Probes of one split, (N,) each."""

    people: Int64
    found: Bools  # at rank 1
    score: Float64  # with their own person (known), or the best with any known person (strangers)


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
    """Closed-set and open-set identification of features (N, D), of any length, of people (N,).

    People with more than `gallery_photos` photos can be enrolled and found; all others are strangers. `known` is the
    share of the former that is enrolled in the open set. Intervals come from a bootstrap over the people of the probes
    with galleries and splits kept. An FPIR of less than one probe of a stranger has no DIR.
    """
    names, owner = np.unique(np.asarray(people), return_inverse=True)
    photos = np.bincount(owner, minlength=len(names))
    able = np.flatnonzero(photos > gallery_photos)
    _check(len(able), len(names), gallery_photos, known, fpirs, splits, ranks)
    unit = unit_rows(features)
    if unit.shape[:1] != owner.shape:
        raise UserError(f"features {unit.shape} of people {owner.shape}; wanted (N, D) and (N,)")
    num_known = min(max(1, round(known * len(able))), len(able) - (len(able) == len(names)))
    draws = (np.random.default_rng([seed, number]) for number in range(splits))
    made = [_split(unit, owner, able, gallery_photos, num_known, rng) for rng in draws]
    strangers = [len(split.strangers.people) for split in made]
    known_probes = [len(split.known.people) for split in made]
    fewest = min(strangers)
    shown = [fpir for fpir in fpirs if is_supported(fpir, fewest)]
    cmc = np.mean([[(split.ranks <= rank).mean() for rank in range(1, ranks + 1)] for split in made], axis=0)

    def measure(drawn: Float64) -> Float64:
        return np.asarray(np.mean([_measure(split, drawn, shown) for split in made], axis=0))

    everyone = np.arange(len(names))
    rank1, *dirs = rates_over_people(measure, everyone, everyone, rounds=rounds, seed=seed)
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
        known_probes=(min(known_probes), max(known_probes)),
        unknown_probes=(fewest, max(strangers)),
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
            f"{able} of {people} people have more than {gallery_photos} photos; wanted at least 2 to enrol and to "
            "search for: enrol fewer photos each, or add people"
        )


def _split(
    unit: Float64, owner: Int64, able: Int64, gallery_photos: int, num_known: int, rng: np.random.Generator
) -> _Split:
    """Enrol photos, search for the others, and return the ranks and scores."""
    enrolled = np.zeros(len(owner), dtype=bool)
    templates = np.zeros((len(able), unit.shape[1]))
    photos = np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner))[:-1])
    for place, person in enumerate(able.tolist()):
        chosen = rng.permutation(photos[person])[:gallery_photos]
        enrolled[chosen] = True
        templates[place] = unit[chosen].mean(0)
    templates = unit_rows(templates)
    column = np.full(owner.max() + 1, -1)
    column[able] = np.arange(len(able))
    is_known = np.zeros(len(able), dtype=bool)
    is_known[rng.permutation(len(able))[:num_known]] = True
    rank, mate, best_known, best_other = _searched(unit, templates, column[owner], is_known)
    closed = ~enrolled & (column[owner] >= 0)
    of_known = (column[owner] >= 0) & is_known[column[owner]]
    probes = ~enrolled & of_known
    falling = np.argsort(-best_known[~of_known], kind="stable")
    strangers = _Probes(owner[~of_known][falling], np.zeros(len(falling), dtype=bool), best_known[~of_known][falling])
    found = mate[probes] > best_other[probes]
    return _Split(owner[closed], rank[closed], _Probes(owner[probes], found, mate[probes]), strangers)


def _searched(
    unit: Float64, templates: Float64, column: Int64, is_known: Bools
) -> tuple[Int64, Float64, Float64, Float64]:
    """Rank of each photo's person, score with that person, best score of the known, best score of the other known.

    Rank and score are undefined for people outside the gallery. A matrix product finds the best template, but the
    scores are summed in a fixed order: those of copies are equal to the last bit.
    """
    rank = np.zeros(len(unit), dtype=np.int64)
    mate, best, others = np.zeros(len(unit)), np.zeros(len(unit)), np.full(len(unit), -np.inf)
    block = max(1, SCORES // len(templates))
    for start in range(0, len(unit), block):
        rows = slice(start, start + block)
        probes, own = unit[rows], column[rows]
        scores = probes @ templates.T
        mate[rows] = (probes * templates[own]).sum(1)
        rank[rows] = (scores >= mate[rows][:, None] - CLOSE).sum(1)  # its own person included: 1 + the others
        scores[:, ~is_known] = -np.inf
        best[rows] = (probes * templates[scores.argmax(1)]).sum(1)
        enrolled = np.flatnonzero(own >= 0)
        scores[enrolled, own[enrolled]] = -np.inf
        there = scores.max(1) > -np.inf  # False where the only known person is the photo's own
        others[rows][there] = (probes[there] * templates[scores[there].argmax(1)]).sum(1)
    return rank, mate, best, others


def _refused(strangers: _Probes, fpir: float, weights: Float64) -> float:
    """The highest score to refuse so that at most the share `fpir` of strangers' probes passes."""
    passed = np.cumsum(weights)
    last_of_tie = np.append(strangers.score[1:] != strangers.score[:-1], True)
    within = np.flatnonzero(last_of_tie & (passed <= fpir * passed[-1] * (1 + 1e-12)))
    after = within[-1] + 1 if len(within) else 0
    return float(strangers.score[after]) if after < len(strangers.score) else -np.inf


def _threshold(split: _Split, fpir: float) -> float:
    """The lowest accepted score; infinite if every score is refused."""
    refused = _refused(split.strangers, fpir, np.ones(len(split.strangers.people)))
    both = np.concatenate([split.known.score, split.strangers.score])
    return float(both[both > refused].min(initial=np.inf))


def _measure(split: _Split, drawn: Float64, fpirs: Sequence[float]) -> Float64:
    """Rank 1 in the closed set, and DIR at each FPIR, with weights (P,) of the people; nan without probes of a kind."""
    closed, known, strangers = (
        drawn[people] for people in (split.closed_people, split.known.people, split.strangers.people)
    )
    if not (closed.any() and known.any() and strangers.any()):
        return np.full(1 + len(fpirs), np.nan)
    rank1 = closed[split.ranks == 1].sum() / closed.sum()
    accepted = (split.known.score > _refused(split.strangers, fpir, strangers) for fpir in fpirs)
    return np.array([rank1, *(known[split.known.found & passed].sum() / known.sum() for passed in accepted)])
