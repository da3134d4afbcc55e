"""sphereface embed, where torch is missing: killed and run again, in parts, with a model of others."""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from sphereface.data.manifest import SetManifest, write_manifest
from sphereface.data.people import PeopleFolder
from sphereface.embed.store import open_features
from sphereface.faces.images import decode
from sphereface.zoo import list_models
from tests.data.sets import tree
from tests.embed.sets import write_faces
from tests.engines.networks import run_slowly, write_network
from tests.shared import MODELS, needs_models

WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from sphereface.cli import main; main(sys.argv[1:])"


def start(*arguments, cache):
    return subprocess.Popen(
        [sys.executable, "-c", WITHOUT_TORCH, "embed", *map(str, arguments)],
        env={**os.environ, "SPHEREFACE_CACHE": str(cache), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*arguments, cache):
    process = start(*arguments, cache=cache)
    out, said = process.communicate(timeout=300)
    return process.returncode, out, said


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    root = tmp_path_factory.mktemp("given")
    write_faces(root / "faces", people=4, photos=30)
    write_manifest(root / "faces", SetManifest(made_by="a test"))
    tensors = write_network(root / "m.safetensors", channels=(8, 8, 8, 8))
    return root, tensors


@pytest.fixture(scope="module")
def undisturbed(given):
    root, _ = given
    code, out, said = run(
        root / "faces", root / "out", "--model", root / "m.safetensors", "--batch", 1, "--threads", 1, "--json",
        cache=root / "cache",
    )  # fmt: skip
    assert code == 0, said
    return root / "out", json.loads(out), said


def test_features_come_from_the_network_and_the_result_is_one_object(given, undisturbed):
    root, tensors = given
    folder, payload, said = undisturbed
    assert (payload["faces"], payload["dimension"], payload["feature_rule"], payload["unreadable"]) == (
        120,
        12,
        "concatenate",
        {},
    )
    assert "embedding faces" in said
    assert len(list((root / "cache").iterdir())) == 1
    features = open_features(folder, finite=True)
    face = decode(PeopleFolder(root / "faces").read(77))
    inputs = ((face.astype(float) - 127.5) / 128).transpose(2, 0, 1)[None]
    expected = np.hstack([run_slowly(tensors, inputs), run_slowly(tensors, inputs[..., ::-1])])
    np.testing.assert_allclose(features.rows[77:78], expected, rtol=1e-4, atol=1e-4)


def test_a_killed_run_goes_on_and_ends_as_an_undisturbed_one(given, undisturbed, tmp_path):
    root, _ = given
    arguments = (root / "faces", tmp_path / "out", "--model", root / "m.safetensors", "--batch", 1, "--threads", 1)
    face, away = root / "faces" / "p2" / "015.png", tmp_path / "015.png"
    face.rename(away)
    os.mkfifo(face)  # whoever reads this image waits: the run stands still in its fifth chunk of eight
    try:
        process = start(*arguments, cache=root / "cache")
        journal, deadline = tmp_path / "out" / "journal.jsonl", time.monotonic() + 120
        while time.monotonic() < deadline and (not journal.is_file() or journal.read_bytes().count(b"\n") < 5):
            time.sleep(0.01)
        process.kill()
        process.communicate()
    finally:
        away.replace(face)
    assert process.returncode == -9
    assert journal.read_bytes().count(b"\n") == 5  # the job and four chunks
    assert not (tmp_path / "out" / "manifest.json").exists()
    code, out, said = run(*arguments, cache=root / "cache")
    assert code == 0, said
    assert "120 features of 12 numbers (concatenate)" in out
    assert tree(tmp_path / "out") == tree(undisturbed[0])


def test_shards_of_two_machines_open_as_one(given, undisturbed, tmp_path):
    root, _ = given
    for part in ("2/2", "1/2"):
        arguments = ("--model", root / "m.safetensors", "--batch", 1, "--threads", 1, "--part", part)
        assert run(root / "faces", tmp_path, *arguments, cache=root / "cache")[0] == 0
    np.testing.assert_array_equal(np.asarray(open_features(tmp_path).rows), open_features(undisturbed[0]).rows)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--part", "3/2"), "wanted i/n"),
        (("--feature-rule", "sum"), "features of another job: rule concatenate"),
        (("--engine", "torch"), r"needs torch.*pip install 'sphereface[train]'"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_two(given, undisturbed, arguments, named):
    root, _ = given
    folder, _, _ = undisturbed
    code, out, said = run(
        root / "faces", folder, "--model", root / "m.safetensors", "--batch", 1, *arguments, cache=root / "cache"
    )
    assert (code, out) == (2, "")
    last = said.strip().splitlines()[-1]
    assert all(part in last for part in named.split(".*"))


@needs_models
def test_a_model_of_others_runs_through_its_card(tmp_path):
    write_faces(tmp_path / "faces", people=1, photos=2, size=(112, 112))
    model = MODELS / "face_recognition_sface_2021dec.onnx"
    code, out, said = run(
        tmp_path / "faces", tmp_path / "out", "--model", model, "--feature-rule", "sum", "--json", cache=tmp_path
    )
    assert code == 0, said
    assert json.loads(out)["dimension"] == 128
    card = open_features(tmp_path / "out", finite=True).card
    assert (card.name, card.feature_rule, card.preprocessing.colour) == ("sface-2021dec", "sum", "RGB")


@pytest.mark.skipif(not any(model.found for model in list_models()), reason="no model is installed")
def test_without_a_model_the_most_accurate_one_embeds_and_is_named_with_its_licences(tmp_path):
    write_faces(tmp_path / "faces", people=1, photos=2, size=(112, 112))
    code, out, said = run(tmp_path / "faces", tmp_path / "features", "--json", cache=tmp_path / "cache")
    assert code == 0, said
    installed = [each for each in list_models() if each.found and each.card]
    best = max(installed, key=lambda each: each.card.accuracy[0].value)
    assert json.loads(out)["model"] in best.entry.hashes
    assert f"model {best.card.name}" in said
    assert f"weights {best.card.licences['weights']}" in said
