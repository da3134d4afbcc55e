"""Appendix D: tables and findings have the numbers of the runs, and say what they show."""

import numpy as np
import pytest

from sphereface.experiments.paper import app_mnist
from sphereface.experiments.paper.app_mnist import FLAT, SOLID, course
from sphereface.experiments.paper.digits import PLANS, DigitRuns, Plan, Run
from sphereface.experiments.paper.setting import SEEDS, Setting
from sphereface.metrics.fisher import angular_fisher_score


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    root = tmp_path_factory.mktemp("mnist")
    setting = Setting(scale="tiny", runs=root / "runs", out=root / "out", jobs=1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(PLANS, "tiny", Plan(steps=25, batch=32, lr=0.05, widths=(4, 8)))
        patched.setitem(SEEDS, "tiny", (0, 1))
        yield app_mnist.run(setting), DigitRuns(setting)


def test_the_scores_are_means_over_seeds_of_scores_of_test_features(found):
    result, runs = found
    for name in FLAT:
        drawn = [runs.drawn([Run(name, seed)])[0]["test"] for seed in (0, 1)]
        expected = np.mean([angular_fisher_score(each["features"], each["labels"]) for each in drawn])
        assert result.numbers["fisher"][name] == pytest.approx(expected, rel=0.01)  # drawn features are rounded
        assert f"{result.numbers['fisher'][name]:.4f} ({FLAT[name]})" in result.findings[0]


def test_the_tables_have_the_mean_and_the_ends_over_seeds(found):
    result, runs = found
    fisher, separated = result.tables
    for row, name in zip(fisher.rows, FLAT, strict=True):
        each = [one["test"]["fisher"] for one in runs.measured([Run(name, seed) for seed in (0, 1)])]
        assert row.cells[4] == f"{np.mean(each):.4f} ({min(each):.4f} to {max(each):.4f})"
    for row, name in zip(separated.rows, SOLID, strict=True):
        each = [100 * one["test"]["separated"] for one in runs.measured([Run(name, seed, 3) for seed in (0, 1)])]
        assert row.cells[4] == f"{np.mean(each):.1f} ({min(each):.1f} to {max(each):.1f})"
        assert row.stamp == "tiny"


@pytest.mark.parametrize(
    ("values", "sign", "says"),
    [((3, 2, 1), -1, "falls"), ((3, 2, 2), -1, "does not fall at each step"), ((1, 2, 3), 1, "rises"),
     ((1, 3, 2), 1, "does not rise at each step")],
)  # fmt: skip
def test_a_course_is_told_only_if_every_step_has_it(values, sign, says):
    assert course(dict(zip("abc", values, strict=True)), "abc", sign) == says


def test_findings_tell_the_course_of_both_measures(found):
    result = found[0]
    fisher, apart = result.numbers["fisher"], result.numbers["separated"]
    falls = fisher["softmax"] > fisher["a_softmax_m2"] > fisher["a_softmax"]
    assert ("it falls" in result.findings[0]) == falls
    assert ("it rises" in result.findings[1]) == (apart["a_softmax"] > apart["modified_softmax"])


def test_the_figure_has_a_column_for_each_loss_of_the_paper(found):
    scatter, measures = (figure.picture for figure in found[0].figures)
    assert "softmax, m = 2, m = 3, m = 4" in scatter.says
    assert all(each.pdf[:4] == b"%PDF" for each in (scatter, measures))
