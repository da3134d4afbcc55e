"""A model file is read once, and what was read is what runs."""

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest

from sphereface.contract import METADATA_KEY, Card
from sphereface.engines.choice import open_network
from sphereface.errors import ModelFileError
from sphereface.graphs import with_metadata
from sphereface.zoo import LARGEST, ModelFile, card_of
from tests.engines.networks import write_network
from tests.evaluation.networks import tiles

COUNT = """
import collections, sys
opened = collections.Counter()
sys.addaudithook(lambda event, given: event == "open" and opened.update([str(given[0])]))
from sphereface.embed.embedder import Embedder
model = Embedder.load(sys.argv[1]).model
print(opened[sys.argv[1]], model)
"""


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPHEREFACE_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("name", ["m.onnx", "m.safetensors"])
def test_a_model_file_is_opened_once(tmp_path, name):
    path = tmp_path / name
    if path.suffix == ".onnx":
        tiles(path)
    else:
        write_network(path)
    ran = subprocess.run([sys.executable, "-c", COUNT, path], capture_output=True, text=True, check=False)
    assert ran.stdout.split() == ["1", hashlib.sha256(path.read_bytes()).hexdigest()], ran.stderr


@pytest.mark.parametrize("engine", ["onnxruntime", "torch"])
def test_what_was_read_is_what_runs_even_if_the_file_is_gone(tmp_path, engine):
    path = tmp_path / "m.safetensors"
    if engine == "torch":
        pytest.importorskip("torch")
        from sphereface.models import create_model, save_model

        save_model(create_model("sphereface4", features=6, width=0.03), path)
    else:
        write_network(path)
    content = path.read_bytes()
    file = ModelFile(path)
    path.unlink()
    assert open_network(file, engine, threads=1).run(np.zeros((2, 3, 112, 96), np.float32)).shape == (2, 6)
    assert file.sha256 == hashlib.sha256(content).hexdigest()
    assert file.card.architecture.name == "sphereface4"


def test_an_onnx_runs_from_what_was_read(tmp_path):
    tiles(tmp_path / "m.onnx")
    file = ModelFile(tmp_path / "m.onnx")
    (tmp_path / "m.onnx").unlink()
    assert file.card.name == "tiles"
    assert open_network(file, "onnxruntime", threads=1).size == (112, 96)


@pytest.mark.parametrize("name", ["m.onnx", "m.safetensors"])
def test_a_file_that_no_model_fills_is_refused_unread(tmp_path, name):
    with (tmp_path / name).open("wb") as file:
        file.truncate(LARGEST + 1)  # takes no room on the disk
    with pytest.raises(ModelFileError, match="2,000,000,001 bytes; a model file has at most"):
        ModelFile(tmp_path / name)


def test_files_that_are_none_are_named(tmp_path):
    (tmp_path / "folder.onnx").mkdir()
    for name, said in (("absent.onnx", "no such"), ("folder.onnx", "no such"), ("m.pth", r"wanted an \.onnx")):
        with pytest.raises(ModelFileError, match=said):
            card_of(tmp_path / name)


@pytest.mark.parametrize("text", [b"\xff\xfe", b"{", b"[" * 100_000, b'{"name": "\xff"}', b"1", b""])
def test_a_card_beside_a_file_that_is_no_card_is_an_error_of_ours(tmp_path, text):
    path = tmp_path / "m.onnx"
    tiles(path)
    path.write_bytes(with_metadata(path.read_bytes(), METADATA_KEY, None))
    (tmp_path / "m.onnx.card.json").write_bytes(text)
    with pytest.raises(ModelFileError, match="its card has a bad"):
        card_of(path)


def header_of(content):
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


@pytest.mark.parametrize(
    "change",
    [
        lambda header: [],
        lambda header: {**header, "fc1.bias": 3},
        lambda header: {**header, "fc1.bias": {"dtype": "F32", "shape": [1]}},
        lambda header: {**header, "fc1.bias": {**header["fc1.bias"], "data_offsets": [0, 1 << 70]}},
        lambda header: {**header, "__metadata__": []},
        lambda header: {**header, "__metadata__": {"sphereface.card": 3}},
        lambda header: {**header, "__metadata__": {"sphereface.card": "3"}},
        lambda header: {name: entry for name, entry in header.items() if name != "__metadata__"},
    ],
)
def test_a_header_that_says_something_else_is_an_error_of_ours(tmp_path, change):
    path = tmp_path / "m.safetensors"
    write_network(path)
    assert isinstance(card_of(path), Card)
    header, tensors = header_of(path.read_bytes())
    text = json.dumps(change(header)).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + tensors)
    with pytest.raises(ModelFileError, match=r"m\.safetensors: "):
        card_of(path)
