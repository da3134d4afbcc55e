"""Thresholds against the formula of independent comparisons, solved by search over a grid."""

import numpy as np
import pytest

from sphereface.contract import Card, ImpostorTail, TemplateTail, Threshold
from sphereface.errors import ContractMismatch, UserError
from sphereface.recognize.thresholds import match_threshold, pair_threshold, search_threshold

ABOUT = {
    "people": 2_000, "pairs": 1_999_000, "weigh": "people", "feature_rule": "image", "measured_on": "people",
}  # fmt: skip


def tail(photos, *, factor=1.0, lowest=1e-5):
    """Rates that fall by a factor of ten every 0.1, from 0.1 at a score of 0.2."""
    fars = np.geomspace(0.1, lowest, 40)
    scores = 0.2 - np.log10(fars / factor / 0.1) / 10
    return TemplateTail(scores=tuple(scores.tolist()), fars=tuple(fars.tolist()), photos=photos, templates=100, **ABOUT)


CARD = Card(
    name="a model",
    feature_rule="image",
    thresholds=(
        Threshold(score=0.41, far=1e-3, measured_on="people"),
        Threshold(score=0.47, far=1e-3, measured_on="people", fpir=0.1, gallery_size=100),
    ),
    impostor_tail=ImpostorTail(scores=(0.3, 0.4, 0.5), fars=(1e-2, 1e-3, 1e-4), **ABOUT),
    template_tails=(tail(1), tail(3, factor=3.0, lowest=1e-4)),
)


def promised(card, sizes, score):
    """FPIR at a score, by the formula."""
    tails = {each.photos: each for each in card.template_tails}
    missed = 1.0
    for photos, people in sizes.items():
        of = tails[max(each for each in tails if each <= photos)]
        missed *= (1 - np.exp(np.interp(score, of.scores, np.log(of.fars)))) ** people
    return 1 - missed


def test_a_measured_threshold_of_two_photos_is_taken_as_it_is():
    assert pair_threshold(CARD).score == 0.41
    assert pair_threshold(CARD, 1e-3).far == 1e-3


def test_other_rates_of_two_photos_are_between_the_points_of_the_tail():
    assert pair_threshold(CARD, 10**-3.5).score == pytest.approx(0.45)
    assert pair_threshold(CARD, 1e-4).score == pytest.approx(0.5)


def test_by_default_two_photos_get_a_rate_that_the_card_supports():
    assert pair_threshold(CARD).far == 1e-3
    few = ImpostorTail(scores=(0.3, 0.4), fars=(1e-2, 6e-3), **ABOUT)
    card = CARD.model_copy(update={"thresholds": (), "impostor_tail": few})
    assert pair_threshold(card) == (pytest.approx(0.4), 6e-3)


@pytest.mark.parametrize("far", [0.5, 1e-6, 0.0])
def test_a_rate_of_two_photos_that_was_not_measured_is_refused(far):
    with pytest.raises(UserError, match=r"the card of a model supports 0.0001 to 0.01; .*models calibrate"):
        pair_threshold(CARD, far)


@pytest.mark.parametrize("fpir", [0.1, 0.01])
@pytest.mark.parametrize("sizes", [{1: 1}, {1: 10}, {1: 300}, {3: 10}, {1: 100, 3: 50}, {2: 40, 7: 2}])
def test_a_search_gets_the_lowest_score_that_keeps_the_promise(fpir, sizes):
    found = search_threshold(CARD, sizes, fpir)
    grid = np.linspace(0.2, 0.6, 40_001)
    kept = [score for score in grid if promised(CARD, sizes, score) <= fpir]
    assert found.score == pytest.approx(max(min(kept), 0.2), abs=1e-4)
    assert (found.fpir, found.people) == (fpir, sum(sizes.values()))


def test_the_threshold_rises_with_the_gallery_and_with_the_photos_of_a_person():
    assert search_threshold(CARD, {1: 10}, 0.1).score < search_threshold(CARD, {1: 100}, 0.1).score
    assert search_threshold(CARD, {1: 100}, 0.1).score < search_threshold(CARD, {3: 100}, 0.1).score


def test_by_default_the_lower_rate_is_promised_as_long_as_the_card_supports_it():
    assert search_threshold(CARD, {1: 100}).fpir == 0.01
    assert search_threshold(CARD, {1: 5_000}).fpir == 0.1


def test_templates_of_more_photos_than_measured_take_the_largest_and_say_so():
    found = search_threshold(CARD, {1: 90, 8: 10}, 0.1)
    assert found.score == search_threshold(CARD, {1: 90, 3: 10}, 0.1).score
    assert found.notes == ("10 people have more than 3 photos: rates are those measured with 3",)
    assert search_threshold(CARD, {1: 90, 3: 10}, 0.1).notes == ()


def test_where_no_tail_reaches_that_of_smaller_templates_serves_with_a_warning_unless_a_rate_was_asked_for():
    sizes = {3: 2_000}  # at 10 %, 5e-5 a comparison: below the tail of three photos
    found = search_threshold(CARD, sizes)
    assert found.score == search_threshold(CARD, {1: 2_000}, found.fpir).score
    (note,) = found.notes
    assert note.startswith("2,000 people have more than 1 photos: rates are those measured with 1")
    assert note.endswith("and more strangers than promised may be named")
    with pytest.raises(UserError, match="does not support it"):
        search_threshold(CARD, sizes, 0.1)
    assert search_threshold(CARD, {3: 400}).fpir == 0.1  # rather than 1 % from the tail of single photos


def test_a_photo_looks_like_a_person_at_the_rate_of_strangers_photos():
    for photos, factor in ((1, 1.0), (3, 3.0), (9, 3.0)):
        score = match_threshold(CARD, photos, 1e-3)
        assert score == pytest.approx(0.2 - np.log10(1e-3 / factor / 0.1) / 10, abs=1e-3)
    assert match_threshold(CARD, 3, 1e-9) == CARD.template_tails[1].scores[-1]


def test_a_search_that_no_tail_supports_is_refused_with_the_number_of_people_to_calibrate_on():
    with pytest.raises(UserError, match=r"among 100,000 people: .* on 2,000 people does not support it, it takes"):
        search_threshold(CARD, {1: 100_000})
    with pytest.raises(UserError, match=r"FPIR 1\.5; wanted a share"):
        search_threshold(CARD, {1: 10}, 1.5)


def test_an_empty_gallery_has_a_threshold_too():
    assert search_threshold(CARD, {}).people == 0


def test_a_card_of_an_earlier_calibration_serves_with_the_tail_of_single_photos():
    card = CARD.model_copy(update={"template_tails": ()})
    found = search_threshold(card, {1: 9, 3: 1}, 0.1)
    assert found.score == pytest.approx(0.3)  # where its tail begins, at 1e-2
    assert found.notes
    with pytest.raises(ContractMismatch, match="has no thresholds; sphereface models calibrate"):
        search_threshold(Card(name="new"), {1: 1})
    with pytest.raises(ContractMismatch, match="has no thresholds"):
        pair_threshold(Card(name="new"), 0.5)
