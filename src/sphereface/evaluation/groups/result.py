"""What is said about groups of people: numbers for JSON, tables for people to read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sphereface.metrics.group_rates import Ratio, Which
from sphereface.metrics.rates import Rate


@dataclass(frozen=True)
class GroupLine:
    """One group."""

    name: str
    people: int
    photos: int
    different: int  # pairs
    same: int
    fmr: Rate
    fnmr: Rate
    failure_to_detect: Rate | None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "people": self.people,
            "photos": self.photos,
            "different": self.different,
            "same": self.same,
            "fmr": self.fmr.as_dict(),
            "fnmr": self.fnmr.as_dict(),
            "failure_to_detect": None if self.failure_to_detect is None else self.failure_to_detect.as_dict(),
        }


class Finding(NamedTuple):
    """A group that differs from the others, and how sure that is."""

    attribute: str
    group: str
    which: Which
    ratio: float  # to the rate of the others together
    interval: tuple[float, float]  # 95 %, of this ratio alone
    p: float  # corrected
    others: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """For people to read."""
        low, high = self.interval
        return (
            f"{self.attribute} {self.group}: {self.which} {self.ratio:.2f} x [{low:.2f}, {high:.2f}] that of "
            f"{', '.join(self.others)} (p = {self.p:.2g}, corrected)"
        )


@dataclass(frozen=True)
class AttributeReport:
    """The groups of one attribute."""

    attribute: str
    groups: tuple[GroupLine, ...]
    matrix: tuple[tuple[Rate | None, ...], ...]  # FMR of each group with each
    max_over_min: Mapping[Which, Ratio | None]  # None where every rate is 0
    max_over_mean: Mapping[Which, Ratio | None]  # over the geometric mean
    left_out: Mapping[str, str]  # groups that were too small, and why
    unstated: int  # photos of nobody's group

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        names = [group.name for group in self.groups]
        return {
            "groups": {group.name: group.as_dict() for group in self.groups},
            "cross_group_fmr": {
                one: {two: None if rate is None else rate.as_dict() for two, rate in zip(names, row, strict=True)}
                for one, row in zip(names, self.matrix, strict=True)
            },
            "max_over_min": {which: _ratio_dict(ratio, names) for which, ratio in self.max_over_min.items()},
            "max_over_geometric_mean": {
                which: _ratio_dict(ratio, names) for which, ratio in self.max_over_mean.items()
            },
            "left_out": dict(self.left_out),
            "photos_without_group": self.unstated,
        }

    def table(self) -> str:
        """The numbers as plain text."""
        names = [group.name for group in self.groups]
        rows = [["group", "people", "photos", "FMR", "FNMR", "failure to detect"]]
        for group in self.groups:
            failure = "-" if group.failure_to_detect is None else _shown(group.failure_to_detect)
            rows.append(
                [group.name, f"{group.people:,}", f"{group.photos:,}", _shown(group.fmr), _shown(group.fnmr), failure]
            )
        cells = [[_shown(rate, short=True) for rate in row] for row in self.matrix]
        square = [["FMR of", *names], *([name, *row] for name, row in zip(names, cells, strict=True))]
        lines = [f"{self.attribute}", *_columns(rows), "", *_columns(square), ""]
        for title, ratios in (("max / min", self.max_over_min), ("max / geometric mean", self.max_over_mean)):
            lines += [f"{which} {title}: {_ratio_text(ratio, names)}" for which, ratio in ratios.items()]
        lines += [f"left out: {name}, {why}" for name, why in self.left_out.items()]
        if self.unstated:
            lines.append(f"{self.unstated:,} photos have no group here")
        return "\n".join(lines)


@dataclass(frozen=True)
class GroupReport:
    """All attributes at one threshold, and what stands out."""

    data: str
    model: str
    threshold: float
    stated: float | None  # the FMR that was asked for; None where the threshold was given
    fmr: float  # that of all pairs at this threshold
    people: int
    photos: int
    different: int  # pairs, within groups and across them
    attributes: tuple[AttributeReport, ...]
    findings: tuple[Finding, ...]
    error: float  # the chance of any finding where no group differs, at most
    tests: int
    rounds: int
    seed: int
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "data": self.data,
            "model": self.model,
            "threshold": self.threshold if np.isfinite(self.threshold) else None,
            "threshold_from": self._threshold_from(),
            "fmr": self.fmr,
            "people": self.people,
            "photos": self.photos,
            "different": self.different,
            "attributes": {each.attribute: each.as_dict() for each in self.attributes},
            "findings": [{**finding._asdict(), "sentence": finding.sentence} for finding in self.findings],
            "family_wise_error": self.error,
            "tests": self.tests,
            "intervals": self._intervals(),
            "notes": list(self.notes),
        }

    def table(self) -> str:
        """The report as plain text."""
        lines = [
            f"{self.data}, {self.model}: {self.people:,} people, {self.photos:,} photos",
            f"threshold {self.threshold:.4f} (cosine): {self._threshold_from()}; there FMR {self.fmr:.3g}",
        ]
        for each in self.attributes:
            lines += ["", each.table()]
        lines += ["", f"95 % intervals: {self._intervals()}", *(f"note: {note}" for note in self.notes), ""]
        if self.findings:
            lines += [f"found: {finding.sentence}" for finding in self.findings]
        else:
            lines.append("found: nothing; no group differs from the others more than by chance")
        lines.append(
            f"chance of any finding where no group differs: {100 * self.error:g} % at most ({self.tests} comparisons)"
        )
        return "\n".join(lines)

    def _threshold_from(self) -> str:
        if self.stated is None:
            return "given"
        pairs = f"all {self.different:,} pairs of different people, within groups and across"
        return f"the lowest at which at most {self.stated:g} of {pairs}, may pass"

    def _intervals(self) -> str:
        return (
            f"bootstrap over {self.people:,} people ({self.rounds} rounds, seed {self.seed}), threshold kept; of a "
            "rate of 0 or 1 Wilson's, with people (FNMR) or pairs of people (FMR) as trials"
        )


def _shown(rate: Rate | None, *, short: bool = False) -> str:
    if rate is None:
        return "-"
    if short or rate.interval is None:
        return f"{rate.value:.3g}"
    return f"{rate.value:.3g} [{rate.interval.low:.3g}, {rate.interval.high:.3g}]"


def _ratio_dict(ratio: Ratio | None, names: Sequence[str]) -> dict[str, Any] | None:
    if ratio is None:
        return None
    ends = None
    if ratio.interval is not None:  # JSON has no infinity: an open end is null
        ends = [end if np.isfinite(end) else None for end in ratio.interval]
    return {
        "value": ratio.value,
        "interval": ends,
        "at_least": ratio.at_least,
        "highest": names[ratio.highest],
        "lowest": None if ratio.lowest is None else names[ratio.lowest],
    }


def _ratio_text(ratio: Ratio | None, names: Sequence[str]) -> str:
    if ratio is None:
        return "none: every rate is 0"
    groups = names[ratio.highest] + ("" if ratio.lowest is None else f" over {names[ratio.lowest]}")
    if ratio.value is None or ratio.interval is None:
        return f"no lower than {ratio.at_least:.2f} ({groups}; a rate is 0)"
    return f"{ratio.value:.2f} [{ratio.interval.low:.2f}, {ratio.interval.high:.2f}] ({groups})"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
