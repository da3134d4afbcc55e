"""Manifests keep photos out of training, and faces out of a second alignment."""

import json

import cv2
import numpy as np
import pytest

from sphereface.contract import Alignment, Preprocessing
from sphereface.data.manifest import (
    SetManifest,
    manifest_path,
    read_manifest,
    require_faces,
    require_photos,
    write_manifest,
)
from sphereface.data.people import PeopleFolder
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.errors import ContractMismatch, DataFormatError


def folder(root, height, width):
    for person in ("ann", "bob"):
        (root / person).mkdir(parents=True)
        for photo in range(2):
            cv2.imwrite(str(root / person / f"{photo}.png"), np.zeros((height, width, 3), np.uint8))
    return PeopleFolder(root)


def made(**alignment):
    return SetManifest(alignment=Alignment(**alignment), made_by="a test")


def test_a_manifest_comes_back_as_it_was_written(tmp_path):
    write_manifest(tmp_path, made(template="matlab"))
    assert read_manifest(tmp_path) == made(template="matlab")
    assert read_manifest(tmp_path).fingerprint == Alignment(template="matlab").fingerprint()
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_the_manifest_of_a_file_lies_beside_it(tmp_path):
    (tmp_path / "train.rec").write_bytes(b"")
    assert manifest_path(tmp_path / "train.rec") == tmp_path / "train.rec.manifest.json"
    assert read_manifest(tmp_path / "train.rec") is None


@pytest.mark.parametrize(
    "change", [{"fingerprint": "0" * 16}, {"alignment": {"template": "mine"}}, {"format": 2}, {"more": 1}]
)
def test_a_manifest_changed_by_hand_is_refused(tmp_path, change):
    write_manifest(tmp_path, made())
    fields = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(fields | change))
    with pytest.raises(DataFormatError, match=r"manifest\.json: .*changed by hand"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"made_by": 3}'])
def test_a_broken_manifest_is_a_clear_error(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(DataFormatError, match="manifest"):
        read_manifest(tmp_path)


def test_faces_made_as_wanted_pass_without_a_word(tmp_path):
    faces = folder(tmp_path, 112, 96)
    write_manifest(tmp_path, made())
    assert require_faces(tmp_path, faces, Alignment()) is None


def test_faces_of_112x112_serve_where_112x96_is_wanted(tmp_path):
    faces = folder(tmp_path, 112, 112)
    write_manifest(tmp_path, made(crop="112x112"))
    assert require_faces(tmp_path, faces, Alignment()) is None
    assert require_faces(tmp_path, faces, Alignment(crop="112x112")) is None


@pytest.mark.parametrize(
    ("had", "wanted"), [({"template": "matlab"}, {}), ({"crop": "wide"}, {}), ({}, {"crop": "112x112"})]
)
def test_faces_made_in_another_way_are_refused_with_the_way_out(tmp_path, had, wanted):
    faces = folder(tmp_path, 112, 96)
    write_manifest(tmp_path, made(**had))
    want = Alignment(**wanted)
    with pytest.raises(ContractMismatch, match=f"--template {want.template} --crop {want.crop}"):
        require_faces(tmp_path, faces, want)


@pytest.mark.parametrize("width", [96, 112])
def test_without_a_manifest_the_size_is_judged_and_that_is_said(tmp_path, width):
    note = require_faces(tmp_path, folder(tmp_path, 112, width), Alignment())
    assert "no manifest" in note
    assert "\n" not in note


def test_photos_are_refused_where_faces_are_wanted(tmp_path):
    with pytest.raises(ContractMismatch, match=r"250 pixels high and 250 wide.*sphereface data align"):
        require_faces(tmp_path, folder(tmp_path, 250, 250), Alignment())


def test_one_photo_among_faces_is_enough(tmp_path):
    faces = folder(tmp_path, 112, 96)
    cv2.imwrite(str(tmp_path / "bob" / "0.png"), np.zeros((200, 96, 3), np.uint8))
    with pytest.raises(ContractMismatch, match=r"bob/0\.png"):
        require_faces(tmp_path, faces, Alignment())


def test_faces_are_refused_where_photos_are_wanted(tmp_path):
    require_photos(tmp_path)
    write_manifest(tmp_path, made())
    with pytest.raises(ContractMismatch, match="faces already"):
        require_photos(tmp_path)


def test_colour_and_scale_are_not_a_matter_of_stored_faces():
    assert Preprocessing(colour="BGR", scale=1).alignment == Preprocessing().alignment
    assert Preprocessing().fingerprint() != Preprocessing(scale=1).fingerprint()
    assert Preprocessing().alignment.fingerprint() == Alignment().fingerprint()


def test_synthetic_faces_carry_a_manifest(tmp_path):
    SyntheticPeople().write(tmp_path / "faces", 2, 2)
    assert read_manifest(tmp_path / "faces").alignment == Alignment()
    assert require_faces(tmp_path / "faces", PeopleFolder(tmp_path / "faces"), Alignment()) is None
    with pytest.raises(ContractMismatch):
        require_photos(tmp_path / "faces")
