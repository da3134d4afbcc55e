"""Unit rows: length one, one policy for zeros, and errors that name the row."""

import numpy as np
import pytest

from sphereface.arrays import require_directions, unit_rows
from sphereface.errors import BadFeature


def test_rows_have_length_one_and_their_direction():
    rows = np.random.default_rng(0).normal(size=(7, 5)) * 10.0 ** np.arange(-3, 4)[:, None]
    unit = unit_rows(rows)
    assert np.linalg.norm(unit, axis=1) == pytest.approx(np.ones(7))
    assert np.einsum("ij,ij->i", unit, rows) == pytest.approx(np.linalg.norm(rows, axis=1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_does_not_depend_on_its_neighbours(dtype):
    rows = np.random.default_rng(1).normal(size=(9, 33))
    whole = unit_rows(rows, dtype=dtype)
    assert whole.dtype == dtype
    for place in range(9):
        assert np.array_equal(unit_rows(rows[place : place + 1], dtype=dtype)[0], whole[place])


def test_a_row_of_zeros_stays_zero_and_scores_0_with_everything():
    unit = unit_rows([[0.0, 0.0], [3.0, 4.0]])
    assert unit.tolist() == [[0, 0], [0.6, 0.8]]
    assert (unit @ unit.T)[0].tolist() == [0, 0]


def test_where_a_row_must_have_a_direction_zeros_are_refused_by_name():
    unit = unit_rows([[0.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
    with pytest.raises(BadFeature, match="the feature of probe 17 has length zero"):
        require_directions(unit, what="probe", places=[16, 17, 18])
    require_directions(unit[[0, 2]])


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e200])
def test_a_number_that_is_not_finite_or_too_large_is_refused_by_name(wrong):
    with pytest.raises(BadFeature, match="the feature of photo 1 has a number that is not finite"):
        unit_rows([[1.0, 2.0], [wrong, 1.0]], what="photo")


def test_features_that_are_no_matrix_are_refused():
    with pytest.raises(ValueError, match=r"features \(3,\); wanted \(N, D\)"):
        unit_rows([1.0, 2.0, 3.0])
