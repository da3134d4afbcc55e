"""Pairs on a page: the rules, the folds, ROC, DET, angles, and the hardest pairs as pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sphereface.arrays import Float64
from sphereface.evaluation.protocols.folder import HardPair, draw_hardest
from sphereface.evaluation.protocols.ytf import VideosResult
from sphereface.evaluation.rules.pairs import PairsResult, RuleResults
from sphereface.evaluation.rules.tables import percent, shown
from sphereface.evaluation.rules.verification import Verification, VerificationReport
from sphereface.metrics.upper_tail import UpperTail
from sphereface.reports.curves import accepted, draw_det, draw_roc
from sphereface.reports.figures import pair_angles
from sphereface.reports.html import Report

ROWS = 20  # of a list of missing images; the JSON has all


def add_pairs(page: Report, result: PairsResult) -> None:
    """The result on pairs of images."""
    learned = (
        [f"Learned from {result.dev_train[0]:,} of {result.dev_train[1]:,} other pairs."] if result.dev_train else []
    )
    _add_rules(page, result, "pairs", f"{result.images:,} images", learned)
    add_left_out(page, "images", result.missing, result.notes)
    _add_verification(page, result)


def add_videos(page: Report, result: VideosResult) -> None:
    """The result on pairs of videos."""
    counts = f"{result.videos:,} videos, {result.embedded:,} frames"
    _add_rules(page, result, "pairs of videos", counts, [f"Frames: {result.frame_policy}."])
    add_left_out(page, "videos", result.missing, result.notes)
    add_left_out(page, "frames", result.unreadable, ())
    _add_verification(page, result)


def _add_rules(page: Report, result: RuleResults, pairs: str, counts: str, more: Sequence[str]) -> None:
    page.heading("What was done")
    page.text(
        f"{result.scored:,} of {result.listed:,} {pairs} were scored ({result.report.same:,} same, "
        f"{result.report.different:,} different), {counts}."
    )
    for sentence in more:
        page.text(sentence)
    for name in result.reports:
        page.text(f"Rule {name}: {result.sentence_of(name)}. Features: {result.features[name]}.")


def add_left_out(page: Report, what: str, missing: Mapping[str, str], notes: Sequence[str]) -> None:
    """Notes, and a table of the first unusable images or videos with the reasons; nothing if all could be used."""
    for note in notes:
        page.text(f"Note: {note}.", note=True)
    if missing:
        page.text(f"{len(missing):,} {what} could not be used.", note=True)
        page.table([what, "why"], [[name, why] for name, why in list(missing.items())[:ROWS]])


def _add_verification(page: Report, result: RuleResults) -> None:
    each, asked = list(result.reports.values()), result.report
    page.heading("What came out")
    rows = [
        ["accuracy", *(report.accuracy.percent() for report in each)],
        ["standard error", *(percent(report.standard_error) for report in each)],
        ["threshold (cosine)", *(f"{np.mean(report.thresholds):.4f}" for report in each)],
        ["AUC", *(report.auc.percent() for report in each)],
        ["EER", *(report.eer.percent() for report in each)],
        *([f"TAR at FAR {far:g}", *(shown(report.tar[far]) for report in each)] for far in asked.tar),
    ]
    page.table(["rates in %", *result.reports], rows)
    if None in asked.tar.values():
        page.text(f"TAR -: not measurable with {asked.different:,} different pairs.")
    page.text(f"95 % intervals: {asked.intervals}.")
    if len(asked.accuracies) > 1:
        _add_folds(page, result)
    page.heading("Accepted and refused")
    add_trade_off(page, {name: tail_of(report.verified) for name, report in result.reports.items()})
    _add_angles(page, asked)


def _add_folds(page: Report, result: RuleResults) -> None:
    page.heading("Fold by fold")
    each = list(result.reports.values())
    head = [f"{name} {what}" for name in result.reports for what in ("accuracy, %", "threshold")]
    rows = [
        [f"{fold + 1}"]
        + [cell for one in each for cell in (percent(one.accuracies[fold]), f"{one.thresholds[fold]:.4f}")]
        for fold in range(max(len(report.accuracies) for report in each))
    ]
    page.table(["fold", *head], rows)


def tail_of(verified: Verification) -> UpperTail:
    """All scores of the same pairs and of the different ones, falling."""
    positives, negatives = (-np.sort(-verified.scores[some]) for some in (verified.same, ~verified.same))
    return UpperTail(positives, negatives, len(negatives))


def add_trade_off(page: Report, tails: Mapping[str, UpperTail]) -> None:
    """ROC and DET with a line for each tail; a sentence replaces a figure that cannot be drawn."""
    curves = {name: accepted(tail) for name, tail in tails.items()}
    roc, det = draw_roc(curves), draw_det(curves)
    if roc is None:
        page.text("No ROC: the different pairs that were kept decide no false accept rate.", note=True)
        return
    page.figure(roc, "ROC. A line begins at the false accept rate of one different pair, the lowest that was measured.")
    if det is None:
        page.text("No DET: no same pair is refused at any false accept rate that is shown.")
    else:
        page.figure(det, "DET: both errors; lower is better. A line ends where every same pair is accepted.")


def _add_angles(page: Report, report: VerificationReport) -> None:
    verified = report.verified
    angles = angles_of(verified.scores)
    mean = float(np.mean(report.thresholds))
    threshold = float(angles_of(np.array([mean]))[0]) if np.isfinite(mean) else None
    same, different = angles[verified.same], angles[~verified.same]
    drawn = "the mean of the folds' thresholds" if len(report.thresholds) > 1 else "the threshold"
    page.figure(
        pair_angles(
            same,
            different,
            threshold=threshold,
            says=f"Angles of {len(same):,} same pairs, median {np.degrees(np.median(same)):.1f} degrees, and of "
            f"{len(different):,} different ones, median {np.degrees(np.median(different)):.1f} degrees"
            + ("" if threshold is None else f"; threshold {np.degrees(threshold):.1f} degrees"),
        ),
        f"Angles under rule {report.rule}." + ("" if threshold is None else f" Dashed: {drawn}."),
    )


def add_hardest(page: Report, pairs: Sequence[HardPair], faces: Path | None) -> None:
    """The hardest pairs, with pictures if the set of faces is given."""
    if not pairs:
        return
    page.heading("The hardest pairs")
    page.text("Of all pairs, by plain cosines: wrong labels are likely to appear here.")
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
    """The angles, in radians, of these cosines; cosines that rounding put beyond 1 are clipped."""
    return np.asarray(np.arccos(np.clip(scores, -1, 1)))
