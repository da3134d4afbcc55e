"""Experiments by ID, from the command line to the files and the report."""

import csv
import json

import pytest
from typer.testing import CliRunner

from sphereface.cli import app
from sphereface.errors import UserError
from sphereface.experiments.paper import published
from sphereface.experiments.paper.catalogue import CATALOGUE
from sphereface.experiments.paper.result import read_result
from sphereface.experiments.paper.running import experiment, results_in, run_experiments
from tests.reports.browser import complaints, needs_chromium


def invoke(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)], catch_exceptions=False)


def test_the_list_has_a_line_for_each_experiment_with_its_id_first():
    lines = invoke("list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(CATALOGUE)
    assert all(entry.caption in line for line, entry in zip(lines, CATALOGUE.values(), strict=True))


def test_an_unknown_experiment_is_one_line():
    ran = invoke("table9")
    assert ran.exit_code == 2
    assert "table9" in ran.output


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_experiment_has_its_module(name):
    assert callable(experiment(name))


def test_table_3_runs_from_end_to_end(small_plan, setting):
    ran = invoke("table3", "--runs", setting.runs, "--out", setting.out, "--jobs", 1, "--json")
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)["table3"]
    result = read_result(setting.out / "table3")
    assert told == json.loads((setting.out / "table3" / "result.json").read_text()) == result.as_json()
    accuracy = list(csv.DictReader((setting.out / "table3" / "accuracy.csv").read_text().splitlines()))
    ours = [row for row in accuracy if row["source"] == "ours"]
    assert {row["scale"] for row in ours} == {"tiny"}
    theirs = {row["loss"]: row["LFW, %"] for row in accuracy if row["scale"] == "published"}
    assert list(theirs.values()) == [f"{each.lfw:.2f}" for each in published.TABLE_3.values()]
    assert all(50 <= float(row["LFW, %"]) <= 100 for row in ours)
    page = (setting.out / "report.html").read_text()
    assert "table3: effect of m" in page
    assert "99.42" in page


def test_table_1_runs_from_end_to_end_and_joins_the_report(setting):
    ran = invoke("table1", "--out", setting.out, "--runs", setting.runs)
    assert ran.exit_code == 0, ran.output
    result = read_result(setting.out / "table1")
    for figure in result.figures:
        assert (setting.out / "table1" / f"{figure.name}.pdf").read_bytes().startswith(b"%PDF")
        assert (setting.out / "table1" / f"{figure.name}.png").read_bytes().startswith(b"\x89PNG")
    assert (setting.out / "report.html").read_text().count("<figure") == len(result.figures)


@needs_chromium
@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 390)])
def test_the_report_opens_in_a_browser_without_an_error(setting, scheme, width):
    assert invoke("table1", "--out", setting.out, "--runs", setting.runs).exit_code == 0
    assert complaints(setting.out / "report.html", scheme=scheme, width=width) == []


def test_an_experiment_that_fails_leaves_the_others_their_results(setting, monkeypatch):
    def broken(_):
        raise UserError("no such faces")

    monkeypatch.setattr("sphereface.experiments.paper.table2.run", broken)
    failed = run_experiments(["table2", "table1"], setting)
    assert {name: str(error) for name, error in failed.items()} == {"table2": "no such faces"}
    assert [result.id for result in results_in(setting.out)] == ["table1"]
    with pytest.raises(UserError, match="no such faces"):
        run_experiments(["table2"], setting)
