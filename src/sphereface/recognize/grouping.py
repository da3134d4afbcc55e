"""Groups of faces that show one person, when nobody has been named: average linkage down to a threshold.

Two groups have as score the mean score of their pairs of faces, one from each; the two groups with the highest are
joined, again and again, while that is at least the threshold. A single wrong pair does not join two groups, as it would
if the highest pair decided.

Groups that average linkage joins have a pair of faces at or above the threshold, so that the faces that such pairs
connect can be grouped apart from all others: the result is the same, and no matrix of all pairs is kept.
"""

import numpy as np

from sphereface.arrays import Float32, Float64, Int64

ROWS = 1_024  # of the product of all pairs at a time


def group_faces(units: Float32, threshold: float) -> Int64:
    """The group of each face (N,) from 0 on, in the order of their first faces; `units` (N, D) are unit features."""
    groups = np.arange(len(units))
    for members in _connected(units, threshold):
        found = _average_linkage((units[members] @ units[members].T).astype(np.float64), threshold)
        groups[members] = members[found]
    return np.unique(groups, return_inverse=True)[1].astype(np.int64)


def _connected(units: Float32, threshold: float) -> list[Int64]:
    """The sets of at least two faces that pairs at or above the threshold connect."""
    parent = np.arange(len(units))

    def root(face: int) -> int:
        while parent[face] != face:
            parent[face] = parent[parent[face]]
            face = int(parent[face])
        return face

    for start in range(0, len(units), ROWS):
        left, right = np.nonzero(units[start : start + ROWS] @ units.T >= threshold)
        for a, b in zip((left + start).tolist(), right.tolist(), strict=True):
            if a < b:
                first, second = sorted((root(a), root(b)))
                parent[second] = first
    roots = np.array([root(face) for face in range(len(units))], np.int64)
    return [np.flatnonzero(roots == each) for each in np.flatnonzero(np.bincount(roots, minlength=1) > 1)]


def _average_linkage(scores: Float64, threshold: float) -> Int64:
    """The group of each face, named by its first face, from the scores of all pairs (N, N), which are overwritten."""
    count = len(scores)
    size, groups = np.ones(count), np.arange(count)
    np.fill_diagonal(scores, -np.inf)
    best = scores.argmax(axis=1)  # of each group, the most similar other one
    value = scores[groups, best]
    while True:
        one = int(value.argmax())
        if value[one] < threshold:
            return groups
        a, b = sorted((one, int(best[one])))
        joined = (size[a] * scores[a] + size[b] * scores[b]) / (size[a] + size[b])
        joined[[a, b]] = -np.inf
        scores[a], scores[:, a] = joined, joined
        scores[b], scores[:, b] = -np.inf, -np.inf
        size[a] += size[b]
        groups[groups == b] = a
        closer = joined > value
        best[closer], value[closer] = a, joined[closer]
        for row in {a, b, *np.flatnonzero(((best == a) | (best == b)) & ~closer).tolist()}:  # their best has changed
            best[row] = scores[row].argmax()
            value[row] = scores[row, best[row]]
