"""Export and import of people between galleries."""

import json
import stat

import numpy as np
import pytest

from sphereface.errors import ContractMismatch, DataFormatError, GalleryError, UserError
from sphereface.gallery.gallery import Gallery
from sphereface.gallery.records import Model
from sphereface.gallery.transfer import export_people, import_people
from tests.gallery.test_gallery import KEY, opened, photo


@pytest.fixture
def source(tmp_path):
    with opened(tmp_path / "source.gallery", key=KEY) as gallery:
        gallery.enroll("ada", [photo(1), photo(2)], note="agreed", expires=4e9)
        gallery.rename("ada", "Ada")
        gallery.enroll("Bob", [photo(3)])
        yield gallery


@pytest.fixture
def file(source, tmp_path):
    path = tmp_path / "people.jsonl"
    assert export_people(source, path) == 2
    return path


def test_people_arrive_with_all_that_belongs_to_them(source, file, tmp_path):
    with Gallery.open(tmp_path / "target.gallery") as target:
        assert import_people(target, file) == (2, 3, {})
        assert target.store.model == source.store.model
        ada, bob = target.people()
        assert (ada.name, ada.note, ada.expires, bob.name) == ("Ada", "agreed", 4e9, "Bob")
        assert target.find("ada") == ada
        for mine, theirs in zip(target.store.photos(ada.id), source.store.photos(1), strict=True):
            assert mine[2].sha256 == theirs[2].sha256
            assert mine[2].box == theirs[2].box
            assert (mine[2].feature == theirs[2].feature).all()
        assert import_people(target, file) == (2, 0, {})  # again: nothing new
        probes = np.stack([photo(seed).feature for seed in (1, 2, 3)])
        assert (target.search(probes).people == source.search(probes).people).all()


def test_an_export_is_readable_by_its_owner_alone_and_may_hold_some_people(source, file, tmp_path):
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(UserError, match="exists already and is not overwritten"):
        export_people(source, file)
    with pytest.raises(UserError, match=r"Ada: wanted a name for the file that ends in .jsonl"):
        export_people(source, tmp_path / "Ada")
    assert [entry.action for entry in source.store.log()][-1] == "export of 2 people"
    some = tmp_path / "some.jsonl"
    assert export_people(source, some, ["ada"]) == 1
    assert [json.loads(line).get("name") for line in some.read_text().splitlines()] == [None, "Ada"]
    with pytest.raises(GalleryError, match="nobody is called 'Eve'"):
        export_people(source, tmp_path / "eve.jsonl", ["Eve"])
    with Gallery.open(tmp_path / "new.gallery") as empty, pytest.raises(GalleryError, match="nobody is enrolled"):
        export_people(empty, tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [*lines[:2], "no JSON"], "line 3: not JSON"),
        (lambda lines: [*lines[:2], lines[2].replace('"name":"Bob"', '"name":7')], "line 3: bad name"),
        (lambda lines: [*lines[:2], lines[2].replace('"feature":"', '"feature":"%')], "line 3: a feature is no base64"),
        (lambda lines: [lines[0].replace('"dimension":32', '"dimension":33'), *lines[1:]], "line 2: a feature of 32"),
        (lambda lines: [lines[0].replace("export", "recipe"), *lines[1:]], "wanted sphereface gallery export"),
        (lambda lines: [*lines, '{"name": "Eve"}'], "line 4: bad photos"),
        (lambda _: [], "line 1: not JSON"),
        (lambda lines: [*lines[:2], lines[2].replace('"expires":null', '"expires":1e300')], "line 3: bad expires"),
        (lambda lines: [*lines[:2], lines[2].replace("1.0,2.0", "1e300,2.0")], "line 3: bad photos.0.box"),
        (lambda lines: [*lines[:2], lines[2].replace('"note":""', '"note":"\\u001b[2J"')], "line 3: a note of"),
        (lambda lines: [*lines[:2], lines[2].replace('"Bob"', '" "')], "line 3: a person's name"),
    ],
)
def test_a_damaged_export_changes_nothing_and_names_its_line(file, tmp_path, change, message):
    file.write_text("".join(f"{line}\n" for line in change(file.read_text().splitlines())))
    with Gallery.open(tmp_path / "target.gallery") as target:
        with pytest.raises(DataFormatError, match=message):
            import_people(target, file)
        assert target.people() == []
        assert target.store.model is None


def test_an_export_of_another_model_is_refused(file, tmp_path):
    with opened(tmp_path / "target.gallery") as target:
        target.enroll("Eve", [photo(9)], model=Model("other", "b", 32))
        with pytest.raises(ContractMismatch, match="features of b, but the model is a model"):
            import_people(target, file)
    with Gallery.open(tmp_path / "third.gallery") as target, pytest.raises(DataFormatError, match="cannot be read"):
        import_people(target, tmp_path / "missing.jsonl")


def test_a_person_of_a_name_that_is_somebody_elses_gets_another_name(file, tmp_path):
    with opened(tmp_path / "target.gallery") as target:
        target.enroll("Bob", [photo(77)])  # another Bob, as it seems
        assert import_people(target, file) == (2, 3, {"Bob": "Bob (2)"})
        assert [(person.name, person.photos) for person in target.people()] == [("Bob", 1), ("Ada", 2), ("Bob (2)", 1)]
        assert import_people(target, file) == (2, 0, {"Bob": "Bob (2)"})
        target.merge("Bob (2)", "Bob")
        assert import_people(target, file) == (2, 0, {})  # one of his photos is there now
