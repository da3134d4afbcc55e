"""Figure 2: the decision lines of trained losses, what is measured of them, and findings that follow the numbers."""

import math

import numpy as np
import pytest

from sphereface.experiments.loop import Budget
from sphereface.experiments.paper import fig_toy2d, toy
from sphereface.experiments.paper.catalogue import CATALOGUE
from sphereface.experiments.paper.fig_toy2d import NAMES, Compared, Measured, boundaries, measure
from sphereface.experiments.paper.material import Drawn
from sphereface.experiments.paper.result import read_result
from sphereface.experiments.paper.toy import Plan, Trained
from sphereface.geometry import effective_m

NOTHING = np.zeros(0)


def polar(*angles: float, length: float = 1.0) -> np.ndarray:
    """Points of the plane at angles in degrees."""
    turns = np.radians(angles)
    return (length * np.stack([np.cos(turns), np.sin(turns)], axis=1)).astype(np.float32)


def trained(features, labels, weight, *, bias=(0, 0), lambda_: float = 0.0) -> Trained:
    return Trained(
        np.asarray(features, np.float32), np.asarray(labels), np.asarray(weight, np.float32),
        np.asarray(bias, np.float32), np.array(lambda_), NOTHING, NOTHING, NOTHING, NOTHING, NOTHING,
    )  # fmt: skip


@pytest.mark.parametrize("lambda_", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("apart", [30.0, 80.0, 140.0])
def test_the_lines_of_a_softmax_are_those_of_its_effective_m(lambda_, apart):
    run = trained([[0, 0]], [0], polar(0, apart), lambda_=lambda_)
    turn = apart / (1 + effective_m(math.radians(apart), 4, lambda_))
    first, second = boundaries("a_softmax", run, 7 * polar(turn, apart - turn).astype(np.float64))
    assert [first[0], second[1]] == pytest.approx([0, 0], abs=2e-5)
    inside, _ = boundaries("a_softmax", run, polar(turn - 1, turn + 1).astype(np.float64))
    assert inside[0] > 0 > inside[1]


def test_a_feature_between_the_two_lines_belongs_to_no_class():
    run = trained([[0, 0]], [0], polar(0, 90), lambda_=5.0)
    first, second = boundaries("a_softmax", run, polar(45).astype(np.float64))
    assert max(first[0], second[0]) < 0


@pytest.mark.parametrize("method", ["softmax", "modified_softmax"])
def test_the_line_of_the_other_losses_is_where_their_logits_are_equal(method):
    rng = np.random.default_rng(1)
    weight = np.array([[2.0, 1.0], [-0.5, 0.7]])
    bias = np.array([0.4, -0.3])
    if method == "modified_softmax":
        weight, bias = weight / np.linalg.norm(weight, axis=1, keepdims=True), np.zeros(2)
    run = trained([[0, 0]], [0], weight, bias=bias)
    x = rng.normal(size=(50, 2))
    logits = x @ run.weight.T.astype(np.float64) + run.bias
    found = boundaries(method, run, x)
    np.testing.assert_allclose(found.first, logits[:, 0] - logits[:, 1], atol=1e-6)
    np.testing.assert_allclose(found.second, -found.first)


def test_softmax_may_tell_by_length_what_angles_do_not_tell():
    features = np.concatenate([polar(10, 20, 30), polar(10, 20, 30, length=6)])
    run = trained(features, [0, 0, 0, 1, 1, 1], polar(-70, 20), bias=(3, 0))
    found = measure(run)
    assert found.classifier == 1
    assert found.weights == 0.5
    assert found.arc < 0.9
    assert found.own == pytest.approx(np.mean([80, 90, 100, 10, 0, 10]), abs=1e-3)
    assert found.apart == pytest.approx(90, abs=1e-3)


def test_angles_are_measured_between_the_first_two_people_and_accuracy_over_all():
    features = polar(0, 10, 90, 110, 200, 260)
    found = measure(trained(features, [0, 0, 1, 1, 2, 2], polar(5, 100, 20), bias=(0, 0, 0)))
    assert found.same == pytest.approx((10 + 20) / 2, abs=1e-3)
    assert found.different == pytest.approx((90 + 110 + 80 + 100) / 4, abs=1e-3)
    assert found.arc == 1
    assert found.own == pytest.approx((5 + 5 + 10 + 10) / 4, abs=1e-3)
    assert found.weights == pytest.approx(4 / 6)


def compared(**of_losses: tuple[float, float, float]) -> Compared:
    """Numbers of the three losses, one seed; those that are not given are 0.5."""
    plain = dict.fromkeys(Measured._fields, 0.5) | {"apart": 90.0}
    measured = [[Measured(**{**plain, **{name: of[place] for name, of in of_losses.items()}})] for place in range(3)]
    runs = [trained(polar(0, 90), [0, 1], polar(0, 90), lambda_=lambda_) for lambda_ in (0.0, 0.0, 5.0)]
    return Compared(2, runs, measured)


@pytest.mark.parametrize(
    ("arc", "said"),
    [((0.9, 1.0, 1.0), "As in the paper"), ((1.0, 1.0, 1.0), "they can here"), ((0.9, 0.9, 1.0), "Unlike")],
)
def test_the_finding_on_angles_follows_the_numbers(arc, said):
    found = fig_toy2d._by_angle(compared(arc=arc))
    assert said in found
    assert f"softmax {100 * arc[0]:.1f} %" in found
    assert sum(each in found for each in ("As in the paper", "they can here", "Unlike")) == 1


def test_the_finding_on_six_people_tells_how_much_accuracy_angles_lose():
    found = fig_toy2d._crowded(compared(classifier=(0.9, 0.8, 0.7), weights=(0.6, 0.8, 0.7)))
    assert "30.0 points less, as the paper says" in found
    assert "unlike in the paper" in fig_toy2d._crowded(compared(classifier=(0.9,) * 3, weights=(0.9,) * 3))


def test_the_finding_on_margins_counts_the_cases_in_which_a_softmax_has_the_larger_one():
    larger, smaller = compared(gap=(0, 10, 20)), compared(gap=(0, 20, 10))
    assert "2 of these 2" in fig_toy2d._margin(larger, larger)
    assert "1 of these 2" in fig_toy2d._margin(larger, smaller)
    assert "0 of these 2" in fig_toy2d._margin(smaller, smaller)


def test_the_finding_on_weights_names_the_effective_m():
    found = fig_toy2d._to_weights(compared(own=(80.0, 50.0, 20.0)))
    assert "A-Softmax has the smallest one" in found
    assert f"acts like m = {effective_m(math.pi / 2, 4, 5.0):.2f} for weights 90°" in found
    assert "does not have" in fig_toy2d._to_weights(compared(own=(20.0, 50.0, 80.0)))


def test_a_run_has_tables_figures_and_numbers_that_agree(setting, monkeypatch):
    plan = Plan(Budget(steps=3, batch=8, lr=0.01), width=0.0625, photos=6, shown=3, snapshots=3)
    monkeypatch.setitem(toy.PLANS, "tiny", plan)
    monkeypatch.setattr(toy, "SYNTHETIC", Drawn(6, 6, 0))
    result = fig_toy2d.run(setting)
    assert result.title in CATALOGUE[result.id].caption
    accuracy, angles = result.tables
    assert [row.cells[:2] for row in angles.rows] == [[people, name] for people in ("2", "6") for name in NAMES]
    assert {row.stamp for table in result.tables for row in table.rows} == {"tiny"}
    of_softmax = result.numbers["6"]["softmax"][0]
    assert accuracy.rows[3].cells[2] == f"{of_softmax['classifier']:.1%}".replace("%", " %")
    assert accuracy.rows[3].cells[2] in result.findings[1]
    back = read_result(result.write(setting.out))
    assert len(back.figures) == 2
    for figure in back.figures:
        assert figure.picture.pdf.startswith(b"%PDF")
        assert figure.picture.light != figure.picture.dark
    assert back.numbers == result.numbers


def test_several_seeds_are_shown_with_their_lowest_and_highest():
    one = compared()
    more = Compared(2, one.runs, [[found[0], found[0]._replace(gap=10.5)] for found in one.measured])
    assert more.mean("gap") == [5.5] * 3
    assert more.shown("gap", toy.degrees) == ["6° (0° to 10°)"] * 3
