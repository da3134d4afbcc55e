"""One door for every format: what a path holds is recognised, converted whole or not at all, and nothing is lost."""

import multiprocessing
import os
import shutil

import numpy as np
import pytest

from sphereface.data.formats.lists import ListSet
from sphereface.data.formats.mnist import MnistSet, write_idx
from sphereface.data.formats.records import RecordSet
from sphereface.data.formats.sets import Converted, convert, open_set
from sphereface.data.formats.webdataset import WebDataset
from sphereface.data.formats.zips import ZipSet
from sphereface.data.names import Names
from sphereface.data.people import PeopleFolder
from sphereface.errors import DataFormatError, UnreadableImage
from tests.data.sets import content, image, tree, write_people

# Every place that a set can be written to, and what opens it again.
TARGETS = {
    "people": ("folder", PeopleFolder),
    "records": ("rec", RecordSet),
    "all.rec": ("rec", RecordSet),
    "tars": ("tar", WebDataset),
    "all.tar": ("tar", WebDataset),
    "all.zip": ("zip", ZipSet),
}


@pytest.fixture
def source(tmp_path):
    write_people(tmp_path / "source")
    return tmp_path / "source"


def converted(source, folder, name):
    convert(source, folder / name, to=TARGETS[name][0], size=3)
    return folder / name


@pytest.mark.parametrize("name", TARGETS)
def test_a_folder_goes_to_every_format_and_back_with_every_name_and_byte(tmp_path, source, name):
    there = converted(source, tmp_path / "new" / "place", name)
    faces = open_set(there)
    assert isinstance(faces, TARGETS[name][1])
    assert content(faces) == content(PeopleFolder(source))
    convert(there, tmp_path / "back", to="folder")
    assert tree(tmp_path / "back") == tree(source)


@pytest.mark.parametrize("last", TARGETS)
@pytest.mark.parametrize("first", TARGETS)
def test_every_format_becomes_every_other(tmp_path, source, first, last):
    there = converted(converted(source, tmp_path / "1", first), tmp_path / "2", last)
    assert content(open_set(there)) == content(PeopleFolder(source))


@pytest.mark.parametrize("name", TARGETS)
def test_the_same_set_gives_the_same_bytes(tmp_path, source, name):
    for place in ("1", "2"):
        converted(source, tmp_path / place, name)
    assert tree(tmp_path / "1") == tree(tmp_path / "2")


@pytest.mark.parametrize("name", TARGETS)
def test_a_manifest_travels_with_its_set(tmp_path, source, name):
    manifest = b'{"made": "by hand",\r\n "template": "sphereface"} '
    (source / "manifest.json").write_bytes(manifest)
    there = converted(source, tmp_path / "1", name)
    beside = there / "manifest.json" if there.is_dir() else there.with_name(f"{name}.manifest.json")
    assert beside.read_bytes() == manifest
    assert len(open_set(there).paths) == 7
    convert(there, tmp_path / "back", to="folder")
    assert tree(tmp_path / "back") == tree(source)


def test_the_result_and_the_progress_of_a_conversion_are_reported(tmp_path, source):
    (source / "manifest.json").write_text("{}")
    (source / "Zoë" / "notes.txt").write_text("no image")
    counts = []
    result = convert(source, tmp_path / "all.zip", to="zip", progress=lambda count, _: counts.append(count))
    assert result == Converted(images=7, people=4, ignored=("Zoë/notes.txt",))
    assert counts == [1, 2, 3, 4, 5, 6, 7]


def test_a_folder_becomes_a_list_of_its_files_and_a_list_becomes_records(tmp_path, source):
    convert(source, tmp_path / "all.txt", to="list")
    assert content(open_set(tmp_path / "all.txt", root=source)) == content(PeopleFolder(source))
    convert(tmp_path / "all.txt", tmp_path / "all.rec", to="rec", root=source)
    assert content(open_set(tmp_path / "all.rec")) == content(PeopleFolder(source))


def test_labels_and_order_of_a_list_survive_where_a_format_holds_labels(tmp_path, source):
    folder = PeopleFolder(source)
    lines = [f"{folder.paths[index]} {2 * (3 - folder.labels[index])}\n" for index in (6, 0, 2, 5, 1, 3, 4)]
    (tmp_path / "a.txt").write_text("".join(lines))
    before = content(open_set(tmp_path / "a.txt", root=source))
    for name in ("all.rec", "all.tar", "tars"):
        convert(tmp_path / "a.txt", tmp_path / name, to=TARGETS[name][0], root=source)
        faces = open_set(tmp_path / name)
        assert content(faces) == before
        assert list(faces.people) == ["李", "label-1", "o'Neil", "label-3", "Zoë", "label-5", "Ann B. Clark"]
    convert(tmp_path / "all.tar", tmp_path / "folder", to="folder")  # labels follow the names there
    assert content(open_set(tmp_path / "folder")) == content(folder)


def test_images_without_folders_are_put_into_folders_of_their_labels(tmp_path):
    for name in ("1.png", "2.png", "3.png"):
        (tmp_path / name).write_bytes(image(int(name[0]), ".png"))
    (tmp_path / "a.txt").write_text("1.png 0\n2.png 10\n3.png 2\n")
    convert(tmp_path / "a.txt", tmp_path / "out", to="folder")
    assert sorted(tree(tmp_path / "out")) == ["00/1.png", "02/3.png", "10/2.png"]


def test_two_images_of_one_name_are_refused(tmp_path, source):
    (tmp_path / "a.txt").write_text("Zoë/a.JPG 0\nZoë/a.JPG 0\n")
    with pytest.raises(DataFormatError, match=r"called 'Zoë/a.JPG'; a folder holds a name once"):
        convert(tmp_path / "a.txt", tmp_path / "out", to="folder", root=source)
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "source"]


def test_a_link_to_a_folder_above_is_not_followed_and_another_one_is(tmp_path, source):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "1.jpg").write_bytes(image(1, ".jpg"))
    before = PeopleFolder(source).paths
    for name, target in {"o'Neil/up": "..", "o'Neil/again": "..", "Zoë/li": "../李", "李/zo": "../Zoë"}.items():
        (source / name).symlink_to(target)
    (source / "linked").symlink_to(tmp_path / "elsewhere")
    faces = PeopleFolder(source)
    assert {path for path in faces.paths if "/li/" not in path and "/zo/" not in path} == {*before, "linked/1.jpg"}
    assert {"Zoë/li/1/deep.png", "李/zo/a.JPG"} < set(faces.paths)
    assert {"o'Neil/up", "o'Neil/again", "Zoë/li/zo", "李/zo/li"} == set(faces.ignored)


def test_only_images_that_are_files_can_be_listed(tmp_path, source):
    there = converted(source, tmp_path, "all.zip")
    with pytest.raises(ValueError, match="convert it to a folder first"):
        convert(there, tmp_path / "a.txt", to="list")


@pytest.mark.parametrize("name", [*TARGETS, "all.txt"])
def test_nothing_is_ever_written_over(tmp_path, source, name):
    to = TARGETS[name][0] if name in TARGETS else "list"
    is_folder = "." not in name
    if is_folder:
        (tmp_path / name).mkdir()
    mine = tmp_path / name / "mine.txt" if is_folder else tmp_path / name
    mine.write_text("precious")
    before = tree(tmp_path)
    with pytest.raises(ValueError, match="exists already and is not overwritten; choose a new name"):
        convert(source, tmp_path / name, to=to)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("beside", ["all.idx", "all.lst", "property", "all.rec.manifest.json"])
def test_nor_are_the_files_beside_a_record_file(tmp_path, source, beside):
    (tmp_path / beside).write_text("precious")
    with pytest.raises(ValueError, match=f"{beside} exists already"):
        convert(source, tmp_path / "all.rec", to="rec")
    assert sorted(os.listdir(tmp_path)) == sorted([beside, "source"])


def test_an_empty_folder_is_as_good_as_none(tmp_path, source):
    (tmp_path / "out").mkdir()
    convert(source, tmp_path / "out", to="folder")
    assert tree(tmp_path / "out") == tree(source)


@pytest.mark.parametrize("name", TARGETS)
def test_a_conversion_that_fails_leaves_nothing_behind(tmp_path, source, name):
    (source / "o'Neil" / "x.jpg").unlink()
    (source / "o'Neil" / "x.jpg").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UnreadableImage, match=r"x\.jpg: cannot be read"):
        converted(source, tmp_path, name)
    assert os.listdir(tmp_path) == ["source"]


@pytest.mark.parametrize("name", TARGETS)
def test_until_the_end_nothing_stands_under_the_final_name(tmp_path, source, name):
    def look(_done, _total):
        seen.append([entry for entry in os.listdir(tmp_path) if not entry.startswith(".")])

    seen = []
    convert(source, tmp_path / name, to=TARGETS[name][0], progress=look)
    assert seen == [["source"]] * 7


def test_a_target_that_appears_meanwhile_is_kept(tmp_path, source):
    def interfere(_done, _total):
        (tmp_path / "all.zip").write_text("precious")

    with pytest.raises(ValueError, match="exists already"):
        convert(source, tmp_path / "all.zip", to="zip", progress=interfere)
    assert (tmp_path / "all.zip").read_text() == "precious"
    assert sorted(os.listdir(tmp_path)) == ["all.zip", "source"]


def test_digits_are_recognised_and_converted(tmp_path):
    (tmp_path / "mnist").mkdir()
    write_idx(tmp_path / "mnist" / "train-images-idx3-ubyte.gz", np.arange(60, dtype=np.uint8).reshape(3, 5, 4))
    write_idx(tmp_path / "mnist" / "train-labels-idx1-ubyte.gz", np.array([7, 0, 7], np.uint8))
    faces = open_set(tmp_path / "mnist")
    assert isinstance(faces, MnistSet)
    assert isinstance(open_set(tmp_path / "mnist" / "train-images-idx3-ubyte.gz"), MnistSet)
    convert(tmp_path / "mnist", tmp_path / "out", to="folder")
    assert sorted(tree(tmp_path / "out")) == ["0/1.png", "7/0.png", "7/2.png"]


@pytest.mark.parametrize("ending", [".txt", ".lst"])
def test_lists_are_recognised(tmp_path, source, ending):
    (source / f"a{ending}").write_text("Zoë/a.JPG 0\n")
    assert isinstance(open_set(source / f"a{ending}"), ListSet)


@pytest.mark.parametrize("name", ["a.pdf", "empty"])
def test_something_unknown_is_an_error_that_lists_what_is_known(tmp_path, name):
    if name == "empty":
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_text("?")
    with pytest.raises(DataFormatError, match=r"wanted a folder .* a \.rec, a \.tar .* a \.zip, a Caffe list"):
        open_set(tmp_path / name)


def test_a_path_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataFormatError, match=r"absent\.rec: no such file or folder"):
        open_set(tmp_path / "absent.rec")


def test_two_record_files_in_a_folder_are_a_question(tmp_path, source):
    convert(source, tmp_path / "out", to="rec")
    shutil.copy(tmp_path / "out" / "train.rec", tmp_path / "out" / "val.rec")
    with pytest.raises(DataFormatError, match=r"train\.rec, val\.rec in one folder; name one of them"):
        open_set(tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "to", "problem"),
    [
        ("all", "zip", r"the name of a zip ends in \.zip"),
        ("all.csv", "list", r"ends in \.txt or \.lst"),
        ("all", "lmdb", "unknown format 'lmdb'; choose one of folder, rec, tar, zip, list"),
    ],
)
def test_a_target_that_does_not_fit_is_refused(tmp_path, source, name, to, problem):
    with pytest.raises(ValueError, match=problem):
        convert(source, tmp_path / name, to=to)
    assert os.listdir(tmp_path) == ["source"]


def test_a_root_belongs_to_lists(source):
    with pytest.raises(ValueError, match="a root belongs to lists"):
        open_set(source, root=source)


def test_names_made_when_asked_for_are_a_list_to_look_at():
    names = Names(5, str)
    assert names == ["0", "1", "2", "3", "4"]
    assert names != ["0", "1", "2", "3"]
    assert names != 5
    assert (names[-1], names[1:3], repr(names)) == ("4", ["1", "2"], "['0', '1', '2', ...]")
    with pytest.raises(IndexError):
        names[5]


def read_all(faces):
    return [faces.read(index) for index in range(len(faces.paths))]


@pytest.fixture
def every_set(tmp_path, source):
    sets = [open_set(converted(source, tmp_path / "sets", name)) for name in TARGETS]
    convert(source, tmp_path / "all.txt", to="list")
    sets.append(open_set(tmp_path / "all.txt", root=source))
    for faces in sets:
        faces.read(0)  # so that files are open already when the set is sent
    return sets


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_workers_read_every_kind_of_set(every_set, source, method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} on this system")
    wanted = read_all(PeopleFolder(source))
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.map(read_all, every_set) == [wanted] * len(every_set)
    assert [read_all(faces) for faces in every_set] == [wanted] * len(every_set)
