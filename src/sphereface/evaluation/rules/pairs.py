"""Pairs of features judged under one rule or all of them, and the result with its full description."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypedDict

import numpy as np

from sphereface.arrays import Bools, Float32, Int64
from sphereface.choices import Missing, PairRule
from sphereface.contract import Card
from sphereface.data.reading import require_missing
from sphereface.errors import DataFormatError, UserError
from sphereface.evaluation.rules import verification
from sphereface.evaluation.rules.verification import RULES, Verification, VerificationReport
from sphereface.evaluation.sources import Gathered
from sphereface.metrics.rates import FARS, ROUNDS

FEATURES = {
    "concatenate": "image and mirror image, concatenated",
    "sum": "image and mirror image, summed",
    "image": "the image alone",
}

People = tuple[Sequence[str], Sequence[str]]  # the left and the right person of each pair


@dataclass(frozen=True, kw_only=True)
class RuleResults:
    """Numbers of a model on pairs under one rule or all of them, with the description of how they were made."""

    data: str
    model: str
    rule: PairRule
    reports: Mapping[PairRule, VerificationReport]  # of the rule, or of all rules side by side
    features: Mapping[PairRule, str]  # description of the features that each rule scored
    listed: int  # pairs
    scored: int
    missing: Mapping[str, str]  # unusable images or videos, with the reasons
    notes: tuple[str, ...] = ()

    @property
    def report(self) -> VerificationReport:
        """The numbers under the chosen rule."""
        return self.reports[self.rule]

    def sentence_of(self, rule: PairRule) -> str:
        """Description of a rule."""
        return RULES[rule].sentence

    def _as_dict(
        self, counts: Mapping[str, int], *, policy: Mapping[str, Any] | None = None, **missing: Any
    ) -> dict[str, Any]:
        """For JSON, with more keys where given."""
        return {
            "data": self.data,
            "model": self.model,
            **(policy or {}),
            "pairs_listed": self.listed,
            "pairs_scored": self.scored,
            **counts,
            "missing": dict(self.missing),
            **missing,
            "notes": list(self.notes),
            "rule": self.rule,
            "rules": {
                name: {**report.as_dict(), "sentence": self.sentence_of(name), "features": self.features[name]}
                for name, report in self.reports.items()
            },
        }

    def _table(self, counts: str, *, learned: Sequence[str] = (), frames: Sequence[str] = ()) -> str:
        """Plain text: the scored pairs, the rules, and the numbers side by side; with more lines where given."""
        report = self.report
        left_out = f"left out: {self.listed - self.scored:,} pairs, for lack of {some_of(self.missing)}"
        lines = [
            f"{self.data}, {self.model}",
            f"{self.scored:,} of {self.listed:,} pairs scored ({report.same:,} same, {report.different:,} different), "
            f"{counts}",
            *learned,
            *([left_out] if self.missing else []),
            *frames,
            *(f"rule {name}: {self.sentence_of(name)}" for name in self.reports),
            *(f"features for {name}: {features}" for name, features in self.features.items()),
            *(f"note: {note}" for note in self.notes),
        ]
        return "\n".join([*lines, "", verification.side_by_side(list(self.reports.values()))])


@dataclass(frozen=True, kw_only=True)
class PairsResult(RuleResults):
    """Numbers of a model on pairs of images."""

    images: int  # distinct ones, each embedded once
    dev_train: tuple[int, int] | None = None  # view 1: usable and listed pairs of the fitting set

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        dev_train = self.dev_train and dict(zip(("used", "listed"), self.dev_train, strict=True))
        return self._as_dict({"images": self.images}, dev_train=dev_train)

    def table(self) -> str:
        """The result as plain text."""
        learned = [f"learned from {self.dev_train[0]:,} of {self.dev_train[1]:,} other pairs"] if self.dev_train else []
        return self._table(f"{self.images:,} images", learned=learned)


class Problem(NamedTuple):
    """Pairs as rows of features; -1 for an unusable image."""

    data: str
    left: Int64
    right: Int64
    same: Bools
    fold: Int64
    held_out: Bools | None  # view 1: the test pairs; the others are the fitting pairs
    people: People | None
    notes: tuple[str, ...]


class PairOptions(TypedDict, total=False):
    """Options of a test on pairs; the defaults are those of `Asked`.

    rule: source of mean and threshold, and value of a tie: a name of `RULES`. all_rules: report every rule.
    missing: absent or unreadable images are errors ("fail"), or left out and counted ("skip").
    fars: false accept rates at which true accept rates are reported.
    """

    rule: PairRule
    all_rules: bool
    missing: Missing
    fars: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Options of a test on pairs, with the defaults; unknown choices are refused before anything is embedded."""

    rule: PairRule = "authors"
    all_rules: bool = False
    missing: Missing = "fail"
    fars: Sequence[float] = FARS
    rounds: int = ROUNDS
    seed: int = 0

    def __post_init__(self) -> None:
        verification.require_rule(self.rule)
        require_missing(self.missing)
        if not all(0 < far <= 1 for far in self.fars):
            raise UserError(f"fars are {tuple(self.fars)}; wanted shares, above 0 up to 1")

    @property
    def rules(self) -> tuple[PairRule, ...]:
        """The chosen rule, or all rules."""
        return tuple(RULES) if self.all_rules else (self.rule,)

    @property
    def holds_out(self) -> bool:
        """True if one of the rules fits on other pairs than its test pairs."""
        return any(RULES[name].holds_out for name in self.rules)

    def reports(
        self, verify: Callable[[PairRule], Verification], people: People | None
    ) -> dict[PairRule, VerificationReport]:
        """The report of each rule; `verify` judges the pairs under one."""
        return {
            rule: verification.verification_report(
                verify(rule), people=people, fars=self.fars, rounds=self.rounds, seed=self.seed
            )
            for rule in self.rules
        }

    def judge(self, problem: Problem, gathered: Gathered, missing: Mapping[str, str], card: Card) -> PairsResult:
        """The result under one rule or all of them."""
        usable = (problem.left >= 0) & (problem.right >= 0)
        judged = np.ones_like(usable) if problem.held_out is None else problem.held_out
        scored = np.flatnonzero(usable & judged).tolist()
        if not scored:
            raise DataFormatError(f"{problem.data}: no pair has both images, for lack of {some_of(missing)}")
        people = problem.people and (
            [problem.people[0][place] for place in scored],
            [problem.people[1][place] for place in scored],
        )
        mirrored = card.feature_rule == "concatenate"
        verify = partial(_verify, problem, gathered.features, usable, mirrored=mirrored)
        gone = len(np.unique(problem.fold[judged])) - len(np.unique(problem.fold[scored]))
        return PairsResult(
            data=problem.data,
            model=card.called,
            rule=self.rule,
            reports=self.reports(verify, people),
            features={name: features_for(name, card) for name in self.rules},
            listed=int(judged.sum()),
            scored=len(scored),
            images=len(gathered.rows),
            missing=missing,
            dev_train=None if judged.all() else (int((usable & ~judged).sum()), int((~judged).sum())),
            notes=(*problem.notes, *([f"{gone} of the folds have no pair left"] if gone else [])),
        )


def _verify(problem: Problem, features: Float32, usable: Bools, rule: PairRule, *, mirrored: bool) -> Verification:
    left, right = features[problem.left[usable]], features[problem.right[usable]]
    same = problem.same[usable]
    if problem.held_out is not None:
        return verification.verify_held_out(left, right, same, problem.held_out[usable], rule=rule, mirrored=mirrored)
    return verification.verify_folds(left, right, same, problem.fold[usable], rule=rule, mirrored=mirrored)


def features_for(rule: PairRule, card: Card) -> str:
    """Description of the features that a rule scores, given the model's card."""
    summed = card.feature_rule == "concatenate" and RULES[rule].sums_mirrors
    return FEATURES["sum" if summed else card.feature_rule]


def some_of(missing: Mapping[str, str]) -> str:
    """The first three missing names with their reasons, and the count of the others."""
    shown = ", ".join(f"{name} ({reason})" for name, reason in list(missing.items())[:3])
    return shown + (f", and {len(missing) - 3:,} more" if len(missing) > 3 else "")
