"""False positive identification rates, measured in galleries drawn from people."""

from dataclasses import dataclass

import numpy as np

from sphereface.arrays import Float32, Float64, Integers
from sphereface.errors import UserError
from sphereface.metrics.bootstrap import PeopleBootstrap
from sphereface.metrics.impostors import scores_of
from sphereface.metrics.support import EVENTS, comparison_rate, people_for_fpir, supports_far, supports_searches
from sphereface.metrics.weighted_tail import thresholds_at

GALLERIES = 100  # drawn for one threshold
SEARCH_ROUNDS, SEARCHED = 200, 4  # draws of people for the interval of a search, and galleries in each
CELLS = 1 << 22  # scores of searches held at a time


@dataclass(frozen=True)
class Scored:
    """A threshold with its interval from draws of people."""

    score: float
    interval: tuple[float, float]

    @classmethod
    def of(cls, score: float, draws: Float64, what: str) -> "Scored":
        """A score with the middle 95 % of the draws, extended to hold it; draws that are nan are left out."""
        if np.isinf(score):
            raise UserError(
                f"{what}: the most alike of different people all score the same, more of them than may pass; "
                "the set has one person, or one photo, under several names: find it with sphereface data audit"
            )
        known = np.sort(draws[~np.isnan(draws)])
        low, high = known[int(0.025 * (len(known) - 1))], known[-1 - int(0.025 * (len(known) - 1))]
        score, low, high = (float(np.clip(value, -1, 1)) for value in (score, min(low, score), max(high, score)))
        return cls(score, (low, high))


@dataclass(frozen=True)
class SearchTarget:
    """A rate at a gallery size, and the way to measure it."""

    fpir: float
    gallery_size: int
    is_drawn: bool  # in drawn galleries, else from the rate of one comparison

    @property
    def far(self) -> float:
        """The rate of one comparison that gives this FPIR if comparisons are independent."""
        return comparison_rate(self.fpir, self.gallery_size)

    @classmethod
    def plan(cls, fpir: float, gallery_size: int, people: int) -> "SearchTarget":
        """The way to measure an FPIR at a gallery size with a number of people; an error if they are too few."""
        if not 0 < fpir < 1 or gallery_size < 1:
            raise UserError(f"FPIR {fpir} with {gallery_size} people; wanted a share between 0 and 1, and at least 1")
        is_drawn = supports_searches(fpir, gallery_size, people)
        if not is_drawn and not supports_far(comparison_rate(fpir, gallery_size), people):
            raise UserError(
                f"FPIR {fpir:g} with a gallery of {gallery_size:,}: {people:,} people cannot show it, it takes "
                f"{people_for_fpir(fpir, gallery_size):,} (by the rule of {EVENTS} expected errors); ask for a higher "
                "rate or a smaller gallery, or bring more people"
            )
        return cls(fpir, gallery_size, is_drawn)


class Drawing:
    """Galleries drawn from people, with all other people as strangers."""

    def __init__(self, units: Float32, people: Integers, photos: Integers, *, rounds: int, seed: int) -> None:
        """`units` (N, D) are unit features, `people` (N,) their people, `photos` (P,) the number of photos of each."""
        self._units, self._photos, self._rounds, self._seed = units, photos, rounds, seed
        self._order = np.argsort(people, kind="stable")
        self._begins = np.cumsum(photos) - photos

    def search(self, search: SearchTarget) -> Scored:
        """The threshold for an FPIR over many galleries, with its interval from draws of people."""
        rng = np.random.default_rng(self._seed)
        people = len(self._photos)
        score = self._threshold(search, np.ones(people), GALLERIES, rng)
        rounds = PeopleBootstrap(people, rounds=self._rounds, seed=self._seed)
        draws = np.array([self._threshold(search, drawn, SEARCHED, rng) for drawn in rounds])
        return Scored.of(score, draws, f"FPIR {search.fpir:g}")

    def _threshold(self, search: SearchTarget, drawn: Float64, galleries: int, rng: np.random.Generator) -> float:
        """The lowest threshold at which at most the FPIR of searches pass; nan without strangers."""
        here = np.flatnonzero(drawn)
        size = search.gallery_size
        if len(here) <= size:
            return float("nan")
        best, weights = [], []
        for _ in range(galleries):
            # In a shuffled draw, the place of a person drawn d times is the least of d random numbers: 1 - u^(1/d).
            turn = here[np.argsort(1 - rng.random(len(here)) ** (1 / drawn[here]), kind="stable")]
            photo = self._order[self._begins[turn] + rng.integers(self._photos[turn])]
            best.append(self._best(photo[size:], photo[:size]))
            weights.append(drawn[turn[size:]])
        scores, weight = np.concatenate(best), np.concatenate(weights)
        falling = np.argsort(-scores, kind="stable")
        total = float(weight.sum())
        return float(thresholds_at(scores[falling], weight[falling], [search.fpir], total=total, is_whole=True)[0])

    def _best(self, probes: Integers, gallery: Integers) -> Float64:
        """The best score of each probe in a gallery, exact for the mate that a matrix product finds, so copies tie."""
        against = self._units[gallery].T
        step = max(1, CELLS // len(gallery))
        mates = [
            (self._units[probes[start : start + step]] @ against).argmax(axis=1)
            for start in range(0, len(probes), step)
        ]
        return scores_of(self._units, probes, gallery[np.concatenate(mates)])
