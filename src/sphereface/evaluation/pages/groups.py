"""Groups on a page: their rates at one threshold, the rates between groups, and the findings."""

import numpy as np

from sphereface.evaluation.groups.result import AttributeReport, GroupReport, shown
from sphereface.metrics.rates import Rate
from sphereface.reports.figures import heat_map
from sphereface.reports.html import Report


def add_groups(page: Report, report: GroupReport) -> None:
    """All attributes at one threshold, the findings first."""
    page.heading("Groups at one threshold")
    page.text(
        f"Rule: one threshold for all, {report.threshold:.4f} (cosine), {report.threshold_from}; its FMR is "
        f"{report.fmr:.3g}. {report.people:,} people, {report.photos:,} photos."
    )
    for note in report.notes:
        page.text(f"Note: {note}.", note=True)
    for finding in report.findings:
        page.text(f"Found: {finding.sentence}.", note=True)
    if not report.findings:
        page.text("Found: nothing; no significant difference between the groups.")
    page.text(
        f"Chance of any finding where no group differs: {100 * report.error:g} % at most ({report.tests} comparisons). "
        f"95 % intervals: {report.intervals}."
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
            + [shown(rate) for rate in (group.fmr, group.fnmr, group.failure_to_detect)]
            for group in found.groups
        ],
    )
    page.table(["rates", "ratio", ""], found.ratios())
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
            says=f"False match rates of {len(names)} groups with each other; the highest is {shown(cells[worst])}, of "
            f"{worst[0]} with {worst[1]}",
        ),
        f"{found.attribute}: FMR of each group (row) with each (column).",
    )
    page.table(["FMR of", *names], [[one, *(shown(cells[one, two]) for two in names)] for one in names])


def _value(rate: Rate | None) -> float:
    return float("nan") if rate is None else rate.value
