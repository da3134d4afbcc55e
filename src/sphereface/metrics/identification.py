"""Identification: the rank of a probe's mate in a gallery."""

import numpy as np
from numpy.typing import ArrayLike

from sphereface.arrays import Float64, Int64
from sphereface.errors import UserError


def mate_ranks(mate_scores: ArrayLike, distractor_scores: ArrayLike) -> Int64:
    """The rank of each probe's mate (P,) among distractors (P, G): 1 + the number of scores at least as high."""
    mates, distractors = np.asarray(mate_scores, dtype=np.float64), np.asarray(distractor_scores, dtype=np.float64)
    if mates.ndim != 1 or distractors.shape[:1] != mates.shape or distractors.ndim != 2:
        raise UserError(f"mates and distractors have shapes {mates.shape}, {distractors.shape}; wanted (P,) and (P, G)")
    return np.asarray(1 + (distractors >= mates[:, None]).sum(1))  # a tie counts against the mate


def cmc(same: ArrayLike, scores: ArrayLike, *, ranks: int = 20) -> Float64:
    """Cumulative match characteristic: the share of probes with a mate among the first 1, 2, ... `ranks`.

    `same` and `scores` are (P, G). A probe's rank is that of its best mate among the other people.
    """
    truth, score = np.asarray(same).astype(bool), np.asarray(scores, dtype=np.float64)
    if truth.ndim != 2 or truth.shape != score.shape:
        raise UserError(f"same and scores have shapes {truth.shape}, {score.shape}; wanted (P, G) for both")
    if not truth.any(1).all():
        raise UserError(f"probe {int(np.argmin(truth.any(1)))} has no mate in the gallery; leave such probes out")
    best = np.where(truth, score, -np.inf).max(1)
    rank = mate_ranks(best, np.where(truth, -np.inf, score))
    return np.asarray([(rank <= limit).mean() for limit in range(1, ranks + 1)])
