"""The devkit's files: what is written is read, byte for byte as the layout says, and what is wrong is named."""

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sphereface.data.lists.devkit import (
    collect_features,
    find_noise,
    map_matrix,
    read_curves,
    read_distractors,
    read_matrix,
    read_noise,
    read_probes,
    rows_of,
    spread_features,
    write_curves,
    write_matrix,
)
from sphereface.data.lists.megaface import MegaFaceImage, write_megaface
from sphereface.errors import DataFormatError
from tests.modes import mode, umask


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("devkit") / "matrix.bin"


def images(*names):
    return [MegaFaceImage(name, None) for name in names]


def test_a_feature_is_a_column_as_the_devkit_wants_it(place):
    write_matrix(place, np.array([1.0, -2.5, 3.0], dtype=np.float32))
    assert place.read_bytes() == struct.pack("<4i3f", 3, 1, 4, 5, 1.0, -2.5, 3.0)


def test_a_matrix_states_the_bytes_of_a_row(place):
    write_matrix(place, np.arange(6.0).reshape(2, 3))
    assert place.read_bytes() == struct.pack("<4i6d", 2, 3, 24, 6, *range(6))


shapes = st.tuples(st.integers(1, 4), st.integers(1, 4))


@given(st.sampled_from([np.float32, np.float64]).flatmap(lambda kind: arrays(kind, shapes)))
def test_every_matrix_comes_back(place, matrix):
    write_matrix(place, matrix)
    found = read_matrix(place)
    assert found.dtype == matrix.dtype
    assert np.array_equal(found, matrix, equal_nan=True)


def test_a_matrix_whose_step_is_that_of_one_number_is_read(place):
    place.write_bytes(struct.pack("<4i4f", 1, 4, 4, 5, 1, 2, 3, 4))
    assert read_matrix(place).tolist() == [[1, 2, 3, 4]]
    assert isinstance(map_matrix(place), np.memmap)


BAD = {
    "nothing": (b"", "0 bytes; wanted a matrix"),
    "half a header": (b"\1\0\0\0\1\0", "6 bytes; wanted a matrix"),
    "cut off": (struct.pack("<4i2f", 3, 1, 4, 5, 1, 2), "24 bytes; wanted 28 for 3 x 1 numbers; it was cut off"),
    "too long": (struct.pack("<4i2f", 1, 1, 4, 5, 1, 2), "24 bytes; wanted 20 for 1 x 1 numbers; it is longer"),
    "whole numbers": (struct.pack("<4ii", 1, 1, 4, 4, 1), "type 4; wanted a whole matrix of type 5"),
    "no row": (struct.pack("<4i", 0, 1, 4, 5), "0 rows"),
    "fewer than none": (struct.pack("<4i", 1, -1, -4, 5), "-1 columns"),
    "an odd step": (struct.pack("<4i4f", 2, 2, 12, 5, 1, 2, 3, 4), "step 12"),
    "big-endian": (struct.pack(">4i1f", 1, 1, 4, 5, 1), "wanted a whole matrix"),
}


@pytest.mark.parametrize(("content", "problem"), BAD.values(), ids=BAD)
def test_what_is_no_matrix_is_reported(place, content, problem):
    place.write_bytes(content)
    with pytest.raises(DataFormatError, match=problem):
        read_matrix(place)


def test_what_is_no_matrix_is_not_written(place):
    for wrong in (np.ones((2, 2, 2)), np.ones(0), np.ones(3, dtype=int)):
        with pytest.raises(ValueError, match="wanted floating-point numbers"):
            write_matrix(place, wrong)
    with pytest.raises(DataFormatError, match="cannot be read"):
        read_matrix(place.with_name("elsewhere.bin"))


def test_features_come_back_from_a_matrix_for_each_image(tmp_path):
    listed = images("a/1.jpg", "a/2.jpg", "b/c/3.jpg")
    features = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    done = []
    spread_features(features, listed, tmp_path / "features", "_net.bin", progress=lambda count, _: done.append(count))
    assert (tmp_path / "features/b/c/3.jpg_net.bin").stat().st_size == 16 + 5 * 4
    order = [listed[2], listed[0]]
    collect_features(
        order, tmp_path / "features", "_net.bin", tmp_path / "some.npy", progress=lambda count, _: done.append(count)
    )
    found = np.load(tmp_path / "some.npy", mmap_mode="r")
    assert found.dtype == np.float32
    assert np.array_equal(found, features[[2, 0]])
    assert done == [1, 2, 3, 1, 2]


def test_features_are_their_owners_alone_and_a_shorter_one_replaces_a_longer_one(tmp_path):
    with umask(0):
        for length in (5, 4):
            spread_features(np.full((1, length), 2.0), images("1.jpg"), tmp_path, ".bin")
        collect_features(images("1.jpg"), tmp_path, ".bin", tmp_path / "all.npy")
        write_matrix(tmp_path / "some.bin", np.ones((2, 2)))
    assert np.array_equal(np.load(tmp_path / "all.npy"), np.full((1, 4), 2.0))
    assert {path.name: mode(path) for path in tmp_path.iterdir()} == dict.fromkeys(
        ("1.jpg.bin", "all.npy", "some.bin"), 0o600
    )


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (np.ones(4), r"2.jpg.bin: a matrix \(4, 1\); wanted 5 numbers, as before"),
        (np.ones((5, 2)), r"wanted 5 numbers"),
        (np.array([1, 2, np.nan, 4, 5]), "not finite; embed this image again"),
        (np.array([1, 2, 1e300, 4, 5]), "not finite; embed this image again"),
        (None, "2.jpg.bin: cannot be read"),
    ],
    ids=["shorter", "a table", "NaN", "too large", "missing"],
)
def test_a_feature_unlike_the_others_is_named_and_nothing_is_left(tmp_path, wrong, problem):
    spread_features(np.ones((2, 5)), images("1.jpg", "3.jpg"), tmp_path, ".bin")
    if wrong is not None:
        write_matrix(tmp_path / "2.jpg.bin", wrong)
    with pytest.raises(DataFormatError, match=problem):
        collect_features(images("1.jpg", "2.jpg", "3.jpg"), tmp_path, ".bin", tmp_path / "all.npy")
    assert not [path for path in tmp_path.iterdir() if "all.npy" in path.name]


def test_features_and_lists_of_other_lengths_are_refused(tmp_path):
    with pytest.raises(ValueError, match="2 images; wanted"):
        spread_features(np.ones((3, 5)), images("1.jpg", "2.jpg"), tmp_path, ".bin")
    with pytest.raises(ValueError, match="at least one"):
        collect_features([], tmp_path, ".bin", tmp_path / "all.npy")


def test_probes_have_people_and_each_image_stands_once(tmp_path):
    path = tmp_path / "list.json"
    write_megaface(path, [MegaFaceImage("a/1.jpg", "a"), MegaFaceImage("b/1.jpg", "b")])
    listed, people = read_probes(path)
    assert [image.path for image in listed] == ["a/1.jpg", "b/1.jpg"]
    assert people.tolist() == ["a", "b"]
    write_megaface(path, [MegaFaceImage("a/1.jpg", "a"), MegaFaceImage("b/1.jpg", None)])
    assert len(read_distractors(path)) == 2
    with pytest.raises(DataFormatError, match=r"image 1, .b/1\.jpg., is of an unknown person"):
        read_probes(path)
    write_megaface(path, images("x", "y", "z", "y"))
    with pytest.raises(DataFormatError, match="images 1 and 3 are both 'y'; wanted each once"):
        read_distractors(path)
    write_megaface(path, [])
    with pytest.raises(DataFormatError, match="no image"):
        read_distractors(path)


def test_a_list_is_found_in_another(tmp_path):
    assert rows_of(images("c", "a"), images("a", "b", "c")).tolist() == [2, 0]
    with pytest.raises(ValueError, match="'d' is not among the 3 images"):
        rows_of(images("d"), images("a", "b", "c"))


def test_noise_is_named_by_path_or_by_file(tmp_path):
    path = tmp_path / "noise.txt"
    path.write_text("# FaceScrub\nAdam_Brody_7.png\n\n12\t434/29/0.jpg\nB/b.png\n")
    noise = read_noise(path)
    assert noise == {"Adam_Brody_7.png", "434/29/0.jpg", "B/b.png"}
    listed = images("Adam Brody/Adam Brody_7.png", "434/29/0.jpg", "1434/29/0.jpg", "b.png", "Adam_Brody_7.png.jpg")
    found, unmatched = find_noise(listed, noise)
    assert found.tolist() == [True, True, False, False, False]
    assert unmatched == ["B/b.png"]


def test_a_name_of_noise_may_be_of_several_images_and_in_two_spellings():
    found, unmatched = find_noise(images("a/x_1.png", "b/x 1.png", "c.png"), ["x_1.png", "x 1.png", "z", "y"])
    assert (found.tolist(), unmatched) == ([True, True, False], ["y", "z"])


def test_a_line_of_noise_that_comes_twice_is_named(tmp_path):
    path = tmp_path / "noise.txt"
    path.write_text("a.jpg\nb.jpg\na.jpg\n")
    with pytest.raises(
        DataFormatError, match=r"noise.txt:3: 'a.jpg'; wanted the name of an image that no other line has"
    ):
        read_noise(path)


def test_curves_come_back_and_ranks_begin_at_zero(tmp_path):
    path = tmp_path / "cmc_facescrub_megaface_net_10_1.json"
    write_curves(path, [0.5, 0.75], [0.0, 1e-6], [0.25, 0.5])
    assert json.loads(path.read_text()) == {"cmc": [[0, 1], [0.5, 0.75]], "roc": [[0.0, 1e-6], [0.25, 0.5]]}
    assert read_curves(path) == ([0.5, 0.75], [0.0, 1e-6], [0.25, 0.5])


@pytest.mark.parametrize("content", ["", "[]", '{"cmc": [[0], [1]]}', '{"cmc": 3, "roc": []}', "[" * 100_000])
def test_what_are_no_curves_is_reported(tmp_path, content):
    path = tmp_path / "curves.json"
    path.write_text(content)
    with pytest.raises(DataFormatError, match="not a result of the devkit"):
        read_curves(path)
