"""A face of any set comes by one function, and whatever is wrong with one image is one error."""

import os

import numpy as np
import pytest

from sphereface.data.formats.sets import convert, open_set
from sphereface.data.reading import Skipping, Unreadable, decode_face, read_face, read_image, refusal
from sphereface.errors import ContractMismatch, DataFormatError, Setting, UnreadableImage
from sphereface.faces.images import encode_png
from tests.data.sets import write_people


class Album:
    """Images in memory; one that is an error is raised. It counts how often its paths are asked for."""

    people, labels = ("a",), np.zeros(3, np.int64)
    asked = 0

    def __init__(self, *images):
        self.images = images

    @property
    def paths(self):
        self.asked += 1
        return ["a/0.png", "a/1.png", "a/2.png"]

    def read(self, index):
        if isinstance(self.images[index], Exception):
            raise self.images[index]
        return self.images[index]


FACE = np.random.default_rng(0).integers(0, 256, (112, 112, 3), dtype=np.uint8)


def test_a_face_is_cut_to_its_crop_or_left_as_it_is():
    album = Album(encode_png(FACE))
    assert np.array_equal(read_face(album, 0, None), FACE)
    assert np.array_equal(read_face(album, 0, "112x112"), FACE)
    assert np.array_equal(read_face(album, 0, "112x96"), FACE[:, 8:104])
    assert np.array_equal(decode_face(album, 0, read_image(album, 0), "112x96"), FACE[:, 8:104])
    assert album.asked == 0  # a name may cost a read of its own


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (OSError(5, "Input/output error", "/disk/a/1.png"), "cannot be read (Input/output error)"),
        (OSError("the share is gone"), "cannot be read (the share is gone)"),
        (DataFormatError("/disk/a.rec: cut off"), "/disk/a.rec: cut off"),
        (UnreadableImage("/disk/a/1.png", "9 bytes; ", "the limit is 8"), "9 bytes; the limit is 8"),
        (b"", "no bytes"),
    ],
    ids=["a disk", "no number", "a format", "a limit", "a decoder"],
)
def test_whatever_is_wrong_with_an_image_is_one_error_with_its_path_in_the_set(image, reason):
    with pytest.raises(UnreadableImage) as error:
        read_face(Album(None, image), 1, "112x96")
    assert (error.value.path, error.value.reason) == ("a/1.png", reason)


def test_a_wrong_size_is_another_error_and_names_the_image_too():
    with pytest.raises(ContractMismatch, match=r"^a/1\.png: 112 pixels high and 100 wide, wanted 112 and 96"):
        read_face(Album(None, encode_png(FACE[:, :100])), 1, "112x96")


@pytest.mark.parametrize("to", ["rec", "tar", "zip"])
def test_a_file_that_becomes_shorter_after_it_was_opened_costs_the_images_at_its_end(tmp_path, to):
    path = tmp_path / f"all.{to}"
    convert(write_people(tmp_path / "people").root, path, to=to)
    faces = open_set(path)
    os.truncate(path, path.stat().st_size // 2)
    read = [index for index in range(7) if not _raises(faces, index)]
    assert read == list(range(len(read)))
    assert 0 < len(read) < 7


def _raises(faces, index):
    try:
        read_image(faces, index)
    except UnreadableImage as error:
        assert error.path == faces.paths[index]  # noqa: PT017 - whether it is raised is the caller's question
        return True
    return False


def test_under_skip_the_others_go_on_and_under_fail_the_first_ends_it():
    album, skipping, read = Album(encode_png(FACE), b"x", OSError(5, "gone")), Skipping("skip"), []
    for index in range(3):
        with skipping.reading(10 + index):
            read.append(read_face(album, index, None).shape)
    assert read == [(112, 112, 3)]
    assert list(skipping.unreadable) == [11, 12]
    assert skipping.unreadable[12] == Unreadable("a/2.png", "cannot be read (gone)")
    assert list(skipping.reasons) == ["a/1.png", "a/2.png"]
    with pytest.raises(UnreadableImage) as error, Skipping("fail").reading(0):
        read_face(album, 2, None)
    assert error.value.as_typed == (
        "a/2.png: cannot be read (gone); mend it, or leave such images out with --missing skip"
    )


def test_other_errors_go_on_under_either_rule():
    for missing in ("fail", "skip"):
        with pytest.raises(ContractMismatch), Skipping(missing).reading(0):
            read_face(Album(encode_png(FACE[:9])), 0, "112x96")
        with pytest.raises(DataFormatError), Skipping(missing).reading(0):
            open_set("/nowhere.zip")
    with pytest.raises(ValueError, match="missing is 'ignore'; choose 'fail' or 'skip'"):
        Skipping("ignore")


def test_a_refusal_counts_all_and_names_three():
    found = [Unreadable(f"a/{number}.png", f"reason {number}") for number in range(5)]
    error = refusal(found, "9 images", "mend them, or use ", Setting("missing", "skip"))
    assert (error.path, error.reason) == (
        "a/0.png",
        "reason 0; 5 of 9 images cannot be read, also a/1.png (reason 1), a/2.png (reason 2): mend them, or use "
        'missing="skip"',
    )
    assert refusal(found[:1], "1 images", "mend it").reason == "reason 0; 1 of 1 images cannot be read: mend it"
