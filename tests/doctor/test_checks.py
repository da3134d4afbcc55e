"""The checks notice what is wrong: each is given something broken, beside what is sound."""

import math

import pytest
import torch

from sphereface.doctor import devices, parity, resuming, sharding
from sphereface.doctor.devices import BFLOAT16, FLOAT16, FLOAT32, TF32, precisions, tf32
from sphereface.doctor.findings import Check, find
from sphereface.losses.classifier import Classifier
from sphereface.training import learner
from sphereface.training.precision import LossScale

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def nothing_remembered():
    for remembering in (parity.passed, parity.learned):
        remembering.cache_clear()


def verdict(run):
    found = find(Check("this", run))
    assert found.measured is not None, found.note
    return found.verdict


def test_float16_keeps_its_limits_where_it_can_be_tried_at_all():
    for check in (parity.network_features, parity.network_gradients, parity.training_parity):
        assert verdict(lambda check=check: check(CPU, FLOAT16)) == "PASS"
    for name in ("a_softmax", "cosface", "sphereface2"):
        assert verdict(lambda name=name: parity.loss_parity(name, CPU, FLOAT16)) == "PASS"


@pytest.mark.parametrize("how", [FLOAT32, BFLOAT16], ids=lambda how: how.name)
def test_a_loss_that_is_not_computed_in_float32_is_noticed(monkeypatch, how):
    assert verdict(lambda: parity.loss_parity("cosface", CPU, how)) == "PASS"

    def narrow(self, features):
        return features.dtype if features.dtype == torch.float64 else torch.bfloat16

    monkeypatch.setattr(Classifier, "dtype_for", narrow)
    assert verdict(lambda: parity.loss_parity("cosface", CPU, how)) == "FAIL"


def test_a_network_that_computes_in_less_than_its_precision_is_noticed():
    rough = parity.passed(CPU, BFLOAT16)
    true = parity.passed(CPU, None)
    assert FLOAT32.features < FLOAT16.features < parity.distance([rough.features], [true.features]) < BFLOAT16.features
    assert FLOAT32.gradients < parity.distance(rough.gradients, true.gradients) < BFLOAT16.gradients


def test_a_factor_that_stays_in_the_gradient_is_noticed(monkeypatch):
    monkeypatch.setattr(LossScale, "unscale_", lambda self, gradients: None)
    assert verdict(lambda: parity.network_gradients(CPU, FLOAT16)) == "FAIL"
    assert verdict(lambda: parity.training_parity(CPU, FLOAT16)) == "FAIL"


def test_a_number_that_is_none_is_far_from_every_other():
    assert math.isnan(parity.distance([torch.tensor([math.nan, 1.0])], [torch.ones(2)]))
    assert parity.distance([torch.ones(2), torch.zeros(1)], [torch.ones(2), torch.zeros(1)]) == 0


def test_a_resumed_run_that_forgot_its_momentum_is_noticed(monkeypatch, tmp_path):
    assert verdict(lambda: resuming.resume_parity(CPU, FLOAT32, tmp_path / "sound")) == "PASS"
    monkeypatch.setattr(learner, "unpack_optimizer", lambda *_, **__: None)
    assert verdict(lambda: resuming.resume_parity(CPU, FLOAT32, tmp_path / "broken")) == "FAIL"


def test_shards_that_learn_something_else_are_noticed(monkeypatch, tmp_path):
    monkeypatch.setattr(sharding, "CONFIG", sharding.CONFIG.changed(lr=0.0501))  # here, and not in their processes
    assert verdict(lambda: sharding.sharding_parity("cpu", tmp_path)) == "FAIL"


def test_under_torchrun_it_says_that_it_starts_its_own_processes(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="run it without torchrun"):
        devices.choose("cpu")


def test_two_gpus_are_asked_for_only_where_there_are_two():
    names = [check.name for check in sharding.checks(torch.device("cuda"), None)]
    assert names == ["sharding, nccl on cuda", "sharding, gloo on cpu"]
    if torch.cuda.device_count() < 2:
        found = find(next(iter(sharding.checks(torch.device("cuda"), None))))
        assert found.verdict == "SKIP"
        assert "wanted 2" in found.note


def test_a_precision_is_checked_or_it_is_said_why_not():
    skipped = [find(check) for check in devices.checks(CPU)]
    assert precisions(CPU) == [FLOAT32, BFLOAT16]
    assert [finding.name for finding in skipped] == [TF32.name, FLOAT16.name]
    assert all(finding.verdict == "SKIP" and finding.note for finding in skipped)


@pytest.mark.parametrize("allowed", [True, False])
def test_tensor_float_is_switched_for_a_while_only(allowed):
    def switches():
        return torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32

    before = switches()
    with tf32(allowed):
        assert switches() == (allowed, allowed)
    assert switches() == before


def test_examining_leaves_the_random_numbers_of_the_caller_alone():
    state = torch.get_rng_state()
    parity.training_parity(CPU, FLOAT32)
    parity.loss_parity("softmax", CPU, FLOAT32)
    assert torch.equal(torch.get_rng_state(), state)
