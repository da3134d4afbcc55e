"""The rules of verification against the scripts they come from, and what is reported of them."""

import json
import statistics
from itertools import pairwise

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from sphereface.evaluation import RULES, side_by_side, verification_report, verify_folds, verify_held_out
from sphereface.metrics import PeopleBootstrap, auc, eer, tar_at_far, wilson
from sphereface.metrics.bootstrap import pair_weights
from tests.evaluation import transcriptions

FOLD = np.repeat([3, 7, 9, 20, 21], 8)


def whole_numbers(rng, numbers=4):
    """Features of small whole numbers: many scores are equal to each other."""
    left, right = rng.integers(-1, 2, (2, 40, numbers)).astype(float)
    for side in (left, right):
        side[~side.any(1), 0] = 1  # no angle without a direction
    same = rng.random(40) < 0.5
    return left, np.where((same & (rng.random(40) < 0.7))[:, None], left, right), same


def axes(rng):
    """Features along two axes, each pair with its opposite, so that the mean is 0: scores are -1, 0 and 1."""
    left, right = np.array([[1.0, 0], [0, 1], [-1, 0], [0, -1]])[rng.integers(0, 4, (2, 20))]
    same = rng.random(20) < 0.5
    right = np.where((rng.random(20) < 0.6)[:, None], np.where(same[:, None], left, -left), right)
    return np.repeat(left, 2, 0) * OPPOSITE, np.repeat(right, 2, 0) * OPPOSITE, np.repeat(same, 2)


OPPOSITE = np.tile([[1.0], [-1.0]], (20, 1))


def hundredths(rng):
    """Features of 400 signs, the mirror image's being the same: squared distances are hundredths, as thresholds are."""
    left = rng.choice([-1.0, 1.0], (40, 400))
    same = rng.random(40) < 0.5
    turned = np.arange(400) < np.where(same, rng.integers(0, 30, 40), rng.integers(20, 50, 40))[:, None]
    right = np.where(turned, -left, left)
    return np.tile(left, 2), np.tile(right, 2), same


def authors_problem(seed):
    rng = np.random.default_rng(seed)
    return axes(rng) if seed % 2 else whole_numbers(rng)


def insightface_problem(seed):
    rng = np.random.default_rng(seed)
    return hundredths(rng) if seed % 2 else whole_numbers(rng, 8)


def gentle(seed, pairs=200, numbers=6):
    """Pairs whose scores differ, most of them on the right side."""
    rng = np.random.default_rng(seed)
    left = rng.normal(size=(pairs, numbers)) + 0.5
    same = np.arange(pairs) % 2 == 0
    right = np.where(same[:, None], left + 0.6 * rng.normal(size=left.shape), rng.normal(size=left.shape) + 0.5)
    return left, right, same, np.repeat(np.arange(10), pairs // 10)


def met(found, within=0.0):
    """How many scores are the threshold of their fold."""
    return (np.abs(found.scores - found.thresholds[found.fold]) <= within).sum()


@pytest.mark.parametrize("seed", range(100))
def test_the_authors_rule_equals_its_transcription(seed):
    left, right, same = authors_problem(seed)
    found = verify_folds(left, right, same, FOLD)
    accuracies, thresholds = transcriptions.authors(left, right, np.where(same, 1, -1), FOLD)
    np.testing.assert_array_equal(found.thresholds, thresholds)
    np.testing.assert_array_equal(found.accuracies, accuracies)
    assert found.accuracy == pytest.approx(accuracies.mean(), abs=1e-12)


@pytest.mark.parametrize("seed", range(100))
def test_the_insightface_rule_equals_its_transcription(seed):
    left, right, same = insightface_problem(seed)
    image, mirror = np.split(np.stack([left, right], axis=1).reshape(80, -1), 2, axis=1)
    accuracies, distances = transcriptions.insightface(image, mirror, same, 5)
    found = verify_folds(left, right, same, FOLD, rule="insightface", mirrored=True)
    np.testing.assert_array_equal(found.thresholds, 1 - distances / 2)
    np.testing.assert_array_equal(found.accuracies, accuracies)


def test_in_these_problems_scores_do_meet_their_thresholds():
    """What is right then is where the rules differ; problems without such scores would prove little."""
    rounding = 1e-15  # of the mean of even thresholds around 0, which is 0 from NumPy 2.3 on
    by_authors = [met(verify_folds(*authors_problem(seed), FOLD), rounding) for seed in range(1, 100, 2)]
    assert np.count_nonzero(by_authors) >= 10
    options = {"rule": "insightface", "mirrored": True}
    by_insightface = [met(verify_folds(*insightface_problem(seed), FOLD, **options)) for seed in range(1, 100, 2)]
    assert np.count_nonzero(by_insightface) >= 10


@pytest.mark.parametrize("seed", range(20))
def test_the_best_rule_has_the_accuracy_of_the_best_of_all_thresholds(seed):
    left, right, same = whole_numbers(np.random.default_rng(seed))
    found = verify_folds(left, right, same, FOLD, rule="best")
    cosines = [a @ b / (np.sqrt(a @ a) * np.sqrt(b @ b)) for a, b in zip(left, right, strict=True)]
    levels = sorted(set(np.round(cosines, 9)))
    cuts = [-2, *((low + high) / 2 for low, high in pairwise(levels)), 2]
    expected = max(((np.array(cosines) >= cut) == same).mean() for cut in cuts)
    assert found.accuracy == pytest.approx(expected, abs=1e-12)
    assert len(set(found.thresholds)) == 1


@pytest.mark.parametrize("rule", RULES)
def test_only_the_best_rule_looks_at_what_it_reports(rule):
    left, right, same, fold = gentle(0)
    before = verify_folds(left, right, same, fold, rule=rule)
    noise = np.random.default_rng(1).normal(size=left.shape)
    right[fold == 0] = np.where(same[:, None], -left, left + 0.01 * noise)[fold == 0]  # the truth turned round
    after = verify_folds(left, right, same, fold, rule=rule)
    assert (after.thresholds[0] == before.thresholds[0]) == (rule != "best")
    assert (after.thresholds[1:] != before.thresholds[1:]).any()


@pytest.mark.parametrize("rule", ["authors", "insightface"])
def test_held_out_pairs_are_judged_as_the_second_of_two_folds(rule):
    left, right, same, _ = gentle(2)
    test = np.arange(200) >= 120
    found = verify_held_out(left, right, same, test, rule=rule)
    both = verify_folds(left, right, same, test.astype(int), rule=rule)
    assert found.accuracies.tolist() == [both.accuracies[1]]
    assert found.thresholds.tolist() == [both.thresholds[1]]
    np.testing.assert_array_equal(found.correct, both.correct[test])
    np.testing.assert_array_equal(found.scores, both.scores[test])
    np.testing.assert_array_equal(found.same, same[test])


def test_the_best_rule_takes_its_threshold_from_the_held_out_pairs_themselves():
    left, right, same, _ = gentle(2)
    test = np.arange(200) >= 120
    found = verify_held_out(left, right, same, test, rule="best")
    alone = verify_folds(left[test], right[test], same[test], np.zeros(80), rule="best")
    assert (found.accuracy, found.thresholds[0]) == (alone.accuracy, alone.thresholds[0])


def test_a_tie_with_the_threshold_is_wrong_either_way_for_the_authors_and_different_for_insightface():
    """Scores half a step of the authors' grid to either side of 0, on their right sides, make 0 the one best threshold.

    Others are exactly 0. Each pair is there twice, as it is and turned about, so that the mean feature is 0, too.
    All of InsightFace's distances are 0; the first threshold, 0, is as good as any, and none is below it.
    """
    cosines = np.tile(np.repeat([0.5e-4, 0.5e-4, -0.5e-4, -0.5e-4, 0, 0], 2), 2)
    same, fold = np.tile(np.repeat([True, True, False, False, True, False], 2), 2), np.repeat([0, 1], 12)
    sign = np.tile([[1], [-1]], (12, 1))
    found = verify_folds(sign * [1, 0], sign * np.column_stack([cosines, np.sqrt(1 - cosines**2)]), same, fold)
    np.testing.assert_array_equal(found.thresholds, 0)
    np.testing.assert_array_equal(found.correct, cosines != 0)
    ones, same, fold = np.ones((20, 3)), np.arange(20) % 2 == 0, np.repeat([0, 1], 10)
    found = verify_folds(ones, ones, same, fold, rule="insightface")
    np.testing.assert_array_equal(found.correct, ~same)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rule": "openface"}, "choose one of authors, insightface, best"),
        ({"fold": np.zeros(20)}, "at least 2"),
        ({"same": np.zeros(19, dtype=bool)}, "shapes"),
        ({"mirrored": True}, "features of 3 numbers"),
        ({"left": np.full((20, 3), np.nan)}, "20 of 20 pairs have features that are not finite"),
    ],
)
def test_bad_input_is_named(change, message):
    rng = np.random.default_rng(0)
    good = {"left": rng.normal(size=(20, 3)), "right": rng.normal(size=(20, 3)), "same": np.arange(20) % 2 == 0,
            "fold": np.repeat([0, 1], 10)}  # fmt: skip
    with pytest.raises(ValueError, match=message):
        verify_folds(**{**good, **change})


def test_there_must_be_pairs_to_learn_from():
    left, right, same, _ = gentle(0)
    with pytest.raises(ValueError, match="200 of 200 pairs are held out"):
        verify_held_out(left, right, same, np.ones(200, dtype=bool))


def test_a_report_has_the_numbers_that_others_compute():
    found = verify_folds(*gentle(3))
    report = verification_report(found)
    accuracies = found.accuracies.tolist()
    assert report.accuracy.value == pytest.approx(statistics.mean(accuracies))
    assert report.standard_error == pytest.approx(statistics.stdev(accuracies) / 10**0.5)
    assert report.auc.value == pytest.approx(roc_auc_score(found.same, found.scores))
    assert report.eer.value == eer(found.same, found.scores)
    assert report.accuracy.interval == pytest.approx(wilson(found.correct.sum(), 200))
    for far in (0.1, 0.01):
        tar = tar_at_far(found.same, found.scores, far=far)
        assert report.tar[far].value == tar
        assert report.tar[far].interval == pytest.approx(wilson(tar * 100, 100))
    assert report.tar[1e-3] is None  # 100 different pairs: one of them is a hundredth
    assert report.tar[1e-4] is None


def test_intervals_over_people_equal_repeating_the_pairs_of_those_drawn():
    left, right, same, fold = gentle(4)
    found = verify_folds(left, right, same, fold)
    rng = np.random.default_rng(0)
    first = rng.integers(0, 30, 200)
    second = np.where(same, first, (first + rng.integers(1, 30, 200)) % 30)
    report = verification_report(found, people=([f"p{k}" for k in first], [f"p{k}" for k in second]), rounds=200)
    _, place = np.unique([f"p{k}" for k in np.concatenate([first, second])], return_inverse=True)
    draws = []
    for drawn in PeopleBootstrap(30, rounds=200):
        seen = np.repeat(np.arange(200), pair_weights(drawn, place[:200], place[200:]).astype(int))
        of_folds = [found.correct[seen][fold[seen] == k].mean() for k in np.unique(fold[seen])]
        truth, scores = same[seen], found.scores[seen]
        draws.append([np.mean(of_folds), auc(truth, scores), eer(truth, scores), tar_at_far(truth, scores, far=0.1)])
    low, high = np.percentile(draws, [2.5, 97.5], axis=0)
    rates = [report.accuracy, report.auc, report.eer, report.tar[0.1]]
    np.testing.assert_allclose([rate.interval.low for rate in rates], low, atol=1e-12)
    np.testing.assert_allclose([rate.interval.high for rate in rates], high, atol=1e-12)
    assert "30 people" in report.intervals


def test_a_report_is_one_json_object_and_a_table_of_rules():
    reports = [verification_report(verify_folds(*gentle(5), rule=rule)) for rule in RULES]
    payload = json.loads(json.dumps(reports[0].as_dict(), allow_nan=False))
    assert payload["rule"] == "authors"
    assert "mean feature and threshold" in payload["sentence"]
    assert (payload["pairs"], payload["same"], payload["different"]) == (200, 100, 100)
    assert payload["tar_at_far"]["0.0001"] is None
    table = side_by_side(reports)
    rows = dict(line.split("  ", 1) for line in table.splitlines() if "  " in line and not line.startswith(" "))
    assert rows["rule"].split() == ["authors", "insightface", "best"]
    shown = [f"{100 * report.accuracy.value:.2f}" for report in reports]
    assert [cell for cell in rows["accuracy"].split() if cell in shown] == shown
    assert table.count("fold ") == 10
    assert "not measurable with 100 different pairs" in table
