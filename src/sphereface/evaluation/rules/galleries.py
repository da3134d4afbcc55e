"""Search of probes in several galleries: ranks and open-set rates in each, and their mean, with intervals.

Closed-set ranks are over the mated probes, those of a subject in the gallery; all other probes are strangers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sphereface.arrays import Float32, Float64, Integers
from sphereface.evaluation.rules.search import SearchResult, search_gallery
from sphereface.metrics.rates import ROUNDS, Rate, is_supported, rates_over_people

FPIRS = (1e-1, 1e-2)
RANKS = (1, 5, 10)


@dataclass(frozen=True)
class GalleryRates:
    """Rates in one gallery; or the mean of the rates in all, with the sums of the counts."""

    name: str
    templates: int
    mated: int  # probes of a subject in the gallery
    strangers: int  # the other probes
    rank: Mapping[int, Rate]  # share of mated probes with their mate at this rank or before
    tpir: Mapping[float, Rate | None]  # by FPIR; None where there are too few strangers
    search: SearchResult | None = field(default=None, repr=False, compare=False)  # for curves; the mean has none

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "gallery": self.name,
            "templates": self.templates,
            "mated_probes": self.mated,
            "strangers": self.strangers,
            "rank": {str(rank): rate.as_dict() for rank, rate in self.rank.items()},
            "tpir_at_fpir": {f"{fpir:g}": rate and rate.as_dict() for fpir, rate in self.tpir.items()},
        }


def search_galleries(
    probes: Float32,
    subjects: Integers,
    galleries: Mapping[str, tuple[Float32, Integers]],
    *,
    fpirs: Sequence[float] = FPIRS,
    ranks: Sequence[int] = RANKS,
    rounds: int = ROUNDS,
    seed: int = 0,
) -> tuple[tuple[GalleryRates, ...], GalleryRates]:
    """1:N of probes (P, D) of subjects (P,) in each gallery (G, D) with its subjects (G,), and the mean over galleries.

    Intervals are from the same draws of people among the probes; galleries are kept.
    """
    searches = {name: search_gallery(probes, subjects, *gallery) for name, gallery in galleries.items()}
    supported = {
        name: [fpir for fpir in fpirs if is_supported(fpir, len(search.strangers))] for name, search in searches.items()
    }
    shared = [fpir for fpir in fpirs if all(fpir in each for each in supported.values())]

    def measure(weights: Float64) -> Float64:
        each = [search.rates(ranks, supported[name], weights) for name, search in searches.items()]
        common = [search.rates(ranks, shared, weights) for search in searches.values()]
        return np.concatenate([*each, np.mean(common, axis=0)])

    rates = iter(rates_over_people(measure, subjects, subjects, rounds=rounds, seed=seed))
    counts = {
        name: (len(galleries[name][1]), len(found.mated), len(found.strangers)) for name, found in searches.items()
    }
    results = tuple(
        GalleryRates(name, *counts[name], *_take(rates, ranks, fpirs, supported[name]), search)
        for name, search in searches.items()
    )
    mean = GalleryRates(
        f"mean of {', '.join(searches)}",
        sum(result.templates for result in results),
        sum(result.mated for result in results),
        sum(result.strangers for result in results),
        *_take(rates, ranks, fpirs, shared),
    )
    return results, mean


def _take(
    rates: Iterator[Rate], ranks: Sequence[int], fpirs: Sequence[float], supported: Sequence[float]
) -> tuple[dict[int, Rate], dict[float, Rate | None]]:
    """The next rates: one for each rank, then one for each supported FPIR."""
    return {rank: next(rates) for rank in ranks}, {fpir: next(rates) if fpir in supported else None for fpir in fpirs}
