"""The page docs/reproduction.md is made from the results, and its costs from formulas."""

import json
from pathlib import Path

import pytest

from sphereface.experiments.paper.dry import cost
from sphereface.experiments.paper.plans import PLANS
from sphereface.experiments.paper.reproduction import build
from sphereface.experiments.paper.result import Result, Row, Table, read_result

ROOT = Path(__file__).parents[3]


def test_the_page_is_the_one_that_the_results_make():
    assert (ROOT / "docs" / "reproduction.md").read_text() == build(ROOT / "results" / "reproduction")


def test_the_page_shows_each_result_and_that_the_papers_scale_is_not_verified(tmp_path):
    table = Table("accuracy", "Accuracies", ("loss", "LFW, %"), [Row(["softmax", "12.34"], "small")])
    Result("table3", "effect of m", "small", findings=["It grows."], tables=[table]).write(tmp_path)
    page = build(tmp_path)
    assert "| table3 | small | It grows. | paper, not yet verified |" in page
    assert "| softmax | 12.34 | small |" in page


def test_a_result_is_read_as_it_was_written(tmp_path):
    table = Table("t", "T", ["a", "b"], [Row(["1", "x|y"], "tiny"), Row(["2", ""], "published")], note="n")
    result = Result("table3", "t", "tiny", ["f"], [table], [], {"p.html": "<p>"}, {"n": [1.5]})
    folder = result.write(tmp_path)
    assert read_result(folder) == result
    assert (folder / "t.csv").read_text() == "a,b,scale\n1,x|y,tiny\n2,,published\n"
    assert json.loads((folder / "result.json").read_text())["numbers"] == {"n": [1.5]}
    assert "x\\|y" in (folder / "result.md").read_text()


def test_the_cost_of_the_papers_run_is_that_of_its_multiply_adds():
    plan = PLANS["paper"]
    found = cost(plan.base.changed(model="sphereface20"), 10_572)
    images = 28_000 * 128
    assert found["images"] == images
    # FACTS: 1.75 GMAC for a face of the 20-layer network; the classifier adds 512 x 10,572.
    assert found["petaflop"] == pytest.approx(6 * images * (1.75e9 + 512 * 10_572) / 1e15, rel=0.01)
    assert found["disk_gigabytes"] == pytest.approx(plan.base.keep * 3 * 4 * (22.67e6 + 512 * 10_572) / 1e9, rel=0.01)
