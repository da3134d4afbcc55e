"""Measures of recognition: pure NumPy, truth first, then scores, then options, as in scikit-learn.

A score is a cosine: higher is more alike. `same` is true for pairs of one person.
"""

from sphereface.metrics.bootstrap import Paired, PeopleBootstrap, interval_over_people, paired_difference
from sphereface.metrics.curves import Roc, auc, best_threshold, eer, roc, tar_at_far, threshold_at_far
from sphereface.metrics.fisher import angular_fisher_score
from sphereface.metrics.group_rates import GroupCounts, GroupRates, Ratio
from sphereface.metrics.identification import cmc, mate_ranks
from sphereface.metrics.impostors import HighestDifferent, count_different, highest_different, same_pairs
from sphereface.metrics.intervals import Interval, wilson
from sphereface.metrics.rates import FARS, Rate, rates_over_people, wilson_rate
from sphereface.metrics.sorted_pairs import AllPairs
from sphereface.metrics.support import (
    comparison_rate,
    lowest_far,
    people_for_far,
    people_for_fpir,
    supports_far,
    supports_searches,
)
from sphereface.metrics.upper_tail import UpperTail
from sphereface.metrics.weighted_tail import WeightedTail

__all__ = [
    "FARS",
    "AllPairs",
    "GroupCounts",
    "GroupRates",
    "HighestDifferent",
    "Interval",
    "Paired",
    "PeopleBootstrap",
    "Rate",
    "Ratio",
    "Roc",
    "UpperTail",
    "WeightedTail",
    "angular_fisher_score",
    "auc",
    "best_threshold",
    "cmc",
    "comparison_rate",
    "count_different",
    "eer",
    "highest_different",
    "interval_over_people",
    "lowest_far",
    "mate_ranks",
    "paired_difference",
    "people_for_far",
    "people_for_fpir",
    "rates_over_people",
    "roc",
    "same_pairs",
    "supports_far",
    "supports_searches",
    "tar_at_far",
    "threshold_at_far",
    "wilson",
    "wilson_rate",
]
