"""Backup, restore and check."""

import sqlite3
import stat
import threading

import pytest

from sphereface.errors import GalleryError, UserError
from sphereface.gallery.copies import back_up, check, restore
from sphereface.gallery.gallery import Gallery
from sphereface.gallery.schema import PAGE
from tests.gallery.test_gallery import KEY, best, opened, photo


@pytest.fixture(params=[None, KEY], ids=["plain", "sealed"])
def key(request):
    return request.param


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.gallery"


@pytest.fixture
def gallery(path, key):
    with opened(path, key=key) as found:
        found.enroll("Ada", [photo(1), photo(2)])
        yield found


def test_a_backup_is_a_gallery_of_its_own(gallery, tmp_path, key):
    copy = tmp_path / "copy.gallery"
    back_up(gallery, copy)
    gallery.remove("Ada")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert not list(tmp_path.glob("copy.gallery-*"))  # one file
    with Gallery.open(copy, key=key) as found:
        assert [person.name for person in found.people()] == ["Ada"]
        assert best(found, 1)[0] == 1
        assert check(found) == []
    with pytest.raises(UserError, match="exists already and is not overwritten"):
        back_up(gallery, copy)


def test_restoring_brings_back_the_state_of_the_backup_for_everybody(gallery, path, tmp_path, key):
    back_up(gallery, tmp_path / "copy.gallery")
    gallery.remove("Ada")
    gallery.enroll("Eve", [photo(5)])
    with opened(path, key=key) as other:
        assert best(other, 5)[1] == pytest.approx(1, abs=1e-6)
        restore(path, tmp_path / "copy.gallery", actor="tests")
        assert [person.name for person in other.people()] == ["Ada"]
        assert best(other, 5)[1] < 0.9
        assert best(gallery, 1)[0] == 1
    assert check(gallery) == []
    gallery.enroll("Bob", [photo(7)])  # and it goes on from there
    assert best(gallery, 7)[1] == pytest.approx(1, abs=1e-6)
    feature = photo(5).feature.tobytes()[:16]
    assert not any(feature in file.read_bytes() for file in path.parent.glob("people.gallery*"))


def test_a_backup_during_writes_is_a_consistent_state(gallery, path, tmp_path, key):
    stop = threading.Event()

    def write():
        with opened(path, key=key) as writer:
            number = 10
            while not stop.is_set():
                writer.enroll(f"person {number}", [photo(number), photo(1_000 + number)])
                number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for number in range(5):
            back_up(gallery, tmp_path / f"{number}.gallery")
    finally:
        stop.set()
        thread.join()
    counts = []
    for number in range(5):
        with Gallery.open(tmp_path / f"{number}.gallery", key=key) as copy:
            assert check(copy) == []
            assert {person.photos for person in copy.people()} == {2}
            counts.append(len(copy.people()))
    assert counts == sorted(counts)


def test_a_lost_gallery_is_restored_to_a_new_file(gallery, path, tmp_path, key):
    back_up(gallery, tmp_path / "copy.gallery")
    restore(tmp_path / "new.gallery", tmp_path / "copy.gallery", actor="tests")
    with Gallery.open(tmp_path / "new.gallery", key=key) as found:
        assert best(found, 2)[0] == 1


def test_a_damaged_gallery_is_restored_and_its_file_is_kept(gallery, path, tmp_path, key):
    back_up(gallery, tmp_path / "copy.gallery")
    gallery.close()
    for damage in (bytes(100), bytes(3 * PAGE)):
        path.write_bytes(damage + path.read_bytes()[len(damage) :])
        broken = path.read_bytes()
        kept = restore(path, tmp_path / "copy.gallery", actor="tests")
        assert kept.read_bytes() == broken
        with Gallery.open(path, key=key) as found:
            assert best(found, 2)[0] == 1
            assert [entry.action for entry in found.store.log()][-1] == "restore"


def test_ids_that_were_given_since_the_backup_are_not_given_again(gallery, path, tmp_path):
    back_up(gallery, tmp_path / "copy.gallery")
    later = gallery.enroll("Eve", [photo(5)])[0].id
    restore(path, tmp_path / "copy.gallery", actor="tests")
    assert gallery.enroll("Bob", [photo(6)])[0].id > later


def test_an_empty_file_is_no_backup_and_stays_empty(path, tmp_path):
    (tmp_path / "empty").touch()
    with pytest.raises(GalleryError, match="not a gallery"):
        restore(tmp_path / "new.gallery", tmp_path / "empty", actor="tests")
    assert (tmp_path / "empty").read_bytes() == b""
    assert not (tmp_path / "new.gallery").exists()


def test_a_backup_of_another_gallery_or_a_damaged_one_is_refused_and_nothing_is_lost(gallery, path, tmp_path, key):
    with opened(tmp_path / "other.gallery", key=key) as other:
        other.enroll("Eve", [photo(5)])
        back_up(other, tmp_path / "other copy.gallery")
    with pytest.raises(GalleryError, match="a backup of another gallery"):
        restore(path, tmp_path / "other copy.gallery", actor="tests")
    damaged = tmp_path / "damaged.gallery"
    back_up(gallery, damaged)
    content = bytearray(damaged.read_bytes())
    content[PAGE : 3 * PAGE] = bytes(2 * PAGE)
    damaged.write_bytes(content)
    with pytest.raises(GalleryError, match="damaged"):
        restore(path, damaged, actor="tests")
    assert best(gallery, 1)[0] == 1
    with pytest.raises(GalleryError, match="no such gallery"):
        restore(path, tmp_path / "missing.gallery", actor="tests")


def test_a_check_names_what_is_wrong(gallery, path, key):
    assert check(gallery) == []
    path.chmod(0o644)
    assert "others may read or write it; chmod 600" in check(gallery)[0]
    path.chmod(0o600)
    with sqlite3.connect(path) as database:
        ((value,),) = database.execute("SELECT value FROM photos WHERE id = 1")
        database.execute("UPDATE photos SET value = ? WHERE id = 1", (value[:-4],))
    database.close()
    (first, *_) = check(gallery)
    assert first.startswith("Ada: ")
    assert ("restore a backup" if key else "features of [31, 32] numbers; wanted 32") in first
