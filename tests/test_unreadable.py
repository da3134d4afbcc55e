"""One image that cannot be read, in every format: whoever reads the set leaves it out, or ends with its name."""

import os
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from sphereface.audit import audit_faces
from sphereface.contract import Card
from sphereface.data.formats.sets import convert, open_set
from sphereface.data.people import PeopleFolder
from sphereface.embed.embedder import Embedder
from sphereface.embed.run import embed_set
from sphereface.errors import DataFormatError, UnreadableImage
from sphereface.evaluation import evaluate_folder
from sphereface.faces.images import encode_png
from sphereface.loading import FaceLoader, Shuffled, prepare
from sphereface.training.validation import Validation

VICTIM = 7  # of sixteen faces of four people: the last of the second, which no reader looks at to open a set
LAST = 15


def embedder():
    return Embedder(lambda inputs: inputs[:, :, ::16, ::16].reshape(len(inputs), -1), Card(), model="a" * 64)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Sixteen faces, each noise around its person's own."""
    root, rng = tmp_path_factory.mktemp("unreadable") / "faces", np.random.default_rng(0)
    for person in range(4):
        mean = rng.integers(0, 200, (112, 96, 3))
        (root / f"p{person}").mkdir(parents=True)
        for photo in range(4):
            face = (mean + rng.integers(0, 56, mean.shape)).astype(np.uint8)
            (root / f"p{person}" / f"{photo}.png").write_bytes(encode_png(face))
    return root


def missing_file(source, folder):
    convert(source, folder / "set", to="folder")
    path = folder / "set" / PeopleFolder(source).paths[VICTIM]
    path.unlink()
    path.symlink_to(folder / "nowhere")
    return folder / "set"


def bad_checksum(source, folder):
    convert(source, folder / "set.zip", to="zip")
    with zipfile.ZipFile(folder / "set.zip") as archive:
        start = archive.infolist()[VICTIM].header_offset
    spoil(folder / "set.zip", start + 200, b"\0\1\2\3")
    return folder / "set.zip"


def damaged_member(source, folder):
    convert(source, folder / "set.tar", to="tar")
    faces = open_set(folder / "set.tar")
    spoil(folder / "set.tar", int(faces._where[VICTIM, 1]), bytes(64))
    return folder / "set.tar"


def damaged_record(source, folder):
    convert(source, folder / "set.rec", to="rec")
    spoil(folder / "set.rec", int(open_set(folder / "set.rec")._offsets[VICTIM]), bytes(4))
    return folder / "set.rec"


def damaged_record_without_names(source, folder):
    path = damaged_record(source, folder)
    path.with_suffix(".lst").unlink()
    return path


def cut_off_record(source, folder):
    convert(source, folder / "set.rec", to="rec")
    os.truncate(folder / "set.rec", int(open_set(folder / "set.rec")._offsets[LAST]) + 5000)
    return folder / "set.rec"


def spoil(path, place, data):
    with path.open("r+b") as file:
        file.seek(place)
        file.write(data)


WAYS = {
    "a folder without the file": (missing_file, VICTIM),
    "a zip file with a bad checksum": (bad_checksum, VICTIM),
    "a tar file with a damaged member": (damaged_member, VICTIM),
    "a record file with a damaged record": (damaged_record, VICTIM),
    "a record file without names": (damaged_record_without_names, VICTIM),
    "a record file that is cut off": (cut_off_record, LAST),
}


class Spoiled(NamedTuple):
    """A set, and what the image in it is called that cannot be read."""

    path: Path
    name: str


@pytest.fixture(params=WAYS)
def spoiled(request, source, tmp_path):
    spoil_one, victim = WAYS[request.param]
    path = spoil_one(source, tmp_path)
    return Spoiled(path, open_set(path).paths[victim])


def train(path, out, missing):
    ready = prepare(open_set(path), missing=missing)
    assert len(list(FaceLoader(ready, Shuffled(len(ready), 5), steps=3))) == 3
    return dict(ready.skipped), len(ready)


def embed(path, out, missing):
    _, manifest = embed_set(path, out, embedder(), missing=missing, batch=4)
    return manifest.unreadable, manifest.count


def evaluate(path, out, missing):
    found = evaluate_folder(embedder(), path, missing=missing, rule="best", rounds=2, splits=1).verification
    return dict(found.missing), found.images


def audit(path, out, missing):
    found = audit_faces(open_set(path), embedder=embedder(), missing=missing)
    return found.unreadable, found.faces - len(found.unreadable)


def validate(path, out, missing):
    found = Validation.of_people(open_set(path), missing=missing)
    return dict(found.skipped), len(found.faces.paths)


USERS = {"training": train, "embedding": embed, "evaluation": evaluate, "audit": audit, "validation": validate}


@pytest.mark.parametrize("user", USERS)
def test_one_unreadable_image_is_left_out_and_listed(spoiled, user, tmp_path):
    unreadable, count = USERS[user](spoiled.path, tmp_path / "out", "skip")
    assert list(unreadable) == [spoiled.name]
    assert spoiled.name not in unreadable[spoiled.name]
    assert "\n" not in unreadable[spoiled.name]
    assert count == 15


@pytest.mark.parametrize("user", USERS)
def test_one_unreadable_image_ends_the_work_with_its_name_and_the_way_out(spoiled, user, tmp_path):
    with pytest.raises(UnreadableImage) as error:
        USERS[user](spoiled.path, tmp_path / "out", "fail")
    assert error.value.path == spoiled.name
    assert str(error.value) == f"{spoiled.name}: {error.value.reason}"
    assert spoiled.name not in error.value.reason
    assert 'missing="skip"' in error.value.reason


@pytest.mark.parametrize("to", ["zip", "tar", "rec"])
@pytest.mark.parametrize("user", USERS)
def test_a_set_that_cannot_be_opened_ends_the_work_under_either_rule(source, user, to, tmp_path):
    path = tmp_path / f"set.{to}"
    convert(source, path, to=to)
    path.write_bytes(path.read_bytes()[100:-100])
    for missing in ("skip", "fail"):
        with pytest.raises(DataFormatError, match=f"set\\.{to}: "):
            USERS[user](path, tmp_path / "out", missing)
