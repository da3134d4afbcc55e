"""Section 3.4: extents, margins, shares and smallest m, each by a second way."""

import math

import numpy as np
import pytest

from sphereface.experiments.paper import properties
from sphereface.experiments.paper.properties import (
    ALONG,
    angles_between,
    edge,
    in_space,
    log10_share,
    measured_sides,
    minimal_m,
    plane_weights,
    printed_minimal_m,
    printed_sides,
    reach,
    ring,
    sampled_shares,
    solids,
)
from sphereface.experiments.paper.setting import Setting

AROUND = np.linspace(0, 2 * math.pi, 40, endpoint=False)


@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.parametrize("degrees", [40, 130, 170])
def test_both_branches_of_the_printed_inequality_agree_with_the_loss_and_with_brute_force(m, degrees):
    theta12 = math.radians(degrees)
    turns = np.radians(np.arange(-180, 180, 0.2))
    circle = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    one, two = (np.arccos(np.clip(circle @ weight, -1, 1)) for weight in plane_weights(theta12))
    first, second = circle[m * one < two], circle[m * two < one]
    brute = angles_between(first, first).max(), angles_between(first, second).min()
    measured = measured_sides(theta12, m)
    np.testing.assert_allclose(measured, printed_sides(theta12, m), atol=1e-7)
    np.testing.assert_allclose(measured, brute, atol=math.radians(0.41))


def test_the_edge_of_a_region_is_where_m_times_the_own_angle_equals_the_nearest_other():
    weights = solids()["icosahedron, 12 classes"]
    angles = angles_between(edge(weights, 2.5, AROUND), weights)
    np.testing.assert_allclose(2.5 * angles[:, 0], angles[:, 1:].min(axis=1), atol=1e-6)


@pytest.mark.parametrize("m", [2, 3, 5])
def test_the_reach_in_the_plane_is_theta_over_m_plus_and_minus_1(m):
    towards, away = reach(in_space(plane_weights(0.9)), m, ALONG)
    assert towards == pytest.approx(0.9 / (m + 1))
    assert away == pytest.approx(0.9 / (m - 1))


@pytest.mark.parametrize("degrees", [30, 120, 150, 180])
def test_two_classes_need_the_same_m_in_the_plane_and_on_the_sphere(degrees):
    theta12 = math.radians(degrees)
    wanted = max(2 + math.sqrt(3), 0) if theta12 < 2.3 else 1 + 2 * math.pi / theta12
    weights = in_space(plane_weights(theta12))
    assert printed_minimal_m(theta12) == pytest.approx(wanted, abs=1e-6)
    assert minimal_m(weights, ALONG) == pytest.approx(wanted, abs=1e-6)
    assert minimal_m(weights, AROUND) == pytest.approx(wanted, abs=1e-6)


def test_classes_on_a_circle_need_3_in_its_plane_and_more_around_it():
    for k in (3, 5):
        assert minimal_m(ring(k), ALONG) == pytest.approx(3, abs=1e-6)
        assert 3.4 < minimal_m(ring(k), AROUND) < 2 + math.sqrt(3)


def test_many_classes_on_a_circle_approach_the_m_of_a_flat_line_of_classes():
    # In the flat limit a region is the lens of two Apollonius circles, 2 d / sqrt(m^2 - 1) high: (m - 1)^3 = 4 (m + 1).
    flat = max(np.roots([1, -3, -1, -5]).real)
    assert minimal_m(ring(30), np.arange(4) * math.pi / 2) == pytest.approx(flat, abs=2e-3)


def test_the_corners_of_a_solid_are_alike():
    for weights in solids().values():
        np.testing.assert_allclose(np.linalg.norm(weights, axis=1), 1)
        nearest = np.sort(angles_between(weights, weights), axis=1)[:, 1]
        np.testing.assert_allclose(nearest, nearest[0], atol=1e-9)
        assert len(np.unique(weights.round(6), axis=0)) == len(weights)


@pytest.mark.parametrize("dimension", [2, 3, 8])
def test_integrated_shares_agree_with_random_directions(dimension):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200_000, dimension))
    one, two = (np.arccos(np.clip(x[:, axis] / np.linalg.norm(x, axis=1), -1, 1)) for axis in (0, 1))
    for m in (1, 2, 3):
        share = (m * one < two).mean()
        error = math.sqrt(share * (1 - share) / len(x))
        assert 10 ** log10_share(math.pi / 2, m, dimension) == pytest.approx(share, abs=4 * error)


def test_sampling_three_numbers_of_a_direction_gives_the_shares_of_whole_directions():
    shares = sampled_shares(math.pi / 2, (1, 2), 8, 200_000)
    for share, m in zip(shares, (1, 2), strict=True):
        wanted = 10 ** log10_share(math.pi / 2, m, 8)
        assert share == pytest.approx(wanted, abs=4 * math.sqrt(wanted / 200_000))
    assert (shares == sampled_shares(math.pi / 2, (1, 2), 8, 200_000)).all()


def test_the_share_in_3_d_of_opposite_weights_is_that_of_a_cap():
    cap = (1 - math.cos(math.pi / 5)) / 2  # m = 4: theta_1 < (pi - theta_1) / 4
    assert 10 ** log10_share(math.pi, 4, 3) == pytest.approx(cap, rel=1e-4)


def test_the_result_holds_the_paper_to_its_bounds(monkeypatch):
    for name, value in {"MARGINS": (2, 4), "SHARE_MARGINS": (1, 2, 4), "RINGS": (3,), "SHOWN": (60, 150)}.items():
        monkeypatch.setattr(properties, name, value)
    monkeypatch.setitem(properties.STEP, "tiny", 30)
    monkeypatch.setitem(properties.AZIMUTHS, "tiny", 24)
    monkeypatch.setitem(properties.DRAWN, "tiny", 10_000)
    monkeypatch.setattr(properties, "solids", lambda: {"tetrahedron": solids()["tetrahedron, 4 classes"]})
    result = properties.run(Setting())
    assert result.numbers["minimal_m_binary"] == pytest.approx(2 + math.sqrt(3), abs=1e-6)
    assert max(result.numbers["minimal_m_uniform"]) == pytest.approx(3, abs=1e-6)
    assert result.numbers["sides_difference_degrees"] < 1e-5
    for shares in result.numbers["log10_shares"].values():
        assert shares == sorted(shares, reverse=True)
    stamps = {row.cells[1]: row.stamp for row in result.tables[0].rows}
    assert stamps == {"integral": "derived", "10,000 random directions": "tiny"}
