import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sphereface import geometry
from sphereface.geometry import psi

THETA = np.linspace(0, math.pi, 20_001)


def trigonometric_psi(theta: np.ndarray, m: int) -> np.ndarray:
    k = np.minimum(np.floor(m * theta / math.pi), m - 1)
    return (-1.0) ** k * np.cos(m * theta) - 2 * k


@pytest.mark.parametrize("m", range(1, 9))
def test_psi_agrees_with_its_trigonometric_definition(m):
    np.testing.assert_allclose(psi(np.cos(THETA), m), trigonometric_psi(THETA, m), atol=1e-10 * m**2)


@pytest.mark.parametrize("m", range(1, 9))
def test_psi_falls_strictly_and_without_a_jump_from_one_to_one_minus_two_m(m):
    values = psi(np.cos(THETA), m)
    assert values[0] == 1
    assert values[-1] == pytest.approx(1 - 2 * m)
    assert (np.diff(values[::20]) < 0).all()
    assert np.abs(np.diff(values)).max() < 1.1 * m * math.pi / 20_000


def test_psi_of_four_is_the_printed_polynomial():
    cos = np.linspace(-0.99, 0.99, 199)
    k = np.floor(4 * np.arccos(cos) / math.pi)
    np.testing.assert_allclose(psi(cos, 4), (-1.0) ** k * (8 * cos**4 - 8 * cos**2 + 1) - 2 * k, atol=1e-12)


def test_psi_of_one_is_the_cosine_itself():
    cos = torch.linspace(-1, 1, 101)
    assert torch.equal(psi(cos, 1), cos)


@given(st.floats(-1, 1), st.integers(1, 12))
def test_floats_arrays_and_tensors_get_the_same_answer_in_their_own_type(cos, m):
    from_float = psi(cos, m)
    from_array = psi(np.array([cos], dtype=np.float32), m)
    from_tensor = psi(torch.tensor([cos], dtype=torch.float64), m)
    assert from_array.dtype == np.float32
    assert from_tensor.dtype == torch.float64
    assert from_tensor.item() == from_float


@pytest.mark.parametrize("m", [0, -1, 1.5, True, "4"])
def test_only_whole_numbers_from_one_up_make_a_multiple_angle(m):
    with pytest.raises((ValueError, TypeError)):
        psi(0.5, m)


@pytest.mark.parametrize("m", range(1, 7))
def test_psi_equals_equation_6_up_to_pi_over_m_and_never_exceeds_the_cosine(m):
    cos = np.cos(THETA)
    first = math.pi / m >= THETA
    np.testing.assert_allclose(psi(cos, m)[first], geometry.chebyshev(cos, m)[first], atol=1e-9)
    assert (psi(cos, m) <= cos + 1e-12).all()


@pytest.mark.parametrize("m", range(1, 7))
def test_equation_6_rises_exactly_on_the_stated_arcs(m):
    values = np.cos(m * THETA)
    rising = np.diff(values) > 1e-12
    middle = (THETA[1:] + THETA[:-1]) / 2
    stated = np.zeros_like(rising)
    for arc in geometry.rising_arcs(m):
        stated |= (middle > arc.start + 1e-3) & (middle < arc.stop - 1e-3)
    near_an_end = np.abs((m * middle / math.pi + 0.5) % 1 - 0.5) < 2e-3 * m
    assert (rising == stated)[~near_an_end].all()


@pytest.mark.parametrize("m", range(2, 7))
def test_equation_6_pays_a_bonus_beyond_its_reward_angle(m):
    angle = geometry.reward_angle(m)
    assert math.cos(m * angle) == pytest.approx(math.cos(angle))
    assert math.cos(m * (angle + 1e-3)) > math.cos(angle + 1e-3)
    before = THETA[(THETA > 1e-3) & (angle - 1e-3 > THETA)]
    assert (np.cos(m * before) < np.cos(before)).all()


@pytest.mark.parametrize("m", [2, 3, 4, 7])
@pytest.mark.parametrize("theta12", [0.2, 1.0, 2.0])
def test_table_1_leaves_the_stated_angular_margin_between_two_classes(m, theta12):
    turn = np.linspace(0, theta12, 100_001)  # from w1 to w2
    x = 3.0 * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    w1, w2 = np.array([1.0, 0.0]), np.array([math.cos(theta12), math.sin(theta12)])
    accepted = geometry.decision_boundary("a_softmax", x, w1, w2, m=m)
    free = (accepted.first <= 0) & (accepted.second <= 0)
    assert turn[free].max() - turn[free].min() == pytest.approx(geometry.angular_margin(theta12, m), abs=1e-4)
    assert turn[accepted.first > 0].max() == pytest.approx(theta12 / (m + 1), abs=1e-4)


def test_table_1_modified_softmax_divides_at_the_bisector_and_softmax_does_not():
    w1, w2 = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    bisector = np.array([2.0, 2.0])
    assert geometry.decision_boundary("modified_softmax", bisector, w1, 5 * w2).first == pytest.approx(0)
    assert geometry.decision_boundary("softmax", bisector, w1, 5 * w2).first == pytest.approx(2 - 10)
    assert geometry.decision_boundary("softmax", bisector, w1, w2, b1=0.5).first == pytest.approx(0.5)
    with pytest.raises(ValueError, match="modified_softmax"):
        geometry.decision_boundary("triplet", bisector, w1, w2)


def test_a_softmax_with_m_1_has_the_boundary_of_modified_softmax():
    x, w1, w2 = np.random.default_rng(0).normal(size=(3, 50, 4))
    a = geometry.decision_boundary("a_softmax", x, w1, w2, m=1)
    b = geometry.decision_boundary("modified_softmax", x, w1, w2)
    np.testing.assert_array_equal(a.first, b.first)
    np.testing.assert_array_equal(a.second, -a.first)


def test_the_smallest_m_for_two_classes_is_two_plus_root_three():
    assert geometry.minimal_m_binary() == pytest.approx(2 + math.sqrt(3), abs=1e-6)


@pytest.mark.parametrize("k", [2, 3, 5, 10, 37])
def test_the_smallest_m_for_evenly_spaced_classes_is_three(k):
    assert geometry.minimal_m_uniform(k) == pytest.approx(3, abs=1e-6)


def test_the_criterion_fails_just_below_and_holds_just_above_the_bound_by_brute_force():
    directions = np.linspace(-math.pi, math.pi, 2_000, endpoint=False)

    def criterion(m: float, theta12: float) -> bool:
        def apart(a, b):
            turn = np.abs(a - b) % (2 * math.pi)
            return np.minimum(turn, 2 * math.pi - turn)

        one, two = apart(directions, 0), apart(directions, theta12)
        first, second = directions[m * one < two], directions[m * two < one]
        return apart(first[:, None], first).max() <= apart(first[:, None], second).min()

    assert all(criterion(2 + math.sqrt(3) + 0.05, theta12) for theta12 in (1.0, 2.0, 3.0))
    assert not all(criterion(2 + math.sqrt(3) - 0.05, theta12) for theta12 in (1.0, 2.0, 3.0))


def test_one_class_has_no_margin():
    with pytest.raises(ValueError, match="at least 2"):
        geometry.minimal_m_uniform(1)


def test_lambda_5_makes_m_4_act_like_an_m_between_1_3_and_1_9():
    acts_like = [geometry.effective_m(theta12, 4, 5.0) for theta12 in np.linspace(1e-3, math.pi, 50)]
    assert acts_like[0] == pytest.approx(
        math.sqrt((5 + 4**2) / (5 + 1)), abs=1e-4
    )  # cos(t) = 1 - t^2 / 2 on both sides
    assert max(acts_like) == acts_like[0]
    assert min(acts_like) == pytest.approx(1.34, abs=0.005)


@pytest.mark.parametrize("m", [1, 2, 4])
def test_without_lambda_the_effective_m_is_m(m):
    assert geometry.effective_m(1.0, m, 0.0) == pytest.approx(m, abs=1e-9)
