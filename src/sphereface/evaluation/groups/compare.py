"""False match and false non-match rates of groups of people at one global threshold.

The rule:

- One threshold for all: the lowest at which at most the stated FMR of *all* pairs of different people of the set pass,
  within groups and across them; or a given one. A pair passes if its cosine is at least the threshold.
- FMR of a group: the share of pairs of different people, both photos of that group, that pass. The matrix has that of
  each two groups. FNMR of a group: the share of pairs of one person, both photos of that group, that fail.
- Failure to detect: the share of a group's photos in which `sphereface data align` found no face.
- A group is too small if it has under 20 people with two photos, or if the stated FMR would let under 10 of its pairs
  of different people pass. Such groups are refused by name, or left out and listed.
- Findings: groups with an FMR or FNMR that differs from that of the others. The chance of any finding where no group
  differs is at most `error`, by default 1 %, over all attributes, groups and both rates (Bonferroni).
"""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict, Unpack, get_args

import numpy as np

from sphereface.arrays import Bools, Float64, Int64, unit_rows
from sphereface.choices import Missing, Small
from sphereface.data.lists.attributes import Attributes, read_attributes
from sphereface.embed.store import FeatureStore
from sphereface.errors import DataFormatError, Setting, UserError
from sphereface.evaluation.groups.detection import Detection, read_detection
from sphereface.evaluation.groups.result import AttributeReport, Finding, GroupLine, GroupReport
from sphereface.evaluation.sources import Embeds, WholeSet, embed_whole
from sphereface.metrics.group_rates import ERROR, FalseMatches, GroupCounts, GroupRates, Standout, Which, comparisons
from sphereface.metrics.impostors import HighestDifferent, count_different, highest_different, same_pairs, scores_of
from sphereface.metrics.rates import ROUNDS, Rate
from sphereface.metrics.upper_tail import UpperTail, allowed
from sphereface.progress import Progress, silent

__all__ = ["FMR", "WHICH", "Finding", "GroupReport", "evaluate_groups", "groups_of_set"]

FMR = 1e-3
PEOPLE = 20  # with two photos, in the smallest group
EXPECTED = 10  # false matches at the stated FMR, in the smallest group
KEPT = 1 << 24  # passing pairs at most: some 2 GB while they are gathered
WHICH: tuple[Which, ...] = ("FMR", "FNMR")


class GroupOptions(TypedDict, total=False):
    """Options of a comparison of groups; the defaults are those of `groups_of_set`.

    far: the FMR that sets the threshold. threshold: a cosine in its place.
    aligned: the folder that `sphereface data align` wrote, or its `report.json`, for failures to detect.
    small: groups that are too small are errors ("refuse"), or listed ("leave-out").
    error: upper bound on the chance of any finding if no group differs.
    rounds, seed: of the bootstrap over people.
    """

    far: float
    threshold: float | None
    aligned: str | Path | None
    small: Small
    error: float
    rounds: int
    seed: int


def evaluate_groups(
    source: Embeds | FeatureStore,
    faces: str | Path | None,
    groups: str | Path,
    *,
    missing: Missing = "fail",
    progress: Progress = silent,
    **options: Unpack[GroupOptions],
) -> GroupReport:
    """Compare groups of people of a set; `groups` is a CSV with `person` or `path` and a column for each attribute.

    `options` are those of `GroupOptions`. A person or image without a line in the table is an error, or with
    `missing="skip"` left out; an empty cell leaves its person or image out in either case.

    >>> print(evaluate_groups(Embedder.load("model.onnx"), "faces", "groups.csv", far=1e-3).table())
    """
    inspect.signature(groups_of_set).bind_partial(**options)  # an unknown option: TypeError before any face is embedded
    table = read_attributes(groups)
    whole = embed_whole(source, faces, missing=missing, progress=progress)
    return groups_of_set(whole, table, missing=missing, **options)


def groups_of_set(
    whole: WholeSet,
    table: Attributes,
    *,
    far: float = FMR,
    threshold: float | None = None,
    aligned: str | Path | None = None,
    small: Small = "refuse",
    missing: Missing = "fail",
    error: float = ERROR,
    rounds: int = ROUNDS,
    seed: int = 0,
    most: int = KEPT,
) -> GroupReport:
    """Compare groups of people of a set with features; options as in `evaluate_groups`.

    More than `most` passing pairs of different people, which memory must hold, are an error.
    """
    for name, choice, choices in (("small", small, get_args(Small)), ("missing", missing, get_args(Missing))):
        if choice not in choices:
            raise UserError(f"{name} is {choice!r}; choose one of {', '.join(choices)}")
    if not 0 < far < 1:
        raise UserError(f"far is {far}; wanted a share between 0 and 1")
    if not 0 < error < 1:
        raise UserError(f"error is {error}; wanted a chance between 0 and 1, such as {ERROR:g}")
    if threshold is not None and np.isnan(threshold):
        raise UserError(f"threshold is {threshold}; wanted a cosine")
    detection = None if aligned is None else read_detection(aligned)
    persons = [whole.people[label] for label in whole.labels.tolist()]
    notes = _check_table(table, whole, persons, detection, missing)
    _, people, photos = np.unique(whole.labels, return_inverse=True, return_counts=True)
    if len(photos) < 2 or photos.max() < 2:
        raise UserError(f"{whole.data}: no pair of one person, or none of two; wanted people with two photos each")
    groups = {attribute: table.groups_of(attribute, persons, whole.paths) for attribute in table.columns}

    def choose(rate: float) -> list[_Chosen]:
        return [_choose(attribute, stated, people, rate, small) for attribute, stated in groups.items()]

    chosen = choose(far) if threshold is None else []  # small groups are refused before all pairs are scored
    judged = _judged(whole, people, far, threshold, most)
    chosen = chosen or choose(judged.fmr)
    reports, rates = [], []
    for each in chosen:
        failures = {} if detection is None else detection.failures(table, each.attribute, rounds=rounds, seed=seed)
        rate = GroupRates(_count(each.numbers, len(each.kept), judged), rounds=rounds, seed=seed)
        reports.append(_report(each, rate, failures))
        rates.append(rate)
    tests = sum(comparisons(len(report.groups)) for report in reports)
    findings = [
        _finding(report, standout)
        for report, rate in zip(reports, rates, strict=True)
        for standout in rate.standouts(tests=tests, error=error)
    ]
    return GroupReport(
        data=whole.data,
        model=whole.card.called,
        threshold=judged.threshold,
        stated=far if threshold is None else None,
        fmr=judged.fmr,
        people=len(photos),
        photos=len(whole.paths),
        different=judged.passed.total,
        attributes=tuple(reports),
        findings=tuple(sorted(findings, key=lambda finding: finding.p)),
        error=error,
        tests=tests,
        rounds=rounds,
        seed=seed,
        notes=(*whole.notes, *notes),
    )


def _check_table(
    table: Attributes, whole: WholeSet, persons: Sequence[str], detection: Detection | None, missing: Missing
) -> list[str]:
    """Raise where table and set disagree; returns notes on people or images without a line."""
    seen = [] if detection is None else detection.paths
    seen_people = [] if detection is None else detection.people
    what = "people" if table.key == "person" else "images"
    strangers = table.strangers([*whole.people, *seen_people], [*whole.paths, *whole.unreadable, *seen])
    if strangers:
        raise DataFormatError(
            f"{table.source}: {len(strangers):,} of its {what} are not in {whole.data}, such as {strangers[0]}; "
            "correct or remove these lines"
        )
    # Photos without a face are absent from the set, but count as failures of their group.
    lacking = table.lacking([*persons, *seen_people], [*whole.paths, *seen])
    if lacking and missing != "skip":
        raise DataFormatError(
            f"{table.source}: no line for {len(lacking):,} {what} of {whole.data}, such as {lacking[0]}; add them with "
            "an empty cell for an unknown group, or leave them out with ",
            Setting("missing", "skip"),
        )
    return [f"{len(lacking):,} {what} have no line in {table.source} and are in no group"] if lacking else []


class _Chosen(NamedTuple):
    """The compared groups of an attribute."""

    attribute: str
    kept: list[str]
    left_out: dict[str, str]  # groups that are too small, with the reasons
    numbers: Int64  # (N,): the place of each photo's group in `kept`, or -1
    unstated: int  # photos without a group


def _choose(attribute: str, groups: Sequence[str | None], people: Int64, far: float, small: Small) -> _Chosen:
    names = sorted({group for group in groups if group is not None})
    place = {name: number for number, name in enumerate(names)}
    numbers = np.array([-1 if group is None else place[group] for group in groups])
    refused = {name: why for name in names if (why := _too_small(people[numbers == place[name]], far))}
    reasons = "; ".join(f"{name}: {why}" for name, why in refused.items())
    if refused and small == "refuse":
        raise UserError(
            f"{attribute} has groups that are too small: {reasons}; add people, or ", Setting("small", "leave-out")
        )
    kept = [name for name in names if name not in refused]
    if len(kept) < 2:
        raise UserError(
            f"{attribute}: {len(kept)} of {len(names)} groups are large enough; wanted 2 to compare"
            + (f" ({reasons})" if reasons else "")
        )
    renumbered = np.array([*(kept.index(name) if name in kept else -1 for name in names), -1])
    return _Chosen(attribute, kept, refused, renumbered[numbers], groups.count(None))


def _too_small(people: Int64, far: float) -> str:
    """The reason why a group, given the people of its photos, is too small; empty if it is large enough."""
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


class _Judged(NamedTuple):
    """Every pair of a set at one threshold; people are counted from 0."""

    threshold: float
    people: Int64
    passed: HighestDifferent  # pairs of different people that pass
    same: tuple[Int64, Int64]
    missed: Bools  # same pairs that fail

    @property
    def fmr(self) -> float:
        """The share of all pairs of different people that pass."""
        return len(self.passed.scores) / self.passed.total


def _judged(whole: WholeSet, people: Int64, far: float, threshold: float | None, most: int) -> _Judged:
    left, right = same_pairs(people)
    total = count_different(people)
    scores = scores_of(unit_rows(whole.features, dtype=np.float32), left, right)
    if threshold is not None:
        top = highest_different(whole.features, people, most=most + 1, floor=threshold)
        _require_few(len(top.scores), total, most)
        return _Judged(threshold, people, top, (left, right), scores < threshold)
    passing = allowed(far, total)
    _require_few(passing, total, most)
    top = highest_different(whole.features, people, most=passing + 1)
    threshold = UpperTail(np.sort(scores)[::-1], top.scores, total).threshold_at_far(far)
    passing = int((top.scores >= threshold).sum())
    passed = HighestDifferent(top.scores[:passing], top.left[:passing], top.right[:passing], total)
    return _Judged(threshold, people, passed, (left, right), scores < threshold)


def _require_few(passing: int, total: int, most: int) -> None:
    if passing > most:
        raise UserError(
            f"{passing:,} or more of {total:,} pairs of different people would pass; wanted at most {most:,}: state a "
            "lower rate or a higher threshold, or take fewer photos of each person"
        )


def _count(group: Int64, groups: int, judged: _Judged) -> GroupCounts:
    """Photos, pairs and errors by person and group; photos without a group (-1) are left out."""
    people = int(judged.people.max()) + 1

    def by_person(person: Int64, number: Int64) -> Float64:
        return np.bincount(person * groups + number, minlength=people * groups).reshape(people, groups).astype(float)

    here = group >= 0
    left, right = judged.same
    within = (group[left] == group[right]) & here[left]
    missed = within & judged.missed
    a, b = judged.passed.left, judged.passed.right
    both = here[a] & here[b]
    a, b = a[both], b[both]
    return GroupCounts(
        photos=by_person(judged.people[here], group[here]),
        same=by_person(judged.people[left[within]], group[left[within]]),
        missed=by_person(judged.people[left[missed]], group[left[missed]]),
        matches=FalseMatches(judged.people[a], judged.people[b], group[a], group[b]),
    )


def _report(chosen: _Chosen, rates: GroupRates, failures: Mapping[str, Rate]) -> AttributeReport:
    photos, plain = rates.counts.photos, rates.plain
    lines = []
    for number, (name, fmr, fnmr) in enumerate(zip(chosen.kept, rates.fmr(), rates.fnmr(), strict=True)):
        assert fmr is not None, f"{name} has too few pairs and was not refused"
        assert fnmr is not None, f"{name} has too few pairs and was not refused"
        lines.append(
            GroupLine(
                name=name,
                people=int((photos[:, number] > 0).sum()),
                photos=int(photos[:, number].sum()),
                different=int(plain.different[0, number, number]),
                same=int(plain.same[0, number]),
                fmr=fmr,
                fnmr=fnmr,
                failure_to_detect=failures.get(name),
            )
        )
    return AttributeReport(
        attribute=chosen.attribute,
        groups=tuple(lines),
        matrix=tuple(tuple(row) for row in rates.matrix()),
        max_over_min={which: rates.max_over_min(which) for which in WHICH},
        max_over_mean={which: rates.max_over_mean(which) for which in WHICH},
        left_out=chosen.left_out,
        unstated=chosen.unstated,
    )


def _finding(report: AttributeReport, standout: Standout) -> Finding:
    names = [group.name for group in report.groups]
    ends, others = (standout.interval.low, standout.interval.high), tuple(names[other] for other in standout.others)
    return Finding(report.attribute, names[standout.group], standout.which, standout.ratio, ends, standout.p, others)
