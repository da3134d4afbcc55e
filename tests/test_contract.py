import json

import pytest
from pydantic import ValidationError

from sphereface.contract import Card, ImpostorTail, Preprocessing, Threshold, differences, parse_card
from sphereface.errors import ContractMismatch


def test_the_default_is_the_paper():
    assert Preprocessing().model_dump() == {
        "template": "sphereface", "crop": "112x96", "colour": "RGB", "mean": 127.5, "scale": 128.0,
    }  # fmt: skip


def test_a_card_survives_its_own_text():
    card = Card(name="a", licences={"code": "MIT"})
    assert parse_card(card.model_dump_json(), source="here") == card


@pytest.mark.parametrize(
    "change", [{"template": "matlab"}, {"crop": "112x112"}, {"colour": "BGR"}, {"mean": 0.0}, {"scale": 255.0}], ids=str
)
def test_every_field_changes_the_fingerprint_and_is_a_difference(change):
    faces, model = Preprocessing(**change), Preprocessing()
    (field,) = change
    assert faces.fingerprint() != model.fingerprint()
    assert differences(faces, model) == {field: (change[field], getattr(model, field))}


def test_faces_made_alike_have_no_differences():
    assert differences(Preprocessing(), Preprocessing()) == {}
    assert Preprocessing().fingerprint() == Preprocessing().fingerprint()


@pytest.mark.parametrize(
    "bad",
    [{"template": "arcface"}, {"colour": "GRAY"}, {"scale": 0}, {"scale": 1e-40}, {"mean": float("nan")}, {"size": 3}],
    ids=str,
)
def test_a_value_or_key_that_means_nothing_is_refused(bad):
    with pytest.raises(ValidationError):
        Preprocessing(**bad)


# A card's text as the first format 1 wrote it, before calibrations and ensembles.
OLD = (
    '{"format":1,"name":"old","architecture":null,"preprocessing":{"template":"sphereface","crop":"112x96",'
    '"colour":"RGB","mean":127.5,"scale":128.0},"feature_rule":"concatenate",'
    '"thresholds":[{"score":0.3,"far":0.001,"measured_on":"LFW"}],"licences":{"code":"MIT"}}'
)


def tail(**changes):
    table = {"scores": (0.2, 0.4, 0.5), "fars": (1e-2, 1e-4, 1e-5)}
    about = {"people": 900, "pairs": 10_000, "weigh": "people", "feature_rule": "concatenate", "measured_on": "ours"}
    return ImpostorTail(**{**table, **about, **changes})


def test_an_old_card_reads_and_is_written_to_the_same_letter():
    assert parse_card(OLD, source="here").model_dump_json() == OLD


def test_a_calibrated_card_survives_its_own_text():
    both = (
        Threshold(score=0.4, far=1e-4, measured_on="ours", interval=(0.35, 0.45)),
        Threshold(score=0.6, far=1e-6, measured_on="ours", fpir=0.01, gallery_size=10_000, approximate=True),
    )
    card = Card(name="a", thresholds=both, impostor_tail=tail())
    text = card.model_dump_json()
    assert parse_card(text, source="here") == card
    assert "fpir" not in json.loads(text)["thresholds"][0]


def test_a_score_reads_its_rate_off_the_tail_straight_in_the_logarithm():
    card = Card(impostor_tail=tail())
    assert card.far_of(0.2) == (pytest.approx(1e-2), "measured")
    assert card.far_of(0.3) == (pytest.approx(1e-3), "measured")
    assert card.far_of(0.4) == (pytest.approx(1e-4), "measured")
    assert card.far_of(0.45).far == pytest.approx(10**-4.5)
    assert card.far_of(0.5) == (pytest.approx(1e-5), "measured")
    assert str(card.far_of(0.3)) == "0.001"


def test_beyond_the_tail_nothing_is_made_up():
    card = Card(impostor_tail=tail())
    assert card.far_of(0.51) == (1e-5, "below what was measured")
    assert card.far_of(0.19) == (1e-2, "above what was measured")
    assert str(card.far_of(0.9)) == "below 1e-05, below what was measured"
    with pytest.raises(ValueError, match="nan"):
        card.far_of(float("nan"))
    one = tail(scores=(0.3,), fars=(0.01,))
    assert one.far_of(0.3) == (0.01, "measured")
    assert one.far_of(0.31).said == "below what was measured"


def test_a_card_without_a_tail_or_with_that_of_another_rule_says_so():
    with pytest.raises(ContractMismatch, match="no impostor tail; calibrate"):
        Card().far_of(0.3)
    with pytest.raises(ContractMismatch, match="concatenate, the features are made under sum"):
        Card(feature_rule="sum", impostor_tail=tail()).far_of(0.3)


@pytest.mark.parametrize(
    "bad",
    [
        {"scores": (0.2, 0.2, 0.5)},
        {"fars": (1e-2, 1e-2, 1e-5)},
        {"fars": (1e-2, 1e-4)},
        {"fars": (1e-2, 1e-4, 0.0)},
        {"scores": (), "fars": ()},
        {"scores": (0.4,), "fars": (0.0,)},
    ],
    ids=str,
)
def test_a_tail_that_does_not_fall_is_refused(bad):
    with pytest.raises(ValidationError):
        tail(**bad)


@pytest.mark.parametrize(
    "bad", [{"fpir": 0.1}, {"gallery_size": 10}, {"interval": (0.4, 0.5)}, {"fpir": 0.0, "gallery_size": 10}], ids=str
)
def test_a_threshold_that_contradicts_itself_is_refused(bad):
    with pytest.raises(ValidationError):
        Threshold(score=0.3, far=1e-3, measured_on="LFW", **bad)
