"""YouTube Faces' list of video pairs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphereface.data.lists.videos import VideoPair, read_video_pairs, write_video_pairs
from sphereface.errors import DataFormatError
from tests.data.sets import reads_or_says_why, spoiled

SPLITS = (
    "split_num, pair_num, first name, second name, is_same\n"
    "1, 1, Aaron_Eckhart/0, Aaron_Eckhart/3, 1\n"
    "1, 2 ,Zoë_Z/1 , Aaron_Eckhart/0,0\n"
    "10, 1, A/5, B/12, 0\n"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("videos") / "splits.txt"


def stored(folder, text):
    (folder / "splits.txt").write_bytes(text.encode())
    return folder / "splits.txt"


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_pairs_of_videos_are_read_with_spaces_around_the_commas(tmp_path, ends):
    assert read_video_pairs(stored(tmp_path, SPLITS.replace("\n", ends))) == (
        VideoPair(1, "Aaron_Eckhart/0", "Aaron_Eckhart/3", True),
        VideoPair(1, "Zoë_Z/1", "Aaron_Eckhart/0", False),
        VideoPair(10, "A/5", "B/12", False),
    )


def test_a_list_without_its_first_line_is_the_same(tmp_path):
    whole = read_video_pairs(stored(tmp_path, SPLITS))
    assert read_video_pairs(stored(tmp_path, SPLITS.split("\n", 1)[1])) == whole


names = st.from_regex(r"[A-Z][a-z_ë]{0,8}/[0-9]", fullmatch=True)


@given(st.lists(st.builds(VideoPair, st.integers(1, 10), names, names, st.booleans()), min_size=1))
def test_pairs_come_back(place, pairs):
    write_video_pairs(place, pairs)
    assert read_video_pairs(place) == tuple(pairs)


def test_pairs_are_counted_in_each_split(tmp_path):
    write_video_pairs(tmp_path / "a.txt", read_video_pairs(stored(tmp_path, SPLITS)))
    numbers = [line.split(", ")[:2] for line in (tmp_path / "a.txt").read_text().splitlines()[1:]]
    assert numbers == [["1", "1"], ["1", "2"], ["10", "1"]]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("A/5, B/12, 0", "A/5, B/12, maybe", r"splits\.txt:4: .*; wanted `split, pair, first name, second name, same`"),
        ("A/5, B/12, 0", "A/5, B/12", r"splits\.txt:4: "),
        ("1, 1, Aaron", "one, 1, Aaron", ":2: .*; wanted numbers for the split and the pair"),
        ("1, 1, Aaron", "1, -1, Aaron", ":2: "),
        ("Zoë_Z/1", "../1", ":3: the name '../1'"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, old, new, problem):
    with pytest.raises(DataFormatError, match=problem):
        read_video_pairs(stored(tmp_path, SPLITS.replace(old, new)))


@pytest.mark.parametrize("text", ["", SPLITS.split("\n")[0]])
def test_a_list_without_pairs_is_refused(tmp_path, text):
    with pytest.raises(DataFormatError, match="no pair in it"):
        read_video_pairs(stored(tmp_path, text))


@given(st.one_of(st.text().map(str.encode), spoiled(SPLITS.encode())))
def test_a_spoiled_list_is_read_or_refused(place, data):
    place.write_bytes(data)
    reads_or_says_why(read_video_pairs, place)
