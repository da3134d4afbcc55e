"""The model in the box: its package, its card, and what it recognises."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from sphereface import Detector, Embedder, align, read_photo
from sphereface.data.lists.pairs import read_pairs
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.evaluation import verify_held_out
from sphereface.faces.detections import choose
from sphereface.metrics import auc
from sphereface.zoo import card_of, find_model
from sphereface.zoo.cards import ENTRIES
from sphereface.zoo.finding import find_installed
from tests.shared import FACES, needs_faces

WEIGHTS = Path(__file__).parents[2] / "weights"
MINI = ENTRIES["mini"]
pytestmark = pytest.mark.skipif(
    find_installed(MINI) is None, reason="sphereface-mini is not installed: pip install ./weights"
)


@pytest.fixture(scope="module")
def mini():
    return Embedder.load("mini", threads=1)


def test_mini_comes_from_its_package_which_is_never_imported():
    ran = subprocess.run(
        [sys.executable, "-c", "import sys, numpy\nfrom sphereface import Embedder\n"
         "face = numpy.zeros((1, 112, 96, 3), numpy.uint8)\n"
         "print(Embedder.load('mini', threads=1).embed(face).shape, 'sphereface_mini' in sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout.split("\n")[0] == "(1, 128) False"


def test_the_file_is_the_known_one_small_and_in_half_precision():
    path = find_model("mini").path
    assert path.stat().st_size <= 16_000_000
    assert Embedder.load("mini").model in MINI.hashes
    with safe_open(path, "numpy") as file:
        types = {str(file.get_tensor(name).dtype) for name in file.keys() if "num_batches" not in name}  # noqa: SIM118
    assert types == {"float16"}


def test_the_card_says_what_it_learned_from_and_where_its_limits_are(mini):
    card = mini.card
    project = tomllib.loads((WEIGHTS / "pyproject.toml").read_text())["project"]
    assert card.name == f"{project['name']}-{project['version']}"
    assert (card.commercial_use, card.licences["weights"]) == ("no", project["license"])
    assert (card.architecture.name, card.architecture.features, card.feature_rule) == (
        MINI.network,
        MINI.features,
        "image",
    )
    assert card.teacher.startswith("sface")
    assert "FaceScrub" in card.training_data
    assert any("MegaFace" in limit for limit in card.limits)
    assert card.accuracy[0].value >= 0.97


def test_mini_is_calibrated_for_pairs_and_for_galleries(mini):
    thresholds = mini.card.thresholds
    assert {each.far for each in thresholds if each.fpir is None} >= {1e-2, 1e-3}
    assert {(each.fpir, each.gallery_size) for each in thresholds if each.fpir} >= {
        (0.1, 100), (0.1, 1_000), (0.01, 100),
    }  # fmt: skip
    assert {each.measured_on for each in thresholds} == {"LFW view 1, people of DevTrain"}
    assert mini.card.impostor_tail.people == 2_132


def test_the_readme_of_the_weights_repeats_the_card(mini):
    page = " ".join((WEIGHTS / "README.md").read_text().split())
    assert f"{mini.card.accuracy[0].value:.2%}" in page
    assert all(limit in page for limit in mini.card.limits)
    assert mini.card.training_data in page


def test_mini_tells_drawn_people_apart_whom_it_has_never_seen(mini):
    people = SyntheticPeople(seed=11)
    faces = np.stack([people.face(person, photo) for person in range(12) for photo in range(4)])
    features = mini.embed(faces)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    left, right = np.triu_indices(len(faces), k=1)
    assert auc(left // 4 == right // 4, (unit @ unit.T)[left, right]) > 0.75


@needs_faces
def test_mini_recognises_real_people(mini):
    """A tenth of view 1: too few pairs for an accuracy to publish, enough to see a wrong colour or crop."""
    pairs = [pair for part in ("Train", "Test") for pair in read_pairs(FACES / f"pairsDev{part}.txt")[::10]]
    detector, faces = Detector("mtcnn", threads=1), {}
    for path in sorted({path for pair in pairs for path in (pair.left, pair.right)}):
        photo = read_photo(FACES / "lfw-dev" / path)
        faces[path] = align(photo, choose(detector.detect(photo), photo).landmarks[0])
    features = dict(zip(faces, mini.embed(np.stack(list(faces.values()))), strict=True))
    left, right = (np.stack([features[getattr(pair, side)] for pair in pairs]) for side in ("left", "right"))
    same, tested = np.array([pair.same for pair in pairs]), np.arange(len(pairs)) >= 220
    assert verify_held_out(left, right, same, tested).correct.mean() >= 0.94


def test_the_published_results_are_those_of_the_installed_file(mini):
    found = json.loads((WEIGHTS.parent / "results" / "mini.json").read_text())["model"]
    assert found["statistics"]["mini"]["accuracy"] == mini.card.accuracy[0].value
    assert re.search(rf"{found['statistics']['teacher']['accuracy']:.2%}", (WEIGHTS / "README.md").read_text())
    assert card_of("sface").teacher == ""
