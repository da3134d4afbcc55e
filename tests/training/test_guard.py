"""The guard knows a lost run from one that learns slowly."""

import math

import numpy as np
import pytest
import torch

from sphereface.errors import JobFailed
from sphereface.losses import create_loss
from sphereface.losses.classifier import sample_classes
from sphereface.models import create_model, save_model
from sphereface.training.config import GuardConfig
from sphereface.training.guard import Guard
from tests.training.conftest import TINY, run


def verdict(losses, classes=1000, window=200):
    guard = Guard(GuardConfig(window=window), classes)
    for step, loss in enumerate(losses):
        lost = guard.watch(step, float(loss))
        if lost:
            return lost
    return None


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_is_noticed_at_once(bad):
    lost = verdict([6.9, 5.0, bad, 4.0])
    assert lost.good_until == 1
    assert "at step 2" in lost.reason


def test_a_gradient_that_is_no_number_is_noticed_at_once():
    lost = Guard(GuardConfig(), 10).watch(7, 1.0, math.nan)
    assert lost.good_until == 6
    assert "gradient" in lost.reason


@pytest.mark.parametrize(("height", "name"), [(math.log(1000), "log K"), (87.3365, "FLT_MIN")])
def test_a_standstill_is_noticed_after_the_window_and_not_before(height, name):
    rng = np.random.default_rng(0)
    lost = verdict(height + rng.normal(0, 1e-3 * height, 1000))
    assert name in lost.reason
    assert lost.good_until == -1  # all 200 steps of the window were spent there
    assert verdict(height + rng.normal(0, 1e-3 * height, 199)) is None


def test_a_run_that_learned_and_then_fell_back_is_known_by_its_last_good_step():
    falling = np.linspace(6.9, 3, 500)
    lost = verdict([*falling, *np.full(400, math.log(1000))])
    assert 490 <= lost.good_until <= 501


def test_a_slow_start_near_log_k_is_left_alone():
    rng = np.random.default_rng(0)
    slow = math.log(1000) * (1 - 1e-5 * np.arange(2000)) + rng.normal(0, 0.01, 2000)
    assert verdict(slow) is None


def test_a_low_plateau_is_a_finished_run():
    assert verdict(np.full(2000, 0.3)) is None
    assert verdict(np.full(2000, 3.2)) is None


def test_losses_without_a_known_height_are_judged_by_numbers_only():
    assert verdict(np.full(500, math.log(1000)), classes=None) is None


@pytest.mark.parametrize(("sample", "shards"), [(0.1, 1), (0.25, 3), (0.1, 7), (1.0, 2)])
def test_a_sample_is_as_large_as_the_guard_thinks(sample, shards):
    """Counted from samples that the losses of all processes really draw."""
    classes, batch = 1000, 9
    losses = [create_loss("a_softmax", 2, classes, sample=sample, shard=(rank, shards)) for rank in range(shards)]
    for _ in range(20):
        labels = torch.randint(classes, (batch,))
        drawn = [
            sample_classes(labels[(labels >= first) & (labels < end)] - first, end - first, sample)
            for first, end in (loss.rows for loss in losses)
        ]
        assert sum(map(len, drawn)) == losses[0].compared(batch)


def test_a_sample_that_depends_on_the_people_of_a_batch_has_no_known_height():
    assert create_loss("a_softmax", 2, 1000, sample=0.1).compared(101) is None
    assert create_loss("a_softmax", 2, 1000, sample=0.1, shard=(0, 10)).compared(11) is None
    assert create_loss("a_softmax", 2, 1000).compared(5000) == 1000


def test_a_run_that_stands_at_log_of_its_sample_is_lost(faces, tmp_path):
    net = create_model("sphereface4", width=0.02, features=4)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()  # features of no length; a rate of next to nothing leaves them there
    save_model(net, tmp_path / "collapsed.safetensors")
    config = TINY.changed(
        width=0.02, features=4, batch=4, steps=230, milestones=(), loss_options={"m": 3, "sample": 0.5},
        lr=1e-12, checkpoint_every=1000, guard={"rollbacks": 0},
    )  # fmt: skip
    with pytest.raises(JobFailed, match=r"loss stood at log K = 1\.386 for 200 steps"):  # log 4, of 8 people
        run(faces, tmp_path / "run", config, init=tmp_path / "collapsed.safetensors")


def test_after_a_rollback_the_window_begins_anew():
    guard = Guard(GuardConfig(), 10)
    for step in range(199):
        assert guard.watch(step, math.log(10)) is None
    guard.forget()
    for step in range(199):
        assert guard.watch(step, math.log(10)) is None
    assert guard.watch(199, math.log(10)) is not None
