import pytest
from pydantic import ValidationError

from sphereface.contract import Card, Preprocessing, differences, parse_card, require_same
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
def test_every_field_changes_the_fingerprint_and_is_named_in_a_mismatch(change):
    faces, model = Preprocessing(**change), Preprocessing()
    (field,) = change
    assert faces.fingerprint() != model.fingerprint()
    assert list(differences(faces, model)) == [field]
    with pytest.raises(ContractMismatch, match=field):
        require_same(faces, model)


def test_faces_made_alike_pass():
    require_same(Preprocessing(), Preprocessing())
    assert Preprocessing().fingerprint() == Preprocessing().fingerprint()


@pytest.mark.parametrize("bad", [{"template": "arcface"}, {"colour": "GRAY"}, {"scale": 0}, {"size": 3}], ids=str)
def test_a_value_or_key_that_means_nothing_is_refused(bad):
    with pytest.raises(ValidationError):
        Preprocessing(**bad)
