"""Several sets as one."""

import numpy as np
import pytest

from sphereface.data.formats.sets import open_set
from sphereface.data.joined import JoinedSets
from sphereface.errors import UserError


def folder(root, people):
    for name, photos in people.items():
        (root / name).mkdir(parents=True)
        for number in range(photos):
            (root / name / f"{number}.jpg").write_bytes(f"{root.name}/{name}/{number}".encode())
    return open_set(root)


def test_joined_sets_keep_people_apart_and_put_faces_without_names_last(tmp_path):
    named = folder(tmp_path / "a", {"x": 2, "y": 1}), folder(tmp_path / "b", {"w": 3})
    joined = JoinedSets(named, unlabelled=[folder(tmp_path / "u", {"1": 1, "2": 1})])
    assert joined.people == ["x", "y", "w", "unlabelled 1"]
    assert joined.classes == 3
    assert np.array_equal(joined.labels, [0, 0, 1, 2, 2, 2, 3, 3])
    wanted = ["a/x/0", "a/x/1", "a/y/0", "b/w/0", "b/w/1", "b/w/2", "u/1/0", "u/2/0"]
    assert [joined.read(index).decode() for index in range(8)] == wanted
    assert [path.split(".")[0] for path in joined.paths] == [name[2:] for name in wanted]


def test_one_name_in_two_sets_is_refused(tmp_path):
    with pytest.raises(UserError, match="such as x"):
        JoinedSets([folder(tmp_path / "a", {"x": 2}), folder(tmp_path / "b", {"x": 1})])
