"""Thresholds for stated rates, against brute force and against a truth that is known.

In three dimensions, the cosine of two independent directions is even over -1..1 (Archimedes). So the score that a share
f of strangers reaches is 1 - 2 f, and the share of searches in G independent people that reach t is
1 - ((1 + t) / 2)^G.
"""

import json

import numpy as np
import pytest
from safetensors.numpy import load

from sphereface.contract import Card, Preprocessing, read_card
from sphereface.embed.embedder import Embedder
from sphereface.embed.ensemble import join_features
from sphereface.embed.run import embed_set
from sphereface.embed.store import open_features
from sphereface.errors import ContractMismatch, ModelFileError
from sphereface.evaluation.calibration.files import write_calibration
from sphereface.evaluation.calibration.measure import calibrate, calibrate_features
from sphereface.metrics.bootstrap import PeopleBootstrap
from sphereface.metrics.support import (
    comparison_rate,
    lowest_far,
    people_for_far,
    people_for_fpir,
    supports_far,
    supports_searches,
)
from sphereface.metrics.weighted_tail import WeightedTail
from tests.embed.sets import write_faces
from tests.engines.networks import write_network
from tests.evaluation.networks import tiles


def strangers(people, *, photos=2, dimensions=3, spread=0.2, seed=0):
    """Features of people at independent directions, of any length, and whose they are; `photos` may be a range."""
    rng = np.random.default_rng(seed)
    counts = np.full(people, photos) if isinstance(photos, int) else rng.integers(*photos, people)
    who = np.repeat(np.arange(people), counts)
    rows = rng.normal(size=(people, dimensions))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True))[who]
    rows = (rows + spread * rng.normal(size=rows.shape)) * rng.uniform(0.5, 20, (len(who), 1))
    return rows.astype(np.float32), who


def every_pair(features, who, weigh):
    """Scores of all pairs of different people with their weights, one by one."""
    unit = features.astype(np.float64) / np.linalg.norm(features.astype(np.float64), axis=1, keepdims=True)
    counts = np.bincount(who)
    found = []
    for i in range(len(who)):
        for j in range(i + 1, len(who)):
            if who[i] != who[j]:
                weight = 1 / counts[who[i]] / counts[who[j]] if weigh == "people" else 1.0
                found.append((float(unit[i] @ unit[j]), weight, who[i], who[j]))
    return found


def lowest_threshold(pairs, far):
    """The lowest score at which at most the share passes, by trying all."""
    scores, weights = np.array([pair[:2] for pair in pairs]).T
    total = weights.sum()
    return min(t for t in scores if weights[scores >= t].sum() <= far * total * (1 + 1e-9))


@pytest.mark.parametrize("weigh", ["people", "pairs"])
def test_thresholds_are_those_of_trying_every_score_over_all_pairs(weigh):
    features, who = strangers(30, photos=(1, 5))
    found = calibrate(features, who, fars=[0.1, 0.3], weigh=weigh, rounds=20)
    pairs = every_pair(features, who, weigh)
    for far in (0.1, 0.3):
        assert found.at_far(far).score == pytest.approx(lowest_threshold(pairs, far), abs=1e-6)
    assert found.tail.pairs == len(pairs)
    assert found.tail.people == 30


def test_one_person_with_many_photos_does_not_decide_unless_pairs_are_to_count():
    features, who = strangers(40)
    rng = np.random.default_rng(1)
    look = features[0] / np.linalg.norm(features[0])
    features[who < 5] = look + 0.02 * rng.normal(size=(10, 3))  # four people look like her, who has 300 photos
    photos = look + 0.02 * rng.normal(size=(300, 3))
    crowded = np.concatenate([features, photos]).astype(np.float32), np.concatenate([who, np.zeros(300, int)])
    plain, by_people, by_pairs = (
        calibrate(*data, fars=[0.05], weigh=weigh, rounds=20).at_far(0.05).score
        for data, weigh in (((features, who), "people"), (crowded, "people"), (crowded, "pairs"))
    )
    assert abs(by_people - plain) < 0.05 < abs(by_pairs - plain)


def test_neither_blocks_nor_the_pairs_that_are_dropped_on_the_way_change_anything():
    features, who = strangers(300)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    scores = (unit @ unit.T)[np.triu_indices(600, 1)]
    different = np.sort(scores[(who[:, None] != who[None, :])[np.triu_indices(600, 1)]])[::-1]
    found = [calibrate(features, who, fars=[1e-2, 1e-3], rounds=5, block=block) for block in (50, 599, None)]
    assert found[0] == found[1] == found[2]
    assert len(different) > 2 * (0.04 * len(different) + 1000) + (1 << 16)  # more than are held without a drop
    for far in (1e-2, 1e-3):
        assert found[0].at_far(far).score == pytest.approx(different[int(far * len(different) + 1e-9) - 1], abs=1e-6)


def test_a_draw_of_people_counts_each_pair_as_often_as_both_were_drawn():
    features, who = strangers(12, photos=(1, 4))
    pairs = every_pair(features, who, "people")
    scores, _, left, right = (np.array(column) for column in zip(*pairs, strict=True))
    tail = WeightedTail(scores, left.astype(int), right.astype(int), photos=np.bincount(who))
    for drawn in PeopleBootstrap(12, rounds=3):
        copies = np.repeat(np.arange(12), drawn.astype(int))
        repeated = [
            pair for i, a in enumerate(copies) for b in copies[i + 1 :] if a != b
            for pair in pairs if {a, b} == {pair[2], pair[3]}
        ]  # fmt: skip
        lowest = lowest_threshold(repeated, 0.2)
        refused = max(score for score, *_ in repeated if score < lowest)
        assert refused < tail.thresholds([0.2], drawn)[0] <= lowest  # between them lie people who were not drawn


def test_equal_scores_pass_together():
    features, who = strangers(40)
    features[who == 7] = features[who == 3]  # two people with the same photos
    found = calibrate(features, who, fars=[0.05], rounds=20)
    assert found.at_far(0.05).score == pytest.approx(
        lowest_threshold(every_pair(features, who, "people"), 0.05), abs=1e-6
    )


def test_the_interval_holds_the_true_threshold_as_often_as_it_says():
    inside, widths = [], []
    for seed in range(60):
        found = calibrate(*strangers(40, seed=seed), fars=[0.05], rounds=200, seed=seed).at_far(0.05)
        inside.append(found.interval[0] <= 1 - 2 * 0.05 <= found.interval[1])
        widths.append(found.interval[1] - found.interval[0])
    assert np.mean(inside) >= 0.88  # 95 % less two standard errors of 60 trials
    assert np.mean(widths) < 0.15


def test_a_search_threshold_is_near_the_true_one_and_its_interval_holds_it():
    truth = 1 - 2 * comparison_rate(0.3, 10)
    assert 1 - ((1 + truth) / 2) ** 10 == pytest.approx(0.3)
    found = [
        calibrate(*strangers(130, seed=seed), fars=[0.05], fpirs=[0.3], gallery_sizes=[10], rounds=60, seed=seed)
        for seed in range(10)
    ]
    thresholds = [each.at_fpir(0.3, 10) for each in found]
    assert not any(each.approximate for each in thresholds)
    assert np.mean([each.score for each in thresholds]) == pytest.approx(truth, abs=0.012)
    assert sum(each.interval[0] <= truth <= each.interval[1] for each in thresholds) >= 8
    assert np.mean([each.interval[1] - each.interval[0] for each in thresholds]) < 0.16


def test_a_search_threshold_lets_the_stated_share_of_strangers_pass_in_galleries_drawn_anew():
    features, who = strangers(200, dimensions=8, photos=(1, 4), spread=0.1)
    score = calibrate(features, who, fars=[0.05], fpirs=[0.2], gallery_sizes=[20], rounds=5).at_fpir(0.2, 20).score
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    rng, found = np.random.default_rng(99), 0
    for _ in range(1500):
        probe, *gallery = rng.choice(200, 21, replace=False)
        photos = [rng.choice(np.flatnonzero(who == person)) for person in (probe, *gallery)]
        found += max(unit[photos[0]] @ unit[other] for other in photos[1:]) >= score
    assert found / 1500 == pytest.approx(0.2, abs=0.03)


def test_copies_pass_together_in_a_search_whatever_a_matrix_product_makes_of_their_places():
    features = np.random.default_rng(0).normal(size=(150, 512))
    features[:75] = features[0]  # of every second search, the best score is that of a copy
    with pytest.raises(ValueError, match=r"FPIR 0\.3: the most alike of different people all score the same"):
        calibrate(features, np.arange(150), fars=[0.3], fpirs=[0.3], gallery_sizes=[20], rounds=5)


def test_where_one_family_makes_all_false_accepts_only_drawn_galleries_notice():
    """60 relatives match each other, 90 loners nobody: the same false accepts fall into fewer searches."""
    rng = np.random.default_rng(0)
    looks = rng.normal(size=(150, 64))
    looks[:60] = looks[0] + rng.normal(size=(60, 64))
    far = comparison_rate(0.38, 20)
    found = calibrate(looks, np.arange(150), fars=[far], fpirs=[0.38], gallery_sizes=[20], rounds=5)
    assert not found.at_fpir(0.38, 20).approximate
    assert found.at_fpir(0.38, 20).score < found.at_far(far).score - 0.01


def test_without_people_enough_a_search_threshold_is_that_of_one_comparison_and_says_so():
    features, who = strangers(150)
    far = comparison_rate(0.3, 100)
    found = calibrate(features, who, fars=[far], fpirs=[0.3], gallery_sizes=[100], rounds=20)
    searched, compared = found.at_fpir(0.3, 100), found.at_far(far)
    assert searched.approximate
    assert (searched.score, searched.interval, searched.far) == (compared.score, compared.interval, far)
    assert 1 - (1 - far) ** 100 == pytest.approx(0.3)
    assert "as if comparisons were independent" in found.table()


@pytest.mark.parametrize("far", [0.5, 0.1, 1e-2, 1e-3, 3.3e-5, 1e-6])
def test_the_people_that_a_rate_is_said_to_take_suffice_and_one_less_does_not(far):
    needed = people_for_far(far)
    assert supports_far(far, needed)
    assert not supports_far(far, needed - 1)
    assert sum(range(needed)) * far >= 30 * (1 - 1e-9) > sum(range(needed - 1)) * far


@pytest.mark.parametrize(("fpir", "size"), [(0.1, 10), (0.01, 10), (0.01, 1000), (1e-3, 100_000)])
def test_the_people_that_a_search_is_said_to_take_suffice_and_one_less_does_not(fpir, size):
    needed = people_for_fpir(fpir, size)

    def suffice(people):
        return supports_searches(fpir, size, people) or supports_far(comparison_rate(fpir, size), people)

    assert suffice(needed)
    assert not suffice(needed - 1)


def test_a_rate_that_the_people_cannot_show_is_refused_with_how_many_could():
    features, who = strangers(77)
    with pytest.raises(ValueError, match=r"FAR 0\.01: 77 people cannot show it, it takes 78 .*lowest .* is 0\.0103"):
        calibrate(features, who, fars=[0.05, 0.01])
    with pytest.raises(ValueError, match=r"usual rates \(0\.01 takes 78 people\)"):
        calibrate(features, who)
    with pytest.raises(ValueError, match=r"FPIR 0\.01 with a gallery of 1,000: 77 people .* takes 2,4\d\d "):
        calibrate(features, who, fars=[0.05], fpirs=[0.01], gallery_sizes=[1000])
    more, whose = strangers(78, photos=1)
    assert [each.far for each in calibrate(more, whose, rounds=5).thresholds] == [0.01]


def test_more_photos_of_the_same_people_support_no_lower_rate():
    features, who = strangers(20, photos=40)
    with pytest.raises(ValueError, match="it takes 78"):
        calibrate(features, who, fars=[0.01])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"fars": [0.0]}, "FAR 0.0; wanted a share"),
        ({"fars": [1.0]}, "FAR 1.0; wanted a share"),
        ({"fars": []}, "no rate is given"),
        ({"fars": [0.1], "gallery_sizes": [0]}, "with 0 people"),
        ({"fars": [0.1], "gallery_sizes": [5], "fpirs": [2]}, "FPIR 2"),
        ({"fars": [0.1], "weigh": "photos"}, "weigh is 'photos'"),
    ],
    ids=str,
)
def test_a_question_without_sense_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        calibrate(*strangers(40), **options)


def test_features_that_cannot_be_judged_are_refused():
    features, who = strangers(40)
    with pytest.raises(ValueError, match=r"\(80, 3\) show people \(79,\)"):
        calibrate(features, who[1:], fars=[0.1])
    features[5, 0] = np.nan
    with pytest.raises(ValueError, match="photo 5 has a number that is not finite"):
        calibrate(features, who, fars=[0.1])
    with pytest.raises(ValueError, match="1 people cannot show it"):
        calibrate(features[:2], [0, 0], fars=[0.1])


def test_one_photo_under_many_names_is_refused_with_the_likely_reason():
    features, who = strangers(40)
    features[who < 20] = features[0]
    with pytest.raises(ValueError, match="under several names: find it with sphereface data audit"):
        calibrate(features, who, fars=[0.05])


def test_a_rate_that_too_many_pairs_decide_is_refused():
    features, who = strangers(1700)
    with pytest.raises(ValueError, match=r"FAR 0\.2 of 5,776,600 pairs: more than 4,194,304 of them matter"):
        calibrate(features, who, fars=[0.2])


def test_the_tail_of_the_card_gives_back_rates_as_counted_and_ends_where_the_people_end():
    features, who = strangers(90, photos=3)
    found = calibrate(features, who, fars=[0.1, 0.01], rounds=20)
    pairs = every_pair(features, who, "people")
    scores, weights = np.array([pair[:2] for pair in pairs]).T
    tail = found.tail
    assert 30 < len(tail.scores) <= 64
    for score, far in list(zip(tail.scores, tail.fars, strict=True))[::9]:
        assert far == pytest.approx(weights[scores >= score - 1e-7].sum() / weights.sum(), rel=0.02)
    card = found.card(Card())
    for threshold in found.thresholds:
        assert card.far_of(threshold.score).far == pytest.approx(threshold.far, rel=0.15)
    assert tail.fars[-1] == pytest.approx(lowest_far(90), rel=0.05)
    assert card.far_of(tail.scores[-1] + 1e-6).said == "below what was measured"
    assert Card.model_validate_json(card.model_dump_json()) == card
    assert len(card.model_dump_json()) < 13_000


def test_a_result_says_what_was_asked_and_how_it_was_found():
    found = calibrate(*strangers(40), fars=[0.1], rounds=20, measured_on="ours")
    assert "ours: 40 people, 80 photos, 3,120 pairs of different people; every two people" in found.table()
    assert "FAR 0.1" in found.table()
    assert json.loads(json.dumps(found.as_dict()))["thresholds"][0]["far"] == 0.1
    with pytest.raises(ValueError, match=r"no threshold for FAR 0\.2"):
        found.at_far(0.2)
    again = calibrate(*strangers(40), fars=[0.1], rounds=20, measured_on="ours")
    assert found == again


def colours(inputs):
    """A network: the colours of four places."""
    return inputs[:, :, ::60, ::60].reshape(len(inputs), -1)


def test_a_set_that_was_embedded_calibrates_its_own_model_and_no_other(tmp_path):
    root = write_faces(tmp_path / "faces", people=20, photos=2)
    made = Embedder(colours, Card(name="ours"), model="a" * 64)
    features = open_features(embed_set(root, tmp_path / "features", made).folder)
    found = calibrate_features(features, fars=[0.2], rounds=20)
    assert found.thresholds[0].measured_on == "faces"
    by_hand = calibrate(np.array(features.rows), features.labels, fars=[0.2], rounds=20, measured_on="faces")
    assert found.thresholds == by_hand.thresholds
    assert found.card(Card(name="ours")).thresholds == found.thresholds
    with pytest.raises(ContractMismatch, match="another model: their card has name 'ours', this one 'theirs'"):
        found.card(Card(name="theirs"))
    with pytest.raises(ContractMismatch, match="under the rule concatenate, the card's rule is sum"):
        found.card(Card(name="ours", feature_rule="sum"))
    both = calibrate_features(join_features([features, features]), fars=[0.2], rounds=20)
    assert both.at_far(0.2).score == pytest.approx(found.at_far(0.2).score, abs=1e-5)  # twice the same opinion


def test_a_safetensors_gets_its_calibration_and_keeps_its_tensors(tmp_path):
    path = tmp_path / "model.safetensors"
    tensors = write_network(path, name="ours", preprocessing=Preprocessing(scale=64.0))
    before = read_card(path)
    found = calibrate(*strangers(40), fars=[0.1], rounds=20)
    for _ in range(2):  # a second calibration takes the place of the first
        card = write_calibration(path, found)
        assert read_card(path) == card
        assert card.thresholds == found.thresholds
        assert card.impostor_tail == found.tail
        uncalibrated = {"thresholds": (), "impostor_tail": None, "template_tails": ()}
        assert card.model_copy(update=uncalibrated) == before
        after = load(path.read_bytes())
        assert after.keys() == tensors.keys()
        assert all(np.array_equal(after[name], tensors[name]) for name in tensors)
    assert list(tmp_path.iterdir()) == [path]


def test_an_onnx_gets_its_calibration_and_computes_what_it_did(tmp_path):
    path = tmp_path / "model.onnx"
    faces = np.random.default_rng(0).integers(0, 256, (2, 112, 96, 3), dtype=np.uint8)
    before = tiles(path).embed(faces)
    found = calibrate(*strangers(40), fars=[0.1], rounds=20)
    for _ in range(2):
        write_calibration(path, found)
        embedder = Embedder.load(path, threads=1)
        assert embedder.card == found.card(Card(name="tiles"))
        np.testing.assert_array_equal(embedder.embed(faces), before)
    assert str(embedder.card.far_of(0.9999)).endswith("below what was measured")
    assert path.read_bytes().count(b"impostor_tail") == 1
    with pytest.raises(ContractMismatch, match="no impostor tail; calibrate the model"):
        embedder.with_rule("sum").card.far_of(0.5)


def test_a_file_that_cannot_be_calibrated_stays_as_it_was(tmp_path):
    found = calibrate(*strangers(40), fars=[0.1], rounds=20)
    other, broken = tmp_path / "model.pt", tmp_path / "model.safetensors"
    write_network(broken)
    whole = broken.read_bytes()
    broken.write_bytes(whole[:-10])
    other.write_bytes(b"x")
    for path, content in ((other, b"x"), (broken, whole[:-10])):
        with pytest.raises(ModelFileError):
            write_calibration(path, found)
        assert path.read_bytes() == content
