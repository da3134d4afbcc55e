"""Curves against counting by hand, and what is really drawn of them."""

import numpy as np
import pytest

from sphereface.metrics.upper_tail import UpperTail
from sphereface.reports import figures
from sphereface.reports.curves import Curve, accepted, draw_cmc, draw_det, draw_growth, draw_roc, over_ranks


@pytest.fixture
def drawn(monkeypatch):
    """Figures as they are drawn, instead of pictures of them, each with the words that go with it."""
    keep = lambda draw, says, **_: (draw("light"), says)  # noqa: E731
    monkeypatch.setattr(figures, "picture", keep)


def scores(seed=0, *, ties=True):
    rng = np.random.default_rng(seed)
    same, different = rng.normal(0.4, 0.2, 60), rng.normal(0.0, 0.2, 300)
    if ties:
        same, different = np.round(same, 1), np.round(different, 1)
    return -np.sort(-same), -np.sort(-different)


def tar_by_counting(same, different, far):
    """The best share of same pairs over all thresholds at which no more than `far` of the different ones pass."""
    cuts = [*same, *different, np.inf]
    return max((same >= cut).mean() for cut in cuts if (different >= cut).mean() <= far)


@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize("kept", [300, 31, 8])
def test_every_point_is_what_counting_at_all_thresholds_gives(ties, kept):
    same, different = scores(ties=ties)
    curve = accepted(UpperTail(same, different[:kept], 300))
    for far, tar in zip(curve.x, curve.y, strict=True):
        assert tar == tar_by_counting(same, different, far)
    assert curve.x[0] == 1 / 300
    assert curve.x[-1] == (1.0 if kept == 300 else (kept - 1) / 300)  # the last rate that the kept ones decide
    assert (np.diff(curve.x) > 0).all()


def test_between_two_points_nothing_changes():
    same, different = scores(ties=False)
    curve = accepted(UpperTail(same, different, 300))
    for here, after, tar in zip(curve.x[:-1], curve.x[1:], curve.y[:-1], strict=True):
        assert tar_by_counting(same, different, here + 0.9 * (after - here)) == tar


def test_who_is_never_accepted_holds_the_curve_below_one():
    positives = np.array([0.9, 0.5, -np.inf, -np.inf])
    curve = accepted(UpperTail(positives, np.array([0.7, 0.6, 0.1]), 3))
    assert dict(zip(curve.x, curve.y, strict=True)) == {1 / 3: 0.25, 2 / 3: 0.5, 1.0: 0.5}


def test_where_no_rate_is_decided_there_is_no_curve():
    same, different = scores()
    curve = accepted(UpperTail(same, different[:1], 300))
    assert len(curve.x) == 0
    assert draw_roc({"one": curve}) is None
    assert draw_det({"one": curve}) is None


def test_a_long_curve_is_thinned_without_moving_its_ends_or_any_point():
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(1e-6, 1, 50_000))
    whole = Curve(x, np.sort(rng.uniform(0, 1, 50_000)))
    thin = whole.thinned(300)
    assert 200 < len(thin.x) <= 302  # fewer than asked for: the left end is sparse by itself
    assert (thin.x[0], thin.y[0], thin.x[-1], thin.y[-1]) == (x[0], whole.y[0], x[-1], whole.y[-1])
    known = dict(zip(whole.x.tolist(), whole.y.tolist(), strict=True))
    assert all(known[here] == y for here, y in zip(thin.x.tolist(), thin.y.tolist(), strict=True))
    gaps = np.diff(np.log(thin.x[thin.x > 1e-3]))
    assert gaps.max() < 3 * np.log(x[-1] / x[0]) / 300  # even on a logarithmic axis
    assert whole.thinned(50_000) is whole


def test_an_roc_is_drawn_as_stairs_over_a_logarithmic_axis(drawn):
    same, different = scores()
    curve = accepted(UpperTail(same, different, 300))
    figure, says = draw_roc({"ours": curve})
    axes = figure.axes[0]
    (line,) = axes.lines
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")
    assert line.get_drawstyle() == "steps-post"
    np.testing.assert_array_equal(line.get_xydata(), np.transpose(curve))
    assert f"ours from {curve.y[0]:.4g} at {1 / 300:.4g} to 1 at 1" in says


def test_a_det_shows_both_errors_until_nobody_is_refused(drawn):
    same, different = scores(ties=False)
    tail = UpperTail(same, different, 300)
    figure, _ = draw_det({"ours": accepted(tail)})
    axes = figure.axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    far, refused = axes.lines[0].get_xydata().T
    for x, y in zip(far[:-1], refused[:-1], strict=True):
        assert y == pytest.approx(1 - tar_by_counting(same, different, x))
        assert y > 0
    assert np.isnan(refused[-1])
    assert tar_by_counting(same, different, far[-1]) == 1


def test_without_any_error_there_is_no_det():
    tail = UpperTail(np.array([0.9, 0.8]), np.array([0.2, 0.1]), 2)
    assert draw_det({"perfect": accepted(tail)}) is None


def test_a_cmc_stands_over_ranks_from_one_on(drawn):
    figure, says = draw_cmc({"few": over_ranks(np.array([0.5, 0.75, 1])), "many": over_ranks(np.array([0.25, 0.5]))})
    axes = figure.axes[0]
    assert axes.get_xscale() == "log"
    assert [line.get_xydata().tolist() for line in axes.lines] == [
        [[1, 0.5], [2, 0.75], [3, 1]],
        [[1, 0.25], [2, 0.5]],
    ]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["few", "many"]
    assert "few from 0.5 at 1 to 1 at 3" in says


def test_growth_has_a_point_for_each_size(drawn):
    figure, says = draw_growth({"all": {10: 0.9, 1_000: 0.5}})
    assert figure.axes[0].lines[0].get_xydata().tolist() == [[10, 0.9], [1_000, 0.5]]
    assert figure.axes[0].get_xscale() == "log"
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["10", "1,000"]
    assert "90.00% of 10, 50.00% of 1,000" in says


@pytest.mark.parametrize("kept", [300, 60])
def test_angles_of_a_tail_are_shares_of_all_pairs_and_stop_where_knowledge_does(drawn, kept):
    same, different = (np.arccos(np.clip(some, -1, 1)) for some in scores(ties=False))
    cut = {"FAR 0.1": float(np.radians(75))}
    figure, _ = figures.tail_angles(same, different[:kept], total=300, thresholds=cut, says="angles")
    axes = figure.axes[0]
    of_same, of_different = (patch.get_data() for patch in axes.patches)
    degrees = np.degrees(different)
    end = 180 if kept == 300 else int(degrees[kept - 1])
    counts = [((degrees >= low) & (degrees < low + 1)).sum() for low in range(end)]
    np.testing.assert_allclose(of_different.values, np.array(counts) / 300)
    assert of_different.edges[-1] == end
    np.testing.assert_allclose(of_same.values.sum(), 1)
    assert axes.get_yscale() == "log"
    assert axes.lines[0].get_xdata()[0] == pytest.approx(75)


def test_a_tail_that_fills_no_degree_is_not_drawn():
    near = np.full(5, 0.01)  # radians: less than a degree
    assert figures.tail_angles(near, near, total=300, thresholds={}, says="angles") is None


def test_a_heat_map_has_every_number_in_its_cell(drawn):
    values = np.array([[0.001, 0.02], [0.02, np.nan]])
    figure, _ = figures.heat_map(values, ["a", "b"], says="rates")
    axes = figure.axes[0]
    shown = {text.get_position(): text.get_text() for text in axes.texts}
    assert shown == {(0, 0): "0.001", (1, 0): "0.02", (0, 1): "0.02", (1, 1): "-"}
    np.testing.assert_array_equal(axes.images[0].get_array().filled(np.nan), values)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
