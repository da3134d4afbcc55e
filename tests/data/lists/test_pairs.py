"""LFW's lists of pairs, plain ones, and the way to a `.bin` and back."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import KFold

from sphereface.data.formats.bins import PairSet, read_bin, write_bin
from sphereface.data.lists.pairs import Pair, bin_to_folder, folds_in_a_row, pairs_to_bin, read_pairs, write_pairs
from sphereface.errors import DataFormatError, UnreadableImage
from tests.data.sets import REAL, image, reads_or_says_why, spoiled, tree, write_people

VIEW_2 = "2\t2\nA_B\t1\t2\nC\t3\t14\nA_B\t1\tC\t2\nD\t1\tA_B\t5\n" + "E\t1\t2\nF\t1\t2\nE\t1\tF\t1\nF\t2\tG\t1\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("pairs") / "pairs.txt"


def stored(folder, text):
    (folder / "pairs.txt").write_bytes(text.encode())
    return folder / "pairs.txt"


def test_view_2_has_folds_of_same_and_different_pairs(tmp_path):
    pairs = read_pairs(stored(tmp_path, VIEW_2))
    assert pairs[0] == Pair("A_B/A_B_0001.jpg", "A_B/A_B_0002.jpg", True, 0)
    assert pairs[1].right == "C/C_0014.jpg"
    assert pairs[2] == Pair("A_B/A_B_0001.jpg", "C/C_0002.jpg", False, 0)
    assert [pair.fold for pair in pairs] == [0] * 4 + [1] * 4
    assert [pair.same for pair in pairs] == [True, True, False, False] * 2


@pytest.mark.parametrize("suffix", [".jpg", ".png", ""])
def test_view_2_is_written_as_it_was_read(tmp_path, suffix):
    pairs = read_pairs(stored(tmp_path, VIEW_2), suffix=suffix)
    assert pairs[0].left == f"A_B/A_B_0001{suffix}"
    write_pairs(tmp_path / "again.txt", pairs, layout="view2")
    assert (tmp_path / "again.txt").read_text() == VIEW_2


def test_view_1_has_one_fold(tmp_path):
    pairs = read_pairs(stored(tmp_path, "1\r\nA B\t1\t2\r\nA B\t1\tC\t12345\r\n"))
    assert pairs == (
        Pair("A B/A B_0001.jpg", "A B/A B_0002.jpg", True),
        Pair("A B/A B_0001.jpg", "C/C_12345.jpg", False),
    )
    write_pairs(tmp_path / "again.txt", pairs, layout="view1")
    assert (tmp_path / "again.txt").read_text() == "1\nA B\t1\t2\nA B\t1\tC\t12345\n"


@pytest.mark.parametrize(("name", "count"), [("pairsDevTrain.txt", 1100), ("pairsDevTest.txt", 500)])
def test_the_published_lists_are_read_and_written_byte_for_byte(tmp_path, name, count):
    real = REAL / "faces" / name
    if not real.is_file():
        pytest.skip(f"LFW's {name} is not here")
    pairs = read_pairs(real)
    assert [pair.same for pair in pairs] == [True] * count + [False] * count
    write_pairs(tmp_path / name, pairs, layout="view1")
    assert (tmp_path / name).read_bytes() == real.read_bytes()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no pair in it"),
        ("10\t300\n", r"0 pairs; wanted 10 x \(300 same \+ 300 different\), as in its first line"),
        ("0\n", r"0 pairs; wanted 1 x \(0 same"),
        (VIEW_2 + "E\t1\t3\n", r"9 pairs; wanted 2 x \(2 same \+ 2 different\), as in its first line"),
        ("999999999\t999999999\nA\t1\t2\n", "1 pairs; wanted 999,999,999 x "),
        (VIEW_2.replace("C\t3\t14", "C\t3\tD\t1"), r"pairs\.txt:3: .*; wanted `name i j`, two photos of one person"),
        (VIEW_2.replace("D\t1\tA_B\t5", "D\t1\t2"), r":5: .*; wanted `name i name j`, photos of two people"),
        (VIEW_2.replace("D\t1\tA_B\t5", "D\t1\tD\t5"), ":5: .*; wanted two people"),
        (VIEW_2.replace("C\t3\t14", "C\t3\tx"), ":3: .*; wanted a photo's number in place of 'x'"),
        (VIEW_2.replace("C\t3\t14", "C/D\t3\t1"), ":3: the person 'C/D'"),
        (VIEW_2.replace("C\t3\t14", "..\t3\t1"), r":3: the name '\.\.'"),
        ("a.jpg\tb.jpg\tyes\n", ":1: .*; wanted `left<TAB>right<TAB>same<TAB>fold`"),
        ("a.jpg\tb.jpg\t1\t0\t0\n", ":1: "),
        ("a.jpg\tb.jpg\n", ":1: "),
        ("a.jpg\t../b.jpg\t1\n", ":1: the name '../b.jpg'"),
    ],
)  # fmt: skip
def test_a_malformed_line_or_a_wrong_count_is_named(tmp_path, text, problem):
    with pytest.raises(DataFormatError, match=problem):
        read_pairs(stored(tmp_path, text))


paths = st.sampled_from(["a/1.jpg", "b c/2.png", "Zoë/3.jpg", "plain.jpg"])


@given(st.lists(st.builds(Pair, paths, paths, st.booleans(), st.integers(0, 12)), min_size=1))
def test_plain_lists_hold_any_pairs(place, pairs):
    write_pairs(place, pairs)
    assert read_pairs(place) == tuple(pairs)


def test_a_plain_list_may_leave_out_the_fold(tmp_path):
    assert read_pairs(stored(tmp_path, "a.jpg\tb.jpg\t1\n")) == (Pair("a.jpg", "b.jpg", True, 0),)


@pytest.mark.parametrize(
    "pairs",
    [
        [],
        [Pair("A/A_0001.jpg", "B/B_0001.jpg", False), Pair("A/A_0001.jpg", "A/A_0002.jpg", True)],
        [Pair("A/A_0001.jpg", "A/A_0002.jpg", True, 1), Pair("A/A_0001.jpg", "B/B_0002.jpg", False, 1)],
        [Pair("A/A_0001.jpg", "A/A_0002.jpg", True)],
        [Pair("A/1.jpg", "A/2.jpg", True), Pair("A/1.jpg", "B/1.jpg", False)],
    ],
    ids=["none", "the wrong order", "a fold missing", "no different pair", "other names"],
)
def test_what_lfws_layout_cannot_hold_is_refused_with_the_way_out(tmp_path, pairs):
    with pytest.raises(ValueError, match='layout="plain"'):
        write_pairs(tmp_path / "pairs.txt", pairs, layout="view2")
    assert os.listdir(tmp_path) == []


def test_view_1_cannot_hold_two_folds(tmp_path):
    with pytest.raises(ValueError, match="2 folds; wanted one for view 1"):
        write_pairs(tmp_path / "again.txt", read_pairs(stored(tmp_path, VIEW_2)), layout="view1")


def test_pairs_go_to_a_bin_and_back_with_every_byte(tmp_path):
    people = write_people(tmp_path / "people")
    pairs = [
        Pair(people.paths[0], people.paths[1], True, 0),
        Pair(people.paths[0], people.paths[4], False, 0),
        Pair(people.paths[6], people.paths[5], False, 1),
    ]
    pairs_to_bin(pairs, tmp_path / "people", tmp_path / "a.bin")
    written = bin_to_folder(tmp_path / "a.bin", tmp_path / "back")
    assert written == read_pairs(tmp_path / "back" / "pairs.txt")
    assert [pair.same for pair in written] == [True, False, False]
    for before, after in zip(pairs, written, strict=True):
        for old, new in ((before.left, after.left), (before.right, after.right)):
            assert (tmp_path / "back" / new).read_bytes() == (tmp_path / "people" / old).read_bytes()
    pairs_to_bin(written, tmp_path / "back", tmp_path / "b.bin")
    assert (tmp_path / "b.bin").read_bytes() == (tmp_path / "a.bin").read_bytes()
    bin_to_folder(tmp_path / "b.bin", tmp_path / "again")
    assert tree(tmp_path / "again") == tree(tmp_path / "back")


def test_images_from_a_bin_are_called_what_they_are(tmp_path):
    write_bin(tmp_path / "a.bin", PairSet((image(0, ".png"), image(1, ".jpg")), (True,)))
    assert bin_to_folder(tmp_path / "a.bin", tmp_path / "out") == (
        Pair("000000/left.png", "000000/right.jpg", True, 0),
    )


def test_pairs_of_a_bin_are_ten_folds_in_a_row(tmp_path):
    write_bin(tmp_path / "a.bin", PairSet((b"x",) * 60, (True,) * 30))
    assert [pair.fold for pair in bin_to_folder(tmp_path / "a.bin", tmp_path / "out")] == sorted([*range(10)] * 3)


@pytest.mark.parametrize("count", [10, 19, 23, 600, 6001])
def test_folds_in_a_row_are_those_of_scikit_learn_which_insightface_takes(count):
    folds = np.array(folds_in_a_row(count))
    for number, (_, test) in enumerate(KFold(n_splits=10, shuffle=False).split(range(count))):
        assert np.flatnonzero(folds == number).tolist() == test.tolist()


def test_pairs_of_a_bin_that_ten_do_not_divide_lie_in_these_folds(tmp_path):
    write_bin(tmp_path / "a.bin", PairSet((b"x",) * 46, (True,) * 23))
    folds = [pair.fold for pair in bin_to_folder(tmp_path / "a.bin", tmp_path / "out")]
    assert [folds.count(fold) for fold in range(10)] == [3, 3, 3, 2, 2, 2, 2, 2, 2, 2]
    assert folds == sorted(folds)


def test_a_bin_is_never_unpacked_over_anything(tmp_path):
    write_bin(tmp_path / "a.bin", PairSet((b"x", b"y"), (True,)))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("precious")
    with pytest.raises(ValueError, match="exists already and is not overwritten"):
        bin_to_folder(tmp_path / "a.bin", tmp_path / "out")
    assert tree(tmp_path / "out") == {"mine.txt": b"precious"}


def test_a_missing_image_is_named_and_no_bin_is_left(tmp_path):
    with pytest.raises(UnreadableImage, match=r"a\.jpg: cannot be read"):
        pairs_to_bin([Pair("a.jpg", "b.jpg", True)], tmp_path, tmp_path / "a.bin")
    assert os.listdir(tmp_path) == []
    with pytest.raises(DataFormatError, match="cannot be read"):
        read_bin(tmp_path / "a.bin")


@given(
    st.one_of(st.text().map(str.encode), spoiled(VIEW_2.encode()), spoiled(b"a.jpg\tb.jpg\t1\t3\nb.jpg\tc.jpg\t0\t4\n"))
)
def test_a_spoiled_list_is_read_or_refused(place, data):
    place.write_bytes(data)
    reads_or_says_why(read_pairs, place)
