"""Runs from the beginning to the end: interrupted, killed, lost, spoiled, and the same in the end."""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from sphereface import parallel
from sphereface.contract import read_card
from sphereface.errors import JobFailed, UnreadableImage
from sphereface.models import load_model
from sphereface.training.log import read_log
from sphereface.training.run import train
from sphereface.training.setting import Place
from tests.training.conftest import TINY, command, run, same, weights


def test_a_run_leaves_a_model_a_log_a_report_and_its_settings(whole):
    assert {path.name for path in whole.iterdir()} == {
        "checkpoints", "config.toml", "log.jsonl", "model.safetensors", "report.html", "scan.json",
    }  # fmt: skip
    assert sorted(path.name for path in (whole / "checkpoints").iterdir()) == ["step-00000020", "step-00000024"]
    history = read_log(whole)
    assert history[0]["data"]["people"] == 8
    assert history[0]["config"]["loss"] == "a_softmax"
    assert [entry["step"] for entry in history if entry["kind"] == "step"] == [5, 10, 15, 20, 24]
    assert history[-1]["outcome"] == "finished"
    assert load_model(whole / "model.safetensors").architecture.features == 16
    assert read_card(whole / "model.safetensors").name == whole.name


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(faces, whole, tmp_path):
    run(faces, tmp_path / "again")
    assert same(weights(tmp_path / "again"), weights(whole))
    run(faces, tmp_path / "other", TINY.changed(seed=1))
    assert not same(weights(tmp_path / "other"), weights(whole))


def test_a_run_learns(faces, tmp_path):
    run(faces, tmp_path / "run", TINY.changed(steps=80, milestones=(60,), lr=0.05, checkpoint_every=80))
    losses = [entry["loss"] for entry in read_log(tmp_path / "run") if entry["kind"] == "step"]
    assert np.mean(losses[-2:]) < 0.8 * losses[0]


VARIANTS = {
    "mean": {"ema": 0.9},
    "caffe": {"caffe_momentum": True, "warmup": 4},
    "sampled": {"loss_options": {"m": 3, "sample": 0.5}},
    "center": {"loss": "center", "loss_options": {}, "annealing": None},
    "triplet": {"loss": "triplet", "loss_options": {}, "annealing": None, "photos": 3},
    "norm": {"norm": "batch"},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_run_stopped_and_resumed_ends_with_the_same_bits(faces, tmp_path, variant):
    config = TINY.changed(**VARIANTS[variant], steps=14, milestones=(9,), checkpoint_every=4)
    run(faces, tmp_path / "whole", config)
    run(faces, tmp_path / "part", config)
    for name in ("model.safetensors", "checkpoints/step-00000014"):
        path = tmp_path / "part" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert run(faces, tmp_path / "part", config, resume=True).outcome == "finished"
    assert same(weights(tmp_path / "part"), weights(tmp_path / "whole"))


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits(faces, whole, tmp_path):
    random.seed(0)
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    killed = 0
    for _ in range(40):
        process = subprocess.Popen(
            command(faces, tmp_path / "run", "--resume"),
            env=environment,
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        checkpoints = tmp_path / "run" / "checkpoints"
        before = len(list(checkpoints.glob("*/manifest.json"))) if checkpoints.is_dir() else 0
        newest = max((p.name for p in checkpoints.glob("step-*")), default="") if checkpoints.is_dir() else ""
        pause = random.uniform(0, 0.3)
        while process.poll() is None:
            now = max((p.name for p in checkpoints.glob("step-*")), default="") if checkpoints.is_dir() else ""
            if killed < 3 and (now != newest or (before and pause > 0.25)):
                time.sleep(pause)
                process.send_signal(signal.SIGKILL)
                killed += 1
                break
            time.sleep(0.01)
        process.wait()
        if (tmp_path / "run" / "model.safetensors").exists():
            break
    assert killed >= 2
    assert same(weights(tmp_path / "run"), weights(whole))
    assert [entry["step"] for entry in read_log(tmp_path / "run") if entry["kind"] == "step"] == [5, 10, 15, 20, 24]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop_a_run_saves_and_can_go_on(faces, tmp_path, number):
    long = TINY.changed(steps=2000, milestones=(1000,), checkpoint_every=1000)
    process = subprocess.Popen(
        command(faces, tmp_path / "run", config=long), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and '"step"' not in (
        (tmp_path / "run" / "log.jsonl").read_text() if (tmp_path / "run" / "log.jsonl").exists() else ""
    ):
        time.sleep(0.05)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume goes on" in out
    (path,) = (tmp_path / "run" / "checkpoints").iterdir()
    assert int(path.name[5:]) % 10 == 0
    assert (tmp_path / "run" / "report.html").exists()
    assert read_log(tmp_path / "run")[-1]["outcome"] == "interrupted"


def test_a_corrupt_newest_checkpoint_is_passed_over_and_that_is_said(faces, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    broken = tmp_path / "run" / "checkpoints" / "step-00000024" / "net.safetensors"
    broken.write_bytes(broken.read_bytes()[:-3])
    heard = []
    train(TINY, Place(faces, tmp_path / "run", workers=0, device="cpu", resume=True), say=heard.append)
    assert any("passed over" in line for line in heard)
    assert any("resumed at step 20" in line for line in heard)
    assert same(weights(tmp_path / "run"), weights(whole))


def test_another_run_in_the_same_folder_is_refused(faces, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    with pytest.raises(ValueError, match="--resume goes on with it"):
        run(faces, tmp_path / "run")
    with pytest.raises(ValueError, match=r"lr was 0\.02, is 0\.5"):
        run(faces, tmp_path / "run", TINY.changed(lr=0.5), resume=True)


def test_a_finished_run_says_so(faces, whole):
    ran = subprocess.run(command(faces, whole, "--resume", "--json"), capture_output=True, text=True, check=False)
    assert ran.returncode == 0
    assert json.loads(ran.stdout)["outcome"] == "finished"


def test_parts_of_a_batch_one_after_the_other_are_the_batch(faces, tmp_path):
    config = TINY.changed(steps=4, milestones=())
    run(faces, tmp_path / "whole", config)
    run(faces, tmp_path / "parts", config.changed(accumulate=3))
    for name, value in weights(tmp_path / "whole").items():
        torch.testing.assert_close(weights(tmp_path / "parts")[name], value, rtol=1e-4, atol=1e-6)


def test_a_lost_run_is_taken_back_slowed_and_recovers(faces, tmp_path, monkeypatch):
    from sphereface.training import run as module

    real, calls = module.learn, []

    def poisoned(net, loss, *rest):
        calls.append(loss.annealing.gamma)
        report = real(net, loss, *rest)
        if len(calls) == 13:
            with torch.no_grad():
                next(net.parameters()).fill_(float("nan"))
            return report._replace(loss=report.loss * float("nan"))
        return report

    monkeypatch.setattr(module, "learn", poisoned)
    assert run(faces, tmp_path / "run").outcome == "finished"
    (rollback,) = [entry for entry in read_log(tmp_path / "run") if entry["kind"] == "rollback"]
    assert rollback["step"] == 10
    assert (rollback["lr_factor"], rollback["gamma_factor"]) == (0.5, 0.25)
    assert "at step 12" in rollback["reason"]
    assert calls[0] == 0.5
    assert calls[-1] == 0.125
    assert all(torch.isfinite(value).all() for value in weights(tmp_path / "run").values())


def test_a_recipe_made_to_diverge_ends_with_advice(faces, tmp_path):
    wild = TINY.changed(lr=1e6, clip=None, weight_decay=0.0, steps=40)
    with pytest.raises(JobFailed, match=r"after 3 rollbacks; lower lr"):
        run(faces, tmp_path / "run", wild)
    assert read_log(tmp_path / "run")[-1]["outcome"] == "failed"
    assert len([entry for entry in read_log(tmp_path / "run") if entry["kind"] == "rollback"]) == 3
    assert (tmp_path / "run" / "report.html").exists()


def test_unreadable_images_are_refused_at_the_start_or_left_out(faces, tmp_path):
    shutil.copytree(faces, tmp_path / "faces")
    spoiled = tmp_path / "faces" / "p0003" / "0002.png"
    spoiled.write_bytes(spoiled.read_bytes()[:500])
    with pytest.raises(UnreadableImage, match="1 of 40 images cannot be read"):
        run(tmp_path / "faces", tmp_path / "fail")
    assert run(tmp_path / "faces", tmp_path / "skip", on_unreadable="skip").outcome == "finished"
    assert "p0003/0002.png" in (tmp_path / "skip" / "scan.json").read_text()


def test_people_are_set_aside_to_validate_on(faces, tmp_path):
    config = TINY.changed(validation_people=3, validate_every=10)
    trained = run(faces, tmp_path / "run", config)
    told = [entry for entry in read_log(tmp_path / "run") if entry["kind"] == "validation"]
    assert [entry["step"] for entry in told] == [10, 20, 24]
    start = read_log(tmp_path / "run")[0]
    assert start["data"]["people"] == 5
    assert start["validation"]["faces"] == 15
    assert start["validation"]["pairs"] == told[-1]["same"] + told[-1]["different"]
    assert trained.scores.as_dict()["accuracy"] == told[-1]["accuracy"]


def test_a_run_killed_when_only_its_report_was_missing_is_scored_again_and_leaves_nothing_half_written(faces, tmp_path):
    config = TINY.changed(validation_people=3)
    trained = run(faces, tmp_path / "run", config)
    for name in ("model.safetensors", "report.html"):
        (tmp_path / "run" / name).unlink()
    (tmp_path / "run" / ".report.html.abc.part").write_text("<html>")
    again = run(faces, tmp_path / "run", config, resume=True)
    assert again.scores.as_dict() == trained.scores.as_dict()
    assert not list((tmp_path / "run").glob(".*"))
    assert len([entry for entry in read_log(tmp_path / "run") if entry["kind"] == "validation"]) == 1


def test_new_people_are_learned_from_a_trained_network(faces, whole, tmp_path):
    config = TINY.changed(steps=1, milestones=(), lr=1e-9)
    run(faces, tmp_path / "tuned", config, init=whole / "model.safetensors")
    for name, value in weights(whole).items():
        torch.testing.assert_close(weights(tmp_path / "tuned")[name], value, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="the recipe wants"):
        run(faces, tmp_path / "other", config.changed(features=8), init=whole / "model.safetensors")


def test_excluded_people_take_no_part(faces, tmp_path):
    (tmp_path / "exclude.txt").write_text("# not these\np0001\np0002/0003.png\n")
    run(faces, tmp_path / "run", TINY.changed(steps=2, milestones=()), exclude=tmp_path / "exclude.txt")
    assert read_log(tmp_path / "run")[0]["data"] | {"path": "", "fingerprint": ""} == {
        "path": "", "fingerprint": "", "faces": 34, "people": 7,
    }  # fmt: skip


def together(faces: str, out: str, classifier: str, steps: int, every: int, resume: bool) -> list[float]:
    """One process of several; at each checkpoint it tells the loss."""
    torch.set_num_threads(1)
    config = TINY.changed(classifier=classifier, steps=steps, milestones=(16,), checkpoint_every=every)
    place = Place(Path(faces), Path(out), workers=0, device="cpu", resume=resume)
    train(config, place, say=lambda _: None)
    return [entry["loss"] for entry in read_log(out) if entry["kind"] == "step"]


@pytest.mark.parametrize("classifier", ["replicated", "sharded"])
def test_two_processes_learn_what_one_learns_step_by_step(faces, tmp_path, classifier):
    alone = together(str(faces), str(tmp_path / "one"), classifier, 50, 1, False)
    both, _ = parallel.launch(together, 2, str(faces), str(tmp_path / "two"), classifier, 50, 1, False)
    assert both == pytest.approx(alone, rel=0, abs=1e-4)
    assert len(alone) == 50
    for name, value in weights(tmp_path / "one").items():
        torch.testing.assert_close(weights(tmp_path / "two")[name], value, rtol=1e-3, atol=1e-4)


def test_a_run_of_two_processes_goes_on_in_three_and_in_one(faces, tmp_path):
    alone = together(str(faces), str(tmp_path / "one"), "sharded", 24, 8, False)
    parallel.launch(together, 2, str(faces), str(tmp_path / "run"), "sharded", 24, 8, False)
    for count in (3, 1):
        out = tmp_path / f"run{count}"
        shutil.copytree(tmp_path / "run", out)
        shutil.rmtree(out / "checkpoints" / "step-00000024")
        (out / "model.safetensors").unlink()
        if count == 1:
            losses = together(str(faces), str(out), "sharded", 24, 8, True)
        else:
            losses = parallel.launch(together, 3, str(faces), str(out), "sharded", 24, 8, True)[0]
        assert losses == pytest.approx(alone, rel=0, abs=1e-4)
