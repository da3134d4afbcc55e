"""The engine torch leaves torch as it was."""

import threading

import numpy as np
import pytest

from sphereface.engines.choice import open_network
from sphereface.zoo import ModelFile

torch = pytest.importorskip("torch")


@pytest.fixture
def file(tmp_path):
    from sphereface.models import create_model, save_model

    save_model(create_model("sphereface4", features=4, width=0.03), tmp_path / "m.safetensors")
    return ModelFile(tmp_path / "m.safetensors")


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield 3
    torch.set_num_threads(before)


def test_a_number_of_threads_is_in_force_while_a_network_runs_and_at_no_other_time(file, threads):
    found = []
    for number in (2, None):
        network = open_network(file, "torch", threads=number)
        assert torch.get_num_threads() == threads
        network._net.register_forward_hook(lambda *_: found.append(torch.get_num_threads()))
        network.run(np.zeros((1, 3, 112, 96), np.float32))
        assert torch.get_num_threads() == threads
    assert found == [2, threads]


def test_the_number_is_restored_after_an_error(file, threads):
    network = open_network(file, "torch", threads=1)
    with pytest.raises(ValueError, match="wanted"):
        network.run(np.zeros((1, 3, 5, 5), np.float32))
    assert torch.get_num_threads() == threads


def test_networks_that_run_side_by_side_leave_the_number_as_it_was(file, threads):
    networks = [open_network(file, "torch", threads=number) for number in (1, 2)]
    faces = np.zeros((1, 3, 112, 96), np.float32)
    seen = {1: set(), 2: set()}
    for number, network in zip(seen, networks, strict=True):
        network._net.register_forward_hook(lambda *_, at=number: seen[at].add(torch.get_num_threads()))
    runners = [threading.Thread(target=lambda net=net: [net.run(faces) for _ in range(20)]) for net in networks]
    for each in runners:
        each.start()
    for each in runners:
        each.join()
    assert seen == {1: {1}, 2: {2}}
    found = []
    new = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    new.start()
    new.join()
    assert (found, torch.get_num_threads()) == ([threads], threads)
