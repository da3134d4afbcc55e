"""A model is one file; a wrong, truncated or foreign file is a clear error."""

import json
import os
import pickle

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from sphereface import create_model
from sphereface.contract import METADATA_KEY, Card, Preprocessing, Threshold, read_card
from sphereface.errors import ModelFileError
from sphereface.models import load_model, save_model


def small(**options):
    return create_model("sphereface10", width=0.0625, features=8, **options)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.safetensors"
    save_model(small(), path)
    return path


@pytest.mark.parametrize("options", [{}, {"norm": "batch"}, {"norm": "batch-all"}, {"last_relu": True}], ids=str)
def test_a_saved_network_comes_back_bit_for_bit(tmp_path, options):
    net = small(**options).eval()
    save_model(net, tmp_path / "a.safetensors")
    other = load_model(tmp_path / "a.safetensors")
    faces = torch.randn(2, 3, 112, 96)
    assert torch.equal(net(faces), other(faces))
    assert other.architecture == net.architecture
    assert not other.training
    assert all(parameter.requires_grad for parameter in other.parameters())


def test_the_card_travels_in_the_file(tmp_path):
    card = Card(
        name="mine",
        preprocessing=Preprocessing(template="matlab", colour="BGR"),
        thresholds=(Threshold(score=0.3, far=1e-3, measured_on="LFW"),),
        licences={"weights": "CC0-1.0"},
    )
    save_model(small(), tmp_path / "a.safetensors", card)
    found = read_card(tmp_path / "a.safetensors")
    assert found == card.model_copy(update={"architecture": small().architecture})


def test_channels_last_weights_are_saved_as_they_are(tmp_path):
    net = small().eval().to(memory_format=torch.channels_last)
    save_model(net, tmp_path / "a.safetensors")
    faces = torch.randn(1, 3, 112, 96)
    torch.testing.assert_close(load_model(tmp_path / "a.safetensors")(faces), net(faces), rtol=1e-4, atol=1e-5)


def test_saving_leaves_nothing_but_the_file_and_replaces_it_whole(saved):
    before = saved.read_bytes()
    save_model(small(), saved)
    assert os.listdir(saved.parent) == [saved.name]
    assert saved.read_bytes() != before


def test_a_failed_save_keeps_the_old_file_and_leaves_no_litter(saved, monkeypatch):
    before = saved.read_bytes()

    def disk_full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", disk_full)
    with pytest.raises(OSError, match="No space"):
        save_model(small(), saved)
    assert os.listdir(saved.parent) == [saved.name]
    assert saved.read_bytes() == before


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ModelFileError, match="no such model file"):
        load_model(tmp_path / "absent.safetensors")


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 100, 0.5, -1])
def test_a_truncated_file_is_an_error_that_says_so(saved, keep):
    data = saved.read_bytes()
    saved.write_bytes(data[: int(keep * len(data)) if isinstance(keep, float) else keep])
    with pytest.raises(ModelFileError, match=r"not a whole \.safetensors file"):
        load_model(saved)


@given(st.binary(max_size=300))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_bytes_are_an_error_and_nothing_else(tmp_path, data):
    path = tmp_path / "random.safetensors"
    path.write_bytes(data)
    with pytest.raises(ModelFileError):
        load_model(path)


def test_a_pickle_is_refused_and_not_run(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "exploded"),))

    path = tmp_path / "model.safetensors"
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ModelFileError):
        load_model(path)
    assert not (tmp_path / "exploded").exists()


def test_foreign_safetensors_are_refused_with_the_way_out(tmp_path):
    path = tmp_path / "foreign.safetensors"
    save_file({"weight": torch.zeros(3)}, path)
    with pytest.raises(ModelFileError, match="without a sphereface card"):
        load_model(path)


def with_card(path, change):
    tensors, card = load_file(path), json.loads(read_card(path).model_dump_json())
    change(tensors, card)
    save_file(tensors, path, metadata={METADATA_KEY: json.dumps(card)})


def test_an_unknown_key_in_the_card_is_named(saved):
    with_card(saved, lambda _, card: card.update(colour_space="HSV"))
    with pytest.raises(ModelFileError, match="bad colour_space"):
        load_model(saved)


def test_an_unknown_architecture_names_the_known_ones(saved):
    with_card(saved, lambda _, card: card["architecture"].update(name="resnet50"))
    with pytest.raises(ModelFileError, match="'resnet50'; this version takes sphereface4"):
        load_model(saved)


def test_a_card_without_architecture_is_no_network(saved):
    with_card(saved, lambda _, card: card.update(architecture=None))
    with pytest.raises(ModelFileError, match="no architecture"):
        load_model(saved)


@pytest.mark.parametrize("change", ["missing", "extra", "shape"])
def test_weights_that_do_not_fit_their_card_are_named(saved, change):
    def spoil(tensors, _):
        if change == "missing":
            del tensors["fc1.bias"]
        elif change == "extra":
            tensors["fc2.bias"] = torch.zeros(3)
        else:
            tensors["fc1.bias"] = torch.zeros(9)

    with_card(saved, spoil)
    with pytest.raises(ModelFileError, match=r"fc[12]\.bias.*do not belong together"):
        load_model(saved)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_network_is_saved_as_itself(tmp_path):
    net = small().eval()
    save_model(torch.compile(net), tmp_path / "a.safetensors")
    faces = torch.randn(1, 3, 112, 96)
    assert torch.equal(load_model(tmp_path / "a.safetensors")(faces), net(faces))


def test_another_module_is_refused(tmp_path):
    with pytest.raises(ValueError, match="network is a Linear; wanted a SphereFaceNet"):
        save_model(torch.nn.Linear(2, 2), tmp_path / "a.safetensors")


@pytest.mark.parametrize("dtype", [torch.int64, torch.float16])
def test_weights_of_mixed_types_are_refused(saved, dtype):
    with_card(saved, lambda tensors, _: tensors.update({"fc1.bias": tensors["fc1.bias"].to(dtype)}))
    with pytest.raises(ModelFileError, match="one floating-point type"):
        load_model(saved)


def test_an_absurd_width_is_refused(saved):
    with_card(saved, lambda _, card: card["architecture"].update(width=1e9))
    with pytest.raises(ModelFileError, match=r"bad architecture\.width"):
        load_model(saved)


def test_a_model_file_has_one_ending(tmp_path):
    with pytest.raises(ValueError, match=r"\.safetensors"):
        save_model(small(), tmp_path / "model.pth")
