"""A gallery against a plain model of it, its file, its key, and what is left of it when somebody goes."""

import os
import sqlite3
import stat
import time

import numpy as np
import pytest

from sphereface.arrays import unit_rows
from sphereface.errors import ContractMismatch, GalleryError, UserError
from sphereface.gallery import schema
from sphereface.gallery.copies import check
from sphereface.gallery.gallery import Gallery, default_gallery
from sphereface.gallery.records import Model, Photo
from sphereface.gallery.sealing import read_key, write_key
from sphereface.hashes import sha256_of
from sphereface.metrics.templates import pool

MODEL = Model("identity", "a model", 32)
KEY = bytes(range(32))


def photo(seed, *, dimension=32):
    feature = np.random.default_rng(seed).normal(size=dimension).astype(np.float32)
    return Photo(sha256_of(f"photo {seed}"), (1.0, 2.0, 30.5, 40.5), feature)


class OneModel(Gallery):
    """A gallery whose features are all of one model."""

    def enroll(self, who, photos, *, model=MODEL, **options):
        return super().enroll(who, photos, model=model, **options)


def opened(path, **options):
    return OneModel.open(path, actor="tests", **options)


@pytest.fixture(params=[None, KEY], ids=["plain", "sealed"])
def key(request):
    return request.param


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.gallery"


@pytest.fixture
def gallery(path, key):
    with opened(path, key=key) as found:
        yield found


def best(gallery, seed):
    found = gallery.search(photo(seed).feature[None])
    return int(found.people[0, 0]), float(found.scores[0, 0])


def test_what_is_enrolled_is_read_back(gallery):
    person, count = gallery.enroll("Ada", [photo(1), photo(2)], note="consent of 2026-11-19")
    assert (person.name, person.photos, person.note, count) == ("Ada", 2, "consent of 2026-11-19", 2)
    (first, second) = gallery.store.photos(person.id)
    assert first[2].sha256 == photo(1).sha256
    assert first[2].box == photo(1).box
    assert (second[2].feature == photo(2).feature).all()
    assert gallery.people() == [person]
    assert gallery.store.owners(photo(2).sha256) == [person.id]
    assert dict(gallery.sizes) == {2: 1}


def test_a_template_is_pooled_from_all_photos(gallery):
    gallery.enroll("Ada", [photo(1)])
    person, _ = gallery.enroll("Ada", [photo(2), photo(3)])
    units = unit_rows(np.stack([photo(seed).feature for seed in (1, 2, 3)]))
    template = pool(units, np.zeros(3, np.int64), 1)[0]
    probe = unit_rows(photo(2).feature[None])[0]
    assert best(gallery, 2) == (person.id, pytest.approx(float(template @ probe), abs=1e-6))


def test_a_photo_is_enrolled_once_a_person(gallery):
    gallery.enroll("Ada", [photo(1)])
    person, count = gallery.enroll("Ada", [photo(1), photo(2)])
    assert (count, person.photos) == (1, 2)
    other, count = gallery.enroll("Bob", [photo(1)])  # a photo of two people
    assert count == 1
    assert gallery.store.owners(photo(1).sha256) == [person.id, other.id]


def test_names_are_found_also_under_their_earlier_forms(gallery):
    gallery.enroll("ada", [photo(1)])
    gallery.rename("ada", "Ada Lovelace")
    person, count = gallery.enroll("ada", [photo(2)])  # as a second run of the same folder does
    assert (person.name, person.photos, count) == ("Ada Lovelace", 2, 1)
    assert gallery.store.names_of(person.id) == ["ada"]
    assert [each.name for each in gallery.people()] == ["Ada Lovelace"]
    gallery.rename("Ada Lovelace", "ada")  # back: the alias ends
    assert gallery.find("Ada Lovelace").name == "ada"
    gallery.enroll("Bob", [photo(3)])
    with pytest.raises(GalleryError, match="is a name of another person"):
        gallery.rename("Bob", "Ada Lovelace")
    with pytest.raises(GalleryError, match=r"nobody is called 'Bo'; similar names: Bob"):
        gallery.find("Bo")


def test_two_people_become_one(gallery):
    gallery.enroll("Ada", [photo(1)])
    gallery.enroll("A. Lovelace", [photo(1), photo(2)])
    gallery.merge("A. Lovelace", "Ada")
    (person,) = gallery.people()
    assert (person.name, person.photos) == ("Ada", 2)
    assert gallery.find("A. Lovelace") == person
    assert [each.sha256 for *_, each in gallery.store.photos(person.id)] == [photo(1).sha256, photo(2).sha256]
    assert best(gallery, 2)[0] == person.id
    with pytest.raises(GalleryError, match="is the same person already"):
        gallery.merge("A. Lovelace", "Ada")


def test_a_removed_photo_stays_out(gallery):
    person, _ = gallery.enroll("Ada", [photo(1), photo(2)])
    (_, (number, *_)) = gallery.store.photos(person.id)
    assert gallery.remove_photos("Ada", [number])
    person, count = gallery.enroll("Ada", [photo(1), photo(2)])
    assert (person.photos, count) == (1, 0)
    with pytest.raises(GalleryError, match="has no photo 99; sphereface gallery show"):
        gallery.remove_photos("Ada", [99])


def test_ids_are_never_used_again(gallery):
    first = gallery.enroll("Ada", [photo(1)])[0].id
    gallery.remove("Ada")
    assert gallery.enroll("Bob", [photo(2)])[0].id > first
    assert best(gallery, 1)[0] != first


def test_changes_of_another_process_are_seen_before_the_next_search(gallery, path, key):
    with opened(path, key=key) as other:
        assert best(other, 1)[0] == -1
        person, _ = gallery.enroll("Ada", [photo(1)])
        assert best(other, 1) == (person.id, pytest.approx(1, abs=1e-6))
        gallery.enroll("Ada", [photo(2)])
        assert dict(other.sizes) == {2: 1}
        gallery.remove("Ada")
        assert best(other, 1)[0] == -1
        assert len(other) == 0


def test_a_person_whose_time_is_over_is_not_named(gallery):
    gallery.enroll("Ada", [photo(1)], expires=time.time() + 0.2)
    gallery.enroll("Bob", [photo(2)])
    assert len(gallery) == 2
    time.sleep(0.25)
    assert len(gallery) == 1
    gallery.expire("Bob", time.time() - 1)
    assert best(gallery, 2)[0] == -1
    gallery.expire("Bob", None)
    assert best(gallery, 2)[1] == pytest.approx(1, abs=1e-6)
    assert gallery.remove_expired() == (["Ada"], True)
    assert [person.name for person in gallery.people()] == ["Bob"]


def test_features_of_another_model_are_refused(gallery):
    assert gallery.store.model is None
    gallery.enroll("Ada", [photo(1)])
    assert gallery.store.model == MODEL
    other = Model("other", "b", 32)
    reason = r"features of a model, but the model is b; .*gallery reembed"
    with pytest.raises(ContractMismatch, match=reason):
        gallery.enroll("Bob", [photo(2)], model=other)
    with pytest.raises(ContractMismatch, match=reason):
        gallery.search(photo(1).feature[None], model=other)
    with pytest.raises(ContractMismatch, match=reason):
        gallery.enroll("Bob", [photo(2, dimension=8)], model=Model("identity", "b", 8))
    assert [person.name for person in gallery.people()] == ["Ada"]


@pytest.mark.parametrize("feature", [np.zeros(32), np.full(32, np.nan), np.ones(31), np.ones((32, 1))])
def test_features_without_a_direction_or_of_another_length_are_refused(gallery, feature):
    bad = photo(1)._replace(feature=feature.astype(np.float32))
    with pytest.raises(UserError, match="wanted 32 finite numbers, not all zero"):
        gallery.enroll("Ada", [bad])
    assert gallery.people() == []


def test_note_and_end_date_of_a_known_person_are_replaced_if_given(gallery):
    gallery.enroll("Ada", [photo(1)], note="first", expires=4e9)
    gallery.enroll("Ada", [photo(2)])
    assert gallery.find("Ada")[3:] == ("first", gallery.find("Ada").added, 4e9)
    gallery.enroll("Ada", [], note="second", expires=5e9)
    person = gallery.find("Ada")
    assert (person.photos, person.note, person.expires) == (2, "second", 5e9)
    gallery.enroll("Eve", [photo(3)], note="other", expires=4.5e9)
    gallery.merge("Eve", "Ada")
    person = gallery.find("Ada")
    assert (person.note, person.expires) == ("second; other", 4.5e9)  # the earlier end holds
    with pytest.raises(UserError, match="wanted one printable line"):
        gallery.enroll("Ada", [photo(4)], note="a\x1b[2Jb")
    with pytest.raises(UserError, match="an end date of 1e"):
        gallery.expire("Ada", 1e300)


def test_a_failed_refresh_is_made_up_for_by_the_next_one(gallery, path, key, monkeypatch):
    with opened(path, key=key) as other:
        other.enroll("Ada", [photo(1)])
        assert best(gallery, 1)[0] == 1
        other.enroll("Bob", [photo(2)])
        with monkeypatch.context() as broken:
            broken.setattr(gallery.store, "templates", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                gallery.refresh()
        assert best(gallery, 2) == (2, pytest.approx(1, abs=1e-6))
        assert best(gallery, 1)[0] == 1


def test_two_galleries_on_one_store_both_see_its_changes(gallery):
    second = OneModel(gallery.store)
    gallery.enroll("Ada", [photo(1)])
    assert best(gallery, 1)[0] == best(second, 1)[0] == 1
    second.enroll("Bob", [photo(2)])
    assert best(gallery, 2)[0] == best(second, 2)[0] == 2


def test_changes_that_are_taken_back_leave_no_trace_in_the_index(gallery):
    gallery.enroll("Ada", [photo(1)])

    def fail():
        with gallery.store.together():
            gallery.enroll("Ghost", [photo(2)])
            assert best(gallery, 2)[1] < 0.9  # not before it is stored
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    gallery.enroll("Bob", [photo(3)])
    assert best(gallery, 2)[1] < 0.9
    assert best(gallery, 3) == (gallery.find("Bob").id, pytest.approx(1, abs=1e-6))


def test_a_person_is_deleted_by_the_present_name_alone(gallery):
    gallery.enroll("unknown-1", [photo(1)])
    gallery.enroll("Ada", [photo(2)])
    gallery.merge("unknown-1", "Ada")
    with pytest.raises(
        GalleryError, match="unknown-1 is an earlier name of Ada; to delete that person, give this name"
    ):
        gallery.remove("unknown-1")
    assert gallery.remove("Ada")


def test_replaced_features_keep_names_and_corrections(gallery):
    person, _ = gallery.enroll("ada", [photo(1), photo(2)])
    gallery.rename("ada", "Ada")
    new = Model("other", "b", 8)
    numbers = [number for number, *_ in gallery.store.photos(person.id)]
    with pytest.raises(GalleryError, match="1 photos have no features of b; nothing was changed"):
        gallery.store.replace(new, [(numbers[0], photo(5, dimension=8))], actor="tests")
    assert gallery.store.model == MODEL
    gallery.store.replace(new, [(number, photo(number, dimension=8)) for number in numbers], actor="tests")
    assert gallery.store.model == new
    found = gallery.search(photo(numbers[0], dimension=8).feature[None])
    assert found.people[0, 0] == gallery.find("ada").id


def test_the_log_tells_who_did_what_and_cannot_be_changed(gallery, path):
    gallery.enroll("Ada", [photo(1), photo(2)])
    gallery.rename("Ada", "Eve")
    gallery.remove("Eve")
    assert [(entry.actor, entry.action, entry.photos) for entry in gallery.store.log()] == [
        ("tests", "enroll", 2), ("tests", "rename", 0), ("tests", "remove", 2),
    ]  # fmt: skip
    with sqlite3.connect(path) as database:
        for change in ("DELETE FROM log", "UPDATE log SET actor = 'nobody'"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                database.execute(change)


def everything(path):
    """The bytes of all files of a gallery."""
    return b"".join(file.read_bytes() for file in sorted(path.parent.glob(f"{path.name}*")))


def test_what_was_removed_is_in_no_file(gallery, path, key):
    rng = np.random.default_rng(0)
    for person in range(60):
        gallery.enroll(f"person {person}", [photo(100 * person + number) for number in range(1 + person % 4)])
    gone = rng.permutation(60)[:30].tolist()
    for person in gone:
        gallery.rename(f"person {person}", f"somebody {person}")
        assert gallery.remove(f"somebody {person}")
    left = everything(path)
    for person in gone:
        for number in range(1 + person % 4):
            assert photo(100 * person + number).feature.tobytes()[:16] not in left
        assert f"somebody {person}".encode() not in left
    if key is None:  # so that the search above could have found something
        kept = next(person for person in range(60) if person not in gone)
        assert photo(100 * kept).feature.tobytes() in left


def test_a_reader_that_prevents_erasing_is_told_of(gallery, path, monkeypatch):
    monkeypatch.setattr("sphereface.gallery.gallery.ERASE_SECONDS", 0.1)
    monkeypatch.setattr("sphereface.gallery.sqlite.ERASE_MILLISECONDS", 10)
    gallery.enroll("Ada", [photo(1)])
    said = []
    with sqlite3.connect(path, isolation_level=None) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM people").fetchone()
        assert not gallery.remove("Ada", say=said.append)
        assert "another process is reading" in said[0]
        assert best(gallery, 1)[0] == -1
    reader.close()
    assert gallery.erase()
    assert photo(1).feature.tobytes()[:16] not in everything(path)


def test_files_are_readable_by_their_owner_alone(gallery, path):
    gallery.enroll("Ada", [photo(1)])
    for file in path.parent.glob(f"{path.name}*"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_file_is_hardly_larger_than_its_vectors(tmp_path, key):
    people, dimension = 3_000, 512
    path = tmp_path / "large.gallery"
    model = Model("identity", "large", dimension)
    with Gallery.open(path, key=key) as gallery:
        with gallery.store.together():
            for person in range(people):
                gallery.enroll(f"person {person}", [photo(person, dimension=dimension)], model=model)
        gallery.erase()
    assert path.stat().st_size <= 1.25 * people * dimension * 4


# The key.


def test_no_feature_and_no_name_is_readable_without_the_key(path):
    with opened(path, key=KEY) as gallery:
        gallery.enroll("Ada Lovelace", [photo(1)], note="agreed")
        content = everything(path)
    feature = photo(1).feature.tobytes()
    assert not any(feature[start : start + 16] in content for start in range(len(feature) - 16))
    for text in (b"Ada", b"agreed", bytes.fromhex(photo(1).sha256)[:8]):
        assert text not in content


def test_a_wrong_or_missing_key_is_a_clear_error(path, tmp_path):
    opened(path, key=KEY).close()
    with pytest.raises(GalleryError, match="the key is not that of this gallery"):
        opened(path, key=bytes(32))
    with pytest.raises(GalleryError, match="an encrypted gallery; give its key with --key-file FILE"):
        opened(path)
    plain = tmp_path / "plain.gallery"
    opened(plain).close()
    with pytest.raises(GalleryError, match="without encryption, but a key is given"):
        opened(plain, key=KEY)


def test_every_flipped_bit_of_a_value_is_noticed(path):
    with opened(path, key=KEY) as gallery:
        gallery.enroll("Ada", [photo(1)])
    with sqlite3.connect(path) as database:
        ((value,),) = database.execute("SELECT value FROM photos")
        for place in range(0, len(value), 17):
            changed = bytearray(value)
            changed[place] ^= 1
            database.execute("UPDATE photos SET value = ?", (bytes(changed),))
            database.commit()
            with opened(path, key=KEY) as gallery, pytest.raises(GalleryError, match=r"photo 1 1 .*restore a backup"):
                gallery.refresh()
    database.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE aliases SET person = 2",
        "UPDATE people SET expires = 1 WHERE id = 1",
        "UPDATE people SET name_key = CASE id WHEN 1 THEN 'x' ELSE name_key END",
        "UPDATE photos SET person = 2 WHERE id = 1",
        "UPDATE photos SET photo_key = x'00' WHERE id = 1",
    ],
)
def test_no_column_of_a_sealed_row_can_be_changed_unnoticed(path, change):
    with opened(path, key=KEY) as gallery:
        gallery.enroll("ada", [photo(1)])
        gallery.rename("ada", "Ada")
        gallery.enroll("Bob", [photo(2)])
    with sqlite3.connect(path) as database:
        database.execute(change)
    database.close()
    with opened(path, key=KEY) as gallery:
        assert any("changed or moved" in problem for problem in check(gallery))


@pytest.mark.parametrize("name", ["salt", "check", "model", "id", "seal"])
def test_a_damaged_setting_is_one_clear_error(path, name):
    with opened(path, key=KEY) as gallery:
        gallery.enroll("Ada", [photo(1)])
    with sqlite3.connect(path) as database:
        database.execute("UPDATE meta SET value = 'z' || substr(value, 2) WHERE name = ?", (name,))
    database.close()

    def use():
        with opened(path, key=KEY) as gallery:
            gallery.refresh()

    with pytest.raises(GalleryError):
        use()


def test_values_cannot_be_moved_to_another_row(path):
    with opened(path, key=KEY) as gallery:
        gallery.enroll("Ada", [photo(1)])
        gallery.enroll("Bob", [photo(2)])
    with sqlite3.connect(path) as database:
        (first, second) = (value for (value,) in database.execute("SELECT value FROM photos ORDER BY id"))
        database.execute("UPDATE photos SET value = ? WHERE id = 1", (second,))
        database.execute("UPDATE photos SET value = ? WHERE id = 2", (first,))
    database.close()
    with opened(path, key=KEY) as gallery, pytest.raises(GalleryError, match="changed or moved"):
        gallery.refresh()


def test_a_key_file_is_private_and_is_read_back(tmp_path):
    file = tmp_path / "keys" / "gallery.key"
    key = write_key(file)
    assert read_key(file) == key
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(UserError, match="exists already"):
        write_key(file)
    file.write_text("12ab")
    with pytest.raises(GalleryError, match="a key of 2 bytes; wanted 64 hexadecimal digits"):
        read_key(file)
    file.write_text("no key")
    with pytest.raises(GalleryError, match="not a key file"):
        read_key(file)
    with pytest.raises(GalleryError, match="cannot be read"):
        read_key(tmp_path / "missing")


# Other files.


def test_a_file_of_something_else_is_refused_and_kept(path):
    path.write_bytes(b"These are notes, and no gallery.")
    with pytest.raises(GalleryError, match="not a gallery; wanted a file that sphereface enroll made"):
        Gallery.open(path)
    assert path.read_bytes() == b"These are notes, and no gallery."


def test_a_database_of_another_program_is_refused_and_kept(path):
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE recipes (name TEXT)")
    database.close()
    before = path.read_bytes()
    with pytest.raises(GalleryError, match="a database of another program"):
        Gallery.open(path)
    assert path.read_bytes() == before


def test_a_file_of_a_later_version_is_refused_and_kept(path):
    opened(path).close()
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version={schema.VERSION + 1}")
    database.close()
    with pytest.raises(GalleryError, match=r"version 2; this sphereface reads up to 1: install a newer one"):
        Gallery.open(path)


def test_an_empty_file_is_a_gallery_only_if_one_is_to_be_made(path):
    path.touch()
    with pytest.raises(GalleryError, match="not a gallery"):
        Gallery.open(path, create=False)
    assert path.read_bytes() == b""
    assert Gallery.open(path).people() == []


@pytest.mark.parametrize(("key", "reason"), [(b"", "a key of type bytes"), (7, "a key of type int")])
def test_a_key_is_32_bytes_or_the_path_of_a_file(path, key, reason, tmp_path):
    with pytest.raises(GalleryError, match=reason):
        Gallery.open(path, key=key)
    write_key(tmp_path / "key")
    with Gallery.open(path, key=str(tmp_path / "key")) as gallery:
        assert gallery.store.is_sealed


def test_a_missing_gallery_is_made_only_if_asked_for(path):
    with pytest.raises(GalleryError, match="no such gallery; sphereface enroll makes one"):
        Gallery.open(path, create=False)
    assert not path.exists()


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_file_that_cannot_be_written_can_be_searched(path):
    with opened(path) as gallery:
        gallery.enroll("Ada", [photo(1)])
    path.chmod(0o400)
    with opened(path) as gallery:
        assert best(gallery, 1)[0] == 1
        with pytest.raises(GalleryError, match="cannot be written"):
            gallery.enroll("Bob", [photo(2)])


def test_the_default_gallery_is_in_the_users_data_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("SPHEREFACE_GALLERY", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_gallery() == tmp_path / "sphereface" / "people.gallery"
    monkeypatch.setenv("SPHEREFACE_GALLERY", "mine.gallery")
    assert str(default_gallery()) == "mine.gallery"


@pytest.mark.parametrize("name", ["", "   ", "a\nb", "x" * 201, "\x00"])
def test_names_are_one_printable_line(gallery, name):
    with pytest.raises(UserError, match="wanted 1 to 200 printable characters"):
        gallery.enroll(name, [photo(1)])


def test_unknown_kinds_of_galleries_are_errors():
    with pytest.raises(UserError, match="index is 'fast'; wanted 'exact'"):
        Gallery.open("a", index="fast")
    with pytest.raises(UserError, match="wanted the path of a file"):
        Gallery.open("mysql://somewhere")
