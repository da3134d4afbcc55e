"""Identification, closed and open, against a transcription in loops."""

import json

import numpy as np
import pytest

from sphereface.evaluation.rules.identification import identify


def lots(people, gallery_photos, num_known, seed, split):
    """Who and which photos are enrolled in a split: the same lots, drawn in the same order."""
    rng = np.random.default_rng([seed, split])
    photos = {person: [place for place, who in enumerate(people) if who == person] for person in sorted(set(people))}
    able = [person for person, places in photos.items() if len(places) > gallery_photos]
    enrolled = {person: rng.permutation(photos[person])[:gallery_photos].tolist() for person in able}
    known = {able[place] for place in rng.permutation(len(able))[:num_known]}
    return enrolled, known


def unit(vector):
    return vector / np.linalg.norm(vector)


def by_loops(features, people, *, gallery_photos, num_known, seed, split, fpirs, drawn=None):
    """Rank 1 and DIR at each FPIR; a probe of a person who was drawn n times is looked up n times."""
    drawn = dict.fromkeys(people, 1) if drawn is None else drawn
    enrolled, known = lots(people, gallery_photos, num_known, seed, split)
    templates = {p: unit(np.mean([unit(features[k]) for k in places], axis=0)) for p, places in enrolled.items()}
    closed, found, strangers = [], [], []
    for place, person in enumerate(people):
        scores = {name: unit(features[place]) @ template for name, template in templates.items()}
        for _ in range(int(drawn[person])):
            if person in enrolled and place not in enrolled[person]:
                closed.append(sum(score >= scores[person] for score in scores.values()))
            if person not in known:
                strangers.append(max(scores[name] for name in known))
            elif place not in enrolled[person]:
                others = [scores[name] for name in known if name != person]
                found.append((scores[person], all(scores[person] > other for other in others)))
    dirs = []
    for fpir in fpirs:
        thresholds = [np.inf, *strangers, *(score for score, _ in found)]
        allowed = [t for t in thresholds if np.mean([s >= t for s in strangers]) <= fpir + 1e-12]
        dirs.append(max(np.mean([first and score >= t for score, first in found]) for t in allowed))
    return [np.mean([rank == 1 for rank in closed]), *dirs], closed


def people_and_features(seed, *, ties):
    rng = np.random.default_rng(seed)
    people = rng.permutation(np.repeat(np.arange(9), [1, 1, 2, 3, 3, 4, 5, 5, 6]))
    if ties:  # half of the coordinates of a person are fixed: few cosines, all exact
        own = rng.choice([-1.0, 1.0], (9, 4))
        features = np.where(rng.random((len(people), 4)) < 0.7, own[people], rng.choice([-1.0, 1.0], (len(people), 4)))
    else:
        features = rng.normal(size=(9, 8))[people] + 0.7 * rng.normal(size=(len(people), 8))
    return people, features


@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_rank_1_and_dir_are_those_of_plain_loops_also_with_ties(seed, ties):
    people, features = people_and_features(seed, ties=ties)
    photos = 1 if ties else 2  # the mean of one photo is exact
    fpirs = (0.1, 0.25, 1.0)
    able = sum(np.bincount(people) > photos)
    result = identify(features, people, gallery_photos=photos, fpirs=fpirs, splits=3, rounds=5, seed=seed)
    assert result.known == round(0.5 * able)
    options = {"gallery_photos": photos, "num_known": result.known, "seed": seed, "fpirs": fpirs}
    loops = [by_loops(features, people.tolist(), split=split, **options) for split in range(3)]
    expected = np.mean([values for values, _ in loops], axis=0)
    found = [result.rank1.value, *(result.open_set[fpir].dir.value for fpir in fpirs)]
    np.testing.assert_allclose(found, expected)
    for rank in range(1, able + 1):
        assert result.cmc[rank - 1] == pytest.approx(np.mean([np.mean(np.array(r) <= rank) for _, r in loops]))
    assert result.cmc[-1] == 1
    assert len(result.cmc) == result.enrolled == able


def test_intervals_are_those_of_looking_probes_up_as_often_as_their_people_were_drawn():
    people, features = people_and_features(7, ties=False)
    result = identify(features, people, fpirs=(0.25,), splits=2, rounds=30, seed=3)
    rng, draws = np.random.default_rng(3), []
    for _ in range(30):
        drawn = np.bincount(rng.integers(9, size=9), minlength=9)
        options = {"gallery_photos": 1, "num_known": result.known, "seed": 3, "fpirs": (0.25,), "drawn": drawn}
        enrolled = [lots(people.tolist(), 1, result.known, 3, split) for split in range(2)]
        if all(
            any(drawn[person] for person in known) and any(drawn[p] for p in range(9) if p not in known)
            for _, known in enrolled
        ):
            draws.append(
                np.mean([by_loops(features, people.tolist(), split=split, **options)[0] for split in range(2)], axis=0)
            )
    low, high = np.percentile(draws, [2.5, 97.5], axis=0)
    for rate, a, b in zip((result.rank1, result.open_set[0.25].dir), low, high, strict=True):
        assert rate.interval == pytest.approx((a, b))


def test_people_who_are_far_apart_are_all_found_and_no_stranger_is_taken_for_one():
    people = np.repeat(np.arange(20), 3)
    result = identify(np.eye(20)[people], people, fpirs=(0.1,), splits=2, rounds=10)
    assert result.rank1.value == result.open_set[0.1].dir.value == 1
    assert result.rank1.interval.high == pytest.approx(1)
    assert 0.8 < result.rank1.interval.low < 0.9  # Wilson's, of 20 people


def test_a_model_that_scores_everybody_alike_finds_nobody():
    people = np.repeat(np.arange(20), 3)
    result = identify(np.ones((60, 4)), people, fpirs=(0.1,), splits=2, rounds=10)
    assert result.rank1.value == result.open_set[0.1].dir.value == 0
    assert result.open_set[0.1].threshold == np.inf
    assert (
        json.loads(json.dumps(result.as_dict(), allow_nan=False))["open_set"]["dir_at_fpir"]["0.1"]["threshold"] is None
    )


def test_a_rate_that_would_let_less_than_one_stranger_pass_has_no_dir_but_a_reason():
    people = np.repeat(np.arange(20), 3)
    result = identify(np.eye(20)[people], people, fpirs=(0.1, 0.01), splits=2, rounds=5)
    assert result.unknown_probes == (30, 30)
    assert result.open_set[0.01] is None
    assert result.reasons == {0.01: "30 probes of strangers; wanted 100, of which one may pass"}
    assert "DIR at FPIR 0.01: none: 30 probes of strangers" in result.table()


def test_who_has_one_photo_is_a_stranger_and_is_never_enrolled():
    people = np.array([0, 0, 1, 1, 2, 3, 4])
    result = identify(np.eye(5)[people], people, fpirs=(1.0,), splits=2, rounds=5)
    assert (result.enrolled, result.probes) == (2, 2)
    assert (result.known, result.unknown) == (1, 4)
    assert result.unknown_probes == (5, 5)  # three with one photo each, and both of the one who could be enrolled


def test_the_seed_decides_and_nothing_else():
    people, features = people_and_features(1, ties=False)
    one, again, other = (identify(features, people, fpirs=(0.2,), rounds=5, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one.rank1 != other.rank1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"gallery_photos": 3}, "0 of 20 people have more than 3 photos; wanted at least 2"),
        ({"gallery_photos": 0}, "wanted at least 1 of each"),
        ({"known": 1.0}, "known is 1.0; wanted a share"),
        ({"fpirs": (0.0,)}, "wanted shares, above 0"),
    ],
)
def test_what_cannot_be_done_is_refused(options, said):
    people = np.repeat(np.arange(20), 3)
    with pytest.raises(ValueError, match=said):
        identify(np.eye(20)[people], people, rounds=5, **options)


def test_features_that_are_no_numbers_are_refused():
    features, people = np.eye(4)[[0, 0, 1, 1]], np.array([0, 0, 1, 1])
    features[1, 0] = np.nan
    with pytest.raises(ValueError, match="row 1 has a number that is not finite"):
        identify(features, people, rounds=5)


def test_copies_under_two_names_tie_also_where_a_matrix_product_rounds_them_apart():
    """The last row and column of a product are summed in another order; there the last person's third photo is."""
    people = np.append(np.repeat(np.arange(66), 2), 65)
    for seed in range(4):
        looks = np.random.default_rng(seed).normal(size=(33, 512))
        result = identify(looks[people % 33], people, fpirs=(1.0,), splits=1, rounds=2)
        assert result.rank1.value == 0
        assert result.cmc[1] == 1
