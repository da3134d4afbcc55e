"""Outcomes of finished runs, a JSON file each: an experiment goes on in another sitting, or on another machine."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sphereface.data.files.writing import whole_file
from sphereface.errors import DataFormatError
from sphereface.experiments.view1 import STATISTICS, Measured
from sphereface.metrics import Paired, PeopleBootstrap
from sphereface.metrics.bootstrap import paired_of_draws
from sphereface.training.config import check

DIGITS = 6  # of a statistic in a draw of people

Outcome = dict[str, Any]


def kept(path: Path) -> bool:
    """True if an outcome is in a file."""
    return path.is_file()


def outcome(path: Path, about: Mapping[str, Any], compute: Callable[[], Outcome]) -> Outcome:
    """The outcome in a file, or computed and written there; one of other settings is an error."""
    settings = json.loads(json.dumps(about))
    if not kept(path):
        found = {"about": settings, **compute()}
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            file.write((json.dumps(found, separators=(",", ":")) + "\n").encode())
    try:
        found = json.loads(path.read_bytes())
        theirs = found["about"]
    except (ValueError, TypeError, KeyError) as error:
        raise DataFormatError(f"{path}: damaged; remove it to run this again") from error
    if _whole(theirs) != _whole(settings):
        raise DataFormatError(f"{path}: an outcome of other settings; remove it, or choose another folder")
    return dict(found)


def _whole(about: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the defaults of fields that a config did not have when it was written."""
    config = about.get("config")
    return {**about, "config": config and check(config, source="outcome").model_dump()}


def statistics_of(measured: Measured, bootstrap: PeopleBootstrap) -> Outcome:
    """The statistics of a network on view 1, also for each draw of people of a bootstrap."""
    methods = {name: getattr(measured, name) for name in STATISTICS}
    return {
        "statistics": {name: method() for name, method in methods.items()},
        "rounds": bootstrap.rounds,
        "draws": {name: [round(method(drawn), DIGITS) for drawn in bootstrap] for name, method in methods.items()},
    }


def differences(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> dict[str, Paired]:
    """By statistic, the mean over runs of ours - theirs, on the same draws of people."""
    return {
        name: paired_of_draws(
            _mean(ours, "statistics", name) - _mean(theirs, "statistics", name),
            _mean(ours, "draws", name) - _mean(theirs, "draws", name),
        )
        for name in STATISTICS
    }


def _mean(runs: Sequence[Outcome], of: str, name: str) -> Any:
    return np.mean([run[of][name] for run in runs], axis=0)
