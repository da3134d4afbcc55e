"""Pairs of features judged under one rule or all of them, and the result with exactly how it was found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sphereface.arrays import Bools, Float32, Int64
from sphereface.choices import Missing, PairRule
from sphereface.contract import Card
from sphereface.data.reading import require_missing
from sphereface.errors import DataFormatError, UserError
from sphereface.evaluation.rules.verification import (
    RULES,
    Verification,
    VerificationReport,
    side_by_side,
    verification_report,
    verify_folds,
    verify_held_out,
)
from sphereface.evaluation.sources import Gathered

FEATURES = {
    "concatenate": "image and mirror image, concatenated",
    "sum": "image and mirror image, summed",
    "image": "the image alone",
}


@dataclass(frozen=True)
class PairsResult:
    """What a model does on a set of pairs, and exactly how that was found."""

    data: str
    model: str
    rule: PairRule
    reports: Mapping[PairRule, VerificationReport]  # of the rule, or of all rules side by side
    features: Mapping[PairRule, str]  # what each rule was given, in words
    listed: int  # pairs
    scored: int
    images: int  # distinct ones, each embedded once
    missing: Mapping[str, str]  # images that could not be used, and why
    dev_train: tuple[int, int] | None = None  # view 1: how many pairs were learned from, of how many listed
    notes: tuple[str, ...] = ()

    @property
    def report(self) -> VerificationReport:
        """The numbers under the rule that was asked for."""
        return self.reports[self.rule]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "data": self.data,
            "model": self.model,
            "pairs_listed": self.listed,
            "pairs_scored": self.scored,
            "images": self.images,
            "missing": dict(self.missing),
            "dev_train": None if self.dev_train is None else dict(zip(("used", "listed"), self.dev_train, strict=True)),
            "notes": list(self.notes),
            "rule": self.rule,
            "rules": {
                name: {**report.as_dict(), "features": self.features[name]} for name, report in self.reports.items()
            },
        }

    def table(self) -> str:
        """The result as plain text: what was scored, by which rule, and the numbers side by side."""
        lines = [
            f"{self.data}, {self.model}",
            f"{self.scored:,} of {self.listed:,} pairs scored ({self.report.same:,} same, "
            f"{self.report.different:,} different), {self.images:,} images",
        ]
        if self.dev_train:
            lines.append(f"learned from {self.dev_train[0]:,} of {self.dev_train[1]:,} other pairs")
        if self.missing:
            lines.append(f"left out: {self.listed - self.scored:,} pairs, for want of {some_of(self.missing)}")
        sentences = {name: report.sentence for name, report in self.reports.items()}
        lines += how_it_was_found(sentences, self.features, self.notes)
        return "\n".join([*lines, "", side_by_side(list(self.reports.values()))])


class Problem(NamedTuple):
    """Pairs as rows of features; -1 where an image could not be used."""

    data: str
    left: Int64
    right: Int64
    same: Bools
    fold: Int64
    held_out: Bools | None  # view 1: which pairs are judged; the others are learned from
    people: tuple[Sequence[str], Sequence[str]] | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Asked:
    """What is asked of a set of pairs; unknown choices are refused before anything is embedded."""

    rule: PairRule
    all_rules: bool
    missing: Missing
    fars: tuple[float, ...]
    rounds: int
    seed: int

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise UserError(f"unknown rule {self.rule!r}; choose one of {', '.join(RULES)}")
        require_missing(self.missing)
        if not all(0 < far <= 1 for far in self.fars):
            raise UserError(f"fars are {self.fars}; wanted shares, above 0 up to 1")

    @property
    def rules(self) -> tuple[PairRule, ...]:
        """One rule, or all."""
        return tuple(RULES) if self.all_rules else (self.rule,)

    @property
    def holds_out(self) -> bool:
        """Whether any of the rules learns from other pairs than it judges."""
        return any(RULES[name].holds_out for name in self.rules)

    def judge(self, problem: Problem, gathered: Gathered, missing: Mapping[str, str], card: Card) -> PairsResult:
        """The result, under one rule or all of them."""
        usable = (problem.left >= 0) & (problem.right >= 0)
        judged = np.ones_like(usable) if problem.held_out is None else problem.held_out
        scored = np.flatnonzero(usable & judged).tolist()
        if not scored:
            raise DataFormatError(f"{problem.data}: no pair has both images, for want of {some_of(missing)}")
        people = problem.people and (
            [problem.people[0][place] for place in scored],
            [problem.people[1][place] for place in scored],
        )
        reports = {
            name: verification_report(
                _verify(problem, gathered.features, usable, name, mirrored=card.feature_rule == "concatenate"),
                people=people,
                fars=self.fars,
                rounds=self.rounds,
                seed=self.seed,
            )
            for name in self.rules
        }
        rest = ~judged
        gone = len(np.unique(problem.fold[judged])) - len(np.unique(problem.fold[scored]))
        return PairsResult(
            data=problem.data,
            model=card.called,
            rule=self.rule,
            reports=reports,
            features={name: features_for(name, card) for name in self.rules},
            listed=int(judged.sum()),
            scored=len(scored),
            images=len(gathered.rows),
            missing=missing,
            dev_train=(int((usable & rest).sum()), int(rest.sum())) if rest.any() else None,
            notes=(*problem.notes, *([f"{gone} of the folds have no pair left"] if gone else [])),
        )


def _verify(problem: Problem, features: Float32, usable: Bools, rule: PairRule, *, mirrored: bool) -> Verification:
    left, right = features[problem.left[usable]], features[problem.right[usable]]
    same = problem.same[usable]
    if problem.held_out is not None:
        return verify_held_out(left, right, same, problem.held_out[usable], rule=rule, mirrored=mirrored)
    return verify_folds(left, right, same, problem.fold[usable], rule=rule, mirrored=mirrored)


def features_for(rule: PairRule, card: Card) -> str:
    """What a rule makes of the features that a card speaks of, in words."""
    summed = card.feature_rule == "concatenate" and RULES[rule].sums_mirrors
    return FEATURES["sum" if summed else card.feature_rule]


def how_it_was_found(
    sentences: Mapping[PairRule, str], features: Mapping[PairRule, str], notes: Sequence[str]
) -> list[str]:
    """The lines of a table that say which rules there were, what they were given, and what else is to be known."""
    return [
        *(f"rule {name}: {sentence}" for name, sentence in sentences.items()),
        *(f"features for {name}: {given}" for name, given in features.items()),
        *(f"note: {note}" for note in notes),
    ]


def some_of(missing: Mapping[str, str]) -> str:
    """A few of what is missing, and why, for a line of text."""
    shown = ", ".join(f"{name} ({reason})" for name, reason in list(missing.items())[:3])
    return shown + (f", and {len(missing) - 3:,} more" if len(missing) > 3 else "")
