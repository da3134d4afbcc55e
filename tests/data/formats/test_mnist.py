"""MNIST's idx files: arrays, digits as a set, and files that lie about their size."""

import gzip
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays, scalar_dtypes

from sphereface.data.formats.mnist import IMAGES, LABELS, TYPES, MnistSet, read_idx, write_idx
from sphereface.errors import DataFormatError
from sphereface.faces.images import decode
from tests.data.sets import REAL, reads_or_says_why, spoiled


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("mnist")


@pytest.fixture
def digits():
    return np.random.default_rng(0).integers(0, 256, (12, 7, 5), dtype=np.uint8)


def write_digits(folder, images, labels, part="train", ending=""):
    write_idx(folder / f"{part}-{IMAGES}{ending}", images)
    write_idx(folder / f"{part}-{LABELS}{ending}", labels)


held = st.sampled_from([np.dtype(name) for name in TYPES.values()])
some_arrays = held.flatmap(lambda dtype: arrays(dtype, array_shapes(max_dims=4, max_side=4, min_side=0)))


@pytest.mark.parametrize("ending", ["", ".gz"])
@given(array=some_arrays)
def test_arrays_come_back(place, ending, array):
    write_idx(place / f"a{ending}", array)
    found = read_idx(place / f"a{ending}")
    assert found.dtype == array.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found, array)


def test_the_bytes_are_those_of_the_format(tmp_path):
    write_idx(tmp_path / "a", np.array([[1, -2, 3]], np.int16))
    assert (tmp_path / "a").read_bytes() == bytes([0, 0, 0x0B, 2, 0, 0, 0, 1, 0, 0, 0, 3, 0, 1, 0xFF, 0xFE, 0, 3])


def test_gzipped_files_have_the_same_bytes_whenever_they_are_written(tmp_path, digits, monkeypatch):
    write_idx(tmp_path / "1.gz", digits)
    monkeypatch.setattr("time.time", lambda: 2e9)
    write_idx(tmp_path / "2.gz", digits)
    assert (tmp_path / "1.gz").read_bytes() == (tmp_path / "2.gz").read_bytes()


@given(scalar_dtypes().filter(lambda dtype: dtype.newbyteorder(">") not in map(np.dtype, TYPES.values())))
def test_other_types_are_refused(place, dtype):
    with pytest.raises(ValueError, match="an idx file holds"):
        write_idx(place / "b", np.zeros(3, dtype))


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_digits_are_a_set_of_ten_people(tmp_path, digits, ending):
    labels = np.array([5, 0, 4, 1, 9, 2, 1, 3, 1, 4, 3, 5], np.uint8)
    write_digits(tmp_path, digits, labels, ending=ending)
    found = MnistSet(tmp_path)
    assert list(found.people) == list("0123456789")
    assert found.labels.tolist() == labels.tolist()
    assert found.paths[:2] == ["5/00.png", "0/01.png"]
    for index in range(12):
        pixels = decode(found.read(index))
        assert (pixels == digits[index][:, :, None]).all()


def test_a_folder_gives_its_training_digits_and_a_file_its_own(tmp_path, digits):
    write_digits(tmp_path, digits, np.zeros(12, np.uint8))
    write_digits(tmp_path, digits[:3], np.ones(3, np.uint8), part="t10k", ending=".gz")
    assert len(MnistSet(tmp_path).labels) == 12
    assert MnistSet(tmp_path / f"t10k-{IMAGES}.gz").labels.tolist() == [1, 1, 1]


def test_the_published_digits_are_read():
    if not (REAL / "mnist").is_dir():
        pytest.skip("MNIST is not here")
    found = MnistSet(REAL / "mnist" / f"t10k-{IMAGES}.gz")
    assert found.images.shape == (10_000, 28, 28)
    assert np.bincount(found.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def header(kind, *shape):
    return bytes([0, 0, kind, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "wanted an idx file"),
        (b"\x89PNG....", "starts with '89504e47'; wanted an idx file: 0000"),
        (header(0x07, 1) + b"1", "wanted an idx file"),
        (header(0x08) + b"1", "wanted an idx file"),
        (header(0x08, 1, 1)[:-2], "cut off within its header"),
        (header(0x08, 2, 2) + b"123", r"\(2, 2\) numbers are 4 bytes, the file holds 3"),
        (header(0x08, 2, 2) + b"12345", "the file holds more"),
        (header(0x0E, 2**31, 2**31) + b"1", "the limit is 1,073,741,824"),
        (header(0x08, 2**31, 2**31, 2**31, 0), "the limit is"),
        (header(0x08, 2**29) + b"1", "536,870,912 bytes, the file holds 1;"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_without_much_memory(tmp_path, data, problem, ending):
    (tmp_path / f"a{ending}").write_bytes(gzip.compress(data) if ending else data)
    tracemalloc.start()
    with pytest.raises(DataFormatError, match=problem):
        read_idx(tmp_path / f"a{ending}")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_a_gzip_bomb_stops_where_the_header_says(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(header(0x08, 100) + bytes(50 << 20), compresslevel=1))
    tracemalloc.start()
    with pytest.raises(DataFormatError, match="100 bytes, the file holds more"):
        read_idx(tmp_path / "a.gz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


@pytest.mark.parametrize(
    "spoil", [lambda data: data[:-4], lambda data: b"plain", lambda data: data[:10] + b"\xff" * 20]
)
def test_a_broken_gzip_file_is_named(tmp_path, digits, spoil):
    write_idx(tmp_path / "a.gz", digits)
    (tmp_path / "a.gz").write_bytes(spoil((tmp_path / "a.gz").read_bytes()))
    with pytest.raises(DataFormatError, match=r"a\.gz: damaged gzip file"):
        read_idx(tmp_path / "a.gz")


@pytest.mark.parametrize(
    ("images", "labels", "problem"),
    [
        (
            np.zeros((3, 7, 5), np.uint8),
            np.zeros(4, np.uint8),
            r"labels uint8 \(4,\); wanted uint8, one for each of 3 images",
        ),
        (np.zeros((3, 7, 5), np.uint8), np.zeros(3, np.int32), "labels int32"),
        (np.zeros((3, 35), np.uint8), np.zeros(3, np.uint8), r"wanted images, uint8 \(N, H, W\)"),
        (np.zeros((0, 7, 5), np.uint8), np.zeros(0, np.uint8), "wanted images"),
        (np.zeros((1, 1, 2_000_000), np.uint8), np.zeros(1, np.uint8), "wanted at most 4,096 pixels a side"),
    ],
)
def test_images_and_labels_must_belong_together(tmp_path, images, labels, problem):
    write_digits(tmp_path, images, labels)
    with pytest.raises(DataFormatError, match=problem):
        MnistSet(tmp_path)


def test_missing_files_are_named(tmp_path, digits):
    with pytest.raises(DataFormatError, match="no MNIST images; wanted train-images-idx3-ubyte"):
        MnistSet(tmp_path)
    write_idx(tmp_path / f"train-{IMAGES}", digits)
    with pytest.raises(DataFormatError, match="train-labels-idx1-ubyte: cannot be read"):
        MnistSet(tmp_path)


GOOD = header(0x0B, 2, 3) + bytes(12)


@pytest.mark.parametrize("ending", ["", ".gz"])
@given(data=st.one_of(spoiled(GOOD), spoiled(gzip.compress(GOOD, mtime=0))))
def test_a_spoiled_file_is_read_or_refused(place, ending, data):
    (place / f"fuzz{ending}").write_bytes(data)
    reads_or_says_why(read_idx, place / f"fuzz{ending}")
