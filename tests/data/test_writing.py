"""Files that appear whole or not at all."""

import stat
import sys

import pytest

from sphereface.data.writing import whole_file


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_who_may_read_the_older_file_may_read_the_new_one(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(b"old")
    path.chmod(0o600)
    with whole_file(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_was_not_finished_leaves_the_older_one_and_nothing_else(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(b"old")

    def write_half():
        with whole_file(path) as file:
            file.write(b"ne")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        write_half()
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("model", b"old")]
