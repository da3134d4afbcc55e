"""Before a run every image is looked at once; what takes part afterwards is known, listed and repeatable."""

import json
import shutil

import numpy as np
import pytest
import torch

from sphereface.data.people import PeopleFolder
from sphereface.errors import ContractMismatch, UnreadableImage
from sphereface.loading import Scan, fingerprint, prepare, scan, without
from tests.loading.conftest import cut_off, pixels

# torch thinks that two workers are too many for a machine of one core.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def face(ready, index):
    out = np.empty((112, 96, 3), np.uint8)
    ready.read_into(index, out)
    return out


class CountingFolder(PeopleFolder):
    """A folder that counts how often it is read."""

    reads = 0

    def read(self, index):
        self.reads += 1
        return super().read(index)


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
@pytest.mark.parametrize("cache_bytes", [0, 10**9], ids=["files", "memory"])
def test_a_face_is_the_pixels_of_its_file(write_faces, suffix, cache_bytes):
    root = write_faces([2, 1], suffix=suffix)
    ready = prepare(PeopleFolder(root), cache_bytes=cache_bytes)
    assert (ready.pixels is None) == (cache_bytes == 0)
    for index, path in enumerate(["a/0", "a/1", "b/0"]):
        assert np.array_equal(face(ready, index), pixels(root / (path + suffix)))


def test_a_wider_face_loses_eight_columns_on_either_side(write_faces):
    root = write_faces([1], size=(112, 112))
    assert np.array_equal(face(prepare(PeopleFolder(root)), 0), pixels(root / "a/0.png")[:, 8:-8])
    assert prepare(PeopleFolder(root), crop="112x112").pixels.shape == (1, 112, 112, 3)


@pytest.mark.parametrize(
    ("size", "crop", "wanted"),
    [((100, 90), "112x96", "112 and 96"), ((96, 112), "112x96", "112 and 96"), ((112, 96), "112x112", "112 and 112")],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_wrong_size_is_named_with_its_file_and_the_way_out_even_where_unreadable_images_are_skipped(
    write_faces, size, crop, wanted, workers
):
    root = write_faces([1], size=size)
    with pytest.raises(ContractMismatch) as error:
        prepare(PeopleFolder(root), crop=crop, on_unreadable="skip", workers=workers)
    message = str(error.value)
    assert message.startswith(f"a/0.png: {size[0]} pixels high and {size[1]} wide")
    assert f"wanted {wanted};" in message
    assert "sphereface data align" in message
    assert "\n" not in message


def test_memory_within_the_budget_is_used_and_one_byte_less_is_not_enough(write_faces):
    folder = PeopleFolder(write_faces([2]))
    size = 2 * 112 * 96 * 3
    assert prepare(folder, cache_bytes=size).pixels is not None
    assert prepare(folder, cache_bytes=size - 1).pixels is None


def test_a_face_in_memory_was_read_once(write_faces):
    folder = CountingFolder(write_faces([3]))
    ready = prepare(folder)
    for index in range(3):
        face(ready, index)
    assert folder.reads == 3


def test_unreadable_images_fail_at_the_start_with_count_first_few_and_way_out(write_faces):
    root = write_faces([3, 3], suffix=".jpg")
    for path in ("a/0", "a/2", "b/0", "b/1"):
        cut_off(root / f"{path}.jpg")
    with pytest.raises(UnreadableImage) as error:
        prepare(PeopleFolder(root))
    message = str(error.value)
    assert message.startswith("4 of 6 images cannot be read: a/0.jpg (a JPEG that is cut off")
    assert "a/2.jpg" in message
    assert "b/0.jpg" in message
    assert "b/1.jpg" not in message
    assert "and 1 more; mend or remove them, or leave them out with on_unreadable='skip'" in message


@pytest.mark.parametrize("cache_bytes", [0, 10**9], ids=["files", "memory"])
def test_skipped_images_are_listed_and_labels_stay(write_faces, cache_bytes):
    root = write_faces([2, 1, 2])
    cut_off(root / "a/0.png")
    (root / "b/0.png").write_bytes(b"no image")
    ready = prepare(PeopleFolder(root), on_unreadable="skip", cache_bytes=cache_bytes)
    assert [path for path, _ in ready.skipped] == ["a/0.png", "b/0.png"]
    assert "cut off" in ready.skipped[0].reason
    assert ready.images.paths == ["a/1.png", "c/0.png", "c/1.png"]
    assert ready.labels.tolist() == [0, 2, 2]
    assert ready.people == ["a", "b", "c"]
    assert ready.absent == ["b"]
    for index, path in enumerate(ready.images.paths):
        assert np.array_equal(face(ready, index), pixels(root / path))


def test_a_set_with_nothing_readable_fails_even_where_images_may_be_skipped(write_faces):
    root = write_faces([1])
    cut_off(root / "a/0.png")
    with pytest.raises(UnreadableImage, match="1 of 1 images cannot be read"):
        prepare(PeopleFolder(root), on_unreadable="skip")


def test_a_scan_in_workers_finds_the_same_in_the_same_order(write_faces, monkeypatch):
    monkeypatch.setitem(scan.__globals__, "CHUNK", 2)
    root = write_faces([4, 3])
    for path in ("a/1.png", "b/2.png"):
        cut_off(root / path)
    folder, done = PeopleFolder(root), []
    alone, kept = np.zeros((7, 112, 96, 3), np.uint8), np.zeros((7, 112, 96, 3), np.uint8)
    found = scan(folder, into=alone, progress=done.append)
    assert scan(folder, into=kept, workers=2) == found
    assert np.array_equal(alone, kept)
    assert [path for path, _ in found.unreadable] == ["a/1.png", "b/2.png"]
    assert np.array_equal(kept[5], pixels(root / "b/1.png"))
    assert done == [2, 4, 6, 7]


def test_a_file_that_vanished_is_unreadable_and_its_reason_names_it_once(write_faces):
    root = write_faces([2])
    folder = PeopleFolder(root)
    (root / "a/1.png").unlink()
    assert scan(folder).unreadable == (("a/1.png", "cannot be read (No such file or directory)"),)


def test_excluded_people_and_images_take_no_part_and_the_others_are_numbered_anew(write_faces):
    root = write_faces([1, 2, 2, 1])
    cut_off(root / "b/0.png")  # nobody looks at it
    ready = prepare(PeopleFolder(root), exclude=frozenset({"b", "c/1.png", "d/0.png", "nobody"}))
    assert ready.people == ["a", "c"]
    assert ready.images.paths == ["a/0.png", "c/0.png"]
    assert ready.labels.tolist() == [0, 1]
    assert ready.not_found == ("nobody",)
    assert np.array_equal(face(ready, 1), pixels(root / "c/0.png"))


def test_excluding_everybody_is_an_error(write_faces):
    with pytest.raises(ValueError, match="nothing is left of 3 images"):
        without(PeopleFolder(write_faces([2, 1])), {"a", "b"})


def test_a_fingerprint_tells_sets_apart_and_does_not_depend_on_where_they_are(write_faces, tmp_path):
    root = write_faces([2, 1])
    here = fingerprint(PeopleFolder(root))
    shutil.copytree(root, tmp_path / "elsewhere")
    assert fingerprint(PeopleFolder(tmp_path / "elsewhere")) == here
    (tmp_path / "elsewhere/b/0.png").rename(tmp_path / "elsewhere/a/2.png")
    assert fingerprint(PeopleFolder(tmp_path / "elsewhere")) != here
    folder = PeopleFolder(root)
    folder.labels = np.array([0, 1, 1])
    assert fingerprint(folder) != here


def test_a_known_scan_spares_reading_and_decides_again(write_faces):
    root = write_faces([3])
    cut_off(root / "a/1.png")
    first = prepare(PeopleFolder(root), on_unreadable="skip")
    known = Scan.from_dict(json.loads(json.dumps(first.scan.as_dict())))
    assert known == first.scan
    cut_off(root / "a/2.png")  # breaks between two runs
    shutil.copy(root / "a/0.png", root / "a/1.png")  # is mended
    for cache_bytes, reads in ((0, 0), (10**9, 3)):
        folder = CountingFolder(root)
        again = prepare(folder, on_unreadable="skip", known=known, cache_bytes=cache_bytes)
        assert folder.reads == reads
        assert again.fingerprint == first.fingerprint
        assert again.images.paths == ["a/0.png", "a/2.png"]
        with pytest.raises(UnreadableImage, match="cut off"):
            face(again, 1)


def test_what_broke_since_a_known_scan_still_fails_at_the_start_where_files_are_read_anyway(write_faces):
    root = write_faces([3])
    known = scan(PeopleFolder(root))
    cut_off(root / "a/2.png")
    with pytest.raises(UnreadableImage, match=r"1 of 3 images cannot be read: a/2\.png"):
        prepare(PeopleFolder(root), known=known)
    assert len(prepare(PeopleFolder(root), known=known, cache_bytes=0)) == 3


def test_a_known_scan_of_another_set_is_refused(write_faces):
    root = write_faces([3])
    known = scan(PeopleFolder(root))
    (root / "a/2.png").unlink()
    with pytest.raises(ValueError, match=r"of another set \(3 images, here 2.*scan again"):
        prepare(PeopleFolder(root), known=known)


def test_faces_too_many_for_shared_memory_are_an_error_with_the_way_out(write_faces, monkeypatch):
    def no_space(_):
        raise RuntimeError("No space left on device (28)")

    ready = prepare(PeopleFolder(write_faces([1])))
    monkeypatch.setattr(torch.Tensor, "share_memory_", no_space)
    with pytest.raises(MemoryError, match=r"32,256 bytes.*No space left.*fork, or keep no faces with cache_bytes=0"):
        ready.share()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_unreadable": "ignore"}, "on_unreadable is 'ignore'; choose 'fail' or 'skip'"),
        ({"crop": "96x112"}, "unknown crop '96x112'; choose one of 112x96, 112x112"),
        ({"workers": -1}, "workers is -1"),
        ({"start_method": "forkserver"}, "start_method is 'forkserver'; choose 'fork' or 'spawn'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_unknown_option_is_refused_with_the_known_ones(write_faces, options, message):
    with pytest.raises(ValueError, match=message):
        prepare(PeopleFolder(write_faces([1])), **options)
