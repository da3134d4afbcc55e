"""Measures of recognition: pure NumPy, truth first, then scores, then options, as in scikit-learn.

A score is a cosine: higher is more alike. `same` says of each pair whether it is one person.
"""

from sphereface.metrics.bootstrap import Paired, PeopleBootstrap, interval_over_people, paired_difference
from sphereface.metrics.curves import Roc, auc, best_threshold, eer, roc, tar_at_far, threshold_at_far
from sphereface.metrics.fisher import angular_fisher_score
from sphereface.metrics.identification import cmc, mate_ranks
from sphereface.metrics.intervals import Interval, wilson
from sphereface.metrics.rates import FARS, Rate, rates_over_people, wilson_rate
from sphereface.metrics.sorted_pairs import AllPairs

__all__ = [
    "FARS",
    "AllPairs",
    "Interval",
    "Paired",
    "PeopleBootstrap",
    "Rate",
    "Roc",
    "angular_fisher_score",
    "auc",
    "best_threshold",
    "cmc",
    "eer",
    "interval_over_people",
    "mate_ranks",
    "paired_difference",
    "rates_over_people",
    "roc",
    "tar_at_far",
    "threshold_at_far",
    "wilson",
    "wilson_rate",
]
