"""Groups of people at one global threshold: who is mistaken for another more often, who is not recognised.

The rule:

- One threshold for all: the lowest at which at most the stated FMR of *all* pairs of different people of the set pass,
  within groups and across them; or one that is given. A pair passes if its cosine is at least the threshold.
- FMR of a group: the share of pairs of different people, both photos of that group, that pass. The matrix has that of
  each two groups. FNMR of a group: the share of pairs of one person, both photos of that group, that do not pass.
- Failure to detect: the share of a group's photos in which `sphereface data align` found no face.
- A group is too small if it has under 20 people with two photos, or if the stated FMR would let under 10 of its pairs
  of different people pass. Such groups are refused by name, or left out and listed.
- Findings: groups whose FMR or FNMR differs from that of the others; that anything is found where no group differs has
  a chance of 5 % at most, over all attributes, groups and both rates (Bonferroni).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import ValidationError

from sphereface.data.aligning import LANDMARKS, REPORT, AlignReport
from sphereface.data.attributes import Attributes, read_attributes
from sphereface.data.lists import read_landmarks
from sphereface.embed.store import Features
from sphereface.errors import DataFormatError
from sphereface.evaluation.gather import Embeds, Progress, silent
from sphereface.evaluation.whole import WholeSet, embed_whole
from sphereface.metrics.group_rates import (
    ERROR,
    FalseMatches,
    GroupCounts,
    GroupRates,
    Ratio,
    Standout,
    Which,
    comparisons,
)
from sphereface.metrics.impostors import HighestDifferent, count_different, highest_different, unit_rows
from sphereface.metrics.rates import ROUNDS, Rate, rates_over_people
from sphereface.metrics.upper_tail import UpperTail, allowed

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Small = Literal["refuse", "leave out"]

FMR = 1e-3
PEOPLE = 20  # with two photos, that a group needs
EXPECTED = 10  # false matches that the stated FMR would give a group
WHICH: tuple[Which, ...] = ("FMR", "FNMR")


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
            "family_wise_error": ERROR,
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
            f"chance of any finding where no group differs: {100 * ERROR:g} % at most ({self.tests} comparisons)"
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


def evaluate_groups(
    source: Embeds | Features,
    data: str | Path | None,
    groups: str | Path,
    *,
    far: float = FMR,
    threshold: float | None = None,
    aligned: str | Path | None = None,
    small: Small = "refuse",
    missing: Literal["fail", "skip"] = "fail",
    rounds: int = ROUNDS,
    seed: int = 0,
    progress: Progress = silent,
) -> GroupReport:
    """Compare groups of people of a set; `groups` is a CSV with `person` or `path` and a column for each attribute.

    `aligned` is the folder that `sphereface data align` made, or its `report.json`, for failures to detect. Who or what
    has no line in the table is an error, or with `missing="skip"` left out; an empty cell leaves out by itself.

    >>> print(evaluate_groups(Embedder.load("model.onnx"), "faces", "groups.csv", far=1e-3).table())
    """
    table = read_attributes(groups)
    whole = embed_whole(source, data, skip=missing == "skip", progress=progress)
    return groups_of_set(
        whole, table, far=far, threshold=threshold, aligned=aligned, small=small, missing=missing,
        rounds=rounds, seed=seed,
    )  # fmt: skip


def groups_of_set(
    whole: WholeSet,
    table: Attributes,
    *,
    far: float = FMR,
    threshold: float | None = None,
    aligned: str | Path | None = None,
    small: Small = "refuse",
    missing: Literal["fail", "skip"] = "fail",
    rounds: int = ROUNDS,
    seed: int = 0,
) -> GroupReport:
    """Compare groups of people whose features are there already; as `evaluate_groups` otherwise."""
    if small not in get_args(Small):
        raise ValueError(f"small is {small!r}; choose one of {', '.join(get_args(Small))}")
    if not 0 < far < 1:
        raise ValueError(f"far is {far}; wanted a share between 0 and 1")
    detection = None if aligned is None else read_detection(aligned)
    persons = [whole.people[label] for label in whole.labels.tolist()]
    notes = _check_table(table, whole, persons, detection, missing)
    judged = _judged(whole, far, threshold)
    expected = far if threshold is None else judged.fmr
    reports, rates = [], []
    for attribute in table.columns:
        groups = table.groups_of(attribute, persons, whole.paths)
        failures = {} if detection is None else detection.failures(table, attribute, rounds=rounds, seed=seed)
        report, rate = _attribute(attribute, groups, judged, expected, failures, small, rounds, seed)
        reports.append(report)
        rates.append(rate)
    tests = sum(comparisons(len(report.groups)) for report in reports)
    findings = [
        _finding(report, standout)
        for report, rate in zip(reports, rates, strict=True)
        for standout in rate.standouts(tests=tests)
    ]
    return GroupReport(
        data=whole.data,
        model=whole.card.name or "a model without a name",
        threshold=judged.threshold,
        stated=far if threshold is None else None,
        fmr=judged.fmr,
        people=len(np.unique(whole.labels)),
        photos=len(whole.paths),
        different=judged.passed.total,
        attributes=tuple(reports),
        findings=tuple(sorted(findings, key=lambda finding: finding.p)),
        tests=tests,
        rounds=rounds,
        seed=seed,
        notes=(*whole.notes, *notes),
    )


class _Judged(NamedTuple):
    """Every pair of a set at one threshold; people are counted from 0."""

    threshold: float
    people: Ints
    passed: HighestDifferent  # those of different people that pass
    same: tuple[Ints, Ints]
    missed: NDArray[np.bool_]  # which of the same pairs do not pass

    @property
    def fmr(self) -> float:
        """The share of all pairs of different people that pass."""
        return len(self.passed.scores) / self.passed.total


def _judged(whole: WholeSet, far: float, threshold: float | None) -> _Judged:
    unit = unit_rows(whole.features)
    _, people = np.unique(whole.labels, return_inverse=True)
    left, right = same_pairs(people)
    scores = (unit[left] * unit[right]).sum(1)
    total = count_different(people)
    if not len(scores) or not total:
        raise ValueError(f"{whole.data}: no pair of one person, or none of two; wanted people with two photos each")
    if threshold is not None:
        passed = highest_different(unit, people, floor=threshold)
        return _Judged(threshold, people, passed, (left, right), scores < threshold)
    top = highest_different(unit, people, most=allowed(far, total) + 1)
    cut = UpperTail(np.sort(scores)[::-1], top.scores, total).threshold_at_far(far)
    passing = int((top.scores >= cut).sum())
    passed = HighestDifferent(top.scores[:passing], top.left[:passing], top.right[:passing], total)
    return _Judged(cut, people, passed, (left, right), scores < cut)


def same_pairs(people: ArrayLike) -> tuple[Ints, Ints]:
    """The places of all pairs of photos of one person, left < right; `people` (N,) says whose they are."""
    who = np.asarray(people)
    order = np.argsort(who, kind="stable")
    starts = np.flatnonzero(np.append(True, who[order][1:] != who[order][:-1])) if len(who) else np.arange(0)
    left, right = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for photos in np.split(order, starts[1:]):
        a, b = np.triu_indices(len(photos), 1)
        left.append(photos[a])
        right.append(photos[b])
    return np.concatenate(left), np.concatenate(right)


def _attribute(
    attribute: str,
    groups: Sequence[str | None],
    judged: _Judged,
    far: float,
    failures: Mapping[str, Rate],
    small: Small,
    rounds: int,
    seed: int,
) -> tuple[AttributeReport, GroupRates]:
    names = sorted({group for group in groups if group is not None})
    refused = {
        name: why for name in names if (why := _too_small(judged.people[[group == name for group in groups]], far))
    }
    if refused and small == "refuse":
        listed = "; ".join(f"{name}: {why}" for name, why in refused.items())
        raise ValueError(f'{attribute} has groups that are too small: {listed}; add people, or small="leave out"')
    kept = [name for name in names if name not in refused]
    if len(kept) < 2:
        left = "; ".join(f"{name}: {why}" for name, why in refused.items())
        raise ValueError(
            f"{attribute}: {len(kept)} of {len(names)} groups are large enough; wanted 2 to compare"
            + (f" ({left})" if left else "")
        )
    place = {name: number for number, name in enumerate(kept)}
    counts = _count(np.array([place.get(group or "", -1) for group in groups]), len(kept), judged)
    rates = GroupRates(counts, rounds=rounds, seed=seed)
    fmr, fnmr = rates.fmr(), rates.fnmr()
    lines = []
    for name, number in place.items():
        false, missed = fmr[number], fnmr[number]
        assert false is not None, f"{name} has too few pairs and was not refused"
        assert missed is not None, f"{name} has too few pairs and was not refused"
        lines.append(
            GroupLine(
                name=name,
                people=int((counts.photos[:, number] > 0).sum()),
                photos=int(counts.photos[:, number].sum()),
                different=int(rates.plain.different[0, number, number]),
                same=int(rates.plain.same[0, number]),
                fmr=false,
                fnmr=missed,
                failure_to_detect=failures.get(name),
            )
        )
    report = AttributeReport(
        attribute=attribute,
        groups=tuple(lines),
        matrix=tuple(tuple(row) for row in rates.matrix()),
        max_over_min={which: rates.max_over_min(which) for which in WHICH},
        max_over_mean={which: rates.max_over_mean(which) for which in WHICH},
        left_out=refused,
        unstated=sum(group is None for group in groups),
    )
    return report, rates


def _too_small(people: Ints, far: float) -> str:
    """Why a group, given whose its photos are, cannot be judged; empty if it can."""
    photos = np.unique(people, return_counts=True)[1]
    paired, pairs = int((photos >= 2).sum()), count_different(people)
    lacks = []
    if paired < PEOPLE:
        lacks.append(f"{paired} people with two photos, wanted {PEOPLE}")
    if far * pairs * (1 + 1e-12) < EXPECTED:
        needed = f"{int(np.ceil(EXPECTED / far)):,} pairs" if far else "a lower threshold"
        lacks.append(
            f"{pairs:,} pairs of different people, of which FMR {far:g} lets {far * pairs:.3g} pass, "
            f"wanted {EXPECTED}: {needed}"
        )
    return " and ".join(lacks)


def _count(group: Ints, groups: int, judged: _Judged) -> GroupCounts:
    """Photos, pairs and errors by person and group; photos in no group (-1) count nowhere."""
    shape = (int(judged.people.max()) + 1, groups)
    photos, same, missed = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    here = group >= 0
    np.add.at(photos, (judged.people[here], group[here]), 1)
    left, right = judged.same
    within = (group[left] == group[right]) & (group[left] >= 0)
    owner = judged.people[left[within]], group[left[within]]
    np.add.at(same, owner, 1)
    np.add.at(missed, owner, judged.missed[within])
    a, b = judged.passed.left, judged.passed.right
    both = (group[a] >= 0) & (group[b] >= 0)
    a, b = a[both], b[both]
    return GroupCounts(photos, same, missed, FalseMatches(judged.people[a], judged.people[b], group[a], group[b]))


def _finding(report: AttributeReport, standout: Standout) -> Finding:
    names = [group.name for group in report.groups]
    return Finding(
        attribute=report.attribute,
        group=names[standout.group],
        which=standout.which,
        ratio=standout.ratio,
        interval=(standout.interval.low, standout.interval.high),
        p=standout.p,
        others=tuple(names[other] for other in standout.others),
    )


@dataclass(frozen=True)
class Detection:
    """The photos in which a face was found, and those in which none was; unreadable ones count as neither."""

    found: tuple[str, ...]
    none: tuple[str, ...]

    def failures(self, table: Attributes, attribute: str, *, rounds: int, seed: int) -> dict[str, Rate]:
        """The share of each group's photos without a face; intervals over people."""
        paths = [*self.found, *self.none]
        failed = np.arange(len(paths)) >= len(self.found)
        people = np.array([path.split("/", 1)[0] for path in paths])
        groups = np.array([group or "" for group in table.groups_of(attribute, people.tolist(), paths)])
        rates = {}
        for name in sorted(set(groups.tolist()) - {""}):
            mine = groups == name
            rates[name] = _share(failed[mine], people[mine], rounds, seed)
        return rates


def _share(failed: NDArray[np.bool_], people: NDArray[np.str_], rounds: int, seed: int) -> Rate:
    def measure(weights: Floats) -> Floats:
        return np.array([weights[failed].sum() / weights.sum()])

    return rates_over_people(measure, people, people, rounds=rounds, seed=seed)[0]


def read_detection(aligned: str | Path) -> Detection:
    """What `sphereface data align` found; `aligned` is the folder that it made, or the `report.json` in it."""
    path = Path(aligned)
    path = path / REPORT if path.is_dir() else path
    try:
        report = AlignReport.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise DataFormatError(f"{path}: no report of sphereface data align; name the folder that it made") from error
    found = tuple(read_landmarks(path.with_name(LANDMARKS)))
    if len(found) != report.found:
        raise DataFormatError(
            f"{path.with_name(LANDMARKS)}: {len(found):,} photos, but {path.name} says {report.found:,}; "
            "the two are of different runs: align again"
        )
    return Detection(found, report.none)


def _check_table(
    table: Attributes, whole: WholeSet, persons: Sequence[str], detection: Detection | None, missing: str
) -> list[str]:
    """Raise where table and set do not fit; returns notes on what was left out."""
    seen = () if detection is None else (*detection.found, *detection.none)
    paths = [*whole.paths, *whole.unreadable, *seen]
    people = [*whole.people, *(path.split("/", 1)[0] for path in seen)]
    what = "people" if table.key == "person" else "images"
    strangers = table.strangers(people, paths)
    if strangers:
        raise DataFormatError(
            f"{table.source}: {len(strangers):,} of its {what} are not in {whole.data}, such as {strangers[0]}; "
            "correct or remove these lines"
        )
    lacking = table.lacking(persons, whole.paths)
    if lacking and missing != "skip":
        raise DataFormatError(
            f"{table.source}: no line for {len(lacking):,} {what} of {whole.data}, such as {lacking[0]}; add them with "
            'an empty cell where nothing is known, or leave them out with missing="skip"'
        )
    return [f"{len(lacking):,} {what} have no line in {table.source} and are in no group"] if lacking else []


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
