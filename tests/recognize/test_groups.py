"""Groups of unnamed faces, their gallery, and corrections that a second run keeps; moving to another model."""

import numpy as np
import pytest

from sphereface import Embedder, align
from sphereface.contract import Card
from sphereface.errors import JobFailed, UserError
from sphereface.gallery.gallery import Gallery
from sphereface.hashes import sha256_of
from sphereface.recognize.groups import enroll_groups, require_page
from sphereface.recognize.reembedding import reembed
from tests.recognize.drawn import needs_sface, photo, recognizer, wall, write

pytestmark = needs_sface


@pytest.fixture
def gallery(tmp_path):
    with Gallery.open(tmp_path / "people.gallery") as found:
        yield found


@pytest.fixture
def photos(tmp_path):
    """Three photos of one person, two of another, one of a third, and one of nobody."""
    paths = write(
        tmp_path / "photos", a1=photo(0), a2=photo(0, light=0.9), a3=photo(0, light=0.8), b1=photo(2),
        b2=photo(2, light=0.9), c1=photo(7), wall=wall(),
    )  # fmt: skip
    return list(paths.values())


def names(faces):
    return {each.source.rsplit("/", 1)[1] for each in faces}


def test_photos_of_one_person_are_a_group(photos):
    found = recognizer().group(photos)
    assert [names(group) for group in found.groups] == [{"a1.png", "a2.png", "a3.png"}, {"b1.png", "b2.png"}]
    assert names(found.singles) == {"c1.png"}
    assert list(found.failed.values()) == ["no face was found"]
    assert "2 groups of 5 faces, 1 faces alone" in found.text()
    assert found.as_dict()["threshold"] == found.threshold.score


def test_groups_get_names_in_a_gallery_and_are_known_in_a_second_run(photos, gallery):
    known = recognizer(gallery)
    assert enroll_groups(known.group(photos), gallery) == ["unknown-1", "unknown-2"]
    assert [(person.name, person.photos) for person in gallery.people()] == [("unknown-1", 3), ("unknown-2", 2)]
    again = known.group(photos)
    assert {person.name: len(faces) for person, faces in again.known.items()} == {"unknown-1": 3, "unknown-2": 2}
    assert again.groups == []
    assert enroll_groups(again, gallery) == []
    assert sum(person.photos for person in gallery.people()) == 5


def test_corrections_survive_a_second_run(photos, gallery, tmp_path):
    known = recognizer(gallery)
    enroll_groups(known.group(photos), gallery)
    gallery.rename("unknown-1", "Ada")
    gallery.merge("unknown-2", "Ada")
    wrong = next(
        number for number, _, each in gallery.store.photos(gallery.find("Ada").id) if each.box[0] > 0
    )  # any photo: the user says that it is not Ada
    gallery.remove_photos("Ada", [wrong])
    more = write(tmp_path / "photos", a4=photo(0, light=0.7))["a4"]
    enroll_groups(known.group([*photos, more]), gallery)
    (ada,) = gallery.people()
    assert (ada.name, ada.photos) == ("Ada", 5)  # four kept, one new; the removed one stays out
    assert gallery.find("unknown-1") == gallery.find("unknown-2") == ada


def test_new_groups_take_numbers_that_were_never_used(photos, gallery):
    known = recognizer(gallery)
    enroll_groups(known.group(photos[:3]), gallery)
    gallery.rename("unknown-1", "Ada")
    assert enroll_groups(known.group(photos), gallery) == ["unknown-2"]


def test_faces_of_low_quality_are_left_out_with_the_reason(tmp_path):
    paths = write(tmp_path, good=photo(0), dark=photo(0, light=0.25))
    found = recognizer(min_quality=0.6).group(list(paths.values()))
    assert names(found.singles) == {"good.png"}
    assert "dark" in found.failed[str(paths["dark"])]


def test_several_faces_of_a_photo_are_grouped_each(tmp_path):
    paths = write(tmp_path, both=photo(0, 2), ada=photo(0, light=0.9), bob=photo(2, light=0.9))
    found = recognizer().group(list(paths.values()))
    assert sorted(map(sorted, map(names, found.groups))) == [["ada.png", "both.png"], ["bob.png", "both.png"]]


def test_copies_of_a_photo_count_once_and_bad_photos_are_named(tmp_path, photos):
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    found = recognizer().group([photos[0], photos[0].read_bytes(), tmp_path / "broken.jpg"])
    assert len(found.singles) == 1
    assert found.groups == []
    assert str(tmp_path / "broken.jpg") in found.failed
    assert recognizer().group([wall()]).singles == []


def test_the_page_shows_the_faces_of_every_group(photos, tmp_path):
    page = recognizer().group(photos).page().html()
    assert page.count("data:image/jpeg;base64,") == 6
    assert "Group 1: 3 faces" in page
    assert 'alt="a1.png"' in page
    assert "wall.png" in page
    with pytest.raises(UserError, match="is a folder; wanted a file for the page"):
        require_page(tmp_path)
    with pytest.raises(UserError, match="there is no folder"):
        require_page(tmp_path / "no" / "page.html")


@pytest.fixture
def other_model(tmp_path):
    pytest.importorskip("torch")
    from sphereface.models import create_model, save_model

    path = tmp_path / "other.safetensors"
    save_model(create_model("sphereface4", features=16, width=0.125).eval(), path, Card(name="other"))
    return path


def test_a_gallery_moves_to_another_model_with_its_names_and_corrections(photos, gallery, other_model, tmp_path):
    known = recognizer(gallery)
    known.enroll("ada", photos[:3])
    gallery.rename("ada", "Ada")
    numbers = [number for number, *_ in gallery.store.photos(gallery.find("Ada").id)]
    gallery.remove_photos("Ada", numbers[:1])
    with pytest.raises(JobFailed, match="1 of the enrolled photos are not among the 2 given; nothing was changed"):
        reembed(gallery, [photos[1], photos[4]], other_model)
    assert reembed(gallery, photos, other_model) == (2, True)
    model = gallery.store.model
    assert (model.name, model.dimension) == ("other", 32)
    person = gallery.find("ada")
    assert (person.name, person.photos) == ("Ada", 2)
    assert gallery.store.is_rejected(person.id, sha256_of(photos[0]))
    embedder = Embedder.load(other_model)
    stored = gallery.store.photos(person.id)[0][2].feature
    face = recognizer(gallery).reader.detector.detect(photo(0, light=0.9))
    expected = embedder.embed(align(photo(0, light=0.9), face.landmarks[0])[None])[0]
    assert np.corrcoef(stored, expected)[0, 1] > 0.95  # found by another detector preset
