"""MegaFace: find a person's other photo among up to a million strangers, and verify the pair against them.

For every ordered pair (probe, mate) of two photos of one person, the mate's rank is 1 + the number of distractors that
score at least as high with the probe: a tie counts against the mate, so a model with equal scores for all has a rank-1
rate of zero. The cumulative match characteristic (CMC) is the share of pairs up to each rank. For verification the
positives are the same pairs, the negatives are all probes with all distractors; a pair is accepted if its score is at
least the threshold. All results are exact, up to the given ranks and false accept rate, and memory holds one block of
the scores at a time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sphereface.arrays import Bools, Float32, Float64, Floating, Integers
from sphereface.choices import ProtocolSize
from sphereface.errors import UserError
from sphereface.evaluation.protocols.noise import UnmatchedNoise
from sphereface.evaluation.streaming.highest_pairs import HighestPairs
from sphereface.evaluation.streaming.mates import MateCounts
from sphereface.evaluation.streaming.scores import StreamedScores
from sphereface.metrics.upper_tail import UpperTail, allowed
from sphereface.progress import Progress, silent

Sizes = Sequence[int] | Mapping[int, ArrayLike]
Kept = tuple[Bools, Bools]  # masks of probes (P,) and of distractors (N,)

SIZES = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
FARS = (1e-6, 1e-5, 1e-4, 1e-3)
RANKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)  # of a CMC in a summary
SMALL = 500_000  # training images; from here on the protocol is called large
KEPT = 1 << 28  # negatives at most: 3 GB with their places


def protocol_of(training_images: int) -> ProtocolSize:
    """MegaFace's protocol for a number of training images."""
    return "small" if training_images < SMALL else "large"


@dataclass(frozen=True)
class AtSize:
    """Identification and verification with one number of distractors."""

    size: int  # as listed
    distractors: int  # without noise in cleaned results
    pairs: int  # (probe, mate), ordered
    cmc: Float64  # share of pairs at rank 1, at most 2, ...
    verification: UpperTail

    @property
    def rank1(self) -> float:
        """The share of pairs in which every distractor scores lower than the mate."""
        return float(self.cmc[0])

    def summary(self) -> dict[str, Any]:
        """The printed numbers; a false accept rate of less than one negative is left out."""
        tail = self.verification
        rates = [far for far in FARS if far * tail.total >= 1 and tail.decides(far)]
        return {
            "size": self.size,
            "distractors": self.distractors,
            "pairs": self.pairs,
            "negatives": tail.total,
            "rank1": self.rank1,
            "rank10": float(self.cmc[min(10, len(self.cmc)) - 1]),
            "cmc": {str(rank): float(self.cmc[rank - 1]) for rank in RANKS if rank <= len(self.cmc)},
            "tar_at_far": {f"{far:g}": tail.tar_at_far(far) for far in rates},
            "threshold_at_far": {f"{far:g}": tail.threshold_at_far(far) for far in rates},
        }


@dataclass(frozen=True)
class MegaFaceResult:
    """Results at all sizes, with all images and, if noise is listed, without it."""

    probe_set: str
    protocol: ProtocolSize
    probes: int
    people: int
    noisy_probes: int
    noisy_distractors: int
    raw: tuple[AtSize, ...]
    cleaned: tuple[AtSize, ...] | None
    ranks: int  # up to which the CMC is exact
    far: float  # up to which the ROC is exact
    unmatched_noise: tuple[UnmatchedNoise, ...] = ()  # of lists with other images

    def summary(self) -> dict[str, Any]:
        """The result as one JSON object."""
        return {
            "protocol": f"MegaFace, {self.probe_set}, {self.protocol}",
            "tie_rule": "a distractor that scores the same comes before the mate; scores at the threshold are accepted",
            "probes": self.probes,
            "people": self.people,
            "noisy_probes": self.noisy_probes,
            "noisy_distractors": self.noisy_distractors,
            "unmatched_noise": [each.as_dict() for each in self.unmatched_noise],
            "raw": [each.summary() for each in self.raw],
            "cleaned": None if self.cleaned is None else [each.summary() for each in self.cleaned],
        }


def evaluate_megaface(
    probes: Floating,
    people: ArrayLike,
    distractors: Floating,
    *,
    sizes: Sizes | None = None,
    ranks: int = 1_000,
    far: float = 1e-3,
    noisy_probes: ArrayLike | None = None,
    noisy_distractors: ArrayLike | None = None,
    protocol: ProtocolSize = "small",
    probe_set: str = "FaceScrub",
    block: int | None = None,
    progress: Progress = silent,
) -> MegaFaceResult:
    """Rank each photo's mates among distractors, and verify them against these, at several sizes in one pass.

    probes (P, D) show people (P,); distractors (N, D) may be a memory map; features may have any length. `sizes` are
    numbers of distractors, counted from the first, by default 10, 100, ... and all; or, for the devkit's lists, the
    rows of each size. CMCs are exact up to `ranks`, ROCs up to `far`. noisy_probes (P,) and noisy_distractors (N,) are
    left out of the cleaned results; a size then has fewer distractors. `block` is the number of distractors in a matrix
    product and affects the speed only. `progress` receives the number of finished distractors.
    """
    if protocol not in ("small", "large"):
        raise UserError(f"unknown protocol {protocol!r}; choose small (trained on under {SMALL:,} images) or large")
    if ranks < 1:
        raise UserError(f"ranks is {ranks}; wanted at least 1")
    scores = StreamedScores(probes, distractors, block=block)
    names, owner = np.unique(np.asarray(people), return_inverse=True)
    if owner.shape != (len(probes),):
        raise UserError(f"people have shape {np.shape(people)}; wanted one for each of {len(probes):,} probes")
    chosen = _columns_of(sizes, len(distractors))
    is_clean = _clean(noisy_probes, len(probes), "probe"), _clean(noisy_distractors, len(distractors), "distractor")
    everything = np.ones(len(probes), dtype=bool), np.ones(len(distractors), dtype=bool)
    has_noise = noisy_probes is not None or noisy_distractors is not None
    pairs = _mates(scores, owner)
    raw = _galleries(scores, pairs, chosen, everything, ranks, far)
    cleaned = _galleries(scores, pairs, chosen, is_clean, ranks, far) if has_noise else []
    galleries = raw + cleaned
    stops = sorted({size for gallery in galleries for size in gallery.stops.values()})
    for first, piece in scores.blocks(stops):
        done = first + piece.shape[1]
        for gallery in galleries:
            gallery.add(first, piece)
            if done in gallery.stops.values():
                gallery.stop(done)
        progress(done, stops[-1])
    return MegaFaceResult(
        probe_set, protocol, len(probes), len(names), int((~is_clean[0]).sum()), int((~is_clean[1]).sum()),
        _at_sizes(raw), _at_sizes(cleaned) if has_noise else None, ranks, far,
    )  # fmt: skip


@dataclass(frozen=True)
class _Pairs:
    """Every ordered pair of two photos of one person."""

    rows: Integers
    mates: Integers
    scores: Float64


def _mates(scores: StreamedScores, owner: Integers) -> _Pairs:
    order = np.argsort(owner, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(owner[order])) + 1)
    rows = np.concatenate([np.repeat(group, len(group) - 1) for group in groups])
    mates = np.concatenate([np.tile(group, (len(group), 1))[~np.eye(len(group), dtype=bool)] for group in groups])
    if not len(rows):
        raise UserError(f"{len(owner):,} probes of {len(groups):,} people; wanted two photos of at least one person")
    return _Pairs(rows, mates, scores.among_probes(rows, mates))


class _Gallery:
    """Distractors at one or more sizes, with the results so far."""

    def __init__(
        self, scores: StreamedScores, pairs: _Pairs, kept: Kept, stops: Mapping[int, int], ranks: int, far: float
    ) -> None:
        rows, columns = kept
        chosen = rows[pairs.rows] & rows[pairs.mates]
        if not chosen.any():
            raise UserError("no person has two photos without noise; wanted a pair of at least one person")
        self.rows, self.columns, self.stops, self.far = rows, columns, stops, far
        total = int(rows.sum()) * int(columns[: max(stops.values())].sum())
        keep = min(total, allowed(far, total) + 1)
        if keep > KEPT:
            raise UserError(f"far is {far:g}: {keep:,} of {total:,} negatives to keep; wanted at most {KEPT:,}")
        error, exact = scores.error, scores.exact
        self.mates = MateCounts(
            pairs.rows[chosen], pairs.scores[chosen], probes=len(rows), limit=ranks, error=error, exact=exact
        )
        self.tail = HighestPairs(keep, error=error, exact=exact)
        self.positives = -np.sort(-self.mates.scores)
        self.found: dict[int, AtSize] = {}

    def add(self, first: int, piece: Float32) -> None:
        """Add the approximate scores (P, w) of the distractors from place `first`."""
        kept = self.columns[first : first + piece.shape[1]]
        picked = np.flatnonzero(kept)
        if not len(picked) or first >= max(self.stops.values()):
            return
        if len(picked) < len(kept) / 2:
            piece = piece[:, picked]
        else:
            picked = np.arange(len(kept))
        needed = np.minimum(self.mates.cuts - self.mates.margin, self.tail.cut)
        needed = np.where(self.rows, needed, np.inf).astype(np.float32)
        matters = piece >= needed[:, None]
        rows = np.repeat(np.arange(len(piece)), np.count_nonzero(matters, axis=1))
        near, columns = piece[matters], picked[np.flatnonzero(matters) - rows * piece.shape[1]]
        if not kept.all():
            clean = kept[columns]
            rows, columns, near = rows[clean], columns[clean], near[clean]
        columns += first
        for_tail = np.flatnonzero(near >= self.tail.cut)
        self.tail.add(near[for_tail], rows[for_tail], columns[for_tail])
        for_mates = np.flatnonzero(near >= (self.mates.cuts - self.mates.margin).astype(np.float32)[rows])
        self.mates.add(near[for_mates], rows[for_mates], columns[for_mates])

    def stop(self, done: int) -> None:
        """Store the results of the sizes that are complete with `done` distractors."""
        distractors = int(self.columns[:done].sum())
        total = int(self.rows.sum()) * distractors
        counts = self.mates.counts()
        length = min(self.mates.limit, distractors + 1)
        at_rank = np.bincount(np.minimum(counts, length), minlength=length)[:length]
        cmc = np.asarray(np.cumsum(at_rank) / len(counts), dtype=np.float64)
        tail = UpperTail(self.positives, self.tail.highest(min(total, allowed(self.far, total) + 1)), total)
        for size, stop in self.stops.items():
            if stop == done:
                self.found[size] = AtSize(size, distractors, len(counts), cmc, tail)


def _galleries(
    scores: StreamedScores, pairs: _Pairs, chosen: Mapping[int, int | Bools], kept: Kept, ranks: int, far: float
) -> list[_Gallery]:
    """One gallery for all sizes that are numbers, and one for each size that is a list."""
    rows, columns = kept
    growing = {size: rule for size, rule in chosen.items() if isinstance(rule, int)}
    listed = {size: rule for size, rule in chosen.items() if not isinstance(rule, int)}
    empty = [size for size, stop in growing.items() if not columns[:stop].any()]
    empty += [size for size, rule in listed.items() if not (columns & rule).any()]
    if empty:
        raise UserError(f"all {empty[0]:,} distractors are noise; wanted some without noise")
    galleries = [_Gallery(scores, pairs, kept, growing, ranks, far)] if growing else []
    for size, rule in listed.items():
        last = int(np.flatnonzero(rule)[-1]) + 1
        galleries.append(_Gallery(scores, pairs, (rows, columns & rule), {size: last}, ranks, far))
    return galleries


def _at_sizes(galleries: Sequence[_Gallery]) -> tuple[AtSize, ...]:
    found = {size: at_size for gallery in galleries for size, at_size in gallery.found.items()}
    return tuple(found[size] for size in sorted(found))


def usual_sizes(total: int) -> list[int]:
    """10, 100, ... 1,000,000 below the total, and the total."""
    return [size for size in SIZES if size < total] + [total]


def _columns_of(sizes: Sizes | None, total: int) -> dict[int, int | Bools]:
    """The distractors of each size: a number, counted from the first, or a mask (N,)."""
    if sizes is None:
        sizes = usual_sizes(total)
    if not len(sizes):
        raise UserError("no sizes; wanted at least one number of distractors")
    if not isinstance(sizes, Mapping):
        wrong = [size for size in sizes if not 1 <= size <= total]
        if wrong:
            raise UserError(f"size {wrong[0]:,} of {total:,} distractors; wanted sizes from 1 to that number")
        return {int(size): int(size) for size in sizes}
    chosen: dict[int, int | Bools] = {}
    for size, listed in sizes.items():
        rows = np.asarray(listed)
        if rows.shape != (size,) or len(np.unique(rows)) != size or rows.min() < 0 or rows.max() >= total:
            raise UserError(f"size {size:,} has rows {rows.shape}; wanted {size:,} different ones below {total:,}")
        chosen[size] = np.isin(np.arange(total), rows)
    return chosen


def _clean(noisy: ArrayLike | None, count: int, what: str) -> Bools:
    if noisy is None:
        return np.ones(count, dtype=bool)
    mask = np.asarray(noisy)
    if mask.shape != (count,) or mask.dtype != np.bool_:
        raise UserError(f"noise is {mask.dtype} {mask.shape}; wanted a bool for each {what}, ({count},)")
    return ~mask
