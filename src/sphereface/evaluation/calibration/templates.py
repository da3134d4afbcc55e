"""Impostor tails of searches: photos of strangers against templates of 1, 2, 3 and 5 photos.

A tail of photo against photo is too optimistic for templates: the mean of several photos has less noise, and scores
higher with strangers who resemble the person. So templates are drawn from the people who have enough photos, each is
compared with one photo of every other person, and this is repeated with other photos.
"""

from collections.abc import Sequence

import numpy as np

from sphereface.arrays import Float32, Float64, Int64, Integers
from sphereface.choices import FeatureRule
from sphereface.contract import TemplateTail
from sphereface.metrics.support import EVENTS, pairs_of_people
from sphereface.metrics.templates import pool
from sphereface.metrics.weighted_tail import thresholds_at

SIZES = (1, 2, 3, 5)  # photos of a template
TOP = 0.1  # highest rate of a tail: FPIR 10 % in a gallery of one person
POINTS = 48
DIGITS = 6  # of a score in a card
DRAWS = 20  # of photos
MOST = 2_500  # people whose templates are drawn, and people who are compared with them
MARGIN = 2  # times as many scores as the highest rate needs are kept of a draw
TEMPLATES = EVENTS  # people with enough photos, at the least


def template_tails(
    units: Float32,
    owner: Integers,
    *,
    feature_rule: FeatureRule,
    measured_on: str,
    sizes: Sequence[int] = SIZES,
    seed: int = 0,
) -> tuple[TemplateTail, ...]:
    """The tails that the people can show, of unit features (N, D) of people (N,) from 0 on.

    A tail needs 30 people with as many photos, and goes down to the rate with 30 expected errors among its pairs of
    people, or among all drawn scores. Every two people have the same weight.
    """
    photos = np.bincount(owner)
    begins = np.cumsum(photos) - photos
    order = np.argsort(owner, kind="stable")
    found = []
    for size in sizes:
        rng = np.random.default_rng((seed, size))
        enough = np.flatnonzero(photos >= size)
        pairs = pairs_of_people(len(photos)) - pairs_of_people(len(photos) - len(enough))
        if len(enough) < TEMPLATES or EVENTS / max(pairs, 1) >= TOP:
            continue
        draws = [_draw(units, order, begins, photos, enough, size, rng) for _ in range(DRAWS)]
        total = sum(count for _, count in draws)
        lowest = EVENTS / min(pairs, total)
        kept = -np.sort(-np.concatenate([scores for scores, _ in draws]))
        rates = np.geomspace(TOP, lowest, POINTS)
        scores = thresholds_at(kept, np.ones(len(kept)), rates, total=total, is_whole=len(kept) == total)
        scores = np.unique(np.ceil(scores[np.isfinite(scores)] * 10**DIGITS) / 10**DIGITS)
        reached = np.searchsorted(-kept, -scores, side="right")
        last = np.append(reached[1:] < reached[:-1], True) & (reached > 0)  # of scores with the same rate
        scores, fars = scores[last], reached[last] / total
        if len(scores):
            found.append(
                TemplateTail(
                    photos=size, templates=len(enough), scores=tuple(scores.tolist()), fars=tuple(fars.tolist()),
                    people=len(photos), pairs=pairs, weigh="people", feature_rule=feature_rule,
                    measured_on=measured_on,
                )
            )  # fmt: skip
    return tuple(found)


def _draw(
    units: Float32,
    order: Int64,
    begins: Int64,
    photos: Int64,
    enough: Int64,
    size: int,
    rng: np.random.Generator,
) -> tuple[Float64, int]:
    """The highest scores of one draw of photos, and the number of all its scores."""
    people = rng.permutation(len(photos))[:MOST]
    probes = units[order[begins[people] + rng.integers(photos[people])]]
    of = rng.permutation(enough)[:MOST]
    chosen = np.concatenate([begins[one] + rng.permutation(photos[one])[:size] for one in of])
    templates = pool(units[order[chosen]], np.repeat(np.arange(len(of)), size), len(of))
    scores = (templates @ probes.T)[of[:, None] != people].astype(np.float64)
    most = int(MARGIN * TOP * len(scores)) + 1
    return (scores if most >= len(scores) else -np.partition(-scores, most)[:most]), len(scores)
