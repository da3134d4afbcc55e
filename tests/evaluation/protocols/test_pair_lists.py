"""Listed images are found by their names whatever the suffix, and slips in lists of pairs are said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphereface.data.lists.pairs import Pair
from sphereface.errors import DataFormatError
from sphereface.evaluation.protocols.pair_lists import people_of, refuse_absent, refuse_repeats
from sphereface.evaluation.rules.pairs import some_of
from sphereface.evaluation.sources import find_images

names = st.lists(st.sampled_from(["1.jpg", "1.png", "2.jpg", "a/1.jpg", "a/1.png", "b/1.jpg", "b/2", "a/b/1.bmp"]))


def without_suffix(path):
    *folders, name = path.split("/")
    return [*folders, name.split(".")[0]]


@pytest.mark.parametrize("anywhere", [False, True])
@given(names, names.map(lambda listed: list(dict.fromkeys(listed))))
def test_images_are_found_as_by_looking_at_every_path(anywhere, listed, paths):
    listed, expected, doubtful = list(dict.fromkeys(listed)), {}, False
    for name in listed:
        wanted = without_suffix(name)
        found = [k for k, path in enumerate(paths) if without_suffix(path) == wanted]
        if anywhere:
            found = [k for k, path in enumerate(paths) if without_suffix(path)[-len(wanted) :] == wanted]
        found = [paths.index(name)] if name in paths else found
        doubtful |= len(found) > 1 or found[:1] in [[place] for place in expected.values()]
        if found:
            expected[name] = found[0]
    if doubtful:
        with pytest.raises(DataFormatError, match=r"may be .* and "):
            find_images(listed, paths, anywhere=anywhere)
    else:
        assert find_images(listed, paths, anywhere=anywhere) == expected


def test_a_pair_in_either_order_and_an_image_with_itself_are_slips():
    refuse_repeats([Pair("a", "b", True), Pair("a", "c", False), Pair("b", "c", False)], "list", "images")
    with pytest.raises(DataFormatError, match="list: b and a are listed twice, as pairs 2 and 3; leave"):
        refuse_repeats([Pair("a", "c", True), Pair("a", "b", True), Pair("b", "a", True)], "list", "images")
    with pytest.raises(DataFormatError, match="list: c is listed with itself, as pair 2; wanted two videos: leave"):
        refuse_repeats([Pair("a", "b", True), Pair("c", "c", True)], "list", "videos")


def test_what_is_not_there_is_counted_with_the_pairs_that_need_it():
    pairs = [Pair("a", "b", True), Pair("a", "c", False), Pair("d", "c", False), Pair("a", "e", False)]
    refuse_absent(pairs, {"a", "b", "c", "d", "e"}, "set", "images", "mend it")
    with pytest.raises(DataFormatError, match=r"^set: 2 of 5 listed images are .* such as c, which 3 of 4 pairs"):
        refuse_absent(pairs, {"a", "b", "d"}, "set", "images", "mend it")


def test_folders_are_people_if_same_pairs_and_only_these_share_one():
    pairs = [Pair("ann/1", "ann/2", True), Pair("ann/1", "bob/1", False)]
    assert people_of(pairs) == (["ann", "ann"], ["ann", "bob"])
    assert people_of([*pairs, Pair("bob/1", "bob/2", False)]) is None
    assert people_of([*pairs, Pair("ann/1", "bob/2", True)]) is None


def test_a_few_of_many_are_named():
    assert some_of({"a": "gone"}) == "a (gone)"
    assert some_of(dict.fromkeys("abcde", "gone")) == "a (gone), b (gone), c (gone), and 2 more"
