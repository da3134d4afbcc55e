"""Folders of features say what is wrong with them."""

import io
import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphereface.embed.run import embed_set
from sphereface.embed.store import JoinedRows, Part, index_hash, lines, open_features
from sphereface.errors import DataFormatError
from tests.embed.sets import mixing_embedder, write_faces


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("store")
    write_faces(root / "set", people=2, photos=4)
    embed_set(root / "set", root / "whole", mixing_embedder(), batch=2)
    for number in (1, 2, 3):
        embed_set(root / "set", root / "parts", mixing_embedder(), batch=2, part=Part(number=number, of=3))
    return root


@pytest.fixture
def whole(made, tmp_path):
    return shutil.copytree(made / "whole", tmp_path / "whole")


@pytest.fixture
def parts(made, tmp_path):
    return shutil.copytree(made / "parts", tmp_path / "parts")


def cut(path, count):
    path.write_bytes(path.read_bytes()[:-count])


def npy(values, **options):
    file = io.BytesIO()
    np.save(file, values, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    "labels",
    [
        npy(np.array([{}] * 8, dtype=object), allow_pickle=True),
        npy(np.zeros(8)),
        npy(np.zeros(3, np.int64)),
        npy(np.full(8, 2)),
        npy(np.full(8, -1)),
        npy(np.zeros(8, np.int64)).replace(b"(8,), }           ", b"(99999999999,), } "),
        npy(np.zeros(8, np.int64)) + b"more",
        b"x",
    ],
    ids=["objects", "floats", "too few", "too high", "negative", "a huge shape", "more", "no array"],
)
def test_labels_that_fit_their_hash_and_nothing_else_are_refused(whole, labels):
    (whole / "labels.npy").write_bytes(labels)
    manifest = json.loads((whole / "manifest.json").read_text())
    manifest["index"] = index_hash(*((whole / name).read_bytes() for name in ("paths.txt", "people.txt", "labels.npy")))
    (whole / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataFormatError, match=r"labels\.npy: wanted a label of 2 people for each of 8"):
        open_features(whole)


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda folder: cut(folder / "features.npy", 1), r"features\.npy: 511 bytes, wanted 512"),
        (lambda folder: (folder / "features.npy").write_bytes(b"x" * 516), r"516 bytes, wanted 512"),
        (lambda folder: (folder / "features.npy").write_bytes(b"x" * 512), r"float32 \(8, 12\)"),
        (lambda folder: (folder / "features.npy").unlink(), r"features\.npy: cannot be read"),
        (lambda folder: cut(folder / "paths.txt", 3), r"paths\.txt: 7 lines, wanted 8"),
        (lambda folder: (folder / "paths.txt").write_text("a\n" * 8), "is changed or cut off"),
        (lambda folder: cut(folder / "labels.npy", 8), "is changed or cut off"),
        (lambda folder: (folder / "people.txt").unlink(), r"people\.txt: cannot be read"),
        (lambda folder: (folder / "manifest.json").write_text("{}"), r"manifest\.json: its made_by"),
        (lambda folder: cut(folder / "manifest.json", 9), r"manifest\.json: its content: Invalid JSON"),
        (lambda folder: (folder / "manifest.json").unlink(), "unfinished; run the same"),
        (lambda folder: shutil.rmtree(folder), "no such folder"),
        (lambda folder: [path.unlink() for path in folder.iterdir()], "no features here"),
    ],
)
def test_a_spoiled_folder_is_a_clear_error(whole, spoil, named):
    assert 128 + 8 * 12 * 4 == 512  # header and rows, as the cases count them
    open_features(whole)
    spoil(whole)
    with pytest.raises(DataFormatError, match=named) as caught:
        open_features(whole)
    assert "\n" not in str(caught.value)


def test_numbers_that_are_not_finite_are_found_when_asked_for(whole):
    rows = np.lib.format.open_memmap(whole / "features.npy", mode="r+")
    rows[5, 3] = np.nan
    rows.flush()
    assert len(open_features(whole)) == 8
    with pytest.raises(DataFormatError, match=r"p1/001\.png \(row 5\) is not finite"):
        open_features(whole, finite=True)


def test_missing_and_double_shards_are_named(parts):
    assert len(open_features(parts)) == 8
    shutil.copytree(parts / "part-2-of-3", parts / "copy")
    with pytest.raises(DataFormatError, match=r"part 2/3 is there 2 times, in .*copy and .*part-2-of-3"):
        open_features(parts)
    shutil.rmtree(parts / "copy")
    shutil.rmtree(parts / "part-2-of-3")
    with pytest.raises(DataFormatError, match="1 of 3 parts missing: 2/3"):
        open_features(parts)
    with pytest.raises(DataFormatError, match="2 of 3 parts missing: 2/3, 3/3"):
        open_features(parts / "part-1-of-3")
    (parts / "part-1-of-3" / "manifest.json").unlink()
    with pytest.raises(DataFormatError, match="part-1-of-3: unfinished"):
        open_features(parts)


def test_shards_of_two_makings_are_not_mixed(parts, whole, made, tmp_path):
    path = parts / "part-3-of-3" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model": "c" * 64}))
    with pytest.raises(DataFormatError, match=r"differ in their model \(aaaa.*cccc.*\)"):
        open_features(parts)
    with pytest.raises(DataFormatError, match=r"is part 1/1, .* is part 2/3"):
        open_features([whole, made / "parts" / "part-2-of-3"])
    with pytest.raises(ValueError, match="no folder"):
        open_features([])


def test_unknown_images_are_named(whole):
    features = open_features(whole)
    assert features.find(["p1/000.png", "p0/003.png"]).tolist() == [4, 3]
    with pytest.raises(DataFormatError, match=r"such as p7/000\.png \(not in the set"):
        features.find(["p1/000.png", "p7/000.png"])


def test_names_with_line_breaks_are_refused_and_strange_ones_kept():
    assert lines(["a\r", "\udcff.png"]) == b"a\r\n\xff.png\n"
    with pytest.raises(DataFormatError, match="line break"):
        lines(["a", "b\nc"])


SIZES = st.lists(st.integers(0, 4), min_size=1, max_size=5)


@given(SIZES, st.data())
def test_joined_rows_answer_as_one_array(sizes, data):
    whole = np.arange(3 * sum(sizes), dtype=np.float32).reshape(-1, 3)
    joined = JoinedRows(np.split(whole, np.cumsum(sizes)[:-1]))
    count = len(whole)
    assert (len(joined), joined.shape, joined.ndim) == (count, whole.shape, 2)
    np.testing.assert_array_equal(np.asarray(joined), whole)
    keys = [
        data.draw(st.slices(count)),
        np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), bool),
    ]
    if count:
        keys += [data.draw(st.integers(-count, count - 1))]
        keys += [data.draw(st.lists(st.integers(-count, count - 1), max_size=9)) or [0]]
    for key in keys:
        np.testing.assert_array_equal(joined[key], whole[key])
    for wrong in (count, -count - 1, [count]):
        with pytest.raises(IndexError):
            joined[wrong]
