"""Impostor tails of templates, against all templates that there are and against a truth that is known.

In three dimensions the cosine of two independent directions is even over -1..1: a share f of strangers reaches 1 - 2 f.
"""

import numpy as np
import pytest

from sphereface.contract import Card, parse_card
from sphereface.evaluation.calibration.measure import calibrate
from sphereface.evaluation.calibration.templates import TOP, template_tails
from sphereface.metrics.templates import pool
from tests.evaluation.calibration.test_measure import strangers


def tails(features, who, **options):
    units = (features / np.linalg.norm(features, axis=1, keepdims=True)).astype(np.float32)
    return template_tails(units, who, feature_rule="image", measured_on="people", **options)


def test_a_template_is_the_unit_mean_of_unit_features():
    units = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], np.float32)
    assert pool(units, np.array([0, 0, 1]), 3) == pytest.approx(
        np.array([[0.5**0.5, 0.5**0.5], [0.6, 0.8], [0.0, 0.0]])
    )


def test_the_rate_of_a_score_is_that_of_independent_directions():
    features, who = strangers(900, photos=3, spread=0.4)
    found = tails(features, who)
    assert [each.photos for each in found] == [1, 2, 3]
    for tail in found:
        assert tail.fars[0] <= TOP
        for far in (0.1, 0.03, 0.01, 0.003):
            assert tail.far_of(1 - 2 * far).far == pytest.approx(far, rel=0.2)


def test_a_tail_is_that_of_all_templates_and_all_photos_of_strangers():
    features, who = strangers(60, photos=2, dimensions=8, spread=0.6)
    (tail,) = tails(features, who, sizes=[2])
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    means = np.array([unit[who == person].sum(0) for person in range(60)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    scores = np.array([mean @ row for a, mean in enumerate(means) for b, row in zip(who, unit, strict=True) if a != b])
    for score, far in zip(tail.scores[::10], tail.fars[::10], strict=True):
        assert (scores >= score - 1e-6).mean() == pytest.approx(far, rel=0.25)  # 20 draws of the photos
    assert tail.pairs == 60 * 59 // 2


def test_strangers_reach_the_template_of_more_photos_more_often_where_photos_are_noisy():
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(400), 5)
    families = rng.normal(size=(40, 32))[np.arange(400) % 40]  # people resemble their relatives
    features = (families + rng.normal(size=(400, 32)))[who] + rng.normal(size=(2000, 32))
    single, *_, many = tails(features, who)
    score = float(np.interp(-np.log(0.003), -np.log(single.fars), single.scores))
    assert many.far_of(score).far > 1.3 * 0.003


def test_sizes_without_enough_people_have_no_tail():
    features, who = strangers(200, photos=(1, 6), seed=3)
    enough = [(np.bincount(who) >= size).sum() for size in (1, 2, 3, 5)]
    assert [each.templates for each in tails(features, who)] == enough
    short = np.concatenate([np.flatnonzero(who == person)[: 5 if person < 20 else 2] for person in range(200)])
    assert [each.photos for each in tails(features[short], who[short])] == [1, 2]


def test_no_tail_goes_below_thirty_expected_pairs_of_people():
    features, who = strangers(100, photos=(1, 4), seed=5)
    for tail in tails(features, who):
        without = 100 - tail.templates
        assert tail.pairs == 100 * 99 // 2 - without * (without - 1) // 2
        assert tail.fars[-1] * tail.pairs == pytest.approx(30, rel=0.5)


def test_a_calibration_brings_the_tails_to_the_card_and_through_json():
    features, who = strangers(90, photos=3)
    found = calibrate(features, who, fars=[0.05], rounds=5, feature_rule="image")
    card = found.card(Card(feature_rule="image"))
    assert [each.photos for each in card.template_tails] == [1, 2, 3]
    assert parse_card(card.model_dump_json(), source="card") == card
    assert "templates   of 3 photos" in card.text()
    assert "templates of 1 (90 people), 2 (90 people), 3 (90 people) photos" in found.table()
