"""MegaFace from the devkit's files: lists of images with their features, noise and sizes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sphereface.arrays import Bools, Floating, Integers
from sphereface.data.lists.devkit import read_distractors, read_probes, rows_of
from sphereface.data.lists.megaface import MegaFaceImage
from sphereface.errors import DataFormatError, UserError
from sphereface.evaluation.protocols.megaface import MegaFaceResult, Sizes, evaluate_megaface
from sphereface.evaluation.protocols.noise import UnmatchedNoise, match_noise
from sphereface.evaluation.sources import PathLike, open_listed


@dataclass(frozen=True)
class MegaFaceSet:
    """Features with their lists; `sizes` as in `evaluate_megaface`."""

    probes: Floating
    people: NDArray[np.str_]
    distractors: Floating
    noisy_probes: Bools | None
    noisy_distractors: Bools | None
    sizes: Sizes | None
    unmatched_noise: tuple[UnmatchedNoise, ...] = ()

    def evaluate(self, **options: Any) -> MegaFaceResult:
        """`evaluate_megaface` with the features and lists of this set; `options` are its other options."""
        known = {"sizes": self.sizes, "noisy_probes": self.noisy_probes, "noisy_distractors": self.noisy_distractors}
        result = evaluate_megaface(self.probes, self.people, self.distractors, **(known | options))
        return replace(result, unmatched_noise=self.unmatched_noise)


def load_megaface(
    probe_list: str | Path,
    distractor_list: str | Path,
    probe_features: PathLike | Sequence[PathLike],
    distractor_features: PathLike | Sequence[PathLike],
    *,
    probe_noise: str | Path | None = None,
    distractor_noise: str | Path | None = None,
    size_lists: Mapping[int, str | Path] | None = None,
) -> MegaFaceSet:
    """Open the devkit's lists with features (N, D) of their images as memory maps.

    Features are in a `.npy` or `.bin` in the order of the list, or in a folder that `sphereface embed` wrote, in any
    order; several such folders, one for each model, are joined. Without `size_lists`, a size n is the first n
    distractors. A list of noise without a listed image is an error; other unmatched names are counted.
    """
    probes, people = read_probes(probe_list)
    distractors = read_distractors(distractor_list)
    sizes = None
    if size_lists is not None:
        sizes = {size: _rows_listed(path, distractors) for size, path in size_lists.items()}
    noisy_probes, other_probes = match_noise(probe_noise, probes, probe_list, "probe")
    noisy_distractors, others = match_noise(distractor_noise, distractors, distractor_list, "distractor")
    of_probes = open_listed(probe_features, probes, probe_list)
    of_distractors = open_listed(distractor_features, distractors, distractor_list)
    if of_probes.shape[1] != of_distractors.shape[1]:
        raise DataFormatError(
            f"{_named(distractor_features)}: features of {of_distractors.shape[1]:,} numbers, but those of "
            f"{_named(probe_features)} have {of_probes.shape[1]:,}; wanted both from one model"
        )
    unmatched = tuple(each for each in (other_probes, others) if each is not None)
    return MegaFaceSet(of_probes, people, of_distractors, noisy_probes, noisy_distractors, sizes, unmatched)


def sizes_of(lists: Sequence[PathLike]) -> dict[int, PathLike]:
    """Lists of distractors by their size, for `load_megaface`."""
    found: dict[int, PathLike] = {}
    for path in lists:
        size = len(read_distractors(path))
        if found.setdefault(size, path) != path:
            raise DataFormatError(f"{path}: {size:,} distractors, as many as in {found[size]}; wanted one of each size")
    return found


def _rows_listed(path: PathLike, distractors: Sequence[MegaFaceImage]) -> Integers:
    try:
        return rows_of(read_distractors(path), distractors)
    except DataFormatError:
        raise
    except UserError as error:
        raise DataFormatError(f"{path}: {error}") from error


def _named(features: PathLike | Sequence[PathLike]) -> str:
    return str(features) if isinstance(features, str | Path) else " and ".join(map(str, features))
