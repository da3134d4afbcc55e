"""Search of probes in a gallery, 1:N: ranks of mated probes, and the highest scores of strangers."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sphereface.arrays import Float32, Float64, Integers
from sphereface.evaluation.streaming.scores import StreamedScores


class SearchResult(NamedTuple):
    """Ranks and scores of probes in a gallery."""

    mated: Integers  # probes with a mate: their subject is in the gallery
    ranks: Integers  # of their best mates: 1 + the number of other subjects' templates with at least that score
    scores: Float64  # of their best mates
    strangers: Integers  # the other probes
    highest: Float64  # their highest scores

    def rates(self, ranks: Sequence[int], fpirs: Sequence[float], weights: Float64) -> Float64:
        """Shares of mated probes up to each rank, and found at each FPIR, with weights (P,) of the probes."""
        counts, strange = weights[self.mated], weights[self.strangers]
        if not counts.sum() or (len(fpirs) and not strange.sum()):
            return np.full(len(ranks) + len(fpirs), np.nan)
        found = [counts[self.ranks <= rank].sum() for rank in ranks]
        order = np.argsort(-self.highest, kind="stable")
        passed = np.cumsum(strange[order])
        for fpir in fpirs:
            refused = int(np.searchsorted(passed, fpir * passed[-1] * (1 + 1e-12), side="right"))
            limit = self.highest[order[refused]] if refused < len(order) else -np.inf
            found.append(counts[(self.ranks == 1) & (self.scores > limit)].sum())
        return np.asarray(np.array(found) / counts.sum(), dtype=np.float64)


def search_gallery(
    probes: Float32,
    probe_subjects: ArrayLike,
    gallery: Float32,
    gallery_subjects: ArrayLike,
    *,
    block: int | None = None,
) -> SearchResult:
    """Search probes (P, D) in a gallery (G, D), in blocks of `block` templates, which affects the memory only.

    A matrix product finds the candidates; scores within its rounding error of a decision are computed exactly, so ties
    are ties. Of several templates of a subject in the gallery, the best is the mate and the others are not counted.
    """
    asked, known = np.asarray(probe_subjects), np.asarray(gallery_subjects)
    scores = StreamedScores(probes, gallery, block=block)
    rows, columns = _mates(asked, known)
    best = np.full(len(asked), -np.inf)
    np.maximum.at(best, rows, scores.exact(rows, columns))
    mated, strangers = np.unique(rows), np.setdiff1d(np.arange(len(asked)), rows)
    before = np.zeros(len(asked), dtype=np.int64)
    highest = np.full(len(asked), -np.inf)
    for first, piece in scores.blocks([len(known)]):
        wrong = asked[mated, None] != known[first : first + piece.shape[1]]
        beyond = piece[mated] - best[mated, None]
        sure = beyond > scores.error
        before[mated] += (sure & wrong).sum(axis=1)
        row, column = np.nonzero(wrong & ~sure & (beyond >= -scores.error))
        passes = scores.exact(mated[row], column + first) >= best[mated[row]]
        np.add.at(before, mated[row[passes]], 1)
        near = piece[strangers].astype(np.float64)
        lowest = np.maximum(near.max(axis=1) - 2 * scores.error, highest[strangers] - scores.error)
        row, column = np.nonzero(near >= lowest[:, None])
        np.maximum.at(highest, strangers[row], scores.exact(strangers[row], column + first))
    return SearchResult(mated, 1 + before[mated], best[mated], strangers, highest[strangers])


def _mates(asked: Integers, known: Integers) -> tuple[Integers, Integers]:
    """Every probe with every template of its subject in the gallery."""
    order = np.argsort(known, kind="stable")
    begin = np.searchsorted(known[order], asked, side="left")
    counts = np.searchsorted(known[order], asked, side="right") - begin
    rows = np.repeat(np.arange(len(asked)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)  # 0, 1, ... for each probe
    return rows, order[begin[rows] + within]
