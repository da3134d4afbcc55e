"""Thresholds for stated error rates, measured on your own people, with intervals.

1:1: the false accept rate (FAR) is the share of pairs of different people that score at least the threshold, over all
pairs of the photos. 1:N: the false positive identification rate (FPIR) at a gallery's size is the share of searches for
strangers with a best score at or above the threshold; each person in the gallery has one photo there.

Rates that the number of people cannot support are refused: `metrics/support.py` has the rule.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sphereface.arrays import Float32, Floating, Integers, require_directions, unit_rows
from sphereface.choices import FeatureRule, Weigh
from sphereface.contract import ImpostorTail, Threshold
from sphereface.embed import store
from sphereface.errors import UserError
from sphereface.evaluation.calibration.drawn_galleries import SEARCH_ROUNDS, Drawing, Scored, SearchTarget
from sphereface.evaluation.calibration.result import Calibration
from sphereface.evaluation.calibration.templates import SIZES, template_tails
from sphereface.metrics.bootstrap import PeopleBootstrap
from sphereface.metrics.impostors import highest_different
from sphereface.metrics.rates import ROUNDS
from sphereface.metrics.support import EVENTS, lowest_far, people_for_far, supports_far
from sphereface.metrics.weighted_tail import WeightedTail
from sphereface.progress import Progress, silent

FARS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
FPIRS = (1e-1, 1e-2)
POINTS = 64  # of the tail in a card
KEPT = 1 << 22  # pairs at most, which every round of the bootstrap weighs again


def calibrate(
    features: Floating | store.Rows,
    people: ArrayLike,
    *,
    fars: Sequence[float] | None = None,
    fpirs: Sequence[float] = FPIRS,
    gallery_sizes: Sequence[int] = (),
    template_sizes: Sequence[int] = SIZES,
    weigh: Weigh = "people",
    feature_rule: FeatureRule = "concatenate",
    measured_on: str = "",
    rounds: int = ROUNDS,
    seed: int = 0,
    block: int | None = None,
    progress: Progress = silent,
) -> Calibration:
    """Thresholds for false accept rates, and for each FPIR at each gallery size, from photos of people.

    features (N, D), of any length, show people (N,). A rate that the people cannot support is an error with the number
    that could; by default `fars` are those of 1e-2 ... 1e-6 with support. An FPIR is measured in drawn galleries if
    there are enough people; else it is approximate: 1 - (1 - FAR)^G, as if the G comparisons were independent.
    `template_sizes` are the numbers of photos of templates that get a tail, as far as the people have them.
    Intervals (95 %) come from a bootstrap over people. `block` affects the memory only.

    >>> print(calibrate(features.rows, features.labels, fars=[1e-4], fpirs=[0.01], gallery_sizes=[1000]).table())
    """
    names, owner = np.unique(np.asarray(people), return_inverse=True)
    if owner.ndim != 1 or features.ndim != 2 or len(owner) != len(features):
        raise UserError(f"features {features.shape} show people {np.shape(people)}; wanted (N, D) and (N,)")
    if weigh not in ("people", "pairs"):
        raise UserError(f"weigh is {weigh!r}; choose 'people' or 'pairs'")
    photos = np.bincount(owner)
    wanted, searches = _plan(photos, fars, fpirs, gallery_sizes)
    approximate = [each.far for each in searches if not each.is_drawn]
    every = np.array(sorted({*wanted, *approximate}, reverse=True))
    top = max([*every.tolist(), lowest_far(len(names))])
    units = unit_rows(features[:], dtype=np.float32, what="photo")
    require_directions(units, what="photo")
    tail = _tail(units, owner, top, weigh=weigh, block=block, progress=progress)
    on = measured_on or f"{len(names):,} people"
    drawn = np.array([tail.thresholds(every, each) for each in PeopleBootstrap(len(names), rounds=rounds, seed=seed)])
    found = {
        far: Scored.of(score, draws, f"FAR {far:g}")
        for far, score, draws in zip(every.tolist(), tail.thresholds(every), drawn.T, strict=True)
    }
    thresholds = [
        Threshold(score=found[far].score, far=far, measured_on=on, interval=found[far].interval) for far in wanted
    ]
    drawing = Drawing(units, owner, photos, rounds=min(rounds, SEARCH_ROUNDS), seed=seed)
    for search in searches:
        scored = drawing.search(search) if search.is_drawn else found[search.far]
        thresholds.append(
            Threshold(
                score=scored.score, far=search.far, measured_on=on, interval=scored.interval, fpir=search.fpir,
                gallery_size=search.gallery_size, approximate=not search.is_drawn,
            )
        )  # fmt: skip
    scores, rates = _table(tail, top, lowest_far(len(names)))
    return Calibration(
        tuple(thresholds),
        ImpostorTail(
            scores=scores, fars=rates, people=len(names), pairs=tail.pairs, weigh=weigh, feature_rule=feature_rule,
            measured_on=on,
        ),
        len(owner),
        template_tails(units, owner, sizes=template_sizes, feature_rule=feature_rule, measured_on=on, seed=seed),
    )  # fmt: skip


def calibrate_features(features: store.FeatureStore, *, measured_on: str = "", **options: Any) -> Calibration:
    """Calibrate the model that made the features of a set, as `open_features` or `join_features` gives them.

    The options are those of `calibrate`.
    """
    found = calibrate(
        features.rows,
        features.labels,
        feature_rule=features.card.feature_rule,
        measured_on=measured_on or Path(features.manifests[0].source).name,
        **options,
    )
    made = "" if features.card.members else features.manifests[0].model  # an ensemble has no file
    return replace(found, made_with=features.card, model=made)


def require_support(
    people: ArrayLike,
    *,
    fars: Sequence[float] | None = None,
    fpirs: Sequence[float] = FPIRS,
    gallery_sizes: Sequence[int] = (),
) -> None:
    """Raise, as `calibrate` does, if the people (N,) of some photos cannot support a rate; needs no features."""
    _plan(np.unique(np.asarray(people), return_counts=True)[1], fars, fpirs, gallery_sizes)


def _plan(
    photos: Integers, fars: Sequence[float] | None, fpirs: Sequence[float], gallery_sizes: Sequence[int]
) -> tuple[list[float], list[SearchTarget]]:
    """The rates to measure, given the number of photos of each person (P,); an unsupported rate is an error."""
    if fars is not None and not len(fars) and not (len(fpirs) and len(gallery_sizes)):
        raise UserError("no rate is given; name `fars`, or `fpirs` and `gallery_sizes`")
    wanted = _supported(fars, len(photos), _pairs_of(photos))
    return wanted, [SearchTarget.plan(fpir, size, len(photos)) for size in gallery_sizes for fpir in fpirs]


def _supported(fars: Sequence[float] | None, people: int, pairs: int) -> list[float]:
    """The given rates, or the supported ones of `FARS`; an error if a given rate, or all of `FARS`, lack support."""
    if fars is None:
        found = [far for far in FARS if supports_far(far, people) and far * pairs <= KEPT / 5]
        if not found:
            raise UserError(
                f"{people:,} people in {pairs:,} pairs of photos show none of the usual rates ({FARS[0]:g} takes "
                f"{people_for_far(FARS[0]):,} people); name `fars` that suit them, or bring more people"
            )
        return found
    for far in fars:
        if not 0 < far < 1:
            raise UserError(f"FAR {far}; wanted a share between 0 and 1")
        if not supports_far(far, people):
            least = f"{lowest_far(people):.3g}" if people > 1 and lowest_far(people) < 1 else "none"
            raise UserError(
                f"FAR {far:g}: {people:,} people cannot show it, it takes {people_for_far(far):,} (by the rule of "
                f"{EVENTS} expected errors); the lowest that these can show is {least}: ask for a higher rate, or "
                "bring more people"
            )
    return list(dict.fromkeys(fars))


def _pairs_of(photos: Integers) -> int:
    """The number of pairs of photos of different people, given the number of photos of each person (P,)."""
    return int((photos.sum() ** 2 - (photos**2).sum()) // 2)


def _tail(
    units: Float32, owner: Integers, top: float, *, weigh: Weigh, block: int | None, progress: Progress
) -> WeightedTail:
    """The highest scores of different people that the rate `top` and its interval need."""
    photos = np.bincount(owner)
    total = _pairs_of(photos)
    keep = min(total, int(4 * top * total) + 1000)
    while keep <= KEPT:
        scores, left, right, _ = highest_different(units, owner, most=keep, block=block, progress=progress)
        tail = WeightedTail(scores, owner[left], owner[right], photos=photos, weigh=weigh)
        if tail.covers(top):
            return tail
        keep = min(total, 4 * keep)  # pairs of people with many photos may score highest, and have little weight
    raise UserError(
        f"FAR {top:g} of {total:,} pairs: more than {KEPT:,} of them matter, too many to draw repeatedly; ask for "
        "lower rates only, or take fewer photos of each person"
    )


def _table(tail: WeightedTail, top: float, limit: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Rising scores and falling rates, evenly in the rate's logarithm, down to the lowest rate that can be shown."""
    found = tail.thresholds(np.geomspace(top, min(limit, top), POINTS))
    scores = np.unique(found[np.isfinite(found)])
    if not len(scores):  # ties at the top: only their own rate is known
        scores = tail.scores[:1]
    return tuple(scores.tolist()), tuple(tail.rates(scores).tolist())
