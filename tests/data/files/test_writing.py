"""Files that appear complete or not at all, and their modes."""

import errno
import fcntl
import os

import pytest

from sphereface.data.files.writing import open_private, sync, whole_file
from tests.modes import mode, umask


def parts(folder, path):
    """The modes of what stands in a folder beside a path."""
    return [mode(each) for each in folder.iterdir() if each != path]


@pytest.mark.parametrize("bits", [0o022, 0o002, 0o027, 0o077, 0o000])
def test_a_new_file_is_as_open_as_one_that_the_shell_makes(tmp_path, bits):
    with umask(bits):
        with whole_file(tmp_path / "ours") as file:
            file.write(b"new")
        (tmp_path / "plain").write_bytes(b"new")
    assert mode(tmp_path / "ours") == mode(tmp_path / "plain") == 0o666 & ~bits


@pytest.mark.parametrize("bits", [0o022, 0o000])
def test_a_private_file_is_its_owners_alone_from_its_first_byte_on(tmp_path, bits):
    path = tmp_path / "features"
    with umask(bits):
        with whole_file(path, private=True) as file:
            assert parts(tmp_path, path) == [0o600]
            file.write(b"new")
        assert mode(path) == 0o600
        with open_private(tmp_path / "journal") as file:
            assert mode(tmp_path / "journal") == 0o600
            file.write(b"first")
        with open_private(tmp_path / "journal") as file:
            assert file.read() == b"first"


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("wanted", [0o600, 0o640, 0o664])
def test_who_may_read_the_older_file_may_read_the_new_one_and_not_before_it_is_whole(tmp_path, wanted, private):
    path = tmp_path / "model"
    path.write_bytes(b"old")
    path.chmod(wanted)
    with whole_file(path, private=private) as file:
        file.write(b"new")
        assert parts(tmp_path, path) == [0o600]
    assert path.read_bytes() == b"new"
    assert mode(path) == wanted


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


def test_where_the_system_has_a_flush_that_reaches_the_disk_it_is_used(tmp_path, monkeypatch):
    """macOS has one; a harmless command of the kernel stands for it here, then one that no file system knows."""
    called = []
    monkeypatch.setattr(os, "fsync", called.append)
    with (tmp_path / "file").open("wb") as file:
        monkeypatch.setattr(fcntl, "F_FULLFSYNC", fcntl.F_GETFD, raising=False)
        sync(file.fileno())
        assert called == []
        monkeypatch.setattr(fcntl, "F_FULLFSYNC", 999_999)
        with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
            fcntl.fcntl(file.fileno(), fcntl.F_FULLFSYNC)
        sync(file.fileno())
        assert called == [file.fileno()]
