"""A download is kept if it is the model that was asked for; all else is refused with nothing kept."""

import hashlib

import pytest

from sphereface.cli import main
from sphereface.contract import METADATA_KEY
from sphereface.errors import ModelFileError, UserError
from sphereface.graphs import with_metadata
from sphereface.zoo import ModelFile, pull
from sphereface.zoo.cards import ENTRIES
from tests.engines.networks import write_network
from tests.evaluation.networks import tiles

URL = "https://models.example/m.onnx"


@pytest.fixture(autouse=True)
def models(tmp_path, monkeypatch):
    """An empty folder of downloaded models."""
    monkeypatch.setenv("SPHEREFACE_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


def serve(monkeypatch, content):
    """Let `download` write this content; that it checks SHA-256 and addresses is tested in tests/test_downloads.py."""

    def download(url, target, *, sha256, **_):
        assert hashlib.sha256(content).hexdigest() == sha256
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        return target

    monkeypatch.setattr("sphereface.zoo.pulling.download", download)
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("kind", ["onnx", "safetensors"])
def test_a_pulled_model_is_a_model_of_that_url(tmp_path, monkeypatch, models, kind):
    made = tmp_path / f"m.{kind}"
    (tiles if kind == "onnx" else write_network)(made)
    sha256 = serve(monkeypatch, made.read_bytes())
    path = pull(f"https://models.example/m.{kind}", sha256=sha256.upper())
    assert path == models / f"m-{sha256[:16]}.{kind}"
    assert ModelFile(path).card == ModelFile(made).card
    assert pull(f"https://models.example/m.{kind}#sha256={sha256}") == path


@pytest.mark.parametrize("name", ["m.onnx", "m.safetensors"])
def test_a_file_that_is_no_model_is_not_kept(monkeypatch, models, name):
    sha256 = serve(monkeypatch, b"no model")
    with pytest.raises(ModelFileError, match="nothing was kept"):
        pull(f"https://models.example/{name}", sha256=sha256)
    assert list(models.iterdir()) == []


def test_a_model_with_values_in_another_file_is_not_kept(tmp_path, monkeypatch, models):
    import onnx

    tiles(tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    tensor = model.graph.initializer.add(name="w", data_type=onnx.TensorProto.FLOAT, dims=[1])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    sha256 = serve(monkeypatch, model.SerializeToString())
    with pytest.raises(ModelFileError, match="in another file"):
        pull(URL, sha256=sha256)
    assert list(models.iterdir()) == []


def test_a_known_model_is_asked_for_by_its_own_checksum(tmp_path, monkeypatch):
    tiles(tmp_path / "m.onnx")
    content = with_metadata((tmp_path / "m.onnx").read_bytes(), METADATA_KEY, None)
    asked = []
    monkeypatch.setattr(
        "sphereface.zoo.pulling.download", lambda url, target, **how: asked.append((url, how["sha256"]))
    )
    with pytest.raises(FileNotFoundError):  # nothing was written
        pull("sphere20")
    assert asked == [tuple(ENTRIES["sphere20"].download)]
    with pytest.raises(UserError, match="the sphere20 that we know has c02878cf658eb186"):
        pull("sphere20", sha256=hashlib.sha256(content).hexdigest())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([URL], "needs the SHA-256 of its file"),
        ([URL, "--sha256", "abc"], "is not a SHA-256"),
        (["http://models.example/m.onnx", "--sha256", "0" * 64], "wanted an https:// URL"),
        (["https://models.example/m.pth", "--sha256", "0" * 64], "ends in .onnx or .safetensors"),
        (["https://127.0.0.1/m.onnx", "--sha256", "0" * 64], "wanted a public address"),
        (["sfaec"], "unknown model 'sfaec'"),
    ],
)
def test_what_cannot_be_pulled_is_one_line_and_nothing_is_kept(arguments, said, capsys, models):
    with pytest.raises(SystemExit) as ended:
        main(["models", "pull", *arguments])
    error = capsys.readouterr().err.strip()
    assert ended.value.code in (1, 2)
    assert said in error.splitlines()[-1]
    assert not models.is_dir() or list(models.iterdir()) == []
