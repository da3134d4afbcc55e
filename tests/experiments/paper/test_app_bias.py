"""Appendix C: the numbers are those of runs with and without biases, which start from the same weights."""

import numpy as np
import pytest
import torch

from sphereface.experiments.paper import app_bias
from sphereface.experiments.paper.digits import PLANS, DigitRuns, Plan, Run
from sphereface.experiments.paper.setting import Setting


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    root = tmp_path_factory.mktemp("bias")
    setting = Setting(scale="tiny", runs=root / "runs", out=root / "out", jobs=1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(PLANS, "tiny", Plan(steps=40, batch=32, lr=0.05, widths=(4, 8)))
        yield app_bias.run(setting), DigitRuns(setting)


def test_both_runs_start_from_the_same_weights_and_one_learns_biases(found):
    _, runs = found
    built = []
    for name in (app_bias.WITH, app_bias.WITHOUT):
        torch.manual_seed(0)
        built.append(runs._task(Run(name, 0)).build())
    assert torch.equal(built[0].net.fc1.weight, built[1].net.fc1.weight)
    assert torch.equal(built[0].loss.weight, built[1].loss.weight)
    (learned,), (absent,) = (runs.measured([Run(name, 0)]) for name in (app_bias.WITH, app_bias.WITHOUT))
    assert np.abs(learned["biases"]).min() > 0
    assert absent["biases"] == [0.0] * 10


def test_the_findings_have_the_numbers_of_the_runs(found):
    result, runs = found
    (learned,), (absent,) = (runs.measured([Run(name, 0)]) for name in (app_bias.WITH, app_bias.WITHOUT))
    arcs, fisher, biases = result.findings
    assert f"{learned['test']['arc']:.0f} degrees with biases" in arcs
    assert f"{absent['test']['arc']:.0f} degrees without" in arcs
    assert f"{absent['test']['fisher'] - learned['test']['fisher']:+.4f}" in fisher
    assert f"The largest bias is {max(map(abs, learned['biases'])):.2f}" in biases


def test_the_table_has_a_row_for_each_loss_and_part(found):
    table = found[0].tables[0]
    assert [row.cells[:2] for row in table.rows] == [
        ["with biases", "training images"], ["with biases", "test images"],
        ["without biases", "training images"], ["without biases", "test images"],
    ]  # fmt: skip
    (absent,) = found[1].measured([Run("softmax_no_bias", 0)])
    assert table.rows[3].cells[4] == f"{absent['test']['fisher']:.4f}"


def test_the_figure_has_both_runs_and_a_form_for_print(found):
    picture = found[0].figures[0].picture
    assert "with biases, without biases" in picture.says
    assert picture.pdf[:4] == b"%PDF"
