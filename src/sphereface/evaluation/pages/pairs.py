"""Pairs on a page: by which rule, fold by fold, ROC, DET, angles, and the hardest as pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sphereface.arrays import Float64
from sphereface.choices import PairRule
from sphereface.evaluation.protocols.folder import HardPair, draw_hardest
from sphereface.evaluation.protocols.ytf import VideosResult
from sphereface.evaluation.rules.pairs import PairsResult
from sphereface.evaluation.rules.verification import Verification, VerificationReport
from sphereface.metrics.rates import Rate
from sphereface.metrics.upper_tail import UpperTail
from sphereface.reports.curves import accepted, draw_det, draw_roc
from sphereface.reports.figures import pair_angles
from sphereface.reports.html import Report

ROWS = 20  # of a list of what is missing; the JSON has it in full


def add_pairs(page: Report, result: PairsResult) -> None:
    """Everything about a set of pairs of images."""
    sentences = {name: report.sentence for name, report in result.reports.items()}
    page.heading("What was done")
    page.text(
        f"{result.scored:,} of {result.listed:,} pairs were scored ({result.report.same:,} same, "
        f"{result.report.different:,} different), {result.images:,} images."
    )
    if result.dev_train:
        page.text(f"Learned from {result.dev_train[0]:,} of {result.dev_train[1]:,} other pairs.")
    _add_rules(page, sentences, result.features)
    add_left_out(page, "images", result.missing, result.notes)
    _add_verification(page, result.reports, result.rule)


def add_videos(page: Report, result: VideosResult) -> None:
    """Everything about a set of pairs of videos."""
    page.heading("What was done")
    page.text(
        f"{result.scored:,} of {result.listed:,} pairs of videos were scored ({result.report.same:,} same, "
        f"{result.report.different:,} different), {result.videos:,} videos, {result.embedded:,} frames."
    )
    page.text(f"Frames: {result.frame_policy}.")
    _add_rules(page, {name: result.sentence_of(name) for name in result.reports}, result.features)
    add_left_out(page, "videos", result.missing, result.notes)
    add_left_out(page, "frames", result.unreadable, ())
    _add_verification(page, result.reports, result.rule)


def _add_rules(page: Report, sentences: Mapping[PairRule, str], features: Mapping[PairRule, str]) -> None:
    for name, sentence in sentences.items():
        page.text(f"Rule {name}: {sentence}. Features: {features[name]}.")


def add_left_out(page: Report, what: str, missing: Mapping[str, str], notes: Sequence[str]) -> None:
    """What a reader must know before the numbers; nothing if all is there."""
    for note in notes:
        page.text(f"Note: {note}.", note=True)
    if missing:
        page.text(f"{len(missing):,} {what} could not be used.", note=True)
        page.table([what, "why"], [[name, why] for name, why in list(missing.items())[:ROWS]])


def _add_verification(page: Report, reports: Mapping[PairRule, VerificationReport], rule: PairRule) -> None:
    each = list(reports.values())
    asked = reports[rule]
    page.heading("What came out")
    rows = [
        ["accuracy", *(report.accuracy.percent() for report in each)],
        ["standard error", *(percent(report.standard_error) for report in each)],
        ["threshold (cosine)", *(f"{np.mean(report.thresholds):.4f}" for report in each)],
        ["AUC", *(report.auc.percent() for report in each)],
        ["EER", *(report.eer.percent() for report in each)],
        *([f"TAR at FAR {far:g}", *(shown(report.tar[far]) for report in each)] for far in asked.tar),
    ]
    page.table(["rates in %", *reports], rows)
    if None in asked.tar.values():
        page.text(f"TAR -: not to be told from {asked.different:,} different pairs.")
    page.text(f"95 % intervals: {asked.intervals}.")
    if len(asked.accuracies) > 1:
        _add_folds(page, reports)
    page.heading("Accepted and refused")
    add_trade_off(page, {name: tail_of(report.verified) for name, report in reports.items()})
    _add_angles(page, asked)


def _add_folds(page: Report, reports: Mapping[PairRule, VerificationReport]) -> None:
    page.heading("Fold by fold")
    head = [f"{name} {what}" for name in reports for what in ("accuracy, %", "threshold")]
    rows = [
        [f"{fold + 1}"]
        + [
            cell
            for report in reports.values()
            for cell in (percent(report.accuracies[fold]), f"{report.thresholds[fold]:.4f}")
        ]
        for fold in range(max(len(report.accuracies) for report in reports.values()))
    ]
    page.table(["fold", *head], rows)


def tail_of(verified: Verification) -> UpperTail:
    """All scores of some pairs, falling."""
    positives, negatives = (-np.sort(-verified.scores[some]) for some in (verified.same, ~verified.same))
    return UpperTail(positives, negatives, len(negatives))


def add_trade_off(page: Report, tails: Mapping[str, UpperTail]) -> None:
    """ROC and DET, a line for each; what cannot be drawn is said."""
    curves = {name: accepted(tail) for name, tail in tails.items()}
    roc, det = draw_roc(curves), draw_det(curves)
    if roc is None:
        page.text("No ROC: the different pairs that were kept decide no false accept rate.", note=True)
        return
    page.figure(roc, "ROC. A line begins where one different pair is accepted: below that, nothing was seen.")
    if det is None:
        page.text("No DET: no same pair is refused at any false accept rate that is shown.")
    else:
        page.figure(det, "DET: both errors; lower is better. A line ends where no same pair is refused any more.")


def _add_angles(page: Report, report: VerificationReport) -> None:
    verified = report.verified
    angles = angles_of(verified.scores)
    mean = float(np.mean(report.thresholds))
    threshold = float(angles_of(np.array([mean]))[0]) if np.isfinite(mean) else None
    same, different = angles[verified.same], angles[~verified.same]
    many = "the mean of the folds' thresholds" if len(report.thresholds) > 1 else "the threshold"
    page.figure(
        pair_angles(
            same,
            different,
            threshold=threshold,
            says=f"Angles of {len(same):,} same pairs, {np.degrees(np.median(same)):.1f} degrees in the middle, and of "
            f"{len(different):,} different ones, {np.degrees(np.median(different)):.1f} degrees"
            + ("" if threshold is None else f"; threshold {np.degrees(threshold):.1f} degrees"),
        ),
        f"Angles under rule {report.rule}." + ("" if threshold is None else f" Dashed: {many}."),
    )


def add_hardest(page: Report, pairs: Sequence[HardPair], faces: Path | None) -> None:
    """The pairs that a model finds hardest, as pictures where the faces are at hand."""
    if not pairs:
        return
    page.heading("The hardest pairs")
    page.text("Of all pairs, by plain cosines: wrong labels are found here first.")
    for kind, caption in ((True, "Two photos of one person each, least alike first."),
                          (False, "Two people each, most alike first.")):  # fmt: skip
        some = [pair for pair in pairs if pair.same == kind]
        if some and faces is not None:
            page.figure(draw_hardest(some, faces, says=f"{len(some)} pairs of faces: {caption}"), caption)
    page.table(
        ["left", "right", "", "cosine"],
        [[pair.left, pair.right, "same" if pair.same else "different", f"{pair.score:+.4f}"] for pair in pairs],
    )


def angles_of(scores: Float64) -> Float64:
    """The angles, in radians, that have these cosines; rounding may have led some beyond 1."""
    return np.asarray(np.arccos(np.clip(scores, -1, 1)))


def shown(rate: Rate | None) -> str:
    """A rate in percent, or a dash where it cannot be told."""
    return "-" if rate is None else rate.percent()


def percent(value: float | None) -> str:
    """A share in percent, or a dash where there is none."""
    return "-" if value is None else f"{100 * value:.2f}"
