"""View 1 of LFW from photos to a number, by the commands that people type, with a model of others."""

import json

import pytest
from typer.testing import CliRunner

from sphereface.cli import app
from sphereface.data.lists.pairs import read_pairs
from tests.shared import FACES, MODELS, needs_faces, needs_models

PAIRS = 40  # of either kind from either list: enough to see that colours, crop and template are right


def run(*arguments):
    ran = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert ran.exit_code == 0, ran.output
    return ran.stdout


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Some pairs of DevTrain and DevTest, in lists of the same layout, with their photos."""
    root = tmp_path_factory.mktemp("view1")
    for name in ("pairsDevTrain.txt", "pairsDevTest.txt"):
        count, *lines = (FACES / name).read_text().splitlines()
        some = lines[:PAIRS] + lines[int(count) :][:PAIRS]
        (root / name).write_text("\n".join([str(PAIRS), *some]) + "\n")
        for pair in read_pairs(root / name):
            for path in (pair.left, pair.right):
                target = root / "photos" / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes((FACES / "lfw-dev" / path).read_bytes())
    return root


@needs_faces
@needs_models
def test_photos_are_aligned_and_sface_decides_nearly_all_pairs_rightly(photos):
    run("data", "align", photos / "photos", photos / "faces", "--crop", "112x112", "--workers", 1)
    lists = [part for name in ("Train", "Test") for part in ("--pairs", photos / f"pairsDev{name}.txt")]
    model = MODELS / "face_recognition_sface_2021dec.onnx"
    payload = json.loads(run("evaluate", "lfw", photos / "faces", "--view", 1, *lists, "--model", model, "--json"))
    assert (payload["pairs_scored"], payload["pairs_listed"]) == (2 * PAIRS, 2 * PAIRS)
    assert payload["rules"]["authors"]["accuracy"]["value"] >= 0.97
