"""Appendix A: with the last ReLU features stay in the first quadrant, and the numbers are those of the runs."""

import numpy as np
import pytest

from sphereface.experiments.paper import app_relu
from sphereface.experiments.paper.digits import PLANS, DigitRuns, Plan, Run
from sphereface.experiments.paper.setting import Setting
from sphereface.reports.figures import Picture


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    root = tmp_path_factory.mktemp("relu")
    setting = Setting(scale="tiny", runs=root / "runs", out=root / "out", jobs=1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(PLANS, "tiny", Plan(steps=40, batch=32, lr=0.05, widths=(4, 8)))
        yield app_relu.run(setting), DigitRuns(setting)


def test_with_the_relu_all_features_are_in_the_first_quadrant_and_without_it_they_are_not(found):
    result, runs = found
    (relu,), (plain,) = (runs.drawn([Run(name, 0)]) for name in (app_relu.WITH, app_relu.WITHOUT))
    for part in ("train", "test"):
        assert np.min(relu[part]["features"]) >= 0
        assert np.min(plain[part]["features"], axis=0).max() < 0
    assert "With the last ReLU all features lie in the first quadrant" in result.findings[0]


def test_the_table_has_the_shares_of_each_part(found):
    result, runs = found
    rows = {tuple(row.cells[:2]): row.cells[2:] for row in result.tables[0].rows}
    (plain,) = runs.measured([Run("softmax", 0)])
    assert rows["with the last ReLU", "test images"][0] == "100.0"
    assert rows["without the last ReLU", "test images"][0] == f"{100 * plain['test']['first_quadrant']:.1f}"
    assert rows["without the last ReLU", "training images"][2] == f"{100 * plain['train']['accuracy']:.2f}"
    assert float(rows["with the last ReLU", "test images"][1]) <= 90
    assert {row.stamp for row in result.tables[0].rows} == {"tiny"}


def test_the_figure_is_for_light_and_dark_pages_and_for_print(found):
    picture = found[0].figures[0].picture
    assert picture.light[:4] == picture.dark[:4] == b"\x89PNG"
    assert picture.light != picture.dark
    assert picture.pdf[:4] == b"%PDF"


def test_features_that_leave_the_quadrant_would_be_told(monkeypatch, tmp_path):
    monkeypatch.setitem(PLANS, "tiny", Plan(steps=1, batch=16, lr=0.05, widths=(4,), units=0))
    monkeypatch.setattr(app_relu, "WITH", "softmax_no_bias")  # a network without the ReLU in its place
    monkeypatch.setattr(app_relu, "scatter", lambda *_, **__: Picture(b"", b"", ""))
    result = app_relu.run(Setting(scale="tiny", runs=tmp_path / "runs", out=tmp_path / "out"))
    assert "% of the features lie in the first quadrant" in result.findings[0]
