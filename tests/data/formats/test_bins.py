"""Pair sets of InsightFace: read from every Python, written in its format, and never run."""

import os
import pickle
import pickletools
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphereface.data.formats import bins
from sphereface.data.formats.bins import PairSet, read_bin, write_bin
from sphereface.errors import DataFormatError
from tests.data.sets import image, reads_or_says_why, spoiled

IMAGES = tuple(image(number, suffix) for number, suffix in enumerate([".jpg", ".png", ".jpg", ".jpg"]))
PAIRS = PairSet(IMAGES, (True, False))
WAYS = {
    "bytes": list(IMAGES),
    "a tuple": IMAGES,
    "arrays": [np.frombuffer(data, np.uint8).copy() for data in IMAGES],
    "columns, as older OpenCV encodes": [np.frombuffer(data, np.uint8).copy()[:, None] for data in IMAGES],
    "one image twice": [IMAGES[0], IMAGES[1]] * 2,
}
FLAGS = {
    "booleans": [True, False],
    "numbers": [1, 0],
    "NumPy's booleans": [np.True_, np.False_],
    "an array": np.array([True, False]),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("bins") / "a.bin"


def insightface_reads(path):
    """As its verification does: plainly, and as Python 2's strings if that fails."""
    try:
        return pickle.loads(path.read_bytes())
    except UnicodeDecodeError:
        return pickle.loads(path.read_bytes(), encoding="bytes")


def test_what_is_written_is_what_insightface_reads(tmp_path):
    write_bin(tmp_path / "a.bin", PAIRS)
    assert insightface_reads(tmp_path / "a.bin") == (list(PAIRS.images), list(PAIRS.same))
    opcodes = {opcode.name for opcode, _, _ in pickletools.genops((tmp_path / "a.bin").read_bytes())}
    assert max(pickletools.code2op[opcode.code].proto for opcode in pickletools.opcodes if opcode.name in opcodes) == 2


@given(st.lists(st.tuples(st.binary(min_size=1), st.binary(min_size=1), st.booleans())))
def test_pairs_come_back(place, pairs):
    images = tuple(data for left, right, _ in pairs for data in (left, right))
    write_bin(place, PairSet(images, tuple(same for *_, same in pairs)))
    assert read_bin(place) == PairSet(images, tuple(same for *_, same in pairs))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("way", WAYS)
def test_files_of_every_writer_are_read(tmp_path, way, flags, protocol):
    (tmp_path / "a.bin").write_bytes(pickle.dumps((WAYS[way], FLAGS[flags]), protocol=protocol))
    found = read_bin(tmp_path / "a.bin")
    assert found.images == tuple(bytes(data) for data in WAYS[way])
    assert found.same == (True, False)


def test_files_of_numpy_1_are_read(tmp_path):
    data = pickle.dumps((WAYS["arrays"], FLAGS["an array"]), protocol=4)
    old = data.replace(b"\x8c\x16numpy._core.multiarray", b"\x8c\x15numpy.core.multiarray")
    if old == data:
        old = data.replace(b"\x8c\x15numpy.core.multiarray", b"\x8c\x16numpy._core.multiarray")
    assert old != data
    for part in (old, data):
        (tmp_path / "a.bin").write_bytes(unframed(part))
        assert read_bin(tmp_path / "a.bin") == PAIRS


def unframed(data):
    """Protocol 4 without the one frame that would have another length now."""
    return data[:2] + data[11:] if data[2:3] == b"\x95" else data


def test_python_2_files_with_old_booleans_are_read(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"(](U\x03oneT\x03\0\0\0twoe](I01\net.")
    assert read_bin(tmp_path / "a.bin") == PairSet((b"one", b"two"), (True,))


class Call:
    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def attacks(trap):
    command = f"touch {trap}"
    yield "os.system", pickle.dumps(Call(os.system, command), 2)
    yield "os.system, protocol 0", pickle.dumps(Call(os.system, command), 0)
    yield "os.system, protocol 5", pickle.dumps(([Call(os.system, command)], [True]), 5)
    yield "eval", pickle.dumps(Call(eval, f"open({str(trap)!r}, 'w')"))
    yield "a chain of getattr", pickle.dumps(Call(getattr, Call(__import__, "os"), "system"))
    yield "a name with dots", b"\x80\x04\x8c\x02os\x8c\x0fpath.os.system.\x93\x8c\x01x\x85R."
    yield "a submodule of a permitted one", b"cnumpy.core.multiarray\n_reconstruct.__globals__\n."
    yield "a call of a permitted name", b"\x80\x02cnumpy\nndarray\nK\x7f\x85R."
    yield "a huge array", b"\x80\x02cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85\x85R."
    yield "another codec", b"\x80\x02c_codecs\nencode\nX\x01\0\0\0aX\x03\0\0\0bz2\x86R."
    yield "a codec that unpacks", b"\x80\x02c_codecs\nencode\nX\x01\0\0\0aX\x0a\0\0\0zlib_codec\x86R."
    yield "a new object", b"\x80\x02cnumpy\ndtype\n)\x81."
    yield "an instance", b"(ios\nsystem\n."
    yield "an old object", b"(cos\nsystem\nU\x01xo."
    yield "a registered one", b"\x80\x02\x82\x01."
    yield "a persistent one", b"\x80\x02Px\n."
    yield "state for a list", b"\x80\x02]K\x01b."
    yield "state for a function", b"\x80\x02c_codecs\nencode\nK\x01b."
    yield "a dtype of objects", b"\x80\x02cnumpy\ndtype\nU\x01OK\0K\x01\x87R."


@pytest.mark.parametrize("number", range(len(list(attacks("")))), ids=[name for name, _ in attacks("")])
def test_an_attack_is_refused_and_nothing_runs(tmp_path, number):
    _, data = list(attacks(tmp_path / "exploded"))[number]
    (tmp_path / "a.bin").write_bytes(data)
    with pytest.raises(DataFormatError, match=r"refused|incomplete pickle|wanted \(images"):
        read_bin(tmp_path / "a.bin")
    assert os.listdir(tmp_path) == ["a.bin"]


def bombs():
    letters = b"X" + (1000).to_bytes(4, "little") + b"a" * 1000
    again = b"h\x00h\x01h\x02\x86R"
    yield (
        "text unfolded again and again",
        (b"\x80\x02c_codecs\nencode\nq\x00" + letters + b"q\x01X\x06\0\0\0latin1q\x02](" + again * 50_000 + b"e."),
    )
    yield "nesting without end", b"\x80\x02]" + b"\x85" * 30_000 + b"."
    yield "lists within lists", b"\x80\x02" + b"]" * 30_000 + b"a" * 29_999 + b"."
    yield "doubling by reference", b"\x80\x02N" + b"".join(b"q%ch%c\x86" % (n, n) for n in range(200)) + b"."
    yield "a length of 2 GiB", b"\x80\x02T\xff\xff\xff\x7f" + b"a" * 100
    yield "a length of 2**63", b"\x80\x04\x8e" + b"\xff" * 8
    yield "a list that holds itself", b"\x80\x02]q\x00h\x00a."
    yield "marks without end", b"\x80\x02" + b"(" * 30_000
    yield "nested names", b"\x80\x04]" + b"\x85" * 30_000 + b"N\x93."
    kind = b"cnumpy\ndtype\nq\x00"
    code = b"B" + (100_000).to_bytes(4, "little") + b"u" * 100_000 + b"\x85q\x01"
    yield "a long type again and again", b"\x80\x02" + kind + code + b"](" + b"h\x00h\x01R" * 20_000 + b"e."
    kind, shape = kind + b"U\x02u1\x85Rq\x01", b"(" + b"K\x01" * 40_000 + b"tq\x02"
    array = b"cnumpy._core.numeric\n_frombuffer\nq\x03](" + b"h\x03(C\x01ah\x01h\x02tR" * 10_000
    yield "a long shape again and again", b"\x80\x02" + kind + shape + array + b"e."
    array = b"cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\n\x85R"
    state = b"(K\x01h\x02h\x01K\0C\x01atq\x04"
    yield "and in an array's state", b"\x80\x02" + kind + shape + array + state + b"b" + b"h\x04b" * 10_000 + b"."


@pytest.mark.parametrize("number", range(len(list(bombs()))), ids=[name for name, _ in bombs()])
def test_a_bomb_is_refused_within_a_few_times_its_own_size(tmp_path, number):
    _, data = list(bombs())[number]
    (tmp_path / "a.bin").write_bytes(data)
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(DataFormatError):
        read_bin(tmp_path / "a.bin")
    seconds = time.process_time() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (1 << 20) + 150 * len(data)  # a list of nothing is one byte in the file and 56 to 120 in memory
    assert seconds < 1 + 20e-6 * len(data)  # each opcode takes about as long, whatever came before it


def test_a_pickle_of_too_many_steps_is_refused(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"\x80\x02" + b"N" * 1001 + b".")
    with pytest.raises(DataFormatError, match="over 1,000 steps"):
        read_bin(tmp_path / "a.bin", steps=1000)


def test_a_file_over_the_limit_is_refused(tmp_path):
    (tmp_path / "a.bin").write_bytes(bytes(11))
    with pytest.raises(DataFormatError, match="11 bytes; wanted a set of pairs, of at most 10"):
        read_bin(tmp_path / "a.bin", limit=10)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (([b"a", b"b", b"c"], [True]), "3 images for 1 pairs; wanted two for each"),
        (([b"a", "b"], [True]), "among its images"),
        (([b"a", b""], [True]), "among its images"),
        (([b"a", b"b"], [None]), "among its booleans"),
        (([b"a", b"b"], [2]), "among its booleans"),
        (([b"a", b"b"],), "wanted \\(images"),
        ([np.zeros((2, 3, 3), np.uint8)], "sets the state of an unknown object"),
        ((5, [True]), "with a int; wanted a list"),
        (([np.zeros(3, np.float32)] * 2, [True]), "among its images"),
    ],
)
def test_something_else_in_a_pickle_is_named(tmp_path, value, problem):
    (tmp_path / "a.bin").write_bytes(pickle.dumps(value, protocol=4))
    with pytest.raises(DataFormatError, match=problem):
        read_bin(tmp_path / "a.bin")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataFormatError, match=r"absent\.bin: cannot be read"):
        read_bin(tmp_path / "absent.bin")


def test_two_images_make_a_pair():
    with pytest.raises(ValueError, match="1 images for 1 pairs"):
        PairSet((b"a",), (True,))


@given(
    st.sampled_from([2, 4, 5]).flatmap(
        lambda protocol: spoiled(pickle.dumps((WAYS["arrays"], FLAGS["an array"]), protocol))
    )
)
def test_a_spoiled_pickle_is_read_or_refused(place, data):
    place.write_bytes(data)
    reads_or_says_why(read_bin, place)


opcodes = st.one_of(st.sampled_from(sorted(bins._OPCODES)), st.sampled_from([b"numpy\nndarray\n", b"\1\0\0\0", b"\0"]))


@given(st.lists(opcodes, max_size=60))
def test_a_pickle_of_random_opcodes_is_read_or_refused(place, parts):
    place.write_bytes(b"".join(parts) + b".")
    reads_or_says_why(read_bin, place)
