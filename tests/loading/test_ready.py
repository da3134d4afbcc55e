"""Before a run every image is looked at once; what takes part afterwards is known, listed and repeatable."""

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from sphereface import parallel
from sphereface.data.files.handles import ByteFile
from sphereface.data.formats.records import RecordSet
from sphereface.data.formats.sets import convert
from sphereface.data.people import PeopleFolder
from sphereface.errors import ContractMismatch, UnreadableImage
from sphereface.faces.images import encode_png
from sphereface.loading import FaceLoader, Scan, Shuffled, fingerprint, prepare, scan, without
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
        prepare(PeopleFolder(root), crop=crop, missing="skip", workers=workers)
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
    assert message.startswith("a/0.jpg: a JPEG that is cut off")
    assert "4 of 6 images cannot be read" in message
    assert "a/2.jpg" in message
    assert "b/0.jpg" in message
    assert "b/1.jpg" not in message
    assert message.endswith('mend or remove them, or leave them out with missing="skip"')


@pytest.mark.parametrize("cache_bytes", [0, 10**9], ids=["files", "memory"])
def test_skipped_images_are_listed_and_labels_stay(write_faces, cache_bytes):
    root = write_faces([2, 1, 2])
    cut_off(root / "a/0.png")
    (root / "b/0.png").write_bytes(b"no image")
    ready = prepare(PeopleFolder(root), missing="skip", cache_bytes=cache_bytes)
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
        prepare(PeopleFolder(root), missing="skip")


def test_a_scan_in_workers_finds_the_same_in_the_same_order(write_faces):
    root = write_faces([4, 3])
    for path in ("a/1.png", "b/2.png"):
        cut_off(root / path)
    folder, done = PeopleFolder(root), []
    alone, kept = np.zeros((7, 112, 96, 3), np.uint8), np.zeros((7, 112, 96, 3), np.uint8)
    found = scan(folder, into=alone, chunk=2, progress=lambda count, _: done.append(count))
    assert scan(folder, into=kept, chunk=2, workers=2) == found
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
    with pytest.raises(ValueError, match="all 3 images are excluded; exclude fewer"):
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
    first = prepare(PeopleFolder(root), missing="skip")
    known = Scan.from_dict(json.loads(json.dumps(first.scan.as_dict())))
    assert known == first.scan
    cut_off(root / "a/2.png")  # breaks between two runs
    shutil.copy(root / "a/0.png", root / "a/1.png")  # is mended
    for cache_bytes, reads in ((0, 0), (10**9, 3)):
        folder = CountingFolder(root)
        again = prepare(folder, missing="skip", known=known, cache_bytes=cache_bytes)
        assert folder.reads == reads
        assert again.fingerprint == first.fingerprint
        assert again.images.paths == ["a/0.png", "a/2.png"]
        with pytest.raises(UnreadableImage, match="cut off"):
            face(again, 1)


def test_what_broke_since_a_known_scan_still_fails_at_the_start_where_files_are_read_anyway(write_faces):
    root = write_faces([3])
    known = scan(PeopleFolder(root))
    cut_off(root / "a/2.png")
    with pytest.raises(UnreadableImage, match=r"a/2\.png: .*1 of 3 images cannot be read"):
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


# How often the files are read


class CountedFile(ByteFile):
    """A file that writes down where each process reads."""

    def read(self, offset, length):
        with (self.path.parent / "reads.txt").open("a") as file:
            file.write(f"{os.getpid()} {offset}\n")
        return super().read(offset, length)


class Records(RecordSet):
    """Records without names, and how often each process has begun to read one of them since the set was opened."""

    def __init__(self, path):
        super().__init__(path)
        self.file = CountedFile(path)

    @property
    def begun(self):
        """By process: the number of reads that began a record."""
        offsets = set(self._offsets.tolist())
        lines = [line.split() for line in (self.file.path.parent / "reads.txt").read_text().splitlines()]
        return Counter(int(process) for process, offset in lines if int(offset) in offsets)


@pytest.fixture
def records(write_faces, tmp_path):
    convert(write_faces([40, 50, 40]), tmp_path / "faces.rec", to="rec")
    (tmp_path / "faces.lst").unlink()
    return Records(tmp_path / "faces.rec")


def test_each_record_without_a_name_is_read_once_to_prepare_and_once_for_a_batch(records):
    ready = prepare(records, exclude={"1/041.png"}, cache_bytes=0)
    names = 130  # the exclude list asks for all of them, before any image is read
    assert records.begun == {os.getpid(): names + 129}
    assert len(list(FaceLoader(ready, Shuffled(129, 43), steps=3))) == 3
    assert records.begun == {os.getpid(): names + 129 + 129}


def test_a_name_costs_no_read_where_the_image_was_read(records):
    prepare(records)
    assert records.begun == {os.getpid(): 130}
    assert list(records.paths)[::43] == ["0/001.png", "1/044.png", "1/087.png", "2/130.png"]
    assert records.begun == {os.getpid(): 130}


def test_workers_read_their_images_and_no_names(records):
    prepare(records, workers=2, cache_bytes=0)
    mine = records.begun.pop(os.getpid())
    assert mine == 130  # the names
    assert sum(records.begun.values()) == mine + 130


def test_a_broken_record_does_not_make_a_worker_read_all_names(records):
    with records.file.path.open("r+b") as file:
        file.seek(int(records._offsets[77]))
        file.write(b"oops")
    ready = prepare(records, missing="skip", workers=2, cache_bytes=0)
    assert [path for path, _ in ready.skipped] == ["1/078.jpg"]
    assert sum(records.begun.values()) - records.begun[os.getpid()] == 130 + 1  # its own name


class Troubled(PeopleFolder):
    """A folder of which some images cannot be read."""

    def __init__(self, root, trouble=()):
        super().__init__(root)
        self.trouble = set(trouble)

    def read(self, index):
        if index in self.trouble:
            raise OSError(5, "Input/output error")
        return super().read(index)


def prepared_together(root, other, rec):
    """What each of several processes finds."""

    def kept(**options):
        folder = CountingFolder(Path(root))
        ready = prepare(folder, **options)
        return [folder.reads, len(ready), ready.fingerprint]

    def caught(folder, **options):
        try:
            return [len(prepare(folder, **options)), None]
        except (UnreadableImage, ContractMismatch) as error:
            return [type(error).__name__, str(error)]

    def replaced():
        folder = Troubled(Path(root))
        ready = prepare(folder, missing="skip", cache_bytes=0)
        folder.trouble = {10, 20, 30, 40, 50, 60}  # from now on
        loader = FaceLoader(ready, Shuffled(150, 30), steps=9, rank=parallel.rank(), ranks=parallel.ranks())
        return [len(list(loader)), loader.replaced, loader.replaced_in_all()]

    records = Records(rec)
    prepare(records, cache_bytes=0)
    parallel.barrier()
    trouble = {2} if parallel.rank() == 1 else set()
    return {
        "files": kept(cache_bytes=0),
        "memory": kept(),
        "skip": caught(Troubled(Path(root), trouble), missing="skip"),
        "fail": caught(Troubled(Path(root), trouble)),
        "replaced": replaced(),
        "size": caught(PeopleFolder(Path(other)), cache_bytes=0, missing="skip"),
        "records": sum(records.begun.values()),
    }


HALVES = (slice(0, 15), slice(15, 30))  # of a batch: one for each process


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    place = tmp_path_factory.mktemp("together")
    rng = np.random.default_rng(0)
    for number in range(150):
        for folder, size in (("faces", (112, 96)), ("other", (112, 90 if number == 70 else 96))):
            path = place / folder / "a" / f"{number:03d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode_png(np.full((*size, 3), rng.integers(256), np.uint8)))
    convert(place / "faces", place / "rec" / "faces.rec", to="rec")
    (place / "rec" / "faces.lst").unlink()
    return parallel.launch(prepared_together, 2, place / "faces", place / "other", place / "rec" / "faces.rec")


def test_two_processes_read_each_image_once_together_unless_each_keeps_all(together):
    assert [report["files"][0] for report in together] == [64 + 22, 64]  # chunks of 64, in turn
    assert [report["memory"][0] for report in together] == [150, 150]
    assert len({tuple(report[kind][1:]) for report in together for kind in ("files", "memory")}) == 1
    assert {report["records"] for report in together} == {150 + 150}  # the images, and names of what the other read


def test_what_one_process_cannot_read_takes_part_in_none_or_ends_all(together):
    assert [report["skip"] for report in together] == [[149, None]] * 2
    for report in together:
        kind, message = report["fail"]
        assert kind == "UnreadableImage"
        assert message.startswith("a/002.png: cannot be read (Input/output error); 1 of 150 images cannot be read")


def test_what_two_processes_replaced_is_summed_up_in_both(together):
    sampled = [Shuffled(150, 30).indices(step) for step in range(9)]
    shares = [sum(int(np.isin(batch[share], range(10, 61, 10)).sum()) for batch in sampled) for share in HALVES]
    assert min(shares) >= 2
    for report, share in zip(together, shares, strict=True):
        steps, own, (places, files) = report["replaced"]
        assert (steps, own, places) == (9, share, sum(shares))
        assert len(files) == 3
        assert {reason for _, reason in files} == {"cannot be read (Input/output error)"}


def test_a_wrong_size_that_one_process_finds_ends_all(together):
    for report in together:
        kind, message = report["size"]
        assert kind == "ContractMismatch"
        assert message.startswith("a/070.png: 112 pixels high and 90 wide")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"missing": "ignore"}, "missing is 'ignore'; choose 'fail' or 'skip'"),
        ({"crop": "96x112"}, "unknown crop '96x112'; choose one of 112x96, 112x112"),
        ({"workers": -1}, "workers is -1"),
        ({"start_method": "forkserver"}, "start_method is 'forkserver'; choose 'fork' or 'spawn'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_unknown_option_is_refused_with_the_known_ones(write_faces, options, message):
    with pytest.raises(ValueError, match=message):
        prepare(PeopleFolder(write_faces([1])), **options)
