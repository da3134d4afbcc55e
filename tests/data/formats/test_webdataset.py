"""Shards of tar files and zip files: found by their headers, read in place, refused when they lie."""

import io
import json
import os
import pickle
import struct
import tarfile
import tracemalloc
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphereface.data.files.handles import ByteFile
from sphereface.data.formats.tars import members
from sphereface.data.formats.webdataset import WebDataset, write_webdataset
from sphereface.data.formats.zips import ZipSet, write_zip
from sphereface.data.reading import read_image
from sphereface.errors import DataFormatError, UnreadableImage
from tests.data.sets import content, image, reads_or_says_why, spoiled, write_people

JPEG = image(0, ".jpg")


@pytest.fixture
def people(tmp_path):
    return write_people(tmp_path / "people")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("tars")


def tar(files, **options):
    """A tar file as the standard library writes it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", **options) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def zipped(files, **options):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", **options) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def stored(folder, name, data):
    (folder / name).write_bytes(data)
    return folder / name


names = st.text(
    st.characters(codec="utf-8", exclude_characters="\\/:", exclude_categories=["C"]), min_size=1, max_size=120
)


@pytest.mark.parametrize("dialect", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=["gnu", "pax"])
@given(st.dictionaries(names.filter(lambda name: name not in (".", "..")), st.binary(max_size=1100), max_size=4))
def test_every_dialect_of_tar_has_the_contents_that_tarfile_sees(place, dialect, files):
    path = stored(place, "a.tar", tar(files, format=dialect))
    file = ByteFile(path)
    found = {member.name: file.read(member.offset, member.size) for member in members(file)}
    assert found == files
    with tarfile.open(path) as archive:
        assert list(members(file)) == [(member.name, member.offset_data, member.size) for member in archive]


def test_the_long_names_of_old_tar_files_are_put_together(tmp_path):
    name = "/".join(["folder"] * 25) + "/photo.jpg"
    assert 100 < len(name) < 255
    path = stored(tmp_path, "a.tar", tar({name: b"x"}, format=tarfile.USTAR_FORMAT))
    assert next(members(ByteFile(path))).name == name


def test_links_folders_and_devices_are_passed_over(tmp_path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for kind in (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            member = tarfile.TarInfo("../../etc/passwd")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
        member = tarfile.TarInfo("./a.txt")
        archive.addfile(member)
    assert [member.name for member in members(ByteFile(stored(tmp_path, "a.tar", out.getvalue())))] == ["a.txt"]


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_a_set_comes_back_from_tar_files_of_any_size(tmp_path, people, size):
    write_webdataset(tmp_path / "tars", people, size=size)
    assert len(os.listdir(tmp_path / "tars")) == -(-7 // size)
    found = WebDataset(tmp_path / "tars")
    assert content(found) == content(people)
    assert found.people == people.people
    assert found.ignored == []


def test_one_tar_file_holds_all_if_it_is_named(tmp_path, people):
    write_webdataset(tmp_path / "all.tar", people, size=2)
    assert content(WebDataset(tmp_path / "all.tar")) == content(people)


def test_a_tar_file_is_what_webdataset_expects(tmp_path, people):
    """Members of a sample stand in a row and have the same name up to its first dot."""
    write_webdataset(tmp_path / "all.tar", people)
    samples = {}
    with tarfile.open(tmp_path / "all.tar") as archive:
        for member in archive:
            key, _, ending = member.name.partition(".")
            assert list(samples)[-1:] == [key] or key not in samples
            samples.setdefault(key, {})[ending] = archive.extractfile(member).read()
    assert len(samples) == 7
    for index, sample in enumerate(samples.values()):
        assert int(sample["cls"]) == people.labels[index]
        assert json.loads(sample["json"]) == {
            "person": people.people[people.labels[index]],
            "path": people.paths[index],
        }
        assert people.read(index) in (sample.get("jpg"), sample.get("png"))


def test_tar_and_zip_files_have_the_same_bytes_for_every_user_and_time(tmp_path, people, monkeypatch):
    write_webdataset(tmp_path / "1.tar", people)
    write_zip(tmp_path / "1.zip", people)
    monkeypatch.setattr("time.time", lambda: 2e9)
    monkeypatch.setattr("os.getuid", lambda: 12345)
    write_webdataset(tmp_path / "2.tar", people)
    write_zip(tmp_path / "2.zip", people)
    for ending in ("tar", "zip"):
        assert (tmp_path / f"1.{ending}").read_bytes() == (tmp_path / f"2.{ending}").read_bytes()
    with tarfile.open(tmp_path / "1.tar") as archive:
        assert {(member.mtime, member.uid, member.gid, member.uname, member.mode) for member in archive} == {
            (0, 0, 0, "", 0o644)
        }
    with zipfile.ZipFile(tmp_path / "1.zip") as archive:
        assert {(member.date_time, member.compress_type) for member in archive.infolist()} == {
            ((1980, 1, 1, 0, 0, 0), zipfile.ZIP_STORED)
        }


def test_other_peoples_tar_files_are_named_by_label_and_key(tmp_path):
    files = {"./s/0001.jpg": JPEG, "./s/0001.cls": b" 12\n", "./s/0002.cls": b"3", "./s/0002.seg.png": image(1, ".png")}
    extra = {"README": b"hello", "s/0003.json": b"{}", "s/._0001.jpg": b"a Mac was here"}
    found = WebDataset(stored(tmp_path, "a.tar", tar({**files, **extra})))
    assert found.paths == ["12/s/0001.jpg", "03/s/0002.png"]
    assert found.labels.tolist() == [12, 3]
    assert len(found.people) == 13
    assert found.ignored == ["README", "s/0003.json", "s/._0001.jpg"]
    assert found.read(1) == image(1, ".png")


def sample(person="a", label=b"0", path="a/b.jpg"):
    return {"1.cls": label, "1.json": json.dumps({"person": person, "path": path}).encode(), "1.jpg": JPEG}


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"1.txt": b""}, "no sample with an image"),
        ({"1.jpg": JPEG}, "sample '1' has jpg; wanted one image and its cls"),
        ({"1.jpg": JPEG, "1.png": JPEG, "1.cls": b"0"}, "sample '1' has jpg, png, cls; wanted one image"),
        (sample(label=b"-1"), "1.cls holds '-1'; wanted a label"),
        (sample(label=b"16777216"), "wanted a label, 0 to 16,777,215"),
        (sample(label=b"7" * 70_000), "1.cls has 70,000 bytes"),
        ({**sample(), "1.json": b"{"}, "1.json is not JSON"),
        ({**sample(), "1.json": b"[" * 50_000}, "1.json is not JSON"),
        ({**sample(), "2.cls": b"1", "2.json": b'{"person": "a"}', "2.jpg": JPEG}, "calls 'a' label 1; earlier"),
        ({**sample(), "2.cls": b"0", "2.json": b'{"person": "b"}', "2.jpg": JPEG}, "that label was of 'a'"),
        ({"../1.jpg": JPEG}, "the name '../1.jpg'"),
        ({"/1.jpg": JPEG}, "the name '/1.jpg'"),
        ({"a//1.jpg": JPEG}, "the name 'a//1.jpg'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_tar_file_is_reported(tmp_path, files, problem):
    path = stored(tmp_path, "a.tar", tar(files))
    with pytest.raises(DataFormatError, match=problem):
        WebDataset(path)


UNSAFE = ["/data/x/1.jpg", "a/../../b.jpg", "a\\b.jpg", "C:/b.jpg", "a\0.jpg", "\ud800.jpg", "", "."]


@pytest.mark.parametrize("name", UNSAFE)
def test_a_path_of_others_that_is_no_safe_name_gives_way_to_the_key(tmp_path, name):
    files = {**sample(path=name), "2.cls": b"0", "2.json": b'{"person": "a", "path": "a/2.jpg"}', "2.jpg": JPEG}
    found = WebDataset(stored(tmp_path, "a.tar", tar(files)))
    assert found.paths == ["a/1.jpg", "a/2.jpg"]
    assert (found.people, found.labels.tolist(), found.read(0)) == (["a"], [0, 0], JPEG)
    write_webdataset(tmp_path / "again.tar", found)
    assert content(WebDataset(tmp_path / "again.tar")) == content(found)


@pytest.mark.parametrize("name", [*UNSAFE, "a/b"])
def test_a_person_of_others_whose_name_is_not_safe_is_named_by_the_label(tmp_path, name):
    files = {**sample(name, b"1", "x/1.jpg"), "2.cls": b"0", "2.json": b'{"person": "Zo"}', "2.jpg": JPEG}
    found = WebDataset(stored(tmp_path, "a.tar", tar(files)))
    assert list(found.people) == ["Zo", "label-1"]
    assert found.paths == ["label-1/x/1.jpg", "Zo/2.jpg"]
    alone = WebDataset(stored(tmp_path, "b.tar", tar(sample(name, b"1", "x/1.jpg"))))
    assert (list(alone.people), alone.paths) == (["0", "1"], ["1/x/1.jpg"])


def test_a_tar_file_that_is_cut_off_anywhere_is_refused(tmp_path):
    whole = tar(sample())
    end = len(whole.rstrip(b"\0"))
    for length in (0, 100, 512, 600, 1024, 2048, end - 1, end // 512 * 512 + 512):
        with pytest.raises(DataFormatError, match="cut off"):
            WebDataset(stored(tmp_path, "a.tar", whole[:length]))
    assert len(WebDataset(stored(tmp_path, "a.tar", whole)).paths) == 1


def header(size, name=b"1.jpg", kind=b"0"):
    """A tar header, its numbers as given."""
    block = bytearray(name.ljust(100, b"\0") + b"0000644\0" + bytes(16) + size.ljust(12, b"\0") + bytes(376))
    block[156:157], block[148:156] = kind, b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@pytest.mark.parametrize("size", [b"7" * 11, b"\x80" + b"\xff" * 11, b"77777777", b"x", b"-1"])
@pytest.mark.parametrize("kind", [b"0", b"L", b"x"])
def test_a_length_beyond_the_file_asks_for_no_memory(tmp_path, size, kind):
    path = stored(tmp_path, "a.tar", header(size, kind=kind) + bytes(2048))
    tracemalloc.start()
    with pytest.raises(DataFormatError):
        WebDataset(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_an_image_over_the_limit_is_refused_unread(tmp_path):
    with (tmp_path / "a.tar").open("wb") as file:
        file.write(tar({"1.cls": b"0"})[:1024] + header(b"%o" % (65 << 20)))
        file.truncate(file.tell() + (65 << 20) + 1024)  # a hole, not bytes
    with pytest.raises(UnreadableImage, match="68,157,440 bytes; the limit is"):
        WebDataset(tmp_path / "a.tar").read(0)


def test_more_tar_files_than_may_be_open_are_opened_for_each_read(tmp_path, people):
    write_webdataset(tmp_path / "tars", people, size=1)
    found = WebDataset(tmp_path / "tars", kept_open=2)
    assert content(found) == content(people)
    assert [bool(file._open) for file in found.files] == [True] * 2 + [False] * 5
    handles = [kept.fileno() for file in found.files for kept in file._open.values()]
    del found
    for handle in handles:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(handle)


def test_a_tar_file_of_no_samples_is_refused(tmp_path, people):
    with pytest.raises(ValueError, match="0 samples in a tar file"):
        write_webdataset(tmp_path / "tars", people, size=0)


GOOD = tar(sample("Zoë", b"1"), format=tarfile.PAX_FORMAT)


@given(spoiled(GOOD[: len(GOOD.rstrip(b"\0")) + 1200]))
def test_a_spoiled_tar_file_is_read_or_refused(place, data):
    reads_or_says_why(WebDataset, stored(place, "fuzz.tar", data))


@given(st.binary(max_size=80), st.sampled_from([b"0", b"L", b"x", b"g", b"5", b"S"]), st.binary(max_size=30))
def test_a_tar_file_of_well_formed_nonsense_is_read_or_refused(place, name, kind, body):
    data = header(b"%o" % len(body), name.ljust(80), kind) + body.ljust(512, b"\0") + tar(sample())
    reads_or_says_why(WebDataset, stored(place, "fuzz.tar", data))


# Zip files


def test_a_set_comes_back_from_a_zip_file(tmp_path, people):
    write_zip(tmp_path / "a.zip", people)
    found = ZipSet(tmp_path / "a.zip")
    assert content(found) == content(people)
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == {
            path: data for *_, path, data in content(people)
        }


def test_zip_files_of_others_may_be_compressed_and_hold_other_things(tmp_path):
    flat = image(3, ".png") * 5
    files = {"b/2.png": flat, "a/": b"", "a/1.JPG": JPEG, "a/notes.txt": b"", "top.jpg": JPEG, "__MACOSX/a/1.jpg": b"?"}
    found = ZipSet(stored(tmp_path, "a.zip", zipped(files, compression=zipfile.ZIP_DEFLATED)))
    assert content(found) == [("b", 1, "b/2.png", flat), ("a", 0, "a/1.JPG", JPEG)]
    assert found.ignored == ["a/notes.txt", "top.jpg", "__MACOSX/a/1.jpg"]


def patched(data, place, form, value):
    """A zip file with one number of its directory entry changed."""
    at = data.index(b"PK\1\2") + place
    return data[:at] + struct.pack(form, value) + data[at + struct.calcsize(form) :]


def test_a_zip_bomb_is_refused_before_it_unfolds(tmp_path):
    bomb = zipped({"a/1.png": bytes(80 << 20)}, compression=zipfile.ZIP_DEFLATED)
    assert len(bomb) < 100_000
    with pytest.raises(UnreadableImage, match="83,886,080 bytes; the limit is"):
        ZipSet(stored(tmp_path, "a.zip", bomb)).read(0)
    lie = ZipSet(stored(tmp_path, "a.zip", patched(bomb, 24, "<I", 1000)))  # its directory says: 1,000 bytes
    tracemalloc.start()
    with pytest.raises(UnreadableImage, match="its length or checksum differs"):
        lie.read(0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "damaged zip file"),
        (zipped({"a/1.jpg": JPEG})[:-30], "damaged zip file"),
        (zipped({"1.jpg": JPEG}), "no image in a folder of its person"),
        (zipped({"../1.jpg": JPEG}), "the name '../1.jpg'"),
        (zipped({"a/1.jpg": JPEG}).replace(b"a/1.jpg", b"\0/1.jpg"), "the name ''"),
        (zipped({"/a/1.jpg": JPEG}), "the name '/a/1.jpg'"),
        (zipped({"a/b\\..\\1.jpg": JPEG}), "backslashes"),
        (zipped({"a/1.jpg": JPEG}, compression=zipfile.ZIP_BZIP2), "packed by method 12; wanted stored or deflated"),
        (patched(zipped({"a/1.jpg": JPEG}), 8, "<H", 1), "is encrypted"),
    ],
)
def test_what_is_wrong_with_a_zip_file_is_said(tmp_path, data, problem):
    path = stored(tmp_path, "a.zip", data)
    with pytest.raises(DataFormatError, match=problem):
        ZipSet(path)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (patched(zipped({"a/1.jpg": JPEG}), 16, "<I", 1), "its length or checksum differs"),
        (patched(zipped({"a/1.jpg": JPEG}), 42, "<I", 9), "not at the directory's offset"),
        (patched(zipped({"a/1.jpg": JPEG}), 42, "<I", 2**31), "cut off"),
        (patched(zipped({"a/1.jpg": JPEG}), 10, "<H", 8), "while decompressing"),
    ],
)
def test_a_zip_file_whose_directory_lies_is_refused_when_read(tmp_path, data, problem):
    found = ZipSet(stored(tmp_path, "a.zip", data))
    with pytest.raises(UnreadableImage, match=f"^a/1.jpg: .*{problem}.*again$"):
        read_image(found, 0)


def with_zip64(data, size, offset):
    """A zip file of one member with a size and an offset of eight bytes each, as in files over 4 GiB."""
    start, end = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    entry = bytearray(data[start:end] + struct.pack("<HHQQQ", 1, 24, size, size, offset))
    entry[20:28], entry[42:46], entry[30:32] = b"\xff" * 8, b"\xff" * 4, b"\x1c\0"
    tail = bytearray(data[end:])
    tail[12:16] = struct.pack("<I", len(entry))
    return data[:start] + entry + tail


@pytest.mark.parametrize(
    ("size", "offset", "problem"), [(len(JPEG), 2**64 - 1, "cut off"), (2**64 - 1, 0, "bytes; the limit is")]
)
def test_numbers_beyond_any_file_in_a_directory_make_one_image_unreadable(tmp_path, size, offset, problem):
    whole = ZipSet(stored(tmp_path, "a.zip", with_zip64(zipped({"a/1.jpg": JPEG}), len(JPEG), 0)))
    assert whole.read(0) == JPEG
    found = ZipSet(stored(tmp_path, "a.zip", with_zip64(zipped({"a/1.jpg": JPEG}), size, offset)))
    with pytest.raises(UnreadableImage, match=f"^a/1.jpg: .*{problem}"):
        read_image(found, 0)


def test_one_image_over_the_limit_leaves_the_others_readable(tmp_path):
    files = {"a/1.jpg": JPEG, "a/2.png": bytes(65 << 20)}
    found = ZipSet(stored(tmp_path, "a.zip", zipped(files, compression=zipfile.ZIP_DEFLATED)))
    assert found.read(0) == JPEG
    with pytest.raises(UnreadableImage, match=r"^a/2\.png: 68,157,440 bytes"):
        found.read(1)


def test_a_name_can_stand_in_a_zip_file_once(tmp_path, people):
    people.paths[1] = people.paths[0]
    with pytest.raises(DataFormatError, match=r"two images are called 'Ann B. Clark/photo 2.png'"):
        write_zip(tmp_path / "a.zip", people)


@given(spoiled(zipped({"a/1.jpg": JPEG, "b/2.png": bytes(300)}, compression=zipfile.ZIP_DEFLATED)))
def test_a_spoiled_zip_file_is_read_or_refused(place, data):
    reads_or_says_why(ZipSet, stored(place, "fuzz.zip", data))


@pytest.mark.parametrize("kind", [WebDataset, ZipSet])
def test_sets_can_be_sent_to_another_process(tmp_path, people, kind):
    write = write_webdataset if kind is WebDataset else write_zip
    path = tmp_path / ("a.tar" if kind is WebDataset else "a.zip")
    write(path, people)
    found = kind(path)
    found.read(0)
    assert content(pickle.loads(pickle.dumps(found))) == content(people)
