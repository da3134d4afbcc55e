"""Runs experiments by ID, writes what each found, and builds one report of all results in a folder."""

import importlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from sphereface.errors import SphereFaceError, UserError
from sphereface.experiments.paper.catalogue import CATALOGUE
from sphereface.experiments.paper.result import RESULT, Result, read_result
from sphereface.experiments.paper.setting import Setting
from sphereface.reports.html import Report

REPORT = "report.html"


def experiment(name: str) -> Callable[[Setting], Result]:
    """The function of an experiment; its module is imported here."""
    if name not in CATALOGUE:
        raise UserError(f"unknown experiment {name!r}; choose one of {', '.join(CATALOGUE)}")
    module = importlib.import_module(f"sphereface.experiments.paper.{CATALOGUE[name].module}")
    found: Callable[[Setting], Result] = getattr(module, CATALOGUE[name].function)
    return found


def run_experiments(names: Sequence[str], setting: Setting) -> dict[str, SphereFaceError]:
    """Run experiments one after the other and write their results; returns the errors of those that failed, by ID."""
    failed: dict[str, SphereFaceError] = {}
    for place, name in enumerate(names, start=1):
        setting.say(f"{place}/{len(names)} {name}: {CATALOGUE[name].caption}")
        try:
            experiment(name)(setting).write(setting.out)
        except SphereFaceError as error:  # the others go on
            if len(names) == 1:
                raise
            setting.say(f"{name}: {error}")
            failed[name] = error
        write_report(setting.out)
    return failed


def results_in(out: Path) -> list[Result]:
    """The results in a folder, in the order of the catalogue."""
    return [read_result(out / name) for name in CATALOGUE if (out / name / RESULT).is_file()]


def write_report(out: Path) -> Path:
    """One HTML page of all results in a folder."""
    path = out / REPORT
    build_report(results_in(out)).write(path)
    return path


def build_report(results: Iterable[Result]) -> Report:
    """The page of some results: findings, tables, figures, links to interactive pages."""
    report = Report(
        "SphereFace: every table and figure",
        "Ours beside the paper's. The last column of a table says at which scale its numbers were made: tiny and small "
        "are other faces, networks and budgets than the paper's.",
    )
    for result in results:
        report.heading(f"{result.id}: {result.title}")
        for finding in result.findings:
            report.text(finding)
        for table in result.tables:
            report.text(table.title)
            report.table(table.whole_head, table.stamped)
            if table.note:
                report.text(table.note)
        for figure in result.figures:
            report.figure(figure.picture, figure.caption, wide=figure.wide)
        for name in result.pages:
            report.link(f"{result.id}/{name}", name)
    return report
