"""Groups on a page: their rates at one threshold, which of them mistake each other, and what stands out."""

from collections.abc import Sequence

import numpy as np

from sphereface.evaluation.groups.compare import AttributeReport, GroupReport
from sphereface.metrics.group_rates import Ratio
from sphereface.metrics.rates import Rate
from sphereface.reports.figures import heat_map
from sphereface.reports.html import Report


def add_groups(page: Report, report: GroupReport) -> None:
    """All attributes at one threshold, the findings first."""
    told = report.as_dict()
    page.heading("Groups at one threshold")
    page.text(
        f"Rule: one threshold for all, {report.threshold:.4f} (cosine), {told['threshold_from']}; there FMR is "
        f"{report.fmr:.3g}. {report.people:,} people, {report.photos:,} photos."
    )
    for note in report.notes:
        page.text(f"Note: {note}.", note=True)
    for finding in report.findings:
        page.text(f"Found: {finding.sentence}.", note=True)
    if not report.findings:
        page.text("Found: nothing; no group differs from the others more than by chance.")
    page.text(
        f"Chance of any finding where no group differs: {100 * report.error:g} % at most ({report.tests} comparisons). "
        f"95 % intervals: {told['intervals']}."
    )
    for each in report.attributes:
        _add_attribute(page, each)


def _add_attribute(page: Report, found: AttributeReport) -> None:
    names = [group.name for group in found.groups]
    page.heading(f"Groups: {found.attribute}")
    page.table(
        ["group", "people", "photos", "FMR", "FNMR", "failure to detect"],
        [
            [group.name, f"{group.people:,}", f"{group.photos:,}"]
            + [_shown(rate) for rate in (group.fmr, group.fnmr, group.failure_to_detect)]
            for group in found.groups
        ],
    )
    page.table(
        ["how far apart", "ratio", ""],
        [
            [f"{which} {title}", *_ratio(ratio, names)]
            for title, ratios in (("max / min", found.max_over_min), ("max / geometric mean", found.max_over_mean))
            for which, ratio in ratios.items()
        ],
    )
    for name, why in found.left_out.items():
        page.text(f"Left out: {name}, {why}.", note=True)
    if found.unstated:
        page.text(f"{found.unstated:,} photos have no group here.", note=True)
    cells = {
        (one, two): rate
        for one, row in zip(names, found.matrix, strict=True)
        for two, rate in zip(names, row, strict=True)
    }
    worst = max(cells, key=lambda cell: -1 if cells[cell] is None else _value(cells[cell]))
    page.figure(
        heat_map(
            np.array([[_value(rate) for rate in row] for row in found.matrix]),
            names,
            says=f"False match rates of {len(names)} groups with each other; the highest is {_shown(cells[worst])}, of "
            f"{worst[0]} with {worst[1]}",
        ),
        f"{found.attribute}: FMR of each group (row) with each (column).",
    )
    page.table(["FMR of", *names], [[one, *(_shown(cells[one, two]) for two in names)] for one in names])


def _ratio(ratio: Ratio | None, names: Sequence[str]) -> tuple[str, str]:
    """A ratio with its interval, and of which groups it is."""
    if ratio is None:
        return "-", "every rate is 0"
    groups = names[ratio.highest] + ("" if ratio.lowest is None else f" over {names[ratio.lowest]}")
    if ratio.value is None or ratio.interval is None:
        return f"at least {ratio.at_least:.2f}", f"{groups}; a rate is 0"
    return f"{ratio.value:.2f} [{ratio.interval.low:.2f}, {ratio.interval.high:.2f}]", groups


def _value(rate: Rate | None) -> float:
    return float("nan") if rate is None else rate.value


def _shown(rate: Rate | None) -> str:
    if rate is None:
        return "-"
    ends = "" if rate.interval is None else f" [{rate.interval.low:.3g}, {rate.interval.high:.3g}]"
    return f"{rate.value:.3g}{ends}"
