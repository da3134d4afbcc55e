"""ROC, AUC, thresholds against scikit-learn and literal transcriptions, ties included."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from sphereface.metrics import AllPairs, auc, best_threshold, roc, tar_at_far, threshold_at_far


@st.composite
def problems(draw):
    """Random pairs; few distinct scores, so that ties abound."""
    size = draw(st.integers(2, 80))
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    same = rng.random(size) < 0.5
    same[:2] = [True, False]
    scores = rng.normal(size=size).clip(-3, 3) / 3 if draw(st.booleans()) else rng.integers(-4, 5, size) / 4
    return same, scores


@given(problems())
def test_roc_and_auc_equal_scikit_learns(problem):
    same, scores = problem
    far, tar, thresholds = roc_curve(same, scores, drop_intermediate=False)
    ours = roc(same, scores)
    np.testing.assert_allclose(ours.far, far, rtol=0, atol=1e-12)
    np.testing.assert_allclose(ours.tar, tar, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(ours.thresholds, thresholds)
    assert auc(same, scores) == pytest.approx(roc_auc_score(same, scores), abs=1e-12)


@given(problems(), st.integers(0, 99))
def test_weights_count_a_pair_as_often_as_they_say(problem, seed):
    same, scores = problem
    weights = np.random.default_rng(seed).integers(0, 4, len(same))
    weights[:2] = 1
    repeated = np.repeat(np.arange(len(same)), weights)
    assert auc(same, scores, weights=weights) == pytest.approx(auc(same[repeated], scores[repeated]), abs=1e-12)
    for far in (0.0, 0.1, 0.5, 1.0):
        expected = tar_at_far(same[repeated], scores[repeated], far=far)
        assert tar_at_far(same, scores, far=far, weights=weights) == pytest.approx(expected, abs=1e-12)


@given(problems(), st.sampled_from([0.0, 0.01, 0.1, 0.25, 0.3, 1 / 3, 0.5, 1.0]))
def test_tar_at_far_equals_trying_every_threshold(problem, far):
    same, scores = problem
    best, lowest = 0.0, np.inf
    for threshold in np.append(scores, np.inf):
        accepted = scores >= threshold
        if accepted[~same].mean() <= far + 1e-12:
            best, lowest = max(best, accepted[same].mean()), min(lowest, threshold)
    assert tar_at_far(same, scores, far=far) == pytest.approx(best, abs=1e-12)
    assert threshold_at_far(same, scores, far=far) == lowest


@given(problems())
def test_the_best_threshold_equals_the_authors_loop(problem):
    same, scores = problem
    thresholds = np.array([step / 10_000 for step in range(-10_000, 10_001)])
    accuracies = np.array([((scores[same] > t).sum() + (scores[~same] < t).sum()) / len(same) for t in thresholds])
    expected = thresholds[accuracies == accuracies.max()].mean()
    assert best_threshold(same, scores) == pytest.approx(expected, abs=1e-12)


@given(st.integers(0, 999), st.sampled_from([0.0, 0.02, 0.1, 0.5, 1.0]))
def test_all_pairs_equal_the_plain_measure_also_when_people_are_drawn_more_than_once(seed, far):
    rng = np.random.default_rng(seed)
    people = np.repeat(np.arange(5), 3)
    features = rng.integers(-2, 3, (15, 2)) + 0.5  # few directions: ties
    drawn = rng.integers(0, 3, 5).astype(float)
    drawn[:2] = 1
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    row, column = np.triu_indices(15, 1)
    scores, same = (unit @ unit.T)[row, column], people[row] == people[column]
    weights = np.where(same, drawn[people[row]], drawn[people[row]] * drawn[people[column]])
    pairs = AllPairs(features, people)
    assert pairs.tar_at_far(far) == pytest.approx(tar_at_far(same, scores, far=far), abs=1e-12)
    expected = tar_at_far(same, scores, far=far, weights=weights)
    assert pairs.tar_at_far(far, drawn) == pytest.approx(expected, abs=1e-12)


@given(st.integers(0, 999), st.sampled_from([0.0, 0.02, 0.1]))
def test_the_highest_pairs_alone_give_the_rate_of_all(seed, far):
    rng = np.random.default_rng(seed)
    people = np.repeat(np.arange(6), 3)
    features = rng.integers(-2, 3, (18, 2)) + 0.5
    drawn = rng.integers(1, 3, 6).astype(float)
    few, whole = AllPairs(features, people, highest=0.5), AllPairs(features, people)
    assert (len(few.different), len(whole.different)) == (68, 135)  # 18 x 15 / 2 pairs of different people
    assert few.tar_at_far(far, drawn) == whole.tar_at_far(far, drawn)


def test_the_highest_pairs_refuse_a_rate_that_needs_more_of_them():
    pairs = AllPairs(np.random.default_rng(0).normal(size=(18, 4)), np.repeat(np.arange(6), 3), highest=0.25)
    with pytest.raises(ValueError, match=r"FAR 0.3 of 135 pairs; the 34 highest kept end before it"):
        pairs.tar_at_far(0.3)


@pytest.mark.parametrize(
    ("same", "scores", "message"),
    [
        ([True, True], [0.1, 0.2], "2 of 2 pairs are the same"),
        ([False], [0.1], "0 of 1"),
        ([True, False], [0.1], "shapes"),
        ([True, False], [0.1, float("nan")], "not finite"),
    ],
)
def test_a_problem_without_an_answer_is_refused(same, scores, message):
    with pytest.raises(ValueError, match=message):
        roc(same, scores)


def test_a_false_accept_rate_is_a_share():
    with pytest.raises(ValueError, match="between 0 and 1"):
        tar_at_far([True, False], [0.1, 0.2], far=1.5)
