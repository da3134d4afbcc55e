"""Templates: the features of many images of one person, averaged over each media, then over media.

A video of a thousand frames counts as much as a photo.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sphereface.arrays import Float32, Float64, Int64, require_directions, unit_rows
from sphereface.embed.store import Rows
from sphereface.errors import BadFeature, UserError

BLOCK = 8192  # features held at a time; a media is never cut


@dataclass(frozen=True, eq=False)
class Templates:
    """Templates by rising number, (T,), and their features at length one, (T, D)."""

    numbers: Int64
    features: Float32

    def __len__(self) -> int:
        return len(self.numbers)

    def find(self, numbers: ArrayLike) -> Int64:
        """The places of templates; -1 for an absent one."""
        wanted = np.asarray(numbers)
        place = np.minimum(np.searchsorted(self.numbers, wanted), len(self.numbers) - 1)
        return np.asarray(np.where(self.numbers[place] == wanted, place, -1))


def pool_templates(
    features: Rows,
    templates: ArrayLike,
    media: ArrayLike,
    *,
    rows: ArrayLike | None = None,
    images: Sequence[str] | None = None,
    weights: ArrayLike | None = None,
    unit_length: bool = False,
    block: int = BLOCK,
) -> Templates:
    """Mean of the features of each media of a template, then mean over the media, then length one.

    `templates` and `media` (N,) are numbers for each image; a media number counts within its template. `features` are
    (N, D), arrays or memory maps, in the order of the images, or `rows` (N,) has the row of each image; `images` (N,)
    are names for errors. `weights` (N,) multiply features, `unit_length` first scales each to length one. Sums are in
    float64 and in the order of the images, so neither `block` nor the order of templates changes a bit.
    """
    of, within = np.asarray(templates), np.asarray(media)
    row = np.arange(len(features)) if rows is None else np.asarray(rows)
    weight = None if weights is None else np.asarray(weights, dtype=np.float64)
    _check(features, of, within, row, weight)
    if block < 1:
        raise UserError(f"block is {block}; wanted at least 1")
    order = np.lexsort((within, of))  # stable: images of a media keep their order
    new_template = np.append(True, np.diff(of[order]) != 0)
    new_media = new_template | np.append(True, np.diff(within[order]) != 0)
    numbers = of[order][new_template].astype(np.int64)
    begins = np.append(np.flatnonzero(new_media), len(order))  # of each media, and the end
    owner = (np.cumsum(new_template) - 1)[begins[:-1]]  # the template of each media
    sums = np.zeros((len(numbers), features.shape[1]))
    for first, last in _blocks(begins, block):
        chosen = order[begins[first] : begins[last]]
        values = np.asarray(features[row[chosen]], dtype=np.float64)
        lengths = _lengths(values, chosen, images, or_zero=unit_length)
        if unit_length:
            values /= lengths[:, None]
        if weight is not None:
            values *= weight[chosen, None]
        counts = np.diff(begins[first : last + 1])
        means = np.add.reduceat(values, begins[first:last] - begins[first], axis=0) / counts[:, None]
        np.add.at(sums, owner[first:last], means)
    sums /= np.bincount(owner)[:, None]
    unit = unit_rows(sums, dtype=np.float32, what="template", places=numbers)
    require_directions(unit, what="template", places=numbers)
    return Templates(numbers, unit)


def _blocks(begins: Int64, block: int) -> list[tuple[int, int]]:
    """Runs of whole media with at most `block` images, or of one larger media."""
    runs, first, count = [], 0, len(begins) - 1
    while first < count:
        last = max(int(np.searchsorted(begins, begins[first] + block, side="right")) - 1, first + 1)
        runs.append((first, last))
        first = last
    return runs


def _lengths(values: Float64, places: Int64, images: Sequence[str] | None, *, or_zero: bool) -> Float64:
    """The lengths of features; raises for one that is not finite, and with `or_zero` for one of length zero."""
    lengths = np.sqrt((values * values).sum(axis=1))
    wrong = np.flatnonzero(~np.isfinite(lengths) | (or_zero & (lengths == 0)))
    if len(wrong):
        place = int(places[wrong[0]])
        what = images[place] if images else f"image {place}"
        reason = "length zero" if lengths[wrong[0]] == 0 else "a number that is not finite"
        raise BadFeature("image", f"the feature of {what} has {reason}; embed it again or leave it out")
    return np.asarray(lengths)


def _check(features: Rows, of: Int64, within: Int64, row: Int64, weight: Float64 | None) -> None:
    """Raise unless all arrays have one length, rows exist and weights are finite and not negative."""
    shapes = {of.shape, within.shape, row.shape, of.shape if weight is None else weight.shape}
    if features.ndim != 2 or len(shapes) != 1 or of.ndim != 1 or not len(of):
        raise UserError(
            f"features {features.shape} for templates {of.shape}, media {within.shape}, rows {row.shape}"
            f"{'' if weight is None else f', weights {weight.shape}'}; wanted (N, D) and (N,), N at least 1"
        )
    if row.min() < 0 or row.max() >= len(features):
        raise UserError(
            f"rows from {row.min()} to {row.max()} of {len(features):,} features; wanted 0 to {len(features) - 1:,}"
        )
    if weight is not None and len(wrong := np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))):
        raise UserError(f"weight {wrong[0]} is {weight[wrong[0]]}; wanted finite ones, at least 0")
