"""Half precision: where it runs, what overflows, and that all processes hear of it.

`train` takes float16 on no CPU; the rules of float16 do not depend on the device, so they are tried here by hand.
"""

import math
import platform
from pathlib import Path

import pytest
import torch

from sphereface import parallel
from sphereface.data.formats.sets import open_set
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.loading import prepare
from sphereface.training import precision
from sphereface.training.config import AnnealingConfig, GuardConfig, TrainConfig
from sphereface.training.guard import Guard
from sphereface.training.learner import build_learner
from sphereface.training.optimizer import named_parameters
from sphereface.training.precision import LossScale, has_bfloat16, precision_note
from sphereface.training.run import Run, spread, train
from sphereface.training.setting import Place, build_loader
from sphereface.training.step import learn
from sphereface.training.stopping import Stop
from sphereface.training.telling.log import read_log

CPU, CLASSES = torch.device("cpu"), 6
TINY = TrainConfig(
    model="sphereface4", width=0.05, features=16, batch=8, steps=12, milestones=(8,), lr=0.02, clip=5.0, ema=0.9,
    annealing=AnnealingConfig(gamma=0.5), loss_options={"m": 3}, checkpoint_every=6, keep=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faces") / "faces"
    SyntheticPeople(seed=1).write(folder, CLASSES, 4)
    return folder


def batch(seed=0, size=8):
    numbers = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (size, 3, 112, 96), dtype=torch.uint8, generator=numbers)
    return images, torch.randint(0, CLASSES, (size,), generator=numbers)


def a_step(learner, net=None, seed=0):
    return learn(net or learner.net, learner.loss, learner.optimizer, learner.scaler, *batch(seed), learner.config)


def weights(learner):
    both = {**learner.net.state_dict(), **{f"loss.{k}": v for k, v in learner.loss.state_dict().items() if v.ndim}}
    return {name: value.clone() for name, value in both.items()}


def momenta(learner):
    named, state = named_parameters(learner.net, learner.loss), learner.optimizer.state
    return {name: state[parameter]["momentum_buffer"].clone() for name, parameter in named.items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# Where it runs.


def test_bfloat16_trains_on_a_cpu_which_says_so_if_it_has_no_instructions_for_it(faces, tmp_path):
    said = []
    config = TINY.changed(precision="bfloat16", steps=24, milestones=(20,), lr=0.05)
    train(config, Place(faces, tmp_path / "run", workers=0, device="cpu"), say=said.append)
    losses = [entry["loss"] for entry in read_log(tmp_path / "run") if entry["kind"] == "step"]
    assert losses[-1] < 0.8 * losses[0]
    assert sum("no bfloat16 instructions" in line for line in said) == (0 if has_bfloat16() else 1)


def test_float16_is_refused_on_a_cpu_before_anything_is_written(faces, tmp_path):
    with pytest.raises(ValueError, match=r"float16 on a CPU.*choose float32 or bfloat16"):
        train(TINY.changed(precision="float16"), Place(faces, tmp_path / "run", workers=0, device="cpu"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("able", [True, False])
def test_what_is_said_depends_on_precision_device_and_instructions(monkeypatch, able):
    monkeypatch.setattr(precision, "has_bfloat16", lambda: able)
    gpu = torch.device("cuda")
    assert precision_note(TINY, CPU) is None
    assert all(precision_note(TINY.changed(precision=name), gpu) is None for name in ("bfloat16", "float16"))
    assert (precision_note(TINY.changed(precision="bfloat16"), CPU) is None) == able


@pytest.mark.skipif(platform.system() != "Linux" or platform.machine() != "x86_64", reason="reads /proc/cpuinfo")
def test_the_instructions_of_a_cpu_are_those_that_linux_lists():
    flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    assert has_bfloat16() == ("avx512_bf16" in flags.split())


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
def test_the_network_runs_in_half_precision_and_the_loss_and_all_that_is_learned_in_float32(half):
    learner = build_learner(TINY.changed(precision=half), CLASSES, CPU)
    seen = []
    learner.loss.register_forward_hook(lambda _, given, value: seen.append((given[0].dtype, value.dtype)))
    a_step(learner)
    assert seen == [(getattr(torch, half), torch.float32)]
    assert {value.dtype for value in (*weights(learner).values(), *momenta(learner).values())} == {torch.float32}


# The factor on the loss.


def test_the_factor_is_halved_by_an_overflow_and_doubled_after_long_luck_within_bounds():
    scale, fine, inf, nan = LossScale(factor=8.0), torch.tensor(1.0), torch.tensor(math.inf), torch.tensor(math.nan)
    assert not scale.judge(inf)
    assert scale.factor == 4
    assert not scale.judge(nan)
    assert scale.factor == 2
    assert all(scale.judge(fine) for _ in range(LossScale.PATIENCE - 1))
    assert scale.factor == 2
    assert scale.judge(fine)
    assert scale.factor == 4
    for _ in range(5):
        assert not scale.judge(inf)
    assert scale.factor == LossScale.SMALLEST
    scale.factor = LossScale.LARGEST
    assert all(scale.judge(fine) for _ in range(LossScale.PATIENCE))
    assert scale.factor == LossScale.LARGEST


def test_a_factor_changes_no_bit_of_what_is_learned_and_the_norm_is_that_without_it():
    plain, scaled = (build_learner(TINY, CLASSES, CPU) for _ in range(2))
    scaled.scaler = LossScale(factor=2.0**12)
    for seed in range(3):
        expected, found = a_step(plain, seed=seed), a_step(scaled, seed=seed)
        assert torch.equal(found.loss, expected.loss)
        assert torch.equal(found.gradient_norm, expected.gradient_norm)
        assert float(found.gradient_norm) > 0
    assert same(weights(scaled), weights(plain))


def test_a_gradient_that_overflows_is_not_learned_from_and_a_smaller_factor_is_tried():
    learner = build_learner(TINY.changed(precision="float16"), CLASSES, CPU)
    learner.scaler = LossScale(factor=LossScale.LARGEST)
    before, overflows = weights(learner), 0
    while not learner.optimizer.state:  # until the first step that was made
        report = a_step(learner)
        if learner.optimizer.state:
            break
        overflows += 1
        assert float(report.gradient_norm) == 0
        assert math.isfinite(float(report.loss))
        assert same(weights(learner), before)
        assert learner.scaler.factor == LossScale.LARGEST / 2**overflows
    assert overflows >= 1
    exact = a_step(build_learner(TINY, CLASSES, CPU))
    assert float(report.gradient_norm) == pytest.approx(float(exact.gradient_norm), rel=0.02)
    assert all(momentum.abs().max() < 10 for momentum in momenta(learner).values())  # not what lay in memory before


# The guard.


def guard():
    return Guard(GuardConfig(), CLASSES)


def test_an_overflow_of_float16_is_no_divergence():
    learner = build_learner(TINY.changed(precision="float16"), CLASSES, CPU)
    learner.scaler, watching = LossScale(factor=LossScale.LARGEST), guard()
    for step in range(8):
        report = a_step(learner)
        assert watching.watch(step, float(report.loss), float(report.gradient_norm)) is None
    assert learner.scaler.factor < LossScale.LARGEST


def test_a_gradient_that_overflows_at_any_factor_is_a_divergence_and_leaves_the_weights_alone():
    learner = build_learner(TINY.changed(precision="float16"), CLASSES, CPU)
    learner.loss.weight.register_hook(lambda gradient: gradient * math.inf)
    learner.scaler, before, watching = LossScale(factor=4.0), weights(learner), guard()
    lost = []
    for step in range(3):
        report = a_step(learner)
        lost.append(watching.watch(step, float(report.loss), float(report.gradient_norm)))
    assert lost[:2] == [None, None]  # 4 and 2 might have been too large
    assert "gradient norm" in lost[2].reason
    assert same(weights(learner), before)


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
@pytest.mark.parametrize("spoiled", ["network", "gradient"])
def test_a_nan_is_a_divergence_in_every_other_precision(name, spoiled):
    learner, watching = build_learner(TINY.changed(precision=name), CLASSES, CPU), guard()
    if spoiled == "network":
        with torch.no_grad():
            learner.net.fc1.weight[0, 0] = math.nan
    else:
        learner.loss.weight.register_hook(lambda gradient: gradient * math.nan)
    report = a_step(learner)
    assert watching.watch(0, float(report.loss), float(report.gradient_norm)) is not None


# A whole run, and its checkpoints.

TOO_LARGE = 2.0**20


def float16_run(faces, out, *, resume=False):
    """What `train` does on a GPU, with a factor that is too large at first."""
    config, place = TINY.changed(precision="float16"), Place(faces, out, workers=0, device="cpu", resume=resume)
    ready = prepare(open_set(faces), crop=config.crop)
    learner = build_learner(config, CLASSES, CPU)
    learner.scaler = LossScale(factor=TOO_LARGE)
    notes = []
    run = Run(config, place, learner, build_loader(config, place, ready, CPU), None, ready, notes.append)
    run.resume()
    assert run.steps(Stop()) == "finished"
    return run, notes


def test_a_float16_run_with_overflows_is_never_taken_back_and_resumes_with_the_same_bits(faces, tmp_path):
    whole, notes = float16_run(faces, tmp_path / "whole")
    assert not any("back to step" in line for line in notes)
    overflows = math.log2(TOO_LARGE / whole.learner.scaler.factor)
    assert 1 <= overflows < 6
    (tmp_path / "part").mkdir()
    (tmp_path / "whole" / "checkpoints" / "step-00000012").rename(tmp_path / "void")
    (tmp_path / "whole" / "checkpoints").rename(tmp_path / "part" / "checkpoints")
    part, notes = float16_run(faces, tmp_path / "part", resume=True)
    assert "resumed at step 6" in notes
    assert part.learner.scaler.state_dict() == whole.learner.scaler.state_dict()
    assert part.learner.scaler.good_steps > 6  # counted across the checkpoint
    assert same(weights(part.learner), weights(whole.learner))
    assert same(part.learner.model.state_dict(), whole.learner.model.state_dict())
    assert same(momenta(part.learner), momenta(whole.learner))


# Several processes.


def steps_of_which_one_overflows(classifier):
    """Three steps; the second one's gradient overflows in the last process only, and in the classifier only."""
    torch.set_num_threads(1)
    learner = build_learner(TINY.changed(precision="float16", classifier=classifier), CLASSES, CPU)
    learner.scaler = LossScale(factor=2.0**10)
    net, rows = spread(learner.net), []
    for step in range(3):
        hook = learner.loss.weight.register_hook(lambda gradient: gradient * math.inf)
        if step != 1 or parallel.rank() != parallel.ranks() - 1:
            hook.remove()
        before = weights(learner)
        report = a_step(learner, net, seed=10 * step + parallel.rank())
        hook.remove()
        rows.append({
            "factor": learner.scaler.factor,
            "norm": float(report.gradient_norm),
            "learned": not same(weights(learner), before),
            "net": [float(value.double().sum()) for value in learner.net.state_dict().values()],
            "classes": weights(learner)["loss.weight"].double().sum(1).tolist(),
        })  # fmt: skip
    return rows


def both_classifiers():
    return {name: steps_of_which_one_overflows(name) for name in ("sharded", "replicated")}


def test_where_one_process_overflows_all_leave_out_the_step_and_stay_alike():
    ranks = parallel.launch(both_classifiers, 2)
    for steps in (rank[classifier] for rank in ranks for classifier in rank):
        assert [step["factor"] for step in steps] == [1024, 512, 512]
        assert [step["learned"] for step in steps] == [True, False, True]
        assert steps[1]["norm"] == 0
        assert steps[2]["norm"] > 0
    for classifier in ("sharded", "replicated"):
        for first, second in zip(*(rank[classifier] for rank in ranks), strict=True):
            assert first["net"] == second["net"]
            assert first["norm"] == second["norm"]
            assert (first["classes"] == second["classes"]) == (classifier == "replicated")
