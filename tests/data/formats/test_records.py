"""Record files: the bytes that mxnet would write, read back, and refused when they are incomplete."""

import io
import pickle
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphereface.data.files.handles import ByteFile
from sphereface.data.formats.recordio import MAGIC, pack_entry, pack_record, read_entry, read_head, read_record, scan
from sphereface.data.formats.records import RecordSet, write_records
from sphereface.errors import DataFormatError, UnreadableImage
from tests.data.sets import content, image, reads_or_says_why, spoiled, write_people


def dmlc_write(data):
    """A record word by word, as the container's own writer goes about it."""
    out, start = io.BytesIO(), 0
    for place in range(0, len(data) // 4 * 4, 4):
        if data[place : place + 4] == b"\x0a\x23\xd7\xce":
            out.write(struct.pack("<II", 0xCED7230A, (2 if start else 1) * 2**29 + place - start) + data[start:place])
            start = place + 4
    out.write(struct.pack("<II", 0xCED7230A, (3 if start else 0) * 2**29 + len(data) - start) + data[start:])
    while out.tell() % 4:
        out.write(b"\0")
    return out.getvalue()


def stored(folder, data, name="a.rec"):
    (folder / name).write_bytes(data)
    return ByteFile(folder / name)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("records")


magical = st.lists(st.sampled_from([MAGIC, MAGIC[:3], b"\0", b"abcd", b""]), max_size=12).map(b"".join)


@given(st.lists(magical, min_size=1, max_size=4))
def test_records_are_framed_as_mxnet_frames_them_and_come_back_whole(place, records):
    framed = [pack_record(record) for record in records]
    assert framed == [dmlc_write(record) for record in records]
    file = stored(place, b"".join(framed))
    offsets = scan(file)
    assert [read_record(file, offset)[0] for offset in offsets] == records
    assert offsets == [sum(map(len, framed[:number])) for number in range(len(framed))]


@given(magical, st.integers(0, 40))
def test_the_first_bytes_of_a_record_are_those_of_the_whole(place, record, most):
    file = stored(place, pack_record(record))
    assert read_record(file, 0, most=most)[0] == record[:most]


@pytest.mark.parametrize("labels", [7, (1, 2), (5, 6, 7)], ids=str)
def test_an_entry_has_mxnets_header(tmp_path, labels):
    several = labels if isinstance(labels, tuple) else ()
    header = struct.pack("<IfQQ", len(several), 0 if several else labels, 11, 0)
    packed = pack_entry(labels, 11, b"\xff\xd8\xffimage")
    assert packed == header + np.array(several, dtype="<f4").tobytes() + b"\xff\xd8\xffimage"
    file = stored(tmp_path, pack_record(packed))
    entry, head = read_entry(file, 0), read_head(file, 0, peek=3)
    assert entry == (tuple(several[:2]) or (7,), 11, b"\xff\xd8\xffimage")
    assert head.labels == entry.labels
    assert head.image.startswith(b"\xff\xd8\xff")


@pytest.fixture
def people(tmp_path):
    return write_people(tmp_path / "people")


@pytest.fixture
def written(tmp_path, people):
    write_records(tmp_path / "train.rec", people)
    return tmp_path / "train.rec"


def insightface_reads(path):
    """Every image with its label, found as InsightFace's own loader finds them: index, record 0, ranges of people."""
    lines = path.with_suffix(".idx").read_text().splitlines()
    offsets = {int(number): int(offset) for number, offset in (line.split("\t") for line in lines)}
    data = path.read_bytes()

    def entry(number):
        magic, length = struct.unpack_from("<II", data, offsets[number])
        assert (magic, length >> 29) == (0xCED7230A, 0)
        body = data[offsets[number] + 8 :][:length]
        flag, label, own, _ = struct.unpack_from("<IfQQ", body)
        assert own == number
        return np.frombuffer(body[24:], "<f4", flag) if flag else label, body[24 + 4 * flag :]

    (first, end), _ = entry(0)
    ranges = [entry(number)[0] for number in range(int(first), int(end))]
    numbers = [number for start, stop in ranges for number in range(int(start), int(stop))]
    assert numbers == list(range(1, int(first)))
    return [entry(number) for number in numbers]


def test_a_written_file_is_what_insightface_reads(written, people):
    assert insightface_reads(written) == [(person[1], person[3]) for person in content(people)]
    assert written.with_name("property").read_text() == "4,12,10\n"


def test_a_set_comes_back_with_its_names(written, people):
    found = RecordSet(written)
    assert content(found) == content(people)
    assert found.people == people.people


def test_without_a_list_names_are_made_of_labels_numbers_and_what_the_bytes_are(written, people):
    written.with_suffix(".lst").unlink()
    found = RecordSet(written)
    assert list(found.paths) == ["0/1.png", "0/2.jpg", "1/3.jpg", "1/4.jpg", "1/5.png", "2/6.jpg", "3/7.png"]
    assert [found.read(index) for index in range(7)] == [people.read(index) for index in range(7)]
    assert list(found.people) == ["0", "1", "2", "3"]
    assert found.labels.tolist() == people.labels.tolist()


def test_made_up_names_sort_as_their_labels_do(tmp_path):
    with (tmp_path / "a.rec").open("wb") as file:
        for label in range(12):
            file.write(pack_record(pack_entry(label, label, image(label, ".png"))))
    found = RecordSet(tmp_path / "a.rec")
    assert list(found.people) == sorted(found.people)
    assert found.paths[11] == "11/11.png"
    assert found.paths[2] == "02/02.png"


def test_an_index_that_is_missing_is_made_by_a_scan(written, people):
    written.with_suffix(".idx").unlink()
    assert content(RecordSet(written)) == content(people)


def test_insightfaces_own_list_has_other_columns_and_is_passed_over(written):
    written.with_suffix(".lst").write_text("1\t/data/0000045/001.jpg\t0\n")
    assert RecordSet(written).paths[0] == "0/1.png"


def test_images_out_of_order_are_written_without_people_and_read_back(tmp_path, people):
    class Shuffled:
        def __init__(self):
            self.people, self.order = people.people, [3, 0, 6, 5, 1, 2, 4]
            self.labels = people.labels[self.order]
            self.paths = [people.paths[index] for index in self.order]

        def read(self, index):
            return people.read(self.order[index])

    write_records(tmp_path / "a.rec", Shuffled())
    assert content(RecordSet(tmp_path / "a.rec")) == content(Shuffled())
    (tmp_path / "a.lst").unlink()
    assert RecordSet(tmp_path / "a.rec").labels.tolist() == people.labels[[3, 0, 6, 5, 1, 2, 4]].tolist()


def test_numbers_that_float32_has_rounded_are_not_believed(tmp_path):
    """Sets of over 2**24 images exist; their record 0 is rounded, so that every record is looked at instead."""
    beyond = float(np.float32(2**24 + 3))
    assert beyond == 2**24 + 4
    (tmp_path / "a.rec").write_bytes(entries(((beyond, beyond), b""), (0, JPEG), (5, JPEG), ((1, 2), b"")))
    assert RecordSet(tmp_path / "a.rec").labels.tolist() == [0, 5]


@pytest.mark.parametrize("named", [True, False])
def test_a_set_can_be_sent_to_another_process(written, named):
    if not named:
        written.with_suffix(".lst").unlink()
    found = RecordSet(written)
    found.read(0)
    again = pickle.loads(pickle.dumps(found))
    assert content(again) == content(found)


def entries(*labelled):
    return b"".join(pack_record(pack_entry(labels, number, data)) for number, (labels, data) in enumerate(labelled))


JPEG = image(0, ".jpg")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "no record"),
        (b"\0" * 64, r"00000000 at 0; wanted 0a23d7ce"),
        (entries((-1, JPEG)), "image 0 has label -1"),
        (entries((1.5, JPEG)), "image 0 has label 1.5"),
        (entries((float("nan"), JPEG)), "image 0 has label nan"),
        (entries((2.0**24, JPEG)), r"label 1.67772e\+07; wanted 0, 1, ... below 16,777,216"),
        (entries(((2, 3), b""), (0, JPEG)), "no record 2"),
        (entries(((9, 10), b""), (0, JPEG)), "counts 8 images before .*; wanted fewer than its 2 records"),
        (entries(((2, 1), b""), (0, JPEG)), "wanted a range of records"),
        (entries(((2, 3), b""), (0, JPEG), (0, JPEG)), r"record 2 holds \(0.0,\); wanted a range"),
        (entries(((3, 4), b""), (0, JPEG), (0, JPEG), ((1, 2), b"")), "image 2 is in no person's record"),
        (entries(((2, 4), b""), (0, JPEG), ((1, 2), b""), ((1, 2), b"")), "record 3 claims images 1 to 1"),
        (entries(((2, 3), b""), (0, JPEG), ((1, 9), b"")), "record 2 claims images 1 to 8"),
        (pack_record(b"short"), "5 bytes; wanted 24 or more"),
        (pack_record(struct.pack("<IfQQ", 9, 0, 0, 0)), "promises 9 labels"),
        (struct.pack("<II", 0xCED7230A, 100) + bytes(20), "cut off: 100 bytes wanted at 8, the file has 28"),
        (struct.pack("<II", 0xCED7230A, 1 << 29), "cut off: its last record is incomplete"),
        (struct.pack("<II", 0xCED7230A, 2 << 29), "a part with flag 2 at 0"),
        (entries((0, JPEG))[:-9], "cut off"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said(tmp_path, data, problem):
    (tmp_path / "a.rec").write_bytes(data)
    with pytest.raises(DataFormatError, match=problem):
        RecordSet(tmp_path / "a.rec")


def test_an_image_whose_label_contradicts_its_persons_is_an_error_when_read(tmp_path):
    (tmp_path / "a.rec").write_bytes(entries(((3, 4), b""), (0, JPEG), (1, JPEG), ((1, 3), b"")))
    found = RecordSet(tmp_path / "a.rec")
    assert found.read(0) == JPEG
    with pytest.raises(DataFormatError, match="image 2 has label 1; its person or list says 0"):
        found.read(1)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("idx", "0\t0\none\t36\n", r"a\.idx:2: 'one\\t36'; wanted number<TAB>offset"),
        ("idx", "0\t0\n0\t0\n", "record 0 is listed twice"),
        ("idx", "0\t4\n", "wanted 0a23d7ce"),
        ("idx", "0\t4096000\n", "cut off: 8 bytes wanted at 4,096,000"),
        ("lst", "0\t0\ta/b.jpg\n1\t0\ta/c.jpg\n", "a.rec: 1 images, its .lst lists 2"),
        ("lst", "0\t0\t../b.jpg\n", r"a\.lst:1: the name '../b.jpg'"),
        ("lst", "0\t0\ta/b.jpg\nhello\n", r"a\.lst:2: 'hello'; wanted number<TAB>label<TAB>path"),
    ],
)
def test_what_is_wrong_with_the_files_beside_is_said_by_line(tmp_path, name, text, problem):
    (tmp_path / "a.rec").write_bytes(entries((0, JPEG)))
    (tmp_path / f"a.{name}").write_text(text)
    with pytest.raises(DataFormatError, match=problem):
        RecordSet(tmp_path / "a.rec")


@pytest.mark.parametrize(("text", "problem"), [("ten,112,112", "wanted classes,height,width"), ("1,12,10", "1 people")])
def test_a_property_file_must_fit(tmp_path, text, problem):
    (tmp_path / "a.rec").write_bytes(entries((4, JPEG)))
    (tmp_path / "property").write_text(text)
    with pytest.raises(DataFormatError, match=problem):
        RecordSet(tmp_path / "a.rec")


def test_people_without_images_are_counted_where_the_property_file_names_them(tmp_path):
    (tmp_path / "a.rec").write_bytes(entries((4, JPEG)))
    assert len(RecordSet(tmp_path / "a.rec").people) == 5
    (tmp_path / "property").write_text("9,12,10\n")
    assert len(RecordSet(tmp_path / "a.rec").people) == 9


def test_labels_that_float32_cannot_tell_apart_are_refused(tmp_path, people):
    people.labels = people.labels + (2**24 - 3)
    assert np.float32(2**24) == np.float32(2**24 + 1)
    with pytest.raises(DataFormatError, match="a record file holds 0 to 16,777,215"):
        write_records(tmp_path / "a.rec", people)


def test_a_set_whose_first_image_is_none_has_no_size_to_tell(tmp_path, people):
    (people.root / people.paths[0]).write_bytes(b"hello")
    with pytest.raises(UnreadableImage, match=r"photo 2\.png: starts with b'hello'"):
        write_records(tmp_path / "a.rec", people)
    assert not (tmp_path / "a.rec").exists()


def test_a_length_of_half_a_gigabyte_asks_for_no_memory(tmp_path):
    (tmp_path / "a.rec").write_bytes(struct.pack("<II", 0xCED7230A, 2**29 - 1) + bytes(100))
    (tmp_path / "a.idx").write_text("0\t0\n")
    tracemalloc.start()
    with pytest.raises(DataFormatError, match="cut off"):
        RecordSet(tmp_path / "a.rec")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


RECORDS = [((4, 6), b""), (0, JPEG), (0, MAGIC * 3), (1, JPEG), ((1, 3), b""), ((3, 4), b"")]
WHOLE = entries(*RECORDS)
INDEX = "".join(f"{number}\t{len(entries(*RECORDS[:number]))}\n" for number in range(len(RECORDS))).encode()


@given(spoiled(WHOLE))
def test_spoiled_records_are_read_or_refused(place, data):
    (place / "fuzz.rec").write_bytes(data)
    reads_or_says_why(RecordSet, place / "fuzz.rec")


def test_the_file_that_is_spoiled_below_is_a_good_one(tmp_path):
    (tmp_path / "a.rec").write_bytes(WHOLE)
    (tmp_path / "a.idx").write_bytes(INDEX)
    assert content(RecordSet(tmp_path / "a.rec"))[1] == ("0", 0, "0/2.jpg", MAGIC * 3)


@given(spoiled(INDEX), spoiled(b"1\t0\ta/1.jpg\n2\t0\ta/2.jpg\n3\t1\tb/3.jpg\n"), spoiled(b"2,9,9\n"))
def test_spoiled_companions_are_read_or_refused(tmp_path_factory, index, names, counts):
    folder = tmp_path_factory.getbasetemp() / "companions"
    folder.mkdir(exist_ok=True)
    (folder / "a.rec").write_bytes(WHOLE)
    for name, data in (("a.idx", index), ("a.lst", names), ("property", counts)):
        (folder / name).write_bytes(data)
        reads_or_says_why(RecordSet, folder / "a.rec")
        (folder / name).unlink()
