"""Export and import of people between galleries."""

import json
import stat

import numpy as np
import pytest

from sphereface.errors import ContractMismatch, DataFormatError, GalleryError
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
        assert import_people(target, file) == (2, 3)
        assert target.store.model == source.store.model
        ada, bob = target.people()
        assert (ada.name, ada.note, ada.expires, bob.name) == ("Ada", "agreed", 4e9, "Bob")
        assert target.find("ada") == ada
        for mine, theirs in zip(target.store.photos(ada.id), source.store.photos(1), strict=True):
            assert mine[2].sha256 == theirs[2].sha256
            assert mine[2].box == theirs[2].box
            assert (mine[2].feature == theirs[2].feature).all()
        assert import_people(target, file) == (2, 0)  # again: nothing new
        probes = np.stack([photo(seed).feature for seed in (1, 2, 3)])
        assert (target.search(probes).people == source.search(probes).people).all()


def test_an_export_is_readable_by_its_owner_alone_and_may_hold_some_people(source, file, tmp_path):
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    some = tmp_path / "some.jsonl"
    assert export_people(source, some, ["ada"]) == 1
    assert [json.loads(line).get("name") for line in some.read_text().splitlines()] == [None, "Ada"]
    with pytest.raises(GalleryError, match="nobody is called 'Eve'"):
        export_people(source, some, ["Eve"])
    with Gallery.open(tmp_path / "new.gallery") as empty, pytest.raises(GalleryError, match="nobody is enrolled"):
        export_people(empty, some)


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
    ],
)
def test_a_damaged_export_changes_nothing_and_names_its_line(file, tmp_path, change, message):
    file.write_text("".join(f"{line}\n" for line in change(file.read_text().splitlines())))
    with Gallery.open(tmp_path / "target.gallery") as target:
        with pytest.raises(DataFormatError, match=message):
            import_people(target, file)
        assert target.people() == []


def test_an_export_of_another_model_is_refused(file, tmp_path):
    with Gallery.open(tmp_path / "target.gallery") as target:
        target.bind(Model("other", "b", 32))
        with pytest.raises(ContractMismatch, match="features of b, but the model is a model"):
            import_people(target, file)
    with Gallery.open(tmp_path / "third.gallery") as target, pytest.raises(DataFormatError, match="cannot be read"):
        import_people(target, tmp_path / "missing.jsonl")
