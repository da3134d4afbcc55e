"""Names of array types, and unit rows: one policy for zero vectors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from sphereface.errors import BadFeature, UserError

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Floating = NDArray[np.floating[Any]]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Integers = NDArray[np.integer[Any]]
Bools = NDArray[np.bool_]
UInt8 = NDArray[np.uint8]
Image = UInt8  # (H, W, 3) RGB
Places = Sequence[int] | Integers


def unit_rows(
    features: ArrayLike,
    *,
    dtype: DTypeLike = np.float64,
    lengths: Floating | None = None,
    what: str = "row",
    places: Places = range(0),
    out: Float32 | None = None,
) -> NDArray[Any]:
    """Features (N, D) with each row scaled to length one.

    A row of zeros stays zero, so that its score with any other row is 0. A number that is not finite is an error that
    names the kind of row, `what`, and its entry of `places`. `lengths` (N,) are the row lengths, if already known.
    """
    rows = np.ascontiguousarray(features, dtype=dtype)
    if rows.ndim != 2:
        raise UserError(f"features {rows.shape}; wanted (N, D)")
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow raises below
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows)) if lengths is None else lengths
    _refuse(~np.isfinite(lengths), "a number that is not finite, or too large", what, places)
    return np.asarray(np.divide(rows, np.where(lengths == 0, 1, lengths)[:, None], out=out))


def require_directions(unit: Floating, *, what: str = "row", places: Places = range(0)) -> None:
    """Raise if a unit row is zero: in stored features, the row of an image that was not embedded."""
    suspects = np.flatnonzero(unit[:, 0] == 0)  # few rows, so that the check is cheap
    zero = np.zeros(len(unit), bool)
    zero[suspects] = ~unit[suspects].any(axis=1)
    _refuse(zero, "length zero", what, places)


def _refuse(wrong: Bools, reason: str, what: str, places: Places) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        place = places[row] if len(places) else row
        raise BadFeature(what, f"the feature of {what} {place} has {reason}; embed it again or leave it out")
