"""Features in the order of a list: a file whose rows lie so, or folders that `sphereface embed` wrote."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sphereface.data.lists import MegaFaceImage
from sphereface.embed.ensemble import join_features
from sphereface.embed.store import Features as Stored
from sphereface.embed.store import Rows, holds_features, open_features
from sphereface.errors import DataFormatError
from sphereface.evaluation.pair_lists import find_images
from sphereface.evaluation.streams import Features, Places, map_features

PathLike = str | Path


def open_listed(features: PathLike | Sequence[PathLike], images: Sequence[MegaFaceImage], listed: PathLike) -> Features:
    """Features (N, D) of the images of a list, in its order, mapped and not read.

    They are in a `.npy` or a devkit's `.bin` in that order already; or in folders that `embed` wrote, one for each
    model, where images are found by their names, whatever the suffix. Several models' are joined.
    """
    paths = [Path(features)] if isinstance(features, str | Path) else [Path(path) for path in features]
    if len(paths) == 1 and not paths[0].is_dir():
        return _in_order_already(paths[0], len(images), listed)
    files = [path for path in paths if not path.is_dir()]
    if files:
        raise DataFormatError(f"{files[0]}: no folder; features of several models are joined from folders of embed")
    stored = open_stored(paths)
    order = _places(images, stored, " and ".join(map(str, paths)), listed)
    rows = stored.rows if np.array_equal(order, np.arange(len(stored))) else RowsInOrder(stored.rows, order)
    return cast(Features, rows)  # sliced and indexed as an array is, and that is all that is done with it


def open_stored(folders: Sequence[PathLike]) -> Stored:
    """The features of a set that `embed` wrote, or those of several models joined; errors name the folders."""
    for folder in folders:
        if Path(folder).is_dir() and not holds_features(folder):
            raise DataFormatError(
                f"{folder}: no features here; if it holds aligned faces, make them with sphereface embed {folder} "
                "FEATURES --model FILE, and name FEATURES instead"
            )
    parts = [open_features(folder) for folder in folders]
    if len(parts) == 1:
        return parts[0]
    try:
        return join_features(parts)
    except ValueError as error:
        raise DataFormatError(f"{' and '.join(map(str, folders))}: {error}") from error


class RowsInOrder:
    """Rows in another order, or some of them, read when they are asked for."""

    def __init__(self, rows: Rows, order: Places) -> None:
        self._rows, self._order = rows, order
        self.shape, self.ndim, self.dtype = (len(order), rows.shape[1]), 2, np.dtype(np.float32)

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, key: Any) -> NDArray[np.float32]:
        """Rows by a number, a slice, numbers (M,) or marks (N,), as of an array."""
        return np.asarray(self._rows[self._order[key]], dtype=np.float32)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("rows in another order have no array without a copy; take slices")
        return self[:].astype(dtype or self.dtype, copy=False)


def _in_order_already(path: Path, count: int, listed: PathLike) -> Features:
    features = map_features(path)
    if len(features) != count:
        raise DataFormatError(f"{path}: {len(features):,} features; wanted {count:,}, one for each image of {listed}")
    return features


def _places(images: Sequence[MegaFaceImage], stored: Stored, where: str, listed: PathLike) -> Places:
    """The row of each listed image, each of which must be there."""
    names = [image.path for image in images]
    try:
        found = find_images(names, stored.paths)
    except DataFormatError as error:
        raise DataFormatError(f"{where}: {error}") from error
    absent = [name for name in names if name not in found]
    if absent:
        why = stored.unreadable.get(absent[0], "not in the set that was embedded")
        raise DataFormatError(
            f"{where}: {len(absent):,} of {len(names):,} images of {listed} have no features, such as {absent[0]} "
            f"({why}); align with --misses centre and embed again"
        )
    return np.array([found[name] for name in names], dtype=np.int64)
