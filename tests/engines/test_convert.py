"""Our networks as ONNX: written without torch, equal to what torch computes, kept once."""

import subprocess
import sys

import numpy as np
import onnx
import pytest
from safetensors.numpy import load, save

from sphereface.contract import Card, Preprocessing, read_card
from sphereface.engines.choice import choose_engine, open_network
from sphereface.engines.convert import as_onnx, cache_folder, convert
from sphereface.errors import ModelFileError
from sphereface.zoo import ModelFile
from tests.engines.networks import run_slowly, write_network

DEPTHS = ["sphereface4", "sphereface10", "sphereface20", "sphereface36", "sphereface64", "sphereface64_caffe"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPHEREFACE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def inputs():
    return np.random.default_rng(1).uniform(-1, 1, (3, 3, 112, 96)).astype(np.float32)


def relative(features, expected):
    return np.abs(features - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("norm", [None, "batch", "batch-all"])
@pytest.mark.parametrize("last_relu", [False, True])
@pytest.mark.parametrize("units", [(0, 0, 0, 0), (0, 1, 2, 0)])
def test_the_graph_computes_what_the_layers_do_one_by_one(tmp_path, inputs, units, norm, last_relu):
    path = tmp_path / "m.safetensors"
    tensors = write_network(path, units=units, norm=norm, last_relu=last_relu)
    features = open_network(ModelFile(path), "onnxruntime", threads=1).run(inputs)
    assert relative(features, run_slowly(tensors, inputs, last_relu=last_relu)) < 1e-5
    assert (features.min() < 0) != last_relu


@pytest.mark.parametrize("norm", [None, "batch", "batch-all"])
@pytest.mark.parametrize("name", DEPTHS)
def test_every_depth_equals_torch(tmp_path, inputs, name, norm):
    torch = pytest.importorskip("torch")
    from sphereface.models import create_model, save_model

    net = create_model(name, features=16, width=0.05, norm=norm, last_relu=name == "sphereface10")
    for tensor in net.state_dict().values():  # away from the initial values, under which units hardly count
        if tensor.is_floating_point():
            tensor.add_(torch.randn_like(tensor) * 0.03)
    save_model(net, tmp_path / "m.safetensors")
    file = ModelFile(tmp_path / "m.safetensors")
    ours, theirs = (open_network(file, engine, threads=1) for engine in ("onnxruntime", "torch"))
    assert ours.size == theirs.size
    assert relative(ours.run(inputs), theirs.run(inputs)) < 1e-4
    with torch.no_grad():
        assert relative(theirs.run(inputs), net.eval()(torch.from_numpy(inputs)).numpy()) < 1e-5


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_weights_of_any_precision_are_read(tmp_path, inputs, dtype):
    tensors = write_network(tmp_path / "m.safetensors", dtype=dtype)
    features = open_network(ModelFile(tmp_path / "m.safetensors"), "onnxruntime", threads=1).run(inputs)
    assert relative(features, run_slowly(tensors, inputs)) < 1e-5


def test_bfloat16_is_the_upper_half_of_a_float(tmp_path, inputs):
    torch = pytest.importorskip("torch")
    from sphereface.models import create_model, save_model

    net = create_model("sphereface4", features=8, width=0.05).bfloat16()
    save_model(net, tmp_path / "m.safetensors")
    features = open_network(ModelFile(tmp_path / "m.safetensors"), "onnxruntime", threads=1).run(inputs)
    with torch.no_grad():
        assert relative(features, net.float()(torch.from_numpy(inputs)).numpy()) < 1e-4


def test_the_file_is_sound_onnx_with_the_card_and_a_free_batch(tmp_path):
    path = tmp_path / "m.safetensors"
    write_network(path, units=(0, 1, 2, 0), norm="batch", preprocessing=Preprocessing(colour="BGR"))
    model = onnx.load_from_string(as_onnx(ModelFile(path)))
    onnx.checker.check_model(model, full_check=True)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert Card.model_validate_json(model.metadata_props[0].value) == read_card(path)
    assert "BatchNormalization" not in {node.op_type for node in model.graph.node}


def test_a_model_is_converted_once_and_another_one_again(tmp_path, cache):
    path = tmp_path / "m.safetensors"
    write_network(path)
    first = as_onnx(ModelFile(path))
    (kept,) = cache.iterdir()
    assert kept.read_bytes() == first
    kept.write_bytes(b"from the cache")
    assert as_onnx(ModelFile(path)) == b"from the cache"
    write_network(path, features=7)
    assert as_onnx(ModelFile(path)) not in (first, b"from the cache")
    assert len(list(cache.iterdir())) == 2


def test_a_cache_that_cannot_be_written_is_no_hindrance(tmp_path, cache):
    write_network(tmp_path / "m.safetensors")
    cache.write_text("a file where the folder should be")
    assert onnx.load_from_string(as_onnx(ModelFile(tmp_path / "m.safetensors"))).graph.name == "sphereface4"


def test_the_cache_is_the_users_own_unless_told(monkeypatch, tmp_path):
    monkeypatch.delenv("SPHEREFACE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "sphereface"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "sphereface"


def _changed(content, change):
    tensors = load(content)
    change(tensors)
    return save(tensors)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda tensors: tensors.pop("fc1.bias"), "fc1.bias"),
        (lambda tensors: tensors.pop("stages.6.weight"), "stages.6.weight"),  # a slope
        (lambda tensors: tensors.pop("stages.4.body.2.weight"), "stages.4.body"),
        (lambda tensors: tensors.update({"stages.5.weight": np.zeros((4, 9, 3, 3), "f")}), r"\(4, 3, 3, 3\)"),
        (lambda tensors: tensors.update({"classifier": np.zeros(3, "f")}), "classifier"),
        (lambda tensors: tensors.update({"fc1.bias": np.zeros(6, np.int32)}), "I32"),
        (lambda tensors: tensors.update({"stages.1.running_mean": np.zeros(2, "f")}), "norm"),
    ],
)
def test_tensors_that_do_not_fit_are_named(tmp_path, change, named):
    path = tmp_path / "m.safetensors"
    write_network(path, units=(0, 1, 2, 0))
    with pytest.raises(ModelFileError, match=named):
        convert(_changed(path.read_bytes(), change), read_card(path), source="m.safetensors")


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("sphereface4", "stages of 0, 1, 2, 0 residual units, where sphereface4 has 0, 0, 0, 0: weights and card"),
        ("sphereface20", "stages of 0, 1, 2, 0 residual units, where sphereface20 has 1, 2, 4, 1: weights and card"),
        ("sphereface5", "its card names 'sphereface5'; this version knows sphereface4, sphereface10"),
    ],
)
def test_a_card_that_names_a_network_of_another_depth_is_refused(tmp_path, named, said):
    path = tmp_path / "m.safetensors"
    write_network(path, units=(0, 1, 2, 0))
    card = read_card(path)
    assert convert(path.read_bytes(), card, source="m.safetensors")
    other = card.model_copy(update={"architecture": card.architecture.model_copy(update={"name": named})})
    with pytest.raises(ModelFileError, match=rf"^m.safetensors: {said}"):
        convert(path.read_bytes(), other, source="m.safetensors")


def test_a_broken_file_is_a_clear_error(tmp_path):
    path = tmp_path / "m.safetensors"
    write_network(path)
    with pytest.raises(ModelFileError, match=r"not a whole \.safetensors"):
        convert(path.read_bytes()[:-5], read_card(path), source="m.safetensors")
    with pytest.raises(ModelFileError, match="no architecture"):
        convert(path.read_bytes(), Card(), source="m.safetensors")
    with pytest.raises(ModelFileError, match="no such model file"):
        as_onnx(ModelFile(tmp_path / "n.safetensors"))


def test_engines_are_chosen_by_name_file_and_device():
    assert choose_engine("m.onnx") == choose_engine("m.safetensors") == "onnxruntime"
    assert choose_engine("m.safetensors", device="cuda:1") == choose_engine("m.safetensors", "torch") == "torch"
    with pytest.raises(ValueError, match="choose one of auto, onnxruntime, torch"):
        choose_engine("m.onnx", "tensorflow")
    with pytest.raises(ValueError, match=r"torch runs our \.safetensors only"):
        choose_engine("m.onnx", "torch")
    with pytest.raises(ValueError, match="onnxruntime runs on the cpu"):
        choose_engine("m.onnx", "onnxruntime", device="cuda")
    with pytest.raises(ModelFileError, match=r"wanted an \.onnx"):
        choose_engine("m.pth")


def test_where_torch_is_missing_onnxruntime_runs_our_models_and_torch_says_so(tmp_path):
    write_network(tmp_path / "m.safetensors")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np\n"
        "from sphereface.embed.embedder import Embedder\n"
        "print(Embedder.load(sys.argv[1]).embed(np.zeros((2, 112, 96, 3), np.uint8)).shape)\n"
        "Embedder.load(sys.argv[1], 'torch')"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "m.safetensors")], capture_output=True, text=True, check=False
    )
    assert ran.stdout.strip() == "(2, 12)"
    assert "ImportError: the engine torch needs torch" in ran.stderr
