"""Verify, enroll, identify: real detector and model, on photos of drawn people."""

import time

import numpy as np
import pytest

from sphereface.errors import ContractMismatch, NoFaceFound, UnreadableImage, UserError
from sphereface.faces.images import encode_png
from sphereface.gallery.gallery import Gallery
from sphereface.gallery.records import Model, Photo
from sphereface.recognize.drawing import draw_names
from sphereface.recognize.recognizer import Recognizer, enroll_folder
from sphereface.recognize.thresholds import search_threshold
from tests.recognize.drawn import detector, embedder, needs_sface, photo, recognizer, wall, write

pytestmark = needs_sface


@pytest.fixture
def gallery(tmp_path):
    with Gallery.open(tmp_path / "people.gallery") as found:
        yield found


@pytest.fixture
def known(gallery):
    """A recognizer that knows two people."""
    found = recognizer(gallery)
    found.enroll("Ada", [photo(0), photo(0, light=0.9)])
    found.enroll("Bob", photo(2))
    return found


def test_two_photos_of_one_person_are_the_same_and_of_two_are_not():
    same = recognizer().verify(photo(0), photo(0, light=0.85))
    assert same.same
    assert same.threshold.far == 1e-3
    assert same.rate.far < 0.01
    other = recognizer().verify(photo(0), photo(5))
    assert not other.same
    assert other.score < same.score
    assert np.cos(np.radians(other.angle)) == pytest.approx(other.score)


def test_an_answer_says_all_that_decided_it():
    found = recognizer().verify(photo(0), photo(0, 2, light=0.2)).as_dict()
    assert found.keys() >= {"same", "score", "threshold", "far", "warnings", "model"}
    assert "no liveness check" in found["warnings"][-1]
    assert "the second photo: 2 faces; the one nearest the centre was taken" in found["warnings"]
    assert "the second photo: dark" in found["warnings"]
    text = recognizer().verify(photo(0), photo(0, light=0.9)).text()
    assert text.startswith("the same person: score 0.")
    assert "1 of 1,000 pairs of different people reach this threshold" in text


def test_photos_may_be_paths_bytes_or_pixels(tmp_path):
    path = write(tmp_path, ada=photo(0))["ada"]
    answers = [recognizer().verify(given, photo(0)).score for given in (path, str(path), path.read_bytes(), photo(0))]
    assert answers == pytest.approx([1.0] * 4, abs=1e-6)
    with pytest.raises(UserError, match="a photo of type float; wanted a path, bytes, or pixels"):
        recognizer().verify(1.0, photo(0))


def test_a_photo_without_a_face_is_an_error_that_names_it(tmp_path):
    path = write(tmp_path, wall=wall())["wall"]
    with pytest.raises(NoFaceFound, match=r"wall.png: no face was found in 200 x 200 pixels"):
        recognizer().verify(path, photo(0))
    with pytest.raises(UnreadableImage, match=r"missing\.jpg"):
        recognizer().verify(tmp_path / "missing.jpg", photo(0))


def test_low_quality_is_refused_with_the_reason_if_asked_for():
    with pytest.raises(UserError, match=r"the second photo: dark.*; its quality is 0.\d+, wanted 0.80"):
        recognizer(min_quality=0.8).verify(photo(0), photo(0, light=0.3))
    with pytest.raises(UserError, match="min_quality is 2; wanted a number from 0 to 1"):
        Recognizer(min_quality=2)


def test_people_are_named_strangers_are_unknown(known):
    (ada,) = known.identify(photo(0, light=0.8)).faces
    assert ada.name == "Ada"
    assert ada.score >= ada.threshold.score
    (stranger,) = known.identify(photo(7)).faces
    assert stranger.name is None
    assert stranger.score < stranger.threshold.score
    both = known.identify(photo(2, 7, light=0.95))
    assert {each.name for each in both.faces} == {"Bob", None}
    assert known.identify(wall()).faces == ()


def test_the_threshold_is_that_of_the_gallery_as_it_is(known, gallery):
    found = known.identify(photo(0)).faces[0].threshold
    assert found == search_threshold(embedder().card, {1: 1, 2: 1})
    assert (found.people, found.fpir) == (2, 0.01)
    gallery.remove("Bob")
    assert known.identify(photo(0)).faces[0].threshold.people == 1


def test_in_an_empty_gallery_everybody_is_unknown(gallery):
    (face,) = recognizer(gallery).identify(photo(0)).faces
    assert (face.name, face.score) == (None, None)


def test_enrolling_again_adds_nothing(known):
    again = known.enroll("Ada", [photo(0), photo(0, light=0.9), photo(0, light=0.8)])
    assert again.known == ("photo 1", "photo 2")
    assert again.added == ("photo 3",)
    assert again.photos == 3


def test_a_photo_of_somebody_else_is_refused_unless_forced(known):
    found = known.enroll("Ada", [photo(0, light=0.7), photo(7)])
    assert found.added == ("photo 1",)
    assert list(found.refused) == ["photo 2"]
    assert "does not look like Ada" in found.text()
    assert known.enroll("Ada", photo(7), force=True).added == ("photo 1",)


def test_a_person_who_is_there_under_another_name_is_told_of(known):
    found = known.enroll("Mrs Lovelace", photo(0, light=0.8))
    assert [each.name for each in found.alike] == ["Ada"]
    assert found.photos == 1  # enrolled all the same
    assert "looks like Ada" in found.text()
    assert known.enroll("Eve", photo(7)).alike == ()


def test_what_cannot_be_enrolled_is_counted_with_its_reason(known, tmp_path):
    paths = write(tmp_path, wall=wall(), dark=photo(0, light=0.25), good=photo(0, light=0.75))
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    strict = recognizer(known.gallery, min_quality=0.6)
    found = strict.enroll("Ada", [*paths.values(), tmp_path / "broken.jpg", tmp_path / "missing.jpg"])
    assert found.added == (str(paths["good"]),)
    assert found.failed[str(paths["wall"])] == "no face was found"
    assert strict.identify(paths["dark"]).faces[0].name is None
    assert strict.identify(paths["good"]).faces[0].name == "Ada"
    assert found.failed[str(paths["dark"])].startswith("dark")
    assert found.failed.keys() >= {str(tmp_path / "broken.jpg"), str(tmp_path / "missing.jpg")}


def test_photos_of_a_new_person_that_do_not_look_alike_are_named(gallery):
    found = recognizer(gallery).enroll("Ada", [photo(0), photo(0, light=0.9), photo(7)])
    assert found.photos == 3
    assert any(warning.startswith("photo 3: does not look like the other photos") for warning in found.warnings)
    assert not any(warning.startswith("photo 1: does not") for warning in found.warnings)


def test_a_gallery_that_is_too_large_for_the_calibration_can_still_grow(known, monkeypatch):
    monkeypatch.setattr(type(known.gallery), "sizes", {1: 10_000_000})
    found = known.enroll("Eve", photo(7))
    assert found.added == ("photo 1",)
    assert "not looked for under other names" in found.warnings[0]


def test_a_folder_with_a_name_that_cannot_be_one_leaves_the_others_enrolled(gallery, tmp_path):
    write(tmp_path / ("x" * 201), one=photo(0))
    write(tmp_path / "bob", one=photo(2))
    (tmp_path / "notes.txt").write_text("loose")
    (tmp_path / "bob" / "one.heic").write_bytes(b"")
    said = []
    found = {each.name: each for each in enroll_folder(recognizer(gallery), tmp_path, say=said.append)}
    assert found["bob"].photos == 1
    assert "wanted 1 to 200 printable characters" in next(iter(found["x" * 201].failed.values()))
    assert any("notes.txt" in line for line in said)
    assert any("one.heic" in line for line in said)


def test_a_name_without_a_photo_that_can_be_enrolled_is_not_made(gallery):
    found = recognizer(gallery).enroll("Wall", wall())
    assert (found.photos, found.added) == (0, ())
    assert gallery.people() == []


def test_a_removed_photo_stays_out_when_its_folder_is_enrolled_again(gallery, tmp_path):
    write(tmp_path / "people" / "ada", one=photo(0), two=photo(7))
    found = recognizer(gallery)
    enroll_folder(found, tmp_path / "people")
    wrong = next(number for number, _, each in gallery.store.photos(gallery.find("ada").id)
                 if each.sha256 == gallery.store.photos(gallery.find("ada").id)[1][2].sha256)  # fmt: skip
    gallery.remove_photos("ada", [wrong])
    gallery.rename("ada", "Ada Lovelace")
    (again,) = enroll_folder(found, tmp_path / "people")
    assert (again.name, again.photos, again.added) == ("Ada Lovelace", 1, ())
    assert again.removed == (str(tmp_path / "people" / "ada" / "two.png"),)
    assert again.warnings == ("ada is an earlier name of Ada Lovelace",)


def test_a_folder_of_folders_enrolls_everybody(gallery, tmp_path):
    for person, name in enumerate(("ada", "bob", "eve")):
        write(tmp_path / "people" / name, one=photo(2 * person))
    (tmp_path / "people" / "empty").mkdir()
    said, done = [], []
    found = enroll_folder(
        recognizer(gallery),
        tmp_path / "people",
        note="agreed",
        say=said.append,
        progress=lambda *each: done.append(each),
    )
    assert [each.name for each in found] == ["ada", "bob", "eve"]
    assert {person.note for person in gallery.people()} == {"agreed"}
    assert said == [f"{tmp_path / 'people' / 'empty'}: without photos"]
    assert done[-1] == (4, 4)
    with pytest.raises(UserError, match="no folder in it; wanted a folder of photos for each person"):
        enroll_folder(recognizer(gallery), tmp_path / "people" / "ada")


def test_a_person_whose_time_is_over_is_unknown(gallery):
    found = recognizer(gallery)
    found.enroll("Ada", photo(0), expires=time.time() + 0.3)
    assert found.identify(photo(0)).faces[0].name == "Ada"
    time.sleep(0.35)
    assert found.identify(photo(0)).faces[0].name is None


def test_a_gallery_of_another_model_is_refused(gallery):
    gallery.enroll("Eve", [Photo("00" * 32, (0, 0, 1, 1), np.ones(4, np.float32))], model=Model("another", "b", 4))
    with pytest.raises(ContractMismatch, match="features of b, but the model is sface"):
        recognizer(gallery).identify(photo(0))


def test_the_model_auto_is_that_of_the_gallery(gallery):
    Recognizer("sface", gallery, threads=1, detector=detector()).gallery.enroll(
        "Ada", [Photo("00" * 32, (0, 0, 1, 1), np.ones(128, np.float32))], model=recognizer().model
    )
    assert Recognizer("auto", gallery, threads=1).embedder.identity == embedder().identity


def test_an_unreadable_photo_leaves_the_others_their_answers(known, tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    broken, good = known.identify_many([tmp_path / "broken.jpg", encode_png(photo(0))])
    assert broken.error
    assert broken.as_dict()["error"] == broken.error
    assert good.faces[0].name == "Ada"
    assert "error" not in good.as_dict()


def test_names_are_drawn_inside_the_photo(known):
    picture = photo(0, 7)
    drawn = draw_names(picture, known.identify(picture).faces)
    assert drawn.shape == picture.shape
    assert (drawn != picture).any(axis=2).mean() > 0.01
    assert (picture == photo(0, 7)).all()
