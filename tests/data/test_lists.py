"""Lists of images, of exclusions, of landmarks and MegaFace's: whatever is wrong with a line names it."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sphereface.data.files.lines import read_lines
from sphereface.data.formats.lists import ListSet, write_list
from sphereface.data.lists.exclude import read_exclude
from sphereface.data.lists.landmarks import read_landmarks, write_landmarks
from sphereface.data.lists.megaface import MegaFaceImage, read_megaface, write_megaface
from sphereface.errors import DataFormatError, UnreadableImage
from tests.data.sets import content, reads_or_says_why, spoiled, tree, write_people


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("lists") / "list.txt"


def listed(folder, text):
    (folder / "list.txt").write_bytes(text.encode())
    return folder / "list.txt"


def test_a_folder_comes_back_from_a_list_of_it(tmp_path):
    people = write_people(tmp_path / "people")
    write_list(tmp_path / "list.txt", people)
    found = ListSet(tmp_path / "list.txt", tmp_path / "people")
    assert content(found) == content(people)
    assert found.people == people.people


def test_a_list_stands_at_its_root_if_none_is_given(tmp_path):
    people = write_people(tmp_path)
    write_list(tmp_path / "list.txt", people)
    assert content(ListSet(tmp_path / "list.txt")) == content(people)


def test_paths_may_have_spaces_and_rare_line_ends(tmp_path):
    found = ListSet(listed(tmp_path, "a b/photo 1.jpg 0\n\n c\u2028d/\u00a0x.jpg\t 1\r\n"))
    assert found.paths == ["a b/photo 1.jpg", " c\u2028d/\u00a0x.jpg"]
    assert found.labels.tolist() == [0, 1]
    assert list(found.people) == ["a b", " c\u2028d"]


def test_absolute_paths_below_the_root_are_taken_from_there(tmp_path):
    people = write_people(tmp_path / "people")
    text = "".join(f"{tmp_path}/people/{path} {label}\n" for _, label, path, _ in content(people))
    assert content(ListSet(listed(tmp_path, text), tmp_path / "people")) == content(people)


@pytest.mark.parametrize(
    ("text", "people"),
    [
        ("a/1.jpg 0\nb/2.jpg 2\n", ["a", "label-1", "b"]),
        ("1.jpg 0\n2.jpg 10\n", [f"{label:02d}" for label in range(11)]),
        ("a/1.jpg 0\nb/2.jpg 0\n", ["0"]),
        ("a/1.jpg 0\na/2.jpg 1\n", ["0", "1"]),
    ],
    ids=["a label without images", "no folders", "two folders of one person", "two people in a folder"],
)
def test_people_are_called_as_their_folders_if_each_has_one(tmp_path, text, people):
    assert list(ListSet(listed(tmp_path, text)).people) == people


def test_a_huge_label_costs_nothing(tmp_path):
    found = ListSet(listed(tmp_path, "a/1.jpg 16777215\n"))
    assert len(found.people) == 2**24
    assert found.people[-1] == "a"
    assert found.people[:2] == ["label-0", "label-1"]


def test_an_image_that_is_not_there_is_an_error_that_names_it(tmp_path):
    with pytest.raises(UnreadableImage, match=r"a/1\.jpg: cannot be read"):
        ListSet(listed(tmp_path, "a/1.jpg 0\n")).read(0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no image in the list"),
        ("a.jpg 0\nb.jpg\n", r"list\.txt:2: 'b.jpg'; wanted `path label`"),
        ("a.jpg -1\n", r":1: 'a.jpg -1'; wanted"),
        ("a.jpg 1.0\n", ":1: "),
        ("a.jpg 1_0\n", ":1: "),
        ("a.jpg \u0661\n", ":1: "),
        ("a.jpg 16777216\n", "a label of 0 to 16,777,215"),
        (f"a.jpg {'9' * 5000}\n", ":1: "),
        ("../a.jpg 0\n", ":1: the name '../a.jpg'"),
        ("/etc/passwd 0\n", ":1: the name '/etc/passwd'"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, text, problem):
    with pytest.raises(DataFormatError, match=problem):
        ListSet(listed(tmp_path, text))


def test_what_is_no_text_names_its_line(tmp_path):
    (tmp_path / "list.txt").write_bytes("\ufeffa.jpg 0\n".encode() + b"\xff\xfe.jpg 1\n")
    with pytest.raises(DataFormatError, match=r"list\.txt:2: no UTF-8 text"):
        ListSet(tmp_path / "list.txt")


def test_a_missing_or_huge_list_is_named(tmp_path):
    with pytest.raises(DataFormatError, match="cannot be read"):
        ListSet(tmp_path / "absent.txt")
    with pytest.raises(DataFormatError, match="9 bytes; wanted a list, of at most 5"):
        list(read_lines(listed(tmp_path, "a.jpg 12\n"), limit=5))


def test_a_name_that_a_list_cannot_hold_is_refused(tmp_path):
    people = write_people(tmp_path / "people")
    people.paths[0] = " a/b.jpg"
    with pytest.raises(DataFormatError, match="cannot hold a space at its ends"):
        write_list(tmp_path / "list.txt", people)


def test_exclude_lists_have_comments(tmp_path):
    path = listed(tmp_path, "# noise\nAnn B. Clark\n\n  Zoë/#3.jpeg  \n#Zoë\nphoto #1.jpg\n")
    assert read_exclude(path) == {"Ann B. Clark", "Zoë/#3.jpeg", "photo #1.jpg"}


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.dictionaries(
        st.sampled_from(["a.jpg", "b c/1 2.jpg", "d/#.png"]), arrays(np.float64, (2, 5, 2), elements=finite)
    )
)
def test_landmarks_come_back_in_full(place, landmarks):
    write_landmarks(place, landmarks)
    found = read_landmarks(place)
    assert list(found) == list(landmarks)
    assert all(np.array_equal(found[name], landmarks[name]) for name in landmarks)


def test_a_line_is_a_face_with_five_points(tmp_path):
    path = listed(tmp_path, "a b.jpg 1 2 3 4 5 6 7 8 9 10\na b.jpg\t-1.5 2e1 3 4 5 6 7 8 9 10\n")
    found = read_landmarks(path)["a b.jpg"]
    assert found.shape == (2, 5, 2)
    assert found[0].tolist() == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]
    assert found[1, 0].tolist() == [-1.5, 20]
    write_landmarks(tmp_path / "one.txt", {"a.jpg": found[0]})
    assert (tmp_path / "one.txt").read_text() == "a.jpg 1.0 2.0 3.0 4.0 5.0 6.0 7.0 8.0 9.0 10.0\n"


@pytest.mark.parametrize(
    "line",
    ["a.jpg 1 2 3 4 5 6 7 8 9", "1 2 3 4 5 6 7 8 9 10", "a.jpg 1 2 3 4 5 6 7 8 9 nan", "a.jpg x 2 3 4 5 6 7 8 9 10"],
)
def test_a_malformed_line_of_landmarks_is_named(tmp_path, line):
    with pytest.raises(DataFormatError, match=r"list\.txt:2: .*; wanted `path x1 y1"):
        read_landmarks(listed(tmp_path, f"a.jpg 1 2 3 4 5 6 7 8 9 10\n{line}\n"))


@pytest.mark.parametrize("points", [np.zeros((4, 2)), np.full((5, 2), np.nan)])
def test_landmarks_are_five_finite_points(tmp_path, points):
    with pytest.raises(ValueError, match="wanted finite points"):
        write_landmarks(tmp_path / "list.txt", {"a.jpg": points})


def test_a_list_that_cannot_be_written_leaves_the_old_one(tmp_path):
    write_landmarks(tmp_path / "a.txt", {"a.jpg": np.ones((5, 2))})
    before = tree(tmp_path)
    with pytest.raises(DataFormatError, match=r"the name '../b.jpg'"):
        write_landmarks(tmp_path / "a.txt", {"a.jpg": np.zeros((5, 2)), "../b.jpg": np.zeros((5, 2))})
    assert tree(tmp_path) == before


def test_megaface_lists_become_records(tmp_path):
    images = (MegaFaceImage("Adam/1.jpg", "Adam"), MegaFaceImage("Zoë/2.jpg", "Zoë"))
    write_megaface(tmp_path / "a.json", images)
    assert read_megaface(tmp_path / "a.json") == images
    assert json.loads((tmp_path / "a.json").read_text()) == {"path": ["Adam/1.jpg", "Zoë/2.jpg"], "id": ["Adam", "Zoë"]}


def test_distractors_may_have_no_id_and_fgnet_has_numbers(tmp_path):
    assert read_megaface(listed(tmp_path, '{"path": ["1/2.jpg"]}')) == (MegaFaceImage("1/2.jpg", None),)
    assert read_megaface(listed(tmp_path, '{"id": [7], "path": ["1/2.jpg"]}')) == (MegaFaceImage("1/2.jpg", "7"),)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "wanted a MegaFace list"),
        ('{"path": {}}', "wanted a MegaFace list"),
        ('{"path": ["a"], "id": []}', "1 paths and ids that do not match"),
        ('{"path": [1], "id": ["a"]}', "path 0 is a int; wanted text"),
        ('{"path": ["a"], "id": [[]]}', "id 0 is a list"),
        ('{"path": ["a", "../b"]}', "path 1: the name '../b'"),
    ],
)
def test_what_is_wrong_with_a_megaface_list_is_said(tmp_path, text, problem):
    with pytest.raises(DataFormatError, match=problem):
        read_megaface(listed(tmp_path, text))


READERS = [ListSet, read_exclude, read_landmarks, read_megaface]
SAMPLES = ["a/b c.jpg 12\n", "# a\nb\n", "a b.jpg 1 2 3 4 5.5 6 7 8 9 10\n", '{"path": ["a/1"], "id": [3]}']


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
@given(st.one_of(st.text(), *(spoiled((sample * 2).encode()) for sample in SAMPLES)))
def test_a_spoiled_list_is_read_or_refused(place, reader, data):
    place.write_bytes(data.encode() if isinstance(data, str) else data)
    reads_or_says_why(reader, place)
