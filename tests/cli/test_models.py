"""sphereface models: a card shown, and calibrated on faces and on features, where torch is missing."""

import hashlib
import json
import sys

import numpy as np
import pytest

from sphereface.cli import main
from sphereface.contract import Card, Preprocessing, read_card
from sphereface.embed.embedder import Embedder
from sphereface.embed.run import embed_set
from sphereface.embed.store import Part, open_features
from sphereface.evaluation.calibration.measure import calibrate
from tests.embed.sets import write_faces
from tests.engines.networks import write_network
from tests.evaluation.networks import tiles

PEOPLE = 26  # the fewest who show a rate of 0.1


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    return write_faces(tmp_path_factory.mktemp("given") / "faces", people=PEOPLE, photos=2)


@pytest.fixture(autouse=True)
def _without_torch(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setenv("SPHEREFACE_CACHE", str(tmp_path / "cache"))


def run(capsys, *arguments):
    """Exit code, standard output and standard error of a verb."""
    try:
        main([str(each) for each in arguments])
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.parametrize("kind", ["onnx", "safetensors"])
def test_a_model_is_calibrated_on_faces_as_the_library_does_it_by_hand(faces, tmp_path, capsys, kind):
    path = tmp_path / f"model.{kind}"
    if kind == "onnx":
        tiles(path)
    else:
        write_network(path, name="ours")
    embedder = Embedder.load(path, threads=1)
    features = open_features(embed_set(faces, tmp_path / "by-hand", embedder).folder)
    expected = calibrate(
        np.array(features.rows), features.labels, fars=[0.1], fpirs=[0.9], gallery_sizes=[2], rounds=20,
        measured_on="faces",
    )  # fmt: skip
    arguments = ("--far", 0.1, "--fpir", 0.9, "--gallery-size", 2, "--rounds", 20, "--threads", 1, "--json")
    code, out, said = run(capsys, "models", "calibrate", path, faces, *arguments)
    assert code == 0, said
    payload = json.loads(out)
    assert (payload["model"], payload["photos"]) == (str(path), 2 * PEOPLE)
    assert payload["thresholds"] == [each.model_dump(mode="json") for each in expected.thresholds]
    assert Embedder.load(path, threads=1).card == expected.card(embedder.card)
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


def test_features_of_a_model_calibrate_it_again_and_again_but_no_other(faces, tmp_path, capsys):
    path, other = tmp_path / "model.onnx", tmp_path / "other.onnx"
    embedder = tiles(path)
    for number in (1, 2):
        embed_set(faces, tmp_path / "features", embedder, part=Part(number=number, of=2))
    other.write_bytes(path.read_bytes().replace(b"tiles", b"files"))  # the same card but for its name
    for far in (0.1, 0.2):  # the file has another hash by the second time
        code, _, said = run(capsys, "models", "calibrate", path, tmp_path / "features", "--far", far, "--rounds", 5)
        assert code == 0, said
        assert [each.far for each in Embedder.load(path, threads=1).card.thresholds] == [far]
    whole = other.read_bytes()
    code, out, said = run(capsys, "models", "calibrate", other, tmp_path / "features", "--far", 0.1, "--rounds", 5)
    assert (code, out, said.count("\n")) == (2, "", 1)
    assert "made by another file" in said
    assert other.read_bytes() == whole


def test_the_same_card_on_other_weights_is_another_model(faces, tmp_path, capsys):
    path, other = tmp_path / "model.safetensors", tmp_path / "other.safetensors"
    write_network(path, name="ours", channels=(2, 2, 2, 2))
    write_network(other, name="ours", channels=(2, 2, 2, 3))
    assert read_card(path) == read_card(other)
    embed_set(faces, tmp_path / "features", Embedder.load(path, threads=1))
    for model, wanted in ((path, 0), (other, 2), (path, 0)):
        code, _, said = run(capsys, "models", "calibrate", model, tmp_path / "features", "--far", 0.1, "--rounds", 5)
        assert code == wanted, said
    assert read_card(other).thresholds == ()


def test_a_copy_leaves_the_model_as_it_was(faces, tmp_path, capsys):
    path, copy = tmp_path / "model.onnx", tmp_path / "copy.onnx"
    tiles(path)
    before = path.read_bytes()
    arguments = ("--far", 0.1, "--rounds", 5, "--measured-on", "our people", "--out", copy)
    code, out, said = run(capsys, "models", "calibrate", path, faces, *arguments)
    assert code == 0, said
    assert out.startswith(f"our people: {PEOPLE} people, {2 * PEOPLE} photos")
    assert path.read_bytes() == before
    card = Embedder.load(copy, threads=1).card
    assert card.thresholds[0].measured_on == "our people"
    assert f"{card.thresholds[0].score:.4f}" in out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--far", "0.01"), "26 people cannot show it, it takes 78"),
        ((), "show none of the usual rates"),
        (("--far", "0.1", "--fpir", "0.01", "--gallery-size", "100"), "FPIR 0.01 with a gallery of 100: 26 people"),
        (("--far", "0.1", "--fpir", "0.01"), "--fpir without --gallery-size; wanted the size of the gallery"),
        (("--far", "0.1", "--out", "copy.safetensors"), "wanted a name that ends in .onnx"),
        (("--far", "0.1", "--out", "nowhere/copy.onnx"), "there is no folder"),
    ],
    ids=str,
)
def test_what_is_refused_is_one_line_exit_code_two_and_nothing_written(
    faces, tmp_path, capsys, monkeypatch, arguments, named
):
    monkeypatch.chdir(tmp_path)
    tiles(tmp_path / "model.onnx")
    before = hashlib.sha256((tmp_path / "model.onnx").read_bytes()).digest()
    code, out, said = run(capsys, "models", "calibrate", "model.onnx", faces, *arguments)
    assert (code, out) == (2, "")
    last = said.splitlines()[-1]
    assert last.startswith("sphereface: ")
    assert named in last
    assert "embedding faces" not in said  # the refusal comes before the work
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    assert hashlib.sha256((tmp_path / "model.onnx").read_bytes()).digest() == before


def test_a_card_is_shown_as_text_and_as_itself(tmp_path, capsys):
    path = tmp_path / "model.safetensors"
    write_network(path, name="ours", preprocessing=Preprocessing(colour="BGR"), licences={"weights": "MIT"})
    code, out, _ = run(capsys, "models", "card", path, "--json")
    assert code == 0
    assert Card.model_validate_json(out) == read_card(path)
    code, out, _ = run(capsys, "models", "card", path)
    assert code == 0
    for part in ("ours", "sphereface4", "6 features", "BGR, (pixel - 127.5) / 128", "concatenated", "weights: MIT"):
        assert part in out
    assert "none: measure some with sphereface models calibrate" in out


def test_a_calibrated_card_shows_its_thresholds(faces, tmp_path, capsys):
    tiles(tmp_path / "model.onnx")
    assert run(capsys, "models", "calibrate", tmp_path / "model.onnx", faces, "--far", 0.2, "--rounds", 5)[0] == 0
    card = Embedder.load(tmp_path / "model.onnx", threads=1).card
    _, out, _ = run(capsys, "models", "card", tmp_path / "model.onnx")
    assert f"threshold   {card.thresholds[0]}, measured on faces" in out
    assert f"FAR 0.2{'':27}{card.thresholds[0].score:>8.4f}" in out
    assert f"{PEOPLE} people, {2 * 2 * PEOPLE * (PEOPLE - 1) // 2:,} pairs of photos" in out


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("model.pt", b"x", "wanted an .onnx embedder with a card, or our .safetensors"),
        ("model.onnx", b"\x0f" * 40, "model.onnx: not an ONNX model"),
        ("model.onnx", b"", "model.onnx: not an ONNX model: it has no graph"),
        ("model.onnx", b"\x3a\x03\x12\x01g", "without a card; write model.onnx.card.json"),  # a graph called g
        ("model.safetensors", b"x" * 40, "not a whole .safetensors"),
        ("absent.onnx", None, "no such model file"),
    ],
)
def test_a_file_without_a_card_is_one_line_and_exit_code_two(tmp_path, capsys, name, content, named):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    code, out, said = run(capsys, "models", "card", tmp_path / name)
    assert (code, out, said.count("\n")) == (2, "", 1)
    assert named in said
