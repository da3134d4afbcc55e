"""Identification on a page: MegaFace at every size, IJB's galleries, your own people; CMC, ROC, DET, angles."""

from collections.abc import Mapping, Sequence

import numpy as np

from sphereface.arrays import Float64
from sphereface.evaluation.pages.pairs import add_left_out, add_trade_off, angles_of
from sphereface.evaluation.protocols.ijb import TIES, GalleryRates, IjbResult
from sphereface.evaluation.protocols.megaface import AtSize, MegaFaceResult
from sphereface.evaluation.rules.identification import Identification
from sphereface.evaluation.rules.search import SearchResult
from sphereface.evaluation.rules.tables import percent, shown
from sphereface.evaluation.rules.template_pairs import TemplateVerification
from sphereface.metrics.upper_tail import UpperTail
from sphereface.reports.curves import accepted, draw_cmc, draw_growth, draw_roc, over_ranks
from sphereface.reports.figures import tail_angles
from sphereface.reports.html import Report


def add_megaface(page: Report, result: MegaFaceResult) -> None:
    """Ranks and rates at every number of distractors, with all images and without noise."""
    found = result.summary()
    page.heading("What was done")
    page.text(
        "Rule: each photo is searched once for every other photo of its person, which is ranked among the distractors "
        f"only; {found['tie_rule']}."
    )
    page.text(
        f"{result.probes:,} probes of {result.people:,} people. CMCs are exact up to rank {result.ranks:,}, ROCs up to "
        f"a false accept rate of {result.far:g}."
    )
    kinds = {"all images": result.raw}
    if result.cleaned is not None:
        page.text(f"Noise: {result.noisy_probes:,} probes and {result.noisy_distractors:,} distractors.")
        kinds["without noise"] = result.cleaned
    for unmatched in result.unmatched_noise:
        page.text(f"Note: {unmatched}.")
    page.heading("Rank 1 as distractors grow")
    page.figure(
        draw_growth({kind: {at.size: at.rank1 for at in sizes} for kind, sizes in kinds.items()}),
        "Share of pairs in which every listed distractor scores lower than the mate.",
    )
    for kind, sizes in kinds.items():
        _add_sizes(page, kind, sizes)


def _add_sizes(page: Report, kind: str, sizes: Sequence[AtSize]) -> None:
    page.heading(f"What came out: {kind}")
    each = [at.summary() for at in sizes]
    page.table(
        ["listed", "distractors", "pairs", "negatives", "rank 1, %", "rank 10, %"],
        [
            [f"{row[name]:,}" for name in ("size", "distractors", "pairs", "negatives")]
            + [percent(row["rank1"]), percent(row["rank10"])]
            for row in each
        ],
    )
    fars = sorted({far for row in each for far in row["tar_at_far"]}, key=float)
    if fars:
        page.table(
            ["listed", *(f"{what} at FAR {far}" for far in fars for what in ("TAR, %,", "threshold"))],
            [
                [f"{row['size']:,}"]
                + [
                    cell
                    for far in fars
                    for cell in (percent(row["tar_at_far"].get(far)), _cosine(row["threshold_at_far"].get(far)))
                ]
                for row in each
            ],
        )
        page.text("A FAR of less than one negative has no TAR.")
    cmc = draw_cmc({f"{at.size:,} distractors": over_ranks(at.cmc) for at in sizes})
    assert cmc is not None, "a CMC has at least rank 1"
    page.figure(cmc, "CMC: share of mates at a rank or before.")
    add_trade_off(page, {f"{at.size:,} distractors": at.verification for at in sizes})
    largest = sizes[-1]
    known = {f"FAR {far}": value for far, value in each[-1]["threshold_at_far"].items()}
    _add_angles(page, largest.verification, known, f"{largest.size:,} distractors")


def _cosine(threshold: float | None) -> str:
    return "-" if threshold is None else f"{threshold:.4f}"


def _add_angles(page: Report, tail: UpperTail, thresholds: Mapping[str, float], what: str) -> None:
    """Angles of all same pairs and of the kept different pairs."""
    same, different = angles_of(tail.positives), angles_of(tail.negatives)
    lines = {name: float(angles_of(np.array([cut]))[0]) for name, cut in thresholds.items() if np.isfinite(cut)}
    kept = "all" if tail.is_whole else f"the {len(different):,} nearest"
    figure = tail_angles(
        same,
        different,
        total=tail.total,
        thresholds=lines,
        says=f"Angles of {len(same):,} same pairs, median {np.degrees(np.median(same)):.1f} degrees, and of "
        f"{kept} of {tail.total:,} different ones; {what}",
    )
    if figure is None:
        page.text("No histogram of angles: too few of the different pairs were kept to fill a degree.")
        return
    page.figure(
        figure,
        f"Angles, {what}; the shares are on a logarithmic axis, relative to all pairs of the kind."
        + ("" if tail.is_whole else " Different pairs at larger angles were not kept and are not drawn.")
        + (" Lines: the thresholds." if lines else ""),
    )


def add_ijb(page: Report, result: IjbResult) -> None:
    """The result on templates: 1:1 and 1:N, where the lists have them."""
    page.heading("What was done")
    page.text(f"Rule: {result.pooling}; {TIES}. Features: {result.features}.")
    page.text(f"{result.images:,} images, {result.templates:,} templates.")
    if result.lost_templates:
        page.text(f"{result.lost_templates:,} templates have no image left.", note=True)
    add_left_out(page, "images", result.missing, result.notes)
    if result.verification is not None:
        _add_template_pairs(page, result.verification, result.pairs_listed)
    if result.galleries:
        _add_galleries(page, result)


def _add_template_pairs(page: Report, found: TemplateVerification, listed: int) -> None:
    page.heading("1:1, pairs of templates")
    page.text(f"{found.same + found.different:,} of {listed:,} pairs were scored, {found.same:,} of them same.")
    page.table(
        ["FAR", "TAR, %", "threshold"],
        [[f"{far:g}", shown(rate), _cosine(found.thresholds[far])] for far, rate in found.tar.items()],
    )
    page.text(f"95 % intervals: {found.intervals}.")
    add_trade_off(page, {"1:1": found.tail})
    cuts = {f"FAR {far:g}": cut for far, cut in found.thresholds.items() if cut is not None}
    _add_angles(page, found.tail, cuts, "pairs of templates")


def _add_galleries(page: Report, result: IjbResult) -> None:
    page.heading("1:N, probes searched in a gallery")
    each: list[GalleryRates] = [*result.galleries, *([result.mean] if result.mean else [])]
    first = each[0]
    page.table(
        ["rates in %", *(gallery.name for gallery in each)],
        [
            ["templates", *(f"{gallery.templates:,}" for gallery in each)],
            ["mated probes", *(f"{gallery.mated:,}" for gallery in each)],
            ["strangers", *(f"{gallery.strangers:,}" for gallery in each)],
            *([f"rank {rank}", *(shown(gallery.rank[rank]) for gallery in each)] for rank in first.rank),
            *([f"TPIR at FPIR {fpir:g}", *(shown(gallery.tpir[fpir]) for gallery in each)] for fpir in first.tpir),
        ],
    )
    searches = {gallery.name: (gallery.templates, gallery.search) for gallery in each if gallery.search is not None}
    cmc = draw_cmc({name: over_ranks(_cmc(search, size)) for name, (size, search) in searches.items()})
    if cmc is not None:
        page.figure(cmc, "CMC, of the mated probes.")
    strangers = {name: accepted(_found(search)) for name, (_, search) in searches.items() if len(search.strangers)}
    open_set = draw_roc(strangers, x="FPIR", y="TPIR", name="Open set")
    if open_set is not None:
        page.figure(
            open_set, "Open set: share of mated probes found at rank 1, by the share of strangers above the threshold."
        )


def _cmc(search: SearchResult, size: int) -> Float64:
    """The share of mated probes found at rank 1, at most 2, ... up to the number of templates in the gallery."""
    counts = np.bincount(search.ranks, minlength=size + 1)[1:]
    return np.asarray(np.cumsum(counts) / len(search.ranks))


def _found(search: SearchResult) -> UpperTail:
    """Scores of mated probes against those of strangers; a mated probe beyond rank 1 has the score -inf."""
    scores = np.where(search.ranks == 1, search.scores, -np.inf)
    return UpperTail(-np.sort(-scores), -np.sort(-search.highest), len(search.highest))


def add_identification(page: Report, found: Identification) -> None:
    """The result of identification: closed set and open set."""
    page.heading("Identification")
    page.text(
        f"Rule: the mean of the unit features of {found.gallery_photos} photo(s) of a person is enrolled, the other "
        f"photos are probes, ties count against the probe's own person; mean of {found.splits} drawn splits, seed "
        f"{found.seed}."
    )
    page.table(
        ["rates in %", ""],
        [
            ["people enrolled, closed set", f"{found.enrolled:,}"],
            ["probes, closed set", f"{found.probes:,}"],
            ["rank 1", found.rank1.percent()],
            *([f"rank {rank}", percent(found.cmc[rank - 1])] for rank in (5, 10, 20) if rank <= len(found.cmc)),
            ["people known, open set", f"{found.known:,}"],
            ["people unknown, open set", f"{found.unknown:,}"],
            ["probes of strangers", found.strangers],
        ],
    )
    page.table(
        ["FPIR", "DIR, %", "threshold", ""],
        [
            [f"{fpir:g}", "-", "-", found.reasons[fpir]]
            if rate is None
            else [f"{fpir:g}", rate.dir.percent(), _cosine(rate.threshold), ""]
            for fpir, rate in found.open_set.items()
        ],
    )
    page.text(f"95 % intervals: {found.intervals}.")
    cmc = draw_cmc({f"{found.enrolled:,} people": over_ranks(np.array(found.cmc))})
    assert cmc is not None, "a CMC has at least rank 1"
    page.figure(cmc, "CMC, closed set: all people are enrolled.")
