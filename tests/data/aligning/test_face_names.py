"""Names of faces: none is used twice, and none differs from the plain one without need."""

from pathlib import PurePosixPath

from hypothesis import given
from hypothesis import strategies as st

from sphereface.data.aligning.face_names import face_names

MOST = 4  # faces of a photo

stems = st.text(st.sampled_from("aA-2~é"), min_size=1, max_size=4) | st.sampled_from(["a-face2", "a.jpg", "x" * 251])
files = st.builds("{}{}".format, stems, st.sampled_from([".jpg", ".JPG", ".png", ".jpg.jpg"]))
photos = st.lists(st.builds("{}{}".format, st.sampled_from(["", "a/", "a.jpg/", "a-2.jpg/"]), files), max_size=12)


def without_clashes(paths):
    """A tree that a file system could hold: no photo is a folder, and none is named twice."""
    folders = {str(folder) for path in paths for folder in PurePosixPath(path).parents}
    return sorted({path for path in paths if path not in folders and len(PurePosixPath(path).name.encode()) <= 255})


def plain(path, number):
    name = PurePosixPath(path)
    return str(name.with_name(f"{name.stem}.jpg" if number == 1 else f"{name.stem}-{number}.jpg"))


@given(photos.map(without_clashes))
def test_no_two_faces_share_a_name(paths):
    names = face_names(paths, "jpg")
    every = [names[path].of(number) for path in paths for number in range(1, MOST + 1)]
    assert len(set(every)) == MOST * len(paths)
    assert all(len(PurePosixPath(name).name.encode()) <= 255 for name in every)
    assert not set(every) & {str(folder) for path in paths for folder in PurePosixPath(path).parents}
    assert all(PurePosixPath(names[path].of(2)).parent == PurePosixPath(path).parent for path in paths)


@given(photos.map(without_clashes))
def test_case_alone_tells_no_two_faces_apart_unless_it_does_so_for_their_photos(paths):
    names = face_names(paths, "jpg")
    owners = {}
    for path in paths:
        for number in range(1, MOST + 1):
            assert owners.setdefault(names[path].of(number).casefold(), path.casefold()) == path.casefold()


@given(photos.map(without_clashes))
def test_a_name_that_is_no_other_s_is_the_plain_one(paths):
    names = face_names(paths, "jpg")
    folders = {str(folder) for path in paths for folder in PurePosixPath(path).parents}
    wanted = {(path, number): plain(path, number) for path in paths for number in range(1, MOST + 1)}
    taken = [name.casefold() for name in (*wanted.values(), *folders)]
    for path in paths:
        if all(taken.count(wanted[path, number].casefold()) == 1 for number in range(1, MOST + 1)):
            short = len(PurePosixPath(path).name.encode()) < 230
            for number in range(1, MOST + 1 if short else 2):
                assert names[path].of(number) == wanted[path, number]


@given(photos.map(without_clashes), st.randoms(use_true_random=False))
def test_the_order_of_the_photos_does_not_matter(paths, random):
    shuffled = random.sample(paths, len(paths))
    assert face_names(shuffled, "jpg") == face_names(paths, "jpg")


def test_photos_that_differ_by_their_suffixes_keep_them():
    names = face_names(["a/1.jpg", "a/1.png", "a/2.png"], "jpg")
    assert {path: (known.of(1), known.of(2)) for path, known in names.items()} == {
        "a/1.jpg": ("a/1.jpg.jpg", "a/1.jpg-2.jpg"),
        "a/1.png": ("a/1.png.jpg", "a/1.png-2.jpg"),
        "a/2.png": ("a/2.jpg", "a/2-2.jpg"),
    }


def test_the_second_face_makes_way_for_a_photo_of_that_name():
    names = face_names(["a.png", "a-2.png", "a-face3.png"], "png")
    assert [names["a.png"].of(number) for number in (1, 2, 3)] == ["a.png", "a-face2.png", "a-3.png"]
    assert [names["a-2.png"].of(number) for number in (1, 2)] == ["a-2.png", "a-2-2.png"]
