"""Error rates of groups of people: numbers for JSON, tables as plain text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sphereface.evaluation.rules.tables import columns
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
        """For JSON; the name is the key of the group."""
        fields = {name: value for name, value in vars(self).items() if name != "name"}
        return {name: value.as_dict() if isinstance(value, Rate) else value for name, value in fields.items()}


class Finding(NamedTuple):
    """A group that differs from the others, with the significance."""

    attribute: str
    group: str
    which: Which
    ratio: float  # to the rate of the others together
    interval: tuple[float, float]  # 95 %, of this ratio
    p: float  # corrected
    others: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The finding in one sentence."""
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
    left_out: Mapping[str, str]  # groups that are too small, with the reasons
    unstated: int  # photos without a group

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

    def ratios(self) -> list[tuple[str, str, str]]:
        """Every ratio of rates as text: its name, its value, and the two groups."""
        names = [group.name for group in self.groups]
        both = (("max / min", self.max_over_min), ("max / geometric mean", self.max_over_mean))
        return [
            (f"{which} {title}", *_ratio_text(ratio, names))
            for title, ratios in both
            for which, ratio in ratios.items()
        ]

    def table(self) -> str:
        """The numbers as plain text."""
        names = [group.name for group in self.groups]
        rows = [["group", "people", "photos", "FMR", "FNMR", "failure to detect"]]
        for group in self.groups:
            rates = [shown(rate) for rate in (group.fmr, group.fnmr, group.failure_to_detect)]
            rows.append([group.name, f"{group.people:,}", f"{group.photos:,}", *rates])
        cells = [[shown(rate, short=True) for rate in row] for row in self.matrix]
        square = [["FMR of", *names], *([name, *row] for name, row in zip(names, cells, strict=True))]
        lines = [f"{self.attribute}", *columns(rows), "", *columns(square), ""]
        lines += [f"{name}: {value} ({groups})" for name, value, groups in self.ratios()]
        lines += [f"left out: {name}, {why}" for name, why in self.left_out.items()]
        if self.unstated:
            lines.append(f"{self.unstated:,} photos have no group here")
        return "\n".join(lines)


@dataclass(frozen=True)
class GroupReport:
    """All attributes at one threshold, with the findings."""

    data: str
    model: str
    threshold: float
    stated: float | None  # the FMR that set the threshold; None if the threshold was given
    fmr: float  # of all pairs at this threshold
    people: int
    photos: int
    different: int  # pairs, within groups and across them
    attributes: tuple[AttributeReport, ...]
    findings: tuple[Finding, ...]
    error: float  # upper bound on the chance of any finding if no group differs
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
            "threshold_from": self.threshold_from,
            "fmr": self.fmr,
            "people": self.people,
            "photos": self.photos,
            "different": self.different,
            "attributes": {each.attribute: each.as_dict() for each in self.attributes},
            "findings": [{**finding._asdict(), "sentence": finding.sentence} for finding in self.findings],
            "family_wise_error": self.error,
            "tests": self.tests,
            "intervals": self.intervals,
            "notes": list(self.notes),
        }

    def table(self) -> str:
        """The report as plain text."""
        lines = [
            f"{self.data}, {self.model}: {self.people:,} people, {self.photos:,} photos",
            f"threshold {self.threshold:.4f} (cosine): {self.threshold_from}; its FMR {self.fmr:.3g}",
        ]
        for each in self.attributes:
            lines += ["", each.table()]
        lines += ["", f"95 % intervals: {self.intervals}", *(f"note: {note}" for note in self.notes), ""]
        if self.findings:
            lines += [f"found: {finding.sentence}" for finding in self.findings]
        else:
            lines.append("found: nothing; no significant difference between the groups")
        lines.append(
            f"chance of any finding where no group differs: {100 * self.error:g} % at most ({self.tests} comparisons)"
        )
        return "\n".join(lines)

    @property
    def threshold_from(self) -> str:
        """Origin of the threshold."""
        if self.stated is None:
            return "given"
        pairs = f"all {self.different:,} pairs of different people, within groups and across"
        return f"the lowest at which at most {self.stated:g} of {pairs}, may pass"

    @property
    def intervals(self) -> str:
        """Method of the intervals."""
        return (
            f"bootstrap over {self.people:,} people ({self.rounds} rounds, seed {self.seed}), threshold kept; of a "
            "rate of 0 or 1 Wilson's, with people (FNMR) or pairs of people (FMR) as trials"
        )


def shown(rate: Rate | None, *, short: bool = False) -> str:
    """A rate with its interval, or without (`short`); a dash where there is none."""
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


def _ratio_text(ratio: Ratio | None, names: Sequence[str]) -> tuple[str, str]:
    """A ratio with its interval, and the names of the two groups."""
    if ratio is None:
        return "-", "every rate is 0"
    groups = names[ratio.highest] + ("" if ratio.lowest is None else f" over {names[ratio.lowest]}")
    if ratio.value is None or ratio.interval is None:
        return f"no lower than {ratio.at_least:.2f}", f"{groups}; a rate is 0"
    return f"{ratio.value:.2f} [{ratio.interval.low:.2f}, {ratio.interval.high:.2f}]", groups
