"""The lists of IJB-B and IJB-C: what is written is read, and whatever is wrong with a line names it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphereface.data.lists.ijb import (
    AlignedFaces,
    FoundFace,
    Member,
    TemplatePairs,
    convert_landmarks,
    find_lists,
    read_found_faces,
    read_members,
    read_subjects,
    read_template_pairs,
    write_found_faces,
    write_members,
    write_subjects,
    write_template_pairs,
)
from sphereface.data.lists.landmarks import read_landmarks
from sphereface.errors import DataFormatError
from tests.data.sets import reads_or_says_why, spoiled

numbers = st.integers(0, 2**31 - 1)
finite = st.floats(allow_nan=False, allow_infinity=False)

MEMBERS = b"1.jpg 10 7\n2.jpg 10 7\na b/3.jpg 11 8\n"
FACES = b"1.jpg 1 2 3 4 5 6 7 8 9 10.5 0.99\n2.jpg 1 2 3 4 5 6 7 8 9 -1e1 1\n"
PAIRS = b"10 11 1\n10 12 0\n13 11 0\n"
SUBJECTS = b"TEMPLATE_ID,SUBJECT_ID,FILENAME\n10,3,img/1.jpg\n10,3,img/2.jpg\n11,4,frames/9.png\n"
READERS = {
    "members": (read_members, MEMBERS),
    "faces": (read_found_faces, FACES),
    "pairs": (read_template_pairs, PAIRS),
    "subjects": (read_subjects, SUBJECTS),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("ijb") / "list.txt"


def written(place, content):
    place.write_bytes(content)
    return place


@given(st.lists(st.builds(Member, st.integers(0, 99).map("{}.jpg".format), numbers, numbers), min_size=1))
def test_members_come_back(place, members):
    members = list({(member.image, member.template): member for member in members}.values())
    write_members(place, members)
    assert list(read_members(place)) == members


@given(
    st.dictionaries(st.integers(0, 99).map("a b/{}.jpg".format), st.lists(finite, min_size=11, max_size=11), min_size=1)
)
def test_found_faces_come_back_to_the_last_bit_and_as_landmarks_for_alignment(place, listed):
    faces = {name: FoundFace(np.array(values[:10]).reshape(5, 2), values[10]) for name, values in listed.items()}
    write_found_faces(place, faces)
    found = read_found_faces(place)
    assert list(found) == list(faces)
    target = place.with_name("landmarks.txt")
    assert convert_landmarks(place, target, folder="") == len(faces)
    landmarks = read_landmarks(target)
    for name, face in faces.items():
        assert np.array_equal(found[name].landmarks, face.landmarks)
        assert found[name].score == face.score
        assert np.array_equal(landmarks[name], face.landmarks[None])


def test_landmarks_name_the_images_as_seen_from_above(place):
    convert_landmarks(written(place, FACES), place.with_name("landmarks.txt"))
    assert list(read_landmarks(place.with_name("landmarks.txt"))) == ["loose_crop/1.jpg", "loose_crop/2.jpg"]


different = st.tuples(numbers, numbers).filter(lambda pair: pair[0] != pair[1])


@given(st.dictionaries(different.map(sorted).map(tuple), st.booleans(), min_size=1), st.sampled_from([1, 20, 1 << 20]))
def test_pairs_come_back_whatever_the_block(place, listed, block):
    pairs = TemplatePairs(*np.array(list(listed), dtype=np.int32).T, np.array(list(listed.values())))
    write_template_pairs(place, pairs)
    found = read_template_pairs(place, block=block)
    assert np.array_equal([found.first, found.second, found.same], [pairs.first, pairs.second, pairs.same])
    assert (found.first.dtype, found.same.dtype, len(found)) == (np.int32, np.bool_, len(listed))


@given(st.dictionaries(numbers, numbers, min_size=1))
def test_subjects_come_back(place, subjects):
    write_subjects(place, subjects)
    assert read_subjects(place) == subjects


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_spoiled_lists_are_read_or_say_why(place, name, data):
    read, whole = READERS[name]
    reads_or_says_why(read, written(place, data.draw(spoiled(whole))))


def by_lines(text):
    """The pairs of a text, one line after another: None if any line is wrong or comes twice."""
    found = {}
    for line in text.splitlines():
        fields = line.split()
        if fields and (
            len(fields) != 3 or any(len(field) > 10 for field in fields) or fields[2].lstrip("0") not in ("", "1")
        ):
            return None
        if fields:
            a, b, label = map(int, fields)
            if a == b or max(a, b) >= 1 << 31 or frozenset((a, b)) in found:
                return None
            found[frozenset((a, b))] = a, b, label
    return list(found.values()) or None


@given(
    st.lists(
        st.sampled_from(["1", "2", "33", "0", "2147483647", "2147483648", " ", " ", " ", "\t", "\n", "\n", "\r\n"])
    )
)
def test_the_quick_way_through_pairs_agrees_with_a_slow_one(place, pieces):
    text = "".join(pieces)
    expected = by_lines(text)
    try:
        found = read_template_pairs(written(place, text.encode()))
    except DataFormatError:
        assert expected is None
    else:
        assert expected == list(zip(found.first.tolist(), found.second.tolist(), found.same.tolist(), strict=True))


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("members", MEMBERS + b"\n4.jpg 10\n", "list.txt:5: '4.jpg 10'; wanted `image.jpg template media`"),
        ("members", b"4.jpg -1 2\n", "list.txt:1: .* numbers below 2,147,483,648"),
        ("members", b"4.jpg 2147483648 2\n", "list.txt:1: "),
        ("members", b"../4.jpg 1 2\n", r"list.txt:1: the name '\.\./4.jpg'"),
        ("members", MEMBERS + b"1.jpg 10 9\n", "list.txt:4: .* each image once for a template"),
        ("members", b"\n", "no face in it"),
        ("members", b"\xff.jpg 1 2\n", "list.txt:1: no UTF-8"),
        ("faces", b"1.jpg 1 2 3 4 5 6 7 8 9 10\n", "list.txt:1: .* y5 score`"),
        ("faces", b"1.jpg 1 2 3 4 5 6 7 8 9 10 nan\n", "list.txt:1: .* y5 score`"),
        ("faces", FACES + b"1.jpg 1 2 3 4 5 6 7 8 9 10 1\n", "list.txt:3: .* each image once"),
        ("faces", b"", "no face in it"),
        ("pairs", PAIRS + b"\n\n1 2\n", "list.txt:6: '1 2'; wanted `template template label`"),
        ("pairs", PAIRS + b"1 2 2\n", "list.txt:4: .* a label of 0 or 1"),
        ("pairs", b"1 2 1 1 3 0\n", "list.txt:1: "),
        ("pairs", b"1 2 -1\n", "list.txt:1: "),
        ("pairs", b"1 2.0 1\n", "list.txt:1: "),
        ("pairs", b"1 2 1\n5 5 1\n", "list.txt:2: '5 5 1'; wanted two different templates"),
        (
            "pairs",
            b"\n" + PAIRS + b"11 10 0\n",
            "list.txt:5: '11 10 0'; wanted each pair once; it is on line 2, too",
        ),
        ("pairs", b" \n", "no pair in it"),
        ("pairs", b"1 2 1\n1 \xff 0\n", "list.txt:2: no UTF-8"),
        ("subjects", b"", "empty; wanted a CSV with TEMPLATE_ID and SUBJECT_ID"),
        ("subjects", b"TEMPLATE_ID,FILENAME\n1,a\n", "list.txt:1: .* a header with TEMPLATE_ID and SUBJECT_ID"),
        ("subjects", b"TEMPLATE_ID,SUBJECT_ID\n", "no template below the header"),
        ("subjects", SUBJECTS + b"12\n", "list.txt:5: '12'; wanted numbers"),
        ("subjects", SUBJECTS + b"x,1,a\n", "list.txt:5: "),
        ("subjects", SUBJECTS + b"10,9,a\n", "list.txt:5: .* wanted template 10 to be of subject 3, as above"),
        ("subjects", SUBJECTS + b'12,"9,a\n', "list.txt:5: .* a line of a CSV"),
    ],
)
def test_a_wrong_line_is_named_by_its_number(place, name, content, problem):
    with pytest.raises(DataFormatError, match=problem):
        READERS[name][0](written(place, content))


def test_a_wrong_line_keeps_its_number_in_a_later_block(place):
    lines = [f"{number} {number + 1} 0" for number in range(100)]
    lines[70] = "70 x 0"
    with pytest.raises(DataFormatError, match=r"list\.txt:71: '70 x 0'"):
        read_template_pairs(written(place, "\n".join(lines).encode()), block=16)


def test_a_list_may_begin_with_a_byte_order_mark_and_end_lines_as_windows_does(place):
    found = read_template_pairs(written(place, b"\xef\xbb\xbf1 2 1\r\n3 4 0"))
    assert (found.first.tolist(), found.second.tolist(), found.same.tolist()) == ([1, 3], [2, 4], [True, False])


def test_columns_are_found_by_their_names_in_any_order(place):
    text = b'filename, subject_id ,Template_ID\n"a,b.jpg",5, 6\nc.jpg,5,6\n'
    assert read_subjects(written(place, text)) == {6: 5}


def test_what_cannot_be_listed_is_not_written(place):
    with pytest.raises(DataFormatError, match="a space at its ends"):
        write_members(place, [Member(" 1.jpg", 1, 1)])
    with pytest.raises(ValueError, match="wanted finite"):
        write_found_faces(place, {"1.jpg": FoundFace(np.full((5, 2), np.nan), 1.0)})


@pytest.mark.parametrize(("name", "galleries"), [("ijbb", ["S1", "S2"]), ("ijbc", ["G1", "G2"])])
def test_lists_are_found_under_their_public_names(tmp_path, name, galleries):
    (tmp_path / "meta").mkdir()
    gallery_files = [f"1N_gallery_{gallery}.csv" for gallery in galleries]
    for each in (
        "face_tid_mid.txt",
        "name_5pts_score.txt",
        "template_pair_label.txt",
        "1N_probe_mixed.csv",
        *gallery_files,
    ):
        (tmp_path / "meta" / f"{name}_{each}").touch()
    found = find_lists(tmp_path, name)
    assert found == find_lists(tmp_path / "meta", name)
    assert found.members == tmp_path / "meta" / f"{name}_face_tid_mid.txt"
    assert found.galleries == {gallery: tmp_path / "meta" / f"{name}_1N_gallery_{gallery}.csv" for gallery in galleries}
    assert None not in (found.faces, found.pairs, found.probes)


def test_lists_that_are_not_there_are_named(tmp_path):
    with pytest.raises(DataFormatError, match="no such folder"):
        find_lists(tmp_path / "meta")
    with pytest.raises(DataFormatError, match=r"ijbc_face_tid_mid\.txt: no such list"):
        find_lists(tmp_path)
    (tmp_path / "ijbc_face_tid_mid.txt").touch()
    with pytest.raises(DataFormatError, match="nothing to score"):
        find_lists(tmp_path)
    (tmp_path / "ijbc_1N_gallery_G1.csv").touch()
    with pytest.raises(DataFormatError, match=r"ijbc_1N_probe_mixed\.csv: no such list"):
        find_lists(tmp_path)
    with pytest.raises(ValueError, match="unknown set 'ijba'"):
        find_lists(tmp_path, "ijba")


def test_aligned_faces_are_all_images_below_a_folder(tmp_path):
    (tmp_path / "loose_crop").mkdir()
    for name in ("loose_crop/2.jpg", "1.png", "landmarks.txt"):
        (tmp_path / name).write_bytes(name.encode())
    faces = AlignedFaces(tmp_path)
    assert faces.paths == ["1.png", "loose_crop/2.jpg"]
    assert faces.ignored == ["landmarks.txt"]
    assert faces.read(1) == b"loose_crop/2.jpg"
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataFormatError, match="no image below it"):
        AlignedFaces(tmp_path / "empty")
