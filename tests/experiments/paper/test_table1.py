"""Table 1: boundaries from the losses, against a second derivation."""

import math

import numpy as np
import pytest
import torch

from sphereface import create_loss
from sphereface.experiments.paper import table1
from sphereface.experiments.paper.setting import Setting
from sphereface.experiments.paper.table1 import boundary, crossings, furthest, lead, loss_of, measure, plane_weights


@torch.no_grad()
def test_the_lead_is_what_the_loss_itself_is_made_of():
    rng = np.random.default_rng(0)
    weights, features = rng.normal(size=(2, 5)), rng.normal(size=(7, 5))
    loss = loss_of("a_softmax", weights, m=3)
    for label in (0, 1):
        each = [float(loss(torch.from_numpy(row[None]), torch.tensor([label]))) for row in features]
        np.testing.assert_allclose(each, np.log1p(np.exp(-lead(loss, features, label))), rtol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_at_the_boundary_the_loss_is_log_2_and_m_times_one_angle_is_the_other(m):
    theta12 = math.radians(70)
    loss = loss_of("a_softmax", plane_weights(theta12), m=m)
    for turn in boundary(loss, 0, theta12):
        x = torch.tensor([[3 * math.cos(turn), 3 * math.sin(turn)]], dtype=torch.float64)
        assert float(loss(x, torch.tensor([0]))) == pytest.approx(math.log(2), abs=1e-9)
        theta1, theta2 = abs(turn), math.acos(math.cos(turn - theta12))
        assert m * theta1 == pytest.approx(theta2, abs=1e-9)


def test_the_boundary_of_softmax_moves_with_the_length_of_a_feature_and_satisfies_the_printed_formula():
    weights, (b1, b2) = plane_weights(1.0, (1.0, 2.0)), (0.3, -0.1)
    loss = loss_of("softmax", weights, biases=(b1, b2))
    for length in (0.5, 4.0):
        for turn in boundary(loss, 0, 1.0, length):
            x = length * np.array([math.cos(turn), math.sin(turn)])
            assert (weights[0] - weights[1]) @ x + b1 - b2 == pytest.approx(0, abs=1e-9)
    assert furthest(boundary(loss, 0, 1.0, 0.5), boundary(loss, 0, 1.0, 4.0)) > 0.1


def test_a_softmax_of_one_region_has_no_boundary():
    loss = loss_of("softmax", plane_weights(1.0), biases=(9.0, 0.0))
    assert len(boundary(loss, 0, 1.0)) == 0
    assert len(table1.softmax_closed_form(table1.Case("", biases=(9.0, 0.0)), 1.0, 1.0)) == 0


@pytest.mark.parametrize(("m", "degrees"), [(2, 40), (3, 100), (4, 160)])
def test_boundaries_agree_with_a_search_by_brute_force(m, degrees):
    turns = np.radians(np.arange(-180, 180, 0.01))
    angle1, angle2 = np.abs(turns), np.arccos(np.cos(turns - math.radians(degrees)))
    first, second = turns[m * angle1 < angle2], turns[m * angle2 < angle1]
    found = measure("a_softmax", m, degrees)
    assert found.first == pytest.approx(math.degrees(first.max()), abs=0.011)
    assert found.outer == pytest.approx(math.degrees(first.min()), abs=0.011)
    assert found.second == pytest.approx(math.degrees(second[second > 0].min()), abs=0.011)
    assert found.margin == pytest.approx((m - 1) / (m + 1) * degrees, abs=1e-9)


def test_the_printed_formula_has_zeros_that_the_loss_does_not_have():
    assert measure("a_softmax", 4, 60).printed_zeros == 8
    assert measure("modified_softmax", 1, 60).printed_zeros == 2


def test_crossings_are_found_wherever_a_sign_changes():
    np.testing.assert_allclose(crossings(np.cos, 0.0, 7.0), [math.pi / 2, 3 * math.pi / 2], atol=1e-12)


def test_a_boundary_that_is_off_is_reported_by_its_angle_and_a_missing_one_is_an_error():
    assert furthest(np.array([0.1, 3.0]), np.array([0.1, 3.0 - 2 * math.pi])) == pytest.approx(0, abs=1e-12)
    assert furthest(np.array([0.1, 3.0]), np.array([0.1, 2.5])) == pytest.approx(0.5)
    with pytest.raises(AssertionError, match="wanted"):
        furthest(np.array([0.1]), np.array([0.1, 2.5]))


@torch.no_grad()
def test_the_losses_are_those_that_training_uses():
    trained = create_loss("a_softmax", 2, 2, m=3, annealing=None).double().eval()
    trained.weight.copy_(torch.from_numpy(plane_weights(1.0)))
    x, labels = torch.randn(5, 2).double(), torch.tensor([0, 1, 0, 1, 1])
    assert float(trained(x, labels)) == float(loss_of("a_softmax", plane_weights(1.0), m=3)(x, labels))


def test_the_result_has_the_printed_table_and_agrees_with_it(monkeypatch):
    monkeypatch.setattr(table1, "DEGREES", (90, 150))
    monkeypatch.setitem(table1.FEATURES, "tiny", 500)
    result = table1.run(Setting())
    assert [row.cells[0] for row in result.tables[0].rows] == ["softmax", "modified softmax", "a softmax"]
    assert {row.stamp for table in result.tables for row in table.rows} == {"derived"}
    assert max(result.numbers["largest_difference_degrees"].values()) < 1e-5
    assert max(result.numbers["logit_difference"].values()) < 1e-10
    assert all(figure.picture.pdf.startswith(b"%PDF") for figure in result.figures)
