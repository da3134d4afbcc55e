"""A checkpoint is whole or none: after a kill, on a full disk, with a flipped bit; any number of processes reads it."""

import hashlib
import itertools
import json
import os
import pickle
import resource
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from sphereface.training.checkpoints.manifest import CheckpointError, NewerCheckpoint, seal, unseal
from sphereface.training.checkpoints.pieces import pack_rng
from sphereface.training.checkpoints.reading import forget_after, newest_checkpoint, open_checkpoint, prune
from sphereface.training.checkpoints.saving import CheckpointNotSaved, save_checkpoint
from tests.modes import mode, umask
from tests.training.conftest import small_disk

same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

EVERY_KIND = {
    "float64": torch.randn(3, 2, dtype=torch.float64),
    "float32": torch.tensor([0.0, -0.0, float("nan"), float("inf"), 1e-45]),
    "float16": torch.randn(2, 2).half(),
    "bfloat16": torch.randn(5).bfloat16(),
    "int64": torch.tensor([-(2**63), 2**63 - 1]),
    "int32": torch.arange(3, dtype=torch.int32),
    "uint8": torch.arange(256).to(torch.uint8),
    "bool": torch.tensor([True, False, True]),
    "number": torch.tensor(7),  # no dimensions
    "empty": torch.empty(0, 4),
    "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "part": torch.arange(12.0).view(3, 4)[:, 1:3],
}


def bits(tensor):
    return tensor.dtype, tensor.shape, tensor.contiguous().reshape(-1).view(torch.uint8).tolist()


def same_bits(found, expected):
    return found.keys() == expected.keys() and all(bits(found[name]) == bits(expected[name]) for name in expected)


def save(folder, step, *, size=10, **more):
    """A small checkpoint whose tensors say its step."""
    values = {"groups": {"net": {"weight": torch.full((size,), float(step))}}, "state": {"said": step}}
    return save_checkpoint(folder, step, **{**values, **more})


def newest(folder):
    """The newest whole checkpoint, and what was said on the way."""
    said = []
    return newest_checkpoint(folder, say=said.append), said


def tree(folder):
    """Every file below a folder, with its bytes."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def in_processes(count, work):
    """What `work(rank=, gather=)` returns or raises as each of several processes; threads stand for them."""
    board, meet = [None] * count, threading.Barrier(count, timeout=20)

    def gather(rank, mine):
        board[rank] = json.dumps(mine)  # it travels as JSON
        meet.wait()
        everyone = [json.loads(text) for text in board]
        meet.wait()
        return everyone

    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(work, rank=rank, gather=partial(gather, rank)) for rank in range(count)]
    return [future.exception() or future.result() for future in futures]


# Save and load.


def test_every_kind_of_tensor_comes_back_bit_for_bit(tmp_path):
    path = save(tmp_path, 3, groups={"net": EVERY_KIND, "ema": {}}, by_rank=EVERY_KIND)
    found = open_checkpoint(path)
    assert same_bits(found.group("net"), EVERY_KIND)
    assert same_bits(found.of_rank(0), EVERY_KIND)
    assert found.group("ema") == {}
    assert found.of_rank(1) is None
    assert same_bits(load_file(path / "net.safetensors"), EVERY_KIND)  # a plain file for other programs, too


def test_a_checkpoint_is_its_owners_alone_also_while_it_is_saved(tmp_path):
    seen = []

    def look(mine):
        seen.append({path.name: mode(path) for path in tmp_path.rglob("*") if path.is_file()})
        return [mine]

    with umask(0):
        path = save(tmp_path, 3, by_class={"loss.weight": torch.ones(2, 2)}, rows=(0, 2), classes=2,
                    by_rank={"cpu": torch.zeros(3)}, gather=look)  # fmt: skip
    assert sorted(seen[-1]) == sorted(each.name for each in path.iterdir())
    assert len(seen[-2]) == 3  # the tensors, before the manifest
    assert {bits for files in seen for bits in files.values()} == {0o600}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(state=st.dictionaries(st.text(), json_values, max_size=4))
@settings(max_examples=25, parent=same_folder)
def test_any_json_comes_back_as_it_was(tmp_path, state):
    path = save(tmp_path, 1, state=state)
    assert open_checkpoint(path).state == state
    assert json.loads((path / "manifest.json").read_text())["state"] == state


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), (1, 2), {1: 2}, torch.ones(1)], ids=lambda value: ascii(value)
)
def test_a_state_that_json_cannot_hold_is_refused(tmp_path, value):
    save(tmp_path, 1)
    before = tree(tmp_path)
    with pytest.raises(CheckpointNotSaved, match="step-00000002: checkpoint not saved"):
        save(tmp_path, 2, state={"a": value})
    assert tree(tmp_path) == before


def test_a_checkpoint_says_what_it_holds(tmp_path):
    rows = {"weight": torch.zeros(4, 3), "seen": torch.zeros(4, dtype=torch.int64)}
    path = save(tmp_path / "run" / "checkpoints", 500, by_class=rows, rows=(0, 4), classes=4, by_rank=pack_rng())
    assert path == tmp_path / "run" / "checkpoints" / "step-00000500"
    files = {"net.safetensors", "classes-0000000000-0000000004.safetensors", "rank-00000.safetensors"}
    assert {file.name for file in path.iterdir()} == files | {"manifest.json"}
    manifest = json.loads((path / "manifest.json").read_text())
    assert (manifest["format"], manifest["step"], manifest["classes"]) == (1, 500, 4)
    assert manifest["layout"]["seen"] == {"dtype": "int64", "row": []}
    for entry in (manifest["groups"]["net"], *manifest["by_class"], *manifest["by_rank"]):
        data = (path / entry["name"]).read_bytes()
        assert (entry["size"], entry["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())


def test_an_absent_group_is_an_error_that_names_those_there(tmp_path):
    with pytest.raises(CheckpointError, match="no group 'ema'; there are net"):
        open_checkpoint(save(tmp_path, 1)).group("ema")


@pytest.mark.parametrize("name", ["../net", "a/b", "", "classes-0", "Net", "net.x"])
def test_a_group_whose_name_makes_no_file_is_refused(tmp_path, name):
    with pytest.raises(CheckpointNotSaved, match="not saved"):
        save(tmp_path / "checkpoints", 1, groups={name: {}})
    assert os.listdir(tmp_path) == ["checkpoints"]
    assert os.listdir(tmp_path / "checkpoints") == []


# One number of processes and another.

CLASSES = 10
BY_CLASS = {
    "loss.weight": torch.randn(CLASSES, 3),
    "loss.bias": torch.randn(CLASSES).bfloat16(),
    "seen": torch.arange(CLASSES) % 2 == 0,
}


def save_split(folder, step, edges, tensors=BY_CLASS):
    """Save class-wise tensors from as many processes as there are ranges between the edges."""

    def work(rank, gather):
        first, last = edges[rank], edges[rank + 1]
        return save(
            folder,
            step,
            by_class={name: tensor[first:last] for name, tensor in tensors.items()},
            rows=(first, last),
            classes=CLASSES,
            by_rank={"rank": torch.tensor(rank)},
            rank=rank,
            gather=gather,
        )

    return in_processes(len(edges) - 1, work)


def load_split(checkpoint, edges):
    return [checkpoint.rows(first, last) for first, last in itertools.pairwise(edges)]


def joined(parts):
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def test_saved_by_two_then_by_one_then_by_three_the_classes_stay_as_they_were(tmp_path):
    tensors = BY_CLASS
    for step, (saved_by, read_by) in enumerate(itertools.pairwise([(0, 5, 10), (0, 10), (0, 4, 7, 10), (0, 10)])):
        assert save_split(tmp_path, step, saved_by, tensors) == [tmp_path / f"step-{step:08d}"] * (len(saved_by) - 1)
        checkpoint, said = newest(tmp_path)
        assert (checkpoint.step, said) == (step, [])
        assert [checkpoint.of_rank(rank)["rank"].item() for rank in range(len(saved_by) - 1)] == [
            *range(len(saved_by) - 1)
        ]
        tensors = joined(load_split(checkpoint, read_by))
        assert same_bits(tensors, BY_CLASS)


edges = st.lists(st.integers(0, CLASSES), max_size=4).map(lambda inner: (0, *sorted(inner), CLASSES))


@given(saved_by=edges, first=st.integers(0, CLASSES), last=st.integers(0, CLASSES))
@settings(max_examples=30, parent=same_folder)
def test_any_rows_can_be_read_however_they_were_split(tmp_path, saved_by, first, last):
    first, last = sorted((first, last))
    save_split(tmp_path, 1, saved_by)
    found = open_checkpoint(tmp_path / "step-00000001").rows(first, last)
    assert same_bits(found, {name: tensor[first:last] for name, tensor in BY_CLASS.items()})


def test_a_process_reads_no_more_than_its_own_rows(tmp_path):
    """Where the other half of the classes is gone, this half still comes."""
    save_split(tmp_path, 1, (0, 5, 10))
    checkpoint = open_checkpoint(tmp_path / "step-00000001")
    (checkpoint.path / "classes-0000000005-0000000010.safetensors").unlink()
    assert checkpoint.rows(2, 5)["loss.bias"].tolist() == BY_CLASS["loss.bias"][2:5].tolist()
    with pytest.raises(CheckpointError, match=r"classes-0000000005-0000000010\.safetensors: cannot be read"):
        checkpoint.rows(2, 6)


@pytest.mark.parametrize(("first", "last"), [(-1, 2), (3, 2), (5, 11)])
def test_rows_that_are_not_there_are_refused(tmp_path, first, last):
    save_split(tmp_path, 1, (0, 10))
    with pytest.raises(ValueError, match=f"rows {first} to {last} of 10 classes"):
        open_checkpoint(tmp_path / "step-00000001").rows(first, last)


def split_wrongly(kind, rank, gather, folder):
    first, last = (0, 5) if rank == 0 else {"gap": (6, 10), "overlap": (4, 10)}.get(kind, (5, 10))
    tensors = {"weight": torch.zeros(last - first + (kind == "rows"), 2 + (kind == "width" and rank))}
    if kind == "name" and rank:
        tensors = {"weights": tensors["weight"]}
    by_rank = {"rank": torch.tensor(rank)} if kind != "own" or rank else {}
    return save(folder, 2, by_class=tensors, rows=(first, last), classes=10, by_rank=by_rank, rank=rank, gather=gather)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("gap", "class ranges are 0-5, 6-10; wanted each of 10 classes once"),
        ("overlap", "class ranges are 0-5, 4-10; wanted each of 10 classes once"),
        ("rows", r"'weight' of shape \(6, 2\) for classes 0 to 5 of 10"),
        ("width", "process 1 has other tensors"),
        ("name", "process 1 has other tensors"),
        ("own", "process 1 has other tensors"),
    ],
)
def test_processes_that_do_not_fit_together_all_hear_of_it(tmp_path, kind, message):
    save_split(tmp_path, 1, (0, 5, 10))
    before = tree(tmp_path)
    ended = in_processes(2, partial(split_wrongly, kind, folder=tmp_path))
    for error in ended:
        with pytest.raises(CheckpointNotSaved, match=message) as caught:
            raise error
        assert "make room" not in str(caught.value)  # which would not help
    assert tree(tmp_path) == before


# Damage.


@pytest.fixture(scope="module")
def two_checkpoints(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    for step in (1, 2):
        save_split(folder, step, (0, 5, 10))
    return folder


@given(data=st.data())
def test_a_flipped_bit_anywhere_is_seen_and_the_one_before_is_taken(two_checkpoints, data):
    file = data.draw(st.sampled_from(sorted((two_checkpoints / "step-00000002").iterdir())))
    whole = file.read_bytes()
    place, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 7))
    spoiled = bytearray(whole)
    spoiled[place] ^= 1 << bit
    file.write_bytes(spoiled)
    try:
        checkpoint, said = newest(two_checkpoints)
    finally:
        file.write_bytes(whole)
    assert checkpoint.step == 1
    assert len(said) == 1
    assert file.name in said[0]
    assert "\n" not in said[0]


@given(data=st.data())
def test_a_file_cut_short_or_grown_is_seen_and_the_one_before_is_taken(two_checkpoints, data):
    file = data.draw(st.sampled_from(sorted((two_checkpoints / "step-00000002").iterdir())))
    whole = file.read_bytes()
    keep = data.draw(st.integers(0, len(whole) - 1))
    spoiled = data.draw(st.sampled_from([whole[:keep], whole + b"\n", whole[:keep] + bytes(len(whole) - keep)]))
    file.write_bytes(spoiled)
    try:
        checkpoint, said = newest(two_checkpoints)
    finally:
        file.write_bytes(whole)
    assert (checkpoint.step, len(said)) == ((2, 0) if spoiled == whole else (1, 1))


@given(data=st.data())
def test_a_missing_file_is_seen_and_the_one_before_is_taken(two_checkpoints, data):
    file = data.draw(st.sampled_from(sorted((two_checkpoints / "step-00000002").iterdir())))
    whole = file.read_bytes()
    file.unlink()
    try:
        checkpoint, said = newest(two_checkpoints)
    finally:
        file.write_bytes(whole)
    assert checkpoint.step == 1
    assert len(said) == 1


def sealed(body):
    """A forged manifest with a valid seal."""
    body = {key: value for key, value in body.items() if key != "seal"}
    text = json.dumps(body, indent=2) + "\n"
    return json.dumps({**body, "seal": hashlib.sha256(text.encode()).hexdigest()}, indent=2).encode() + b"\n"


any_json = st.one_of(json_values, st.dictionaries(st.sampled_from(["format", "step", "seal", "groups"]), json_values))


@given(payload=any_json, with_seal=st.booleans(), known=st.booleans())
def test_any_json_in_place_of_a_manifest_is_a_clear_error(payload, with_seal, known):
    if isinstance(payload, dict) and with_seal:
        data = sealed({**payload, "format": 1} if known else payload)
    else:
        data = json.dumps(payload).encode()
    with pytest.raises(CheckpointError, match="here: "):
        unseal(data, Path("here"))


@example(data=b'{"step": 1e999}')
@example(data=b'{"step": NaN}')
@given(data=st.binary(max_size=200) | st.integers(0, 5000).map(lambda depth: b"[" * depth + b"]" * depth))
def test_any_bytes_in_place_of_a_manifest_are_a_clear_error(data):
    with pytest.raises(CheckpointError, match="here: damaged"):
        unseal(data, Path("here"))


def fields(body, path=()):
    """Every place in a manifest, however deep."""
    for key, value in body.items() if isinstance(body, dict) else enumerate(body):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from fields(value, (*path, key))


def test_every_field_of_a_manifest_counts(two_checkpoints):
    whole = (two_checkpoints / "step-00000002" / "manifest.json").read_bytes()
    assert seal(unseal(whole, Path("here"))) == whole
    places = list(fields(json.loads(whole)))
    assert len(places) > 40
    for place in places:
        body = inner = json.loads(whole)
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = 3 if inner[place[-1]] != 3 else 4
        with pytest.raises(CheckpointError, match="changed by hand"):
            unseal(json.dumps(body, indent=2).encode() + b"\n", Path("here"))


@pytest.mark.parametrize(
    "name",
    [
        "../net.safetensors",
        "/net.safetensors",
        "a/../net.safetensors",
        "net.safetensors\n",
        "..",
        "",
        "a\\b.safetensors",
    ],
)
def test_a_manifest_that_names_a_file_elsewhere_is_refused(tmp_path, name):
    path = save(tmp_path / "checkpoints", 1)
    shutil.copy(path / "net.safetensors", tmp_path / "net.safetensors")
    body = json.loads((path / "manifest.json").read_bytes())
    body["groups"]["net"]["name"] = name
    (path / "manifest.json").write_bytes(sealed(body))
    with pytest.raises(CheckpointError, match=r"groups\.net\.name"):
        open_checkpoint(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": 11}, "class ranges are 0-5, 5-10; wanted each of 11 classes once"),
        ({"step": -1}, "step"),
        ({"step": 3}, "its manifest is of step 3"),
        ({"more": 1}, "more: Extra inputs"),
        ({"groups": {"a": {}}}, "groups.a.name"),
    ],
)
def test_a_forged_manifest_that_makes_no_sense_is_a_clear_error(tmp_path, change, message):
    save_split(tmp_path, 1, (0, 5, 10))
    file = tmp_path / "step-00000001" / "manifest.json"
    file.write_bytes(sealed({**json.loads(file.read_bytes()), **change}))
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(file.parent)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ({"dtype": "float64", "row": [3]}, r"has type torch\.float32; wanted torch\.float64"),
        ({"dtype": "float32", "row": [4]}, r"has shape \[10, 3\]; wanted \[10, 4\]"),
        ({"dtype": "complex512", "row": [3]}, "type is 'complex512'; choose one of float64, float32"),
    ],
)
def test_class_files_that_are_not_as_their_manifest_says_are_refused(tmp_path, layout, message):
    save_split(tmp_path, 1, (0, 10))
    file = tmp_path / "step-00000001" / "manifest.json"
    body = json.loads(file.read_bytes())
    body["layout"]["loss.weight"] = layout
    file.write_bytes(sealed(body))
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(file.parent).rows(0, 10)


def test_a_format_of_the_future_is_an_error_and_nothing_older_is_taken_instead(tmp_path):
    save(tmp_path, 1)
    path = save(tmp_path, 2)
    (path / "manifest.json").write_bytes(sealed({"format": 2, "anything": "else"}))
    with pytest.raises(NewerCheckpoint, match="format 2; wanted 1: update sphereface"):
        newest(tmp_path)


def test_a_pickle_is_refused_and_not_run(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "exploded"),))

    path = save(tmp_path, 1)
    data = pickle.dumps(Bomb())
    (path / "net.safetensors").write_bytes(data)
    body = json.loads((path / "manifest.json").read_bytes())
    body["groups"]["net"] |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (path / "manifest.json").write_bytes(sealed(body))
    with pytest.raises(CheckpointError, match=r"net\.safetensors: cannot be read"):
        open_checkpoint(path).group("net")
    assert not (tmp_path / "exploded").exists()


def test_without_verifying_only_sizes_are_looked_at(tmp_path):
    path = save(tmp_path, 1)
    data = bytearray((path / "net.safetensors").read_bytes())
    data[-1] ^= 1
    (path / "net.safetensors").write_bytes(data)
    assert open_checkpoint(path, verify=False).step == 1
    with pytest.raises(CheckpointError, match="SHA-256"):
        open_checkpoint(path)
    (path / "net.safetensors").write_bytes(data[:-1])
    with pytest.raises(CheckpointError, match=f"{len(data) - 1} bytes; wanted {len(data)}, as its manifest says"):
        open_checkpoint(path, verify=False)


# The newest one.


def test_where_nothing_was_ever_finished_there_is_none(tmp_path):
    assert newest(tmp_path / "absent") == (None, [])
    assert newest(tmp_path) == (None, [])
    (tmp_path / "step-00000005").mkdir()
    checkpoint, said = newest(tmp_path)
    assert checkpoint is None
    assert said == [f"{tmp_path / 'step-00000005'}: skipped, because it was never finished"]


def test_where_all_are_damaged_that_is_an_error_rather_than_a_new_beginning(tmp_path):
    for step in (1, 2):
        (save(tmp_path, step) / "net.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"none of 2 checkpoints is whole.*step-00000002.*restore them"):
        newest(tmp_path)


def test_steps_are_ordered_as_numbers(tmp_path):
    for step in (99_999_999, 100_000_000, 3):
        save(tmp_path, step)
    (tmp_path / "step-x").mkdir()
    (tmp_path / "step-00000007").write_text("a file")
    assert newest(tmp_path)[0].step == 100_000_000


# What a save does, and in which order.


@contextmanager
def recorded(monkeypatch):
    """The order of what reaches the disk: ("fsync", inode) and ("replace", name, inode)."""
    events = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(handle):
        events.append(("fsync", os.fstat(handle).st_ino))
        fsync(handle)

    def record_replace(source, target):
        events.append(("replace", Path(target).name, Path(source).stat().st_ino))
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", record_fsync)
        patch.setattr(os, "replace", record_replace)
        yield events


def test_all_files_and_folders_are_on_the_disk_before_the_manifest_takes_its_place(tmp_path, monkeypatch):
    with recorded(monkeypatch) as events:
        path = save(tmp_path / "checkpoints", 1, by_class=BY_CLASS, rows=(0, 10), classes=10, by_rank=pack_rng())
    inode = {file.name: file.stat().st_ino for file in (*path.iterdir(), path, path.parent, tmp_path)}
    put = events.index(("replace", "manifest.json", inode["manifest.json"]))
    assert [event for event in events if event[0] == "replace"] == [events[put]]
    before, after = [event[1] for event in events[:put]], [event[1] for event in events[put + 1 :]]
    assert {inode[file.name] for file in path.iterdir()} <= set(before)  # the manifest's own bytes as well
    files = [before.index(inode[file.name]) for file in path.glob("*.safetensors")]
    assert len(files) == 3
    assert max(files) < len(before) - 1 - before[::-1].index(inode[path.name])  # then the folder that lists them
    assert {inode["checkpoints"], inode[tmp_path.name]} <= set(before)
    assert after == [inode[path.name], inode["checkpoints"]]


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_strace_sees_files_and_folder_on_the_disk_before_the_checkpoint_is_announced(tmp_path):
    code = (
        "import sys, pathlib, torch\n"
        "from sphereface.training.checkpoints.saving import save_checkpoint\n"
        "path = save_checkpoint(pathlib.Path(sys.argv[1]), 5, groups={'net': {'w': torch.ones(9)}, 'ema': {}})\n"
        "(path / 'announced').touch()\n"
    )
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-y", "-qq", "-e", "trace=/fsync|fdatasync|rename.*|open.*", "-o", str(trace)]
    ran = subprocess.run([*command, sys.executable, "-c", code, str(tmp_path / "c")], capture_output=True, text=True)
    if ran.returncode and "ptrace" in ran.stderr.lower():
        pytest.skip(f"strace may not trace here: {ran.stderr.strip()}")
    assert ran.returncode == 0, ran.stderr
    folder = tmp_path / "c" / "step-00000005"
    lines = trace.read_text().splitlines()

    def places(*parts):
        return [place for place, line in enumerate(lines) if all(part in line for part in parts)]

    [put] = [place for place in places("rename") if "manifest.json" in lines[place]]
    [announced] = places("open", "/announced")
    files = [places("fsync(", f"<{folder / name}.safetensors>", " = 0")[0] for name in ("net", "ema")]
    listed = [place for place in places("fsync(", f"<{folder}>", " = 0") if place < put]
    manifest = places("fsync(", f"<{folder}/.manifest.json.", " = 0")[0]
    assert max(files) < listed[-1] < put
    assert manifest < put
    assert put < places("fsync(", f"<{folder}>", " = 0")[-1] < announced
    assert put < places("fsync(", f"<{folder.parent}>", " = 0")[-1] < announced


# Disks that are full.


@contextmanager
def largest_file(size):
    """No file of this process may grow beyond this size: an error that needs neither a small disk nor root."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


NOT_SAVED = r"step-0000000\d: checkpoint not saved, .*: [\d,]+ bytes were needed, [\d,]+ are free; .* are intact, free"


def test_a_file_that_cannot_be_written_leaves_the_earlier_checkpoints_and_no_litter(tmp_path):
    save(tmp_path, 1)
    before = tree(tmp_path)
    with largest_file(50_000), pytest.raises(CheckpointNotSaved, match=NOT_SAVED) as caught:
        save(tmp_path, 2, groups={"net": {"w": torch.zeros(10)}, "ema": {"w": torch.zeros(100_000)}})
    assert "400,040 bytes were needed" in str(caught.value)
    assert "File too large" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, OSError)
    assert tree(tmp_path) == before
    assert os.listdir(tmp_path) == ["step-00000001"]
    save(tmp_path, 2)
    assert newest(tmp_path)[0].step == 2


def test_a_failed_save_of_a_step_that_is_there_keeps_the_old_one(tmp_path):
    save(tmp_path, 1)
    before = tree(tmp_path)
    with largest_file(50_000), pytest.raises(CheckpointNotSaved):
        save(tmp_path, 1, groups={"ema": {"w": torch.zeros(10)}, "net": {"w": torch.zeros(100_000)}})
    assert tree(tmp_path) == before


def test_a_process_that_cannot_write_stops_all_of_them(tmp_path):
    """Only the second one needs a large file."""
    save_split(tmp_path, 1, (0, 5, 10))
    before = tree(tmp_path)

    def work(rank, gather):
        first, last = ((0, 1), (1, 10_000))[rank]
        rows = {"weight": torch.zeros(last - first, 10)}
        return save(tmp_path, 2, by_class=rows, rows=(first, last), classes=10_000, rank=rank, gather=gather)

    with largest_file(50_000):
        ended = in_processes(2, work)
    for error in ended:
        with pytest.raises(CheckpointNotSaved, match="on process 1 of 2: 400,040 bytes were needed"):
            raise error
    assert tree(tmp_path) == before


def test_a_full_disk_leaves_the_earlier_checkpoints_and_is_named(tmp_path):
    with small_disk(tmp_path / "disk", "1m") as disk:
        for step in (1, 2):
            save(disk, step, size=100_000)
        before = tree(disk)
        with pytest.raises(CheckpointNotSaved, match="No space left on device") as caught:
            save(disk, 3, size=100_000)
        needed, free = 400_000, shutil.disk_usage(disk).free
        assert free < needed
        assert f"{needed:,} bytes were needed, {free:,} are free" in str(caught.value)
        assert tree(disk) == before
        prune(disk, keep=1)
        save(disk, 3, size=100_000)
        assert newest(disk)[0].group("net")["weight"].unique().tolist() == [3]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_named(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(CheckpointNotSaved, match=r"step-00000001: checkpoint not saved, Permission denied"):
        save(tmp_path, 1)


# Runs that are killed.

SAVER = """
import json, os, random, shutil, signal, sys, time
from itertools import count
from pathlib import Path
import torch
from sphereface.training.checkpoints.reading import newest_checkpoint, open_checkpoint, prune
from sphereface.training.checkpoints.saving import save_checkpoint

random.seed(0)

def save(step):
    rows = {"weight": torch.full((50, 40), float(step))}
    save_checkpoint(folder, step, groups={"net": {"w": torch.full((3000,), float(step))}},
                    by_class=rows, rows=(0, 50), classes=50, state={"step": step})
    prune(folder, keep=1)

def end_at_call(number):
    calls = count(1)
    def hook(event, _):
        if event.split(".")[0] in ("os", "open", "shutil") and next(calls) == number:
            os._exit(9)
    sys.addaudithook(hook)

def run(work):
    child = os.fork()  # torch is imported once
    if child == 0:
        work()
        os._exit(0)
    return child

def look():
    names = sorted(path.name for path in folder.iterdir())
    finished = [name for name in names if (folder / name / "manifest.json").exists()]
    for name in finished:
        found = open_checkpoint(folder / name)
        values = [*found.group("net")["w"].unique(), *found.rows(0, 50)["weight"].unique(), found.state["step"]]
        assert all(value == found.step for value in values), (name, values)
    assert newest_checkpoint(folder, say=lambda _: None).path.name == finished[-1]
    return {"finished": len(finished), "unfinished": len(names) - len(finished), "step": found.step}

def killed(moment):
    start = newest_checkpoint(folder, say=lambda _: None).step
    def forever():
        for step in count(start + 1):
            save(step)
    child = run(forever)
    time.sleep(moment)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

def after_each_end(how):
    save(1)
    seen = []
    if how == "killed":
        for _ in range(15):
            killed(random.uniform(0.005, 0.15))
            seen.append(look())
    else:
        before = folder.with_name(how + ", before")
        (folder / "step-00000009").mkdir()  # of a save that was killed
        folder.rename(before)
        status = 9
        while status:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(before, folder)
            work = lambda: (end_at_call(len(seen) + 1), save(2 if how == "another step" else 1))
            status = os.waitstatus_to_exitcode(os.waitpid(run(work), 0)[1])
            assert status in (0, 9)
            seen.append(look())
    save(seen[-1]["step"] + 1)
    return [*seen, {**look(), "files": len(list(folder.rglob("*.*")))}]

results = {}
for how in ("killed", "another step", "the same step"):
    folder = Path(sys.argv[1]) / how
    results[how] = after_each_end(how)
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """What there was after each end of a process that saved, and after a last save that ended well."""
    folder = tmp_path_factory.mktemp("ended")
    ran = subprocess.run([sys.executable, "-c", SAVER, str(folder)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_killed_at_random_moments_only_whole_checkpoints_are_to_be_seen(ended):
    *seen, last = ended["killed"]
    assert len(seen) == 15
    assert any(after["unfinished"] for after in seen)  # some of them were hit in the middle
    assert last == {"finished": 1, "unfinished": 0, "step": seen[-1]["step"] + 1, "files": 3}


@pytest.mark.parametrize("how", ["another step", "the same step"])
def test_ended_at_any_call_of_the_system_only_whole_checkpoints_are_to_be_seen(ended, how):
    *seen, last = ended[how]
    assert len(seen) > 20
    assert last == {"finished": 1, "unfinished": 0, "step": seen[-1]["step"] + 1, "files": 3}
    assert {after["step"] for after in seen} == ({1, 2} if how == "another step" else {1})
    assert {after["unfinished"] for after in seen} >= {0, 1}


def test_the_next_save_removes_what_a_killed_one_left_and_nothing_else(tmp_path):
    save(tmp_path, 1)
    (tmp_path / "step-00000002").mkdir()
    (tmp_path / "step-00000002" / "net.safetensors").write_bytes(b"half")
    (tmp_path / "step-00000001" / "net-2.safetensors").write_bytes(b"half")
    (tmp_path / "step-00000001" / ".manifest.json.abc.part").write_bytes(b"half")
    (tmp_path / "step-00000001" / ".tmpAbC123").write_bytes(b"half")  # what safetensors writes to first
    (tmp_path / "step-00000001" / "notes.txt").write_text("mine")
    (tmp_path / "best").mkdir()
    save(tmp_path, 3)
    assert set(os.listdir(tmp_path)) == {"step-00000001", "step-00000003", "best"}
    assert set(os.listdir(tmp_path / "step-00000001")) == {"net.safetensors", "manifest.json", "notes.txt"}


def test_a_damaged_checkpoint_of_the_same_step_is_replaced(tmp_path):
    path = save(tmp_path, 1)
    (path / "manifest.json").write_text("{}")
    save(tmp_path, 1)
    assert same_bits(newest(tmp_path)[0].group("net"), {"weight": torch.ones(10)})
    assert len(os.listdir(path)) == 2


# Which ones stay.


def steps(folder):
    return sorted(int(name.removeprefix("step-")) for name in os.listdir(folder))


@pytest.mark.parametrize(
    ("keep", "best", "left"),
    [(1, None, [5]), (2, None, [4, 5]), (2, 1, [1, 4, 5]), (1, 5, [5]), (1, 77, [5]), (9, None, [1, 2, 3, 4, 5])],
)
def test_the_last_ones_and_the_best_are_kept(tmp_path, keep, best, left):
    for step in range(1, 6):
        save(tmp_path, step)
    prune(tmp_path, keep=keep, best=best)
    assert steps(tmp_path) == left
    assert all(open_checkpoint(tmp_path / f"step-{step:08d}").state == {"said": step} for step in left)


def test_a_damaged_one_does_not_count_among_the_last(tmp_path):
    for step in range(1, 5):
        save(tmp_path, step)
    (tmp_path / "step-00000004" / "net.safetensors").write_bytes(b"")
    (tmp_path / "step-00000001" / "net.safetensors").write_bytes(b"")
    prune(tmp_path, keep=2)
    assert steps(tmp_path) == [2, 3, 4]


def test_none_is_removed_where_none_is_whole(tmp_path):
    (save(tmp_path, 1) / "net.safetensors").write_bytes(b"")
    prune(tmp_path, keep=1)
    assert steps(tmp_path) == [1]
    with pytest.raises(ValueError, match="keep is 0; wanted at least 1"):
        prune(tmp_path, keep=0)


def test_after_a_rollback_what_came_later_is_forgotten(tmp_path):
    for step in range(1, 6):
        save(tmp_path, step)
    forget_after(tmp_path, 3)
    assert steps(tmp_path) == [1, 2, 3]
