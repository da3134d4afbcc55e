"""Verification over held-out pairs: does a pair show one person? Every accuracy belongs to one of the named rules."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sphereface.arrays import Bools, Float64, Int64, unit_rows
from sphereface.choices import PairRule
from sphereface.errors import UserError
from sphereface.evaluation.rules.tables import columns, percent, shown
from sphereface.metrics import FARS, Rate, best_threshold, rates_over_people, roc, wilson_rate
from sphereface.metrics.rates import ROUNDS, is_supported

DISTANCES = np.arange(0, 4, 0.01)  # InsightFace's thresholds: 0, 0.01, ..., 3.99


def as_it_is(scores: Float64) -> Float64:
    """The scores unchanged: they are cosines already."""
    return scores


class Rule(NamedTuple):
    """How scores and thresholds are made, and how a tie with the threshold counts."""

    sentence: str  # description for reports
    scores: Callable[[Float64, Float64, Bools], Float64]  # (left, right, fitting pairs) -> scores of all pairs
    threshold: Callable[[Bools, Float64], float]  # (same, scores) of the fitting pairs
    correct: Callable[[Bools, Float64, float], Bools]  # (same, scores, threshold) of the test pairs
    sums_mirrors: bool = False  # features of image and mirror image are summed, not concatenated
    holds_out: bool = True  # the fitting pairs are the other folds, without the test pairs
    cosine: Callable[[Float64], Float64] = as_it_is  # converts the scores to cosines, the scale of all results


def _unit(features: Float64) -> Float64:
    return unit_rows(features, lengths=np.linalg.norm(features, axis=1))  # summed pairwise: rounds less


def plain_cosine(left: Float64, right: Float64, _fit_on: Bools) -> Float64:
    """Cosines of the uncentred features."""
    return np.asarray((_unit(left) * _unit(right)).sum(1))


def centred_cosine(left: Float64, right: Float64, fit_on: Bools) -> Float64:
    """Cosines after subtracting the mean feature of the fitting pairs, both sides together."""
    mean = (left[fit_on].sum(0) + right[fit_on].sum(0)) / (2 * fit_on.sum())
    return np.asarray((_unit(left - mean) * _unit(right - mean)).sum(1))


def minus_squared_distance(left: Float64, right: Float64, _fit_on: Bools) -> Float64:
    """Minus the squared distance of normalised features, 2 cos - 2, computed as InsightFace does so that ties agree."""
    return np.asarray(-np.square(_unit(left) - _unit(right)).sum(1))


def first_best_distance(same: Bools, scores: Float64) -> float:
    """Minus the first of InsightFace's distances with the best accuracy; a pair below that distance counts as same."""
    near, far = np.sort(-scores[same]), np.sort(-scores[~same])
    right = np.searchsorted(near, DISTANCES, side="left") + len(far) - np.searchsorted(far, DISTANCES, side="left")
    return -float(DISTANCES[np.argmax(right)])


def best_cut(same: Bools, scores: Float64) -> float:
    """The highest of the most accurate thresholds among the scores and infinity; a score at the threshold passes.

    No threshold is more accurate on these pairs, so their accuracy is an upper bound and no estimate for other pairs.
    """
    curve = roc(same, scores)
    right = np.rint(curve.tar * same.sum()) + np.rint((1 - curve.far) * (~same).sum())
    return float(curve.thresholds[np.argmax(right)])


def strictly_beyond(same: Bools, scores: Float64, threshold: float) -> Bools:
    """True for same pairs above the threshold and different pairs below it; every tie is wrong."""
    return np.where(same, scores > threshold, scores < threshold)


RULES: dict[PairRule, Rule] = {
    "authors": Rule(
        "mean feature and threshold come from the pairs of the other folds (view 1: of DevTrain); cosines after "
        "subtracting that mean; 20,001 thresholds over -1..1, the mean of the best; a score on the threshold is wrong",
        centred_cosine,
        best_threshold,
        strictly_beyond,
    ),
    "insightface": Rule(
        "features of image and mirror image are summed, then normalised, and no mean is subtracted; squared distances; "
        "of the thresholds 0, 0.01, ..., 3.99 the first best for the pairs of the other folds (view 1: of DevTrain); "
        "same means below the threshold",
        minus_squared_distance,
        first_best_distance,
        lambda same, scores, threshold: np.asarray((scores > threshold) == same),
        sums_mirrors=True,
        cosine=lambda scores: np.asarray(1 + scores / 2),
    ),
    "best": Rule(
        "one threshold, the best of all for the very pairs that are reported, on plain cosines: an upper bound, for "
        "nothing is held out",
        plain_cosine,
        best_cut,
        lambda same, scores, threshold: np.asarray((scores >= threshold) == same),
        holds_out=False,
    ),
}


class Verification(NamedTuple):
    """Accuracy over held-out folds, with the decision on each pair."""

    accuracy: float  # the mean over folds
    accuracies: Float64  # one for each fold, in the order of their numbers
    thresholds: Float64  # one for each fold; cosines
    correct: Bools  # (N,): the pair was decided correctly
    scores: Float64  # of each pair while its fold was held out; cosines
    same: Bools
    fold: Int64  # of each pair, counted from 0
    rule: PairRule


class RuleOptions(TypedDict, total=False):
    """Options of a verification.

    rule: source of mean and threshold, and value of a tie: a name of `RULES`, by default "authors".
    mirrored: each feature is that of the image followed by that of its mirror image (by default False); a rule that
    sums the two needs this.
    """

    rule: PairRule
    mirrored: bool


def verify_folds(
    left: ArrayLike, right: ArrayLike, same: ArrayLike, fold: ArrayLike, **options: Unpack[RuleOptions]
) -> Verification:
    """Accuracy over held-out folds under a rule.

    left and right are features (N, D), not normalised; same is bool (N,), fold any integers (N,).
    Thresholds and scores are cosines under every rule; InsightFace's squared distance is 2 - 2 cos.
    """
    rule, a, b, truth, folds = _checked(left, right, same, fold, **options)
    return judge_folds(rule, partial(RULES[rule].scores, a, b), truth, folds)


def judge_folds(rule: PairRule, scores_of: Callable[[Bools], Float64], same: Bools, fold: NDArray[Any]) -> Verification:
    """Accuracy over held-out folds; `scores_of` maps the fitting pairs (N,) to the rule's scores of all pairs (N,)."""
    numbers, place = np.unique(fold, return_inverse=True)
    if len(numbers) < (2 if RULES[rule].holds_out else 1):
        raise UserError(f"{len(numbers)} fold; wanted at least 2, so that one can be held out")
    correct, scores, thresholds = np.zeros(len(same), dtype=bool), np.zeros(len(same)), []
    for held_out in range(len(numbers)):
        test = place == held_out
        fit_on = ~test if RULES[rule].holds_out else np.ones_like(test)
        scores[test], threshold, correct[test] = _judge(RULES[rule], scores_of(fit_on), same, test, fit_on)
        thresholds.append(threshold)
    accuracies = np.array([correct[place == number].mean() for number in range(len(numbers))])
    return Verification(
        float(np.mean(accuracies)), accuracies, np.array(thresholds), correct, scores, same, place, rule
    )


def verify_held_out(
    left: ArrayLike, right: ArrayLike, same: ArrayLike, held_out: ArrayLike, **options: Unpack[RuleOptions]
) -> Verification:
    """Accuracy on some pairs, with mean and threshold from the others: LFW's view 1, from DevTrain to DevTest.

    Shapes as in `verify_folds`; held_out is bool (N,). The result holds the held-out pairs only, as one fold.
    """
    rule, a, b, truth, mask = _checked(left, right, same, held_out, **options)
    test = mask.astype(bool)
    if test.all() or not test.any():
        raise UserError(f"{test.sum()} of {len(test)} pairs are held out; wanted some, and some to learn from")
    fit_on = ~test if RULES[rule].holds_out else test
    scores, threshold, correct = _judge(RULES[rule], RULES[rule].scores(a, b, fit_on), truth, test, fit_on)
    accuracy = float(correct.mean())
    one_fold = np.zeros(len(correct), dtype=np.int64)
    return Verification(
        accuracy, np.array([accuracy]), np.array([threshold]), correct, scores, truth[test], one_fold, rule
    )


def _judge(rule: Rule, scores: Float64, same: Bools, test: Bools, fit_on: Bools) -> tuple[Float64, float, Bools]:
    """Scores of the test pairs and the threshold, both as cosines, and which of these pairs are decided correctly."""
    threshold = rule.threshold(same[fit_on], scores[fit_on])
    correct = rule.correct(same[test], scores[test], threshold)
    cosines = rule.cosine(np.append(scores[test], threshold))
    return cosines[:-1], float(cosines[-1]), correct


def require_rule(rule: str) -> None:
    """Raise for a name that is not in `RULES`."""
    if rule not in RULES:
        raise UserError(f"unknown rule {rule!r}; choose one of {', '.join(RULES)}")


def _checked(
    *arrays: ArrayLike, rule: PairRule = "authors", mirrored: bool = False
) -> tuple[PairRule, Float64, Float64, Bools, NDArray[Any]]:
    """The rule with left, right, same and fold, mirror images summed where the rule does so; raises for a misfit."""
    a, b = (np.asarray(side, dtype=np.float64) for side in arrays[:2])
    truth, folds = np.asarray(arrays[2]).astype(bool), np.asarray(arrays[3])
    if a.ndim != 2 or a.shape != b.shape or truth.shape != a.shape[:1] or folds.shape != a.shape[:1]:
        shapes = ", ".join(str(array.shape) for array in (a, b, truth, folds))
        raise UserError(f"left, right, same, fold have shapes {shapes}; wanted (N, D), (N, D), (N,), (N,)")
    require_rule(rule)
    broken = int((~(np.isfinite(a) & np.isfinite(b)).all(1)).sum())
    if broken:
        raise UserError(f"{broken:,} of {len(a):,} pairs have features that are not finite; wanted numbers")
    if mirrored and a.shape[1] % 2:
        raise UserError(f"features of {a.shape[1]} numbers; image and mirror image, concatenated, have an even number")
    if mirrored and RULES[rule].sums_mirrors:
        a, b = (side[:, : side.shape[1] // 2] + side[:, side.shape[1] // 2 :] for side in (a, b))
    return rule, a, b, truth, folds


@dataclass(frozen=True)
class VerificationReport:
    """The published numbers of a verification; rates have 95 % intervals where these can be computed."""

    rule: PairRule
    same: int
    different: int
    accuracy: Rate  # the mean over folds
    standard_error: float | None  # of that mean, from the spread of the folds; a single fold has none
    accuracies: tuple[float, ...]
    thresholds: tuple[float, ...]  # cosines
    auc: Rate
    eer: Rate
    tar: Mapping[float, Rate | None]  # by FAR; None where there are too few different pairs
    intervals: str  # their method
    verified: Verification = field(repr=False, compare=False)  # every pair, for curves

    @property
    def sentence(self) -> str:
        """Description of the rule."""
        return RULES[self.rule].sentence

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "rule": self.rule,
            "sentence": self.sentence,
            "pairs": self.same + self.different,
            "same": self.same,
            "different": self.different,
            "accuracy": self.accuracy.as_dict(),
            "standard_error": self.standard_error,
            "accuracies": list(self.accuracies),
            "thresholds": [value if np.isfinite(value) else None for value in self.thresholds],
            "auc": self.auc.as_dict(),
            "eer": self.eer.as_dict(),
            "tar_at_far": {f"{far:g}": None if rate is None else rate.as_dict() for far, rate in self.tar.items()},
            "intervals": self.intervals,
        }


def verification_report(
    verified: Verification,
    *,
    people: tuple[Sequence[str], Sequence[str]] | None = None,
    fars: Sequence[float] = FARS,
    rounds: int = ROUNDS,
    seed: int = 0,
) -> VerificationReport:
    """Accuracy with its standard error, AUC, EER and TAR at FAR, with intervals.

    AUC, EER and TAR are of all pairs together, each with the score it had while its fold was held out. With `people`,
    the names of the left and of the right person of each pair, intervals come from a bootstrap over people with the
    thresholds kept. Without, accuracy and TAR have Wilson's intervals, which take pairs for independent and therefore
    are somewhat too narrow.
    """
    same, different = int(verified.same.sum()), int((~verified.same).sum())
    known = [far for far in fars if is_supported(far, different)]

    def measure(weights: Float64) -> Float64:
        if not weights[verified.same].any() or not weights[~verified.same].any():
            return np.full(3 + len(known), np.nan)
        curve = roc(verified.same, verified.scores, weights=weights)
        return np.array(
            [_mean_over_folds(verified, weights), curve.auc(), curve.eer(), *(curve.tar_at_far(far) for far in known)]
        )

    if people is not None:
        accuracy, auc, eer, *tars = rates_over_people(measure, *people, rounds=rounds, seed=seed)
        intervals = f"bootstrap over {len({*people[0], *people[1]}):,} people, thresholds kept"
    else:
        values = measure(np.ones(same + different)).tolist()
        accuracy, auc, eer = wilson_rate(values[0], same + different), Rate(values[1]), Rate(values[2])
        tars = [wilson_rate(value, same) for value in values[3:]]
        intervals = "Wilson, as if pairs were independent: people are not known"
    folds = len(verified.accuracies)
    return VerificationReport(
        rule=verified.rule,
        same=same,
        different=different,
        accuracy=accuracy,
        standard_error=float(verified.accuracies.std(ddof=1) / np.sqrt(folds)) if folds > 1 else None,
        accuracies=tuple(verified.accuracies.tolist()),
        thresholds=tuple(verified.thresholds.tolist()),
        auc=auc,
        eer=eer,
        tar={**dict.fromkeys(fars), **dict(zip(known, tars, strict=True))},
        intervals=intervals,
        verified=verified,
    )


def _mean_over_folds(verified: Verification, weights: Float64) -> float:
    """The mean of the folds' accuracies with weights (N,) of the pairs; folds of weight zero are left out."""
    right = np.bincount(verified.fold, weights=weights * verified.correct)
    whole = np.bincount(verified.fold, weights=weights)
    return float((right[whole > 0] / whole[whole > 0]).mean())


def side_by_side(reports: Sequence[VerificationReport]) -> str:
    """Reports of the same pairs as a table in plain text, a column for each rule, rates in percent."""
    first = reports[0]
    numbers = range(len(first.accuracies)) if len(first.accuracies) > 1 else ()
    rows = [
        ["rule", *(report.rule for report in reports)],
        ["accuracy", *(report.accuracy.percent() for report in reports)],
        *([f"  fold {k + 1}", *(f"{100 * report.accuracies[k]:.2f}" for report in reports)] for k in numbers),
        ["standard error", *(percent(report.standard_error) for report in reports)],
        ["threshold (cosine)", *(f"{np.mean(report.thresholds):.4f}" for report in reports)],
        ["AUC", *(report.auc.percent() for report in reports)],
        ["EER", *(report.eer.percent() for report in reports)],
        *([f"TAR at FAR {far:g}", *(shown(report.tar[far]) for report in reports)] for far in first.tar),
    ]
    lines = columns(rows)
    if None in first.tar.values():
        lines.append(f"TAR -: not measurable with {first.different:,} different pairs")
    return "\n".join([*lines, f"rates in %, 95 % intervals: {first.intervals}"])
