"""Files that are read at any place: by threads, after a fork, and where the system cannot read without a position."""

import os
import pickle
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from sphereface.data.files.handles import ByteFile
from sphereface.errors import DataFormatError


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("positional", [True, False], ids=["pread", "seek"])
def test_threads_read_their_own_places_at_once(tmp_path, monkeypatch, keep, positional):
    if not positional:
        monkeypatch.delattr(os, "pread")
    content = random.Random(0).randbytes(50_000)
    (tmp_path / "file").write_bytes(content)
    file = ByteFile(tmp_path / "file", keep=keep)
    places = [random.Random(number).sample(range(50_000), 2) for number in range(2000)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda ends: file.read(min(ends), max(ends) - min(ends)), places))
    assert found == [content[min(ends) : max(ends)] for ends in places]
    assert pickle.loads(pickle.dumps(file)).read(7, 5) == content[7:12]


def test_every_handle_is_closed(tmp_path):
    (tmp_path / "file").write_bytes(b"1234")
    before = os.listdir("/dev/fd")
    file = ByteFile(tmp_path / "file")
    assert file.read(1, 2) == b"23"
    assert len(os.listdir("/dev/fd")) == len(before) + 1
    del file
    assert len(os.listdir("/dev/fd")) == len(before)


def test_what_a_file_does_not_have_is_an_error_and_no_short_read(tmp_path):
    (tmp_path / "file").write_bytes(b"1234")
    file = ByteFile(tmp_path / "file")
    with pytest.raises(DataFormatError, match="cut off: 3 bytes wanted at 2, the file has 4"):
        file.read(2, 3)
    (tmp_path / "file").write_bytes(b"1")
    with pytest.raises(DataFormatError, match="became shorter while it was read"):
        file.read(2, 2)
