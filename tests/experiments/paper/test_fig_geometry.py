"""Figure 3: the drawn regions follow from their inequalities."""

import math

import numpy as np
import pytest

from sphereface.experiments.paper import fig_geometry
from sphereface.experiments.paper.fig_geometry import CENTERS, EUCLIDEAN_MARGIN, WEIGHTS, region, spread_points, surface
from sphereface.experiments.paper.properties import in_space
from sphereface.experiments.paper.setting import Setting

RNG = np.random.default_rng(0)


def angles(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return np.arccos(np.clip(x @ weight / np.linalg.norm(x, axis=1), -1, 1))


@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize(("constraint", "m"), [(fig_geometry.modified_softmax, 1), (fig_geometry.a_softmax, 4)])
def test_angular_regions_are_those_where_m_times_the_own_angle_is_below_the_other(constraint, m, dimension):
    x = RNG.normal(size=(5_000, dimension))
    weights = WEIGHTS if dimension == 2 else in_space(WEIGHTS)
    one, two = (angles(x, weight) for weight in weights)
    accepted = constraint(x, weights)
    np.testing.assert_array_equal(accepted.first > 0, m * one < two)
    np.testing.assert_array_equal(accepted.second > 0, m * two < one)


def test_euclidean_balls_leave_exactly_the_margin_between_two_classes():
    x = RNG.uniform(-1.5, 1.5, (4_000, 3))
    accepted = fig_geometry.euclidean(x, in_space(CENTERS))
    first, second = x[accepted.first > 0], x[accepted.second > 0]
    gaps = np.linalg.norm(first[:, None] - second, axis=-1)
    assert gaps.min() >= EUCLIDEAN_MARGIN
    ends = np.array([[-EUCLIDEAN_MARGIN / 2, 0.0], [EUCLIDEAN_MARGIN / 2, 0.0]])
    on_rim = fig_geometry.euclidean(ends, CENTERS)
    assert on_rim.first[0] == pytest.approx(0, abs=1e-12)
    assert on_rim.second[1] == pytest.approx(0, abs=1e-12)


def test_the_page_shows_w1_left_of_w2_with_the_stated_angle():
    assert WEIGHTS[0, 0] < 0 < WEIGHTS[1, 0]
    assert math.degrees(math.acos(WEIGHTS[0] @ WEIGHTS[1])) == pytest.approx(80)


def test_the_viewer_sees_the_near_side_of_a_ball_and_nothing_beside_it():
    center, radius = np.array([0.3, -0.2, 0.1]), 0.5
    side = np.linspace(-1, 1, 41)
    seen = surface(center, radius, np.stack(np.meshgrid(side, side), axis=-1))
    there = np.isfinite(seen[..., 0])
    assert 0 < there.mean() < math.pi * radius**2 / 4 * 1.1
    np.testing.assert_allclose(np.linalg.norm(seen[there] - center, axis=1), radius, atol=1e-12)
    assert ((seen[there] - center) @ fig_geometry.TOWARDS >= 0).all()
    row, column = np.argwhere(there)[0]
    np.testing.assert_allclose(fig_geometry.SCREEN @ seen[row, column], [side[column], side[row]], atol=1e-12)


@pytest.mark.parametrize("m", [1, 2, 4])
def test_the_share_of_points_in_a_region_agrees_with_its_area(m):
    found = region(m, spread_points(50_000))
    assert found.counted == pytest.approx(found.integrated, abs=2e-4)
    assert found.radii[0] <= found.radii[1]
    if m > 1:
        assert math.degrees(found.towards) == pytest.approx(80 / (m + 1))
        assert math.degrees(found.away) == pytest.approx(80 / (m - 1))


def test_points_are_spread_evenly():
    points = spread_points(10_000)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1)
    for axis in np.eye(3):
        assert (points @ axis > math.cos(math.radians(30))).mean() == pytest.approx(
            (1 - math.cos(math.radians(30))) / 2, abs=1e-3
        )


def test_the_figure_has_both_themes_and_pdf_and_the_regions_shrink(monkeypatch):
    monkeypatch.setattr(fig_geometry, "PIXELS", 60)
    monkeypatch.setitem(fig_geometry.POINTS, "tiny", 2_000)
    result = fig_geometry.run(Setting())
    picture = result.figures[0].picture
    assert picture.light != picture.dark
    assert picture.pdf.startswith(b"%PDF")
    shares = [each["integrated"] for each in result.numbers["regions"].values()]
    assert shares == sorted(shares, reverse=True)
