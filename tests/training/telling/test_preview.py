"""What a schedule will do, before any training."""

import math
import re

import numpy as np
import pytest
import torch

from sphereface.losses import Annealing
from sphereface.training.telling.preview import plan, preview
from tests.reports.browser import complaints, needs_chromium
from tests.reports.pages import cells


def boundary_by_brute_force(theta12, m, lambda_):
    """Turn a feature from w1 towards w2, in the plane, until the other class's logit is the larger one."""
    turn = np.linspace(0, theta12, 400_001)[1:]
    k = np.minimum(np.floor(m * turn / math.pi), m - 1)
    target = (lambda_ * np.cos(turn) + (-1.0) ** k * np.cos(m * turn) - 2 * k) / (1 + lambda_)
    return turn[np.argmax(target < np.cos(theta12 - turn))]


@pytest.mark.parametrize("m", [2, 3, 4])
@pytest.mark.parametrize("lambda_", [0.0, 5.0, 892.857])
def test_the_effective_margin_is_where_a_feature_changes_sides(m, lambda_):
    (row,) = plan([0.1], [lambda_], m, [0])
    assert row.near == pytest.approx(math.sqrt((lambda_ + m**2) / (lambda_ + 1)), rel=1e-3)
    for found, theta12 in ((row.right_angle, math.pi / 2), (row.opposite, math.pi)):
        boundary = boundary_by_brute_force(theta12, m, lambda_)
        assert found == pytest.approx(theta12 / boundary - 1, abs=1e-3)
    # What stays free: the way from one class's boundary to the other's.
    boundary = boundary_by_brute_force(math.pi / 2, m, lambda_)
    assert row.margin == pytest.approx(math.degrees(math.pi / 2 - 2 * boundary), abs=2e-3)
    assert 1 < row.opposite < row.right_angle + 1e-9 < row.near + 1e-8 < m + 1e-7


@pytest.fixture(scope="module")
def papers_preview():
    rates = [0.1 * 0.1 ** ((step >= 16_000) + (step >= 24_000)) for step in range(28_000)]
    lambdas = Annealing()(torch.arange(1, 28_001)).tolist()
    return preview(rates, lambdas, 4)


def test_a_preview_draws_the_schedule_of_a_whole_run_and_lists_its_turns(papers_preview):
    html = papers_preview.html()
    by_step = {row[0]: row[1:] for row in cells(html) if row}
    assert by_step["1"][:2] == ["0.1", "892.9"]
    assert by_step["16,001"][0] == "0.01"
    assert by_step["24,001"][0] == "0.001"
    assert by_step["1,659"][1] == "5"  # where the released layer's lambda ends
    assert by_step["28,000"][2] == f"{math.sqrt(21 / 6):.4g}"
    assert len(re.findall("<img", html)) == 1


@needs_chromium
def test_chromium_opens_a_preview_without_an_error(papers_preview, tmp_path):
    papers_preview.write(tmp_path / "preview.html")
    assert complaints(tmp_path / "preview.html", scheme="dark", width=390) == []


def test_a_preview_of_other_losses_shows_the_rate_alone():
    html = preview([0.1, 0.1, 0.01]).html()
    assert "lambda" not in html
    assert "acts like" not in html
    assert ["3", "0.01"] in cells(html)
    assert ["1", "0.1", "4", "4", "4", "54"] in cells(preview([0.1], None, 4).html())


def test_a_schedule_that_does_not_fit_is_an_error():
    with pytest.raises(ValueError, match="at least 1"):
        preview([])
    with pytest.raises(ValueError, match="2 rates and 3 lambdas"):
        preview([0.1, 0.1], [5.0] * 3, 4)


@pytest.mark.usefixtures("without_matplotlib")
def test_without_matplotlib_a_preview_is_a_table_and_a_word_about_it():
    page = preview([0.1] * 10, [5.0] * 10, 4).html()
    assert "sphereface[plot]" in page
    assert "<table" in page
    assert "<img" not in page
