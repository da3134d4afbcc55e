"""Photos with and without a detected face, from the report of `sphereface data align`, and failure rates of groups."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from sphereface.arrays import Bools, Float64
from sphereface.data.aligning.run import LANDMARKS, REPORT, AlignReport
from sphereface.data.lists.attributes import Attributes
from sphereface.data.lists.landmarks import read_landmarks
from sphereface.errors import DataFormatError
from sphereface.metrics.rates import Rate, rates_over_people


@dataclass(frozen=True)
class Detection:
    """The photos with a detected face and those without; unreadable photos are in neither list."""

    found: tuple[str, ...]
    none: tuple[str, ...]

    @property
    def paths(self) -> list[str]:
        """All photos, those with a face first."""
        return [*self.found, *self.none]

    @property
    def people(self) -> list[str]:
        """The person of each photo: the name of its outermost folder."""
        return [path.split("/", 1)[0] for path in self.paths]

    def failures(self, table: Attributes, attribute: str, *, rounds: int, seed: int) -> dict[str, Rate]:
        """The share of each group's photos without a face; intervals over people."""
        paths, people = self.paths, self.people
        failed = np.arange(len(paths)) >= len(self.found)
        groups = np.array([group or "" for group in table.groups_of(attribute, people, paths)])
        owners = np.array(people)
        return {
            name: _share(failed[groups == name], owners[groups == name], rounds, seed)
            for name in sorted(set(groups.tolist()) - {""})
        }


def _share(failed: Bools, people: NDArray[np.str_], rounds: int, seed: int) -> Rate:
    def measure(weights: Float64) -> Float64:
        return np.array([weights[failed].sum() / weights.sum()])

    return rates_over_people(measure, people, people, rounds=rounds, seed=seed)[0]


def read_detection(aligned: str | Path) -> Detection:
    """The detections of `sphereface data align`; `aligned` is the folder that it wrote, or the `report.json` in it."""
    path = Path(aligned)
    path = path / REPORT if path.is_dir() else path
    try:
        report = AlignReport.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise DataFormatError(f"{path}: no report of sphereface data align; name the folder that it wrote") from error
    found = (*read_landmarks(path.with_name(LANDMARKS)), *report.unlisted)
    if len(found) != report.found:
        raise DataFormatError(
            f"{path.with_name(LANDMARKS)}: {len(found):,} photos, but {path.name} has {report.found:,}; "
            "the two are of different runs: align again"
        )
    return Detection(found, report.none)
