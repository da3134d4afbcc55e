import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphereface.evaluation import verify_folds


def transcription(left, right, same, fold):
    """The authors' script, step by step."""
    accuracies, thresholds = [], []
    for number in sorted(set(fold.tolist())):
        train, test = fold != number, fold == number
        mean = np.concatenate([left[train], right[train]]).mean(0)
        a, b = left - mean, right - mean
        a = a / np.sqrt((a**2).sum(1))[:, None]
        b = b / np.sqrt((b**2).sum(1))[:, None]
        scores = (a * b).sum(1)
        grid = np.arange(-10_000, 10_001) / 10_000
        right_answers = [((scores[train & same] > t).sum() + (scores[train & ~same] < t).sum()) for t in grid]
        best = np.mean(grid[np.array(right_answers) == max(right_answers)])
        correct = (scores[test & same] > best).sum() + (scores[test & ~same] < best).sum()
        accuracies.append(correct / test.sum())
        thresholds.append(best)
    return np.array(accuracies), np.array(thresholds)


@given(st.integers(0, 99))
def test_the_authors_rule_equals_its_transcription(seed):
    rng = np.random.default_rng(seed)
    left = rng.normal(size=(40, 5)) + 2
    same, fold = rng.random(40) < 0.5, np.repeat([3, 7, 9, 20], 10)
    right = np.where(same[:, None], left + 0.5 * rng.normal(size=(40, 5)), rng.normal(size=(40, 5)) + 2)
    found = verify_folds(left, right, same, fold)
    accuracies, thresholds = transcription(left, right, same, fold)
    np.testing.assert_allclose(found.thresholds, thresholds, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.accuracies, accuracies, rtol=0, atol=1e-12)
    assert found.accuracy == pytest.approx(accuracies.mean(), abs=1e-12)
    assert found.correct.mean() == pytest.approx(found.accuracy, abs=1e-12)  # folds are of one size here


def test_the_held_out_fold_has_no_say_in_its_own_threshold():
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(2, 30, 4))
    same, fold = rng.random(30) < 0.5, np.repeat([0, 1, 2], 10)
    before = verify_folds(left, right, same, fold).thresholds
    left[fold == 0] *= -3
    after = verify_folds(left, right, same, fold).thresholds
    assert after[0] == before[0]
    assert (after[1:] != before[1:]).any()


def test_a_tie_with_the_threshold_is_wrong_either_way():
    """All scores are 0, every threshold but 0 is as good as any other, so their mean, 0, meets every score."""
    ones = np.ones((20, 3))
    found = verify_folds(ones, ones, np.arange(20) % 2 == 0, np.repeat([0, 1], 10))
    assert found.accuracy == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rule": "openface"}, "choose one of authors"),
        ({"fold": np.zeros(20)}, "at least 2"),
        ({"same": np.zeros(19, dtype=bool)}, "shapes"),
    ],
)
def test_bad_input_is_named(change, message):
    rng = np.random.default_rng(0)
    good = {"left": rng.normal(size=(20, 3)), "right": rng.normal(size=(20, 3)), "same": np.arange(20) % 2 == 0,
            "fold": np.repeat([0, 1], 10)}  # fmt: skip
    with pytest.raises(ValueError, match=message):
        verify_folds(**{**good, **change})
