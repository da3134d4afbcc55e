"""Runs from the beginning to the end: interrupted, killed, lost, spoiled, and the same in the end."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sphereface import parallel
from sphereface.contract import read_card
from sphereface.errors import DataFormatError, JobFailed, UnreadableImage
from sphereface.faces.images import decode
from sphereface.loading import Shuffled
from sphereface.models import load_model
from sphereface.training.checkpoints.reading import open_checkpoint
from sphereface.training.guard import Guard, Lost
from sphereface.training.run import Run, train
from sphereface.training.setting import Place
from sphereface.training.stopping import Stop
from sphereface.training.telling.log import read_log
from tests.modes import mode, umask
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


def test_others_may_read_what_the_umask_lets_them_but_no_checkpoint(faces, tmp_path):
    with umask(0o027):
        run(faces, tmp_path / "run", TINY.changed(steps=5, milestones=()))
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    saved = [path for path in files if path.is_relative_to(tmp_path / "run" / "checkpoints")]
    assert {mode(path) for path in saved} == {0o600}
    assert {path.name: mode(path) for path in files if path not in saved} == dict.fromkeys(
        ("config.toml", "log.jsonl", "model.safetensors", "report.html", "scan.json"), 0o640
    )


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
    "adamw": {"optimizer": "adamw", "lr": 0.001, "weight_decay": 0.05},
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
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Angles between photos of people who were trained on" in page
    assert read_log(tmp_path / "run")[-1]["outcome"] == "interrupted"
    stopped = int(path.name[5:])
    short = long.changed(steps=stopped + 3, milestones=(stopped,))
    (tmp_path / "run" / "config.toml").write_text(short.toml())
    assert run(faces, tmp_path / "run", short, resume=True, command="again").step == stopped + 3
    (resumed,) = (entry for entry in read_log(tmp_path / "run") if entry["kind"] == "resume")
    assert (resumed["step"], resumed["command"], resumed["processes"]) == (stopped, "again", 1)
    assert resumed["versions"]["torch"] == torch.__version__


def in_thread(config, place, **options):
    """Train in a thread that is not the main one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(train, config, place, say=lambda _: None, **options).result()


def test_a_run_in_another_thread_is_the_same_and_leaves_signals_alone(faces, whole, tmp_path):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    done = in_thread(TINY, Place(faces, tmp_path / "run", workers=1, device="cpu"))
    assert done.outcome == "finished"
    assert same(weights(tmp_path / "run"), weights(whole))
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_caller_stops_a_run_as_ctrl_c_does(faces, whole, tmp_path, monkeypatch):
    from sphereface.training import run as module

    stop, real, steps = Stop(), module.learn, []

    def learn(*given):
        steps.append(given)
        stop.asked = len(steps) == 8
        return real(*given)

    monkeypatch.setattr(module, "learn", learn)
    done = in_thread(TINY, Place(faces, tmp_path / "run", workers=0, device="cpu"), stop=stop)
    assert (done.outcome, done.step) == ("interrupted", 8)
    stop.asked = False
    assert run(faces, tmp_path / "run", resume=True).outcome == "finished"
    assert same(weights(tmp_path / "run"), weights(whole))


def test_a_corrupt_newest_checkpoint_is_passed_over_and_that_is_said(faces, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    broken = tmp_path / "run" / "checkpoints" / "step-00000024" / "net.safetensors"
    broken.write_bytes(broken.read_bytes()[:-3])
    notes = []
    train(TINY, Place(faces, tmp_path / "run", workers=0, device="cpu", resume=True), say=notes.append)
    assert any("skipped" in line for line in notes)
    assert any("resumed at step 20" in line for line in notes)
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
    assert json.loads(ran.stdout) == {"outcome": "finished", "model": str(whole / "model.safetensors")}
    second = subprocess.run(
        command(faces, whole, "--resume", "--json"), capture_output=True, text=True, env={**os.environ, "RANK": "1"}
    )
    assert (second.returncode, second.stdout) == (0, "")


def test_a_device_that_is_not_there_is_an_error_of_one_line_that_leaves_no_trace(faces, tmp_path):
    wanted = "cuda:99" if torch.cuda.is_available() else "cuda"
    ran = subprocess.run(command(faces, tmp_path / "run", "--device", wanted), capture_output=True, text=True)
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert f"device is {wanted}; torch" in ran.stderr
    assert not (tmp_path / "run").exists()


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


class Killed(Exception):
    """What a run does not survive."""


def poisoned(monkeypatch, bad: set[int], killed: set[int] = frozenset()):
    """Steps, counted over all attempts, that end in a loss which is no number, or before which the run is killed."""
    from sphereface.training import run as module

    real, calls = module.learn, []

    def learn(*given):
        calls.append(len(calls))
        if calls[-1] in killed:
            raise Killed
        report = real(*given)
        return report._replace(loss=report.loss * float("nan")) if calls[-1] in bad else report

    monkeypatch.setattr(module, "learn", learn)


def rollbacks(out):
    return [
        (entry["step"], entry["lr_factor"], entry["rollbacks"])
        for entry in read_log(out)
        if entry["kind"] == "rollback"
    ]


def test_a_run_killed_right_after_a_rollback_goes_on_as_slowly(faces, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        poisoned(patch, {12})
        run(faces, tmp_path / "whole")
    with monkeypatch.context() as patch:
        # The rollback goes from step 15, the first look after 12, to 10; then comes call 15.
        poisoned(patch, {12}, {15})
        with pytest.raises(Killed):
            run(faces, tmp_path / "run")
        assert run(faces, tmp_path / "run", resume=True).outcome == "finished"
    assert rollbacks(tmp_path / "run") == rollbacks(tmp_path / "whole") == [(10, 0.5, 1)]
    assert same(weights(tmp_path / "run"), weights(tmp_path / "whole"))


def test_rollbacks_to_the_beginning_are_counted_over_kills(faces, tmp_path, monkeypatch):
    poisoned(monkeypatch, {2, 7, 13}, {5, 6, 12})  # looks come after every 5 steps
    config = TINY.changed(guard={"rollbacks": 2})
    for resume in (False, True, True):  # killed after one rollback, before its first step again, after a second
        with pytest.raises(Killed):
            run(faces, tmp_path / "run", config, resume=resume)
    assert rollbacks(tmp_path / "run")[-1] == (0, 0.25, 2)
    with pytest.raises(JobFailed, match="after 2 rollbacks"):
        run(faces, tmp_path / "run", config, resume=True)


def test_taken_back_to_its_beginning_a_run_forgets_its_best_validation(faces, tmp_path, monkeypatch):
    accuracies, lost = iter([0.9, 0.6, 0.7, *[0.5] * 50]), [Lost("a plateau from the beginning on", -1, "")]
    monkeypatch.setattr(Run, "score", lambda _: {"accuracy": next(accuracies), "whose": "people"})
    monkeypatch.setattr(Guard, "watch", lambda _, step, *__: lost.pop() if step == 5 and lost else None)
    run(faces, tmp_path / "run", TINY.changed(validation_people=2, validate_every=2))
    assert rollbacks(tmp_path / "run") == [(0, 0.5, 1)]
    saved = open_checkpoint(tmp_path / "run" / "checkpoints" / "step-00000024")
    assert saved.state["best"] == [0.7, 2]  # and not 0.9, of weights that are gone


@pytest.mark.parametrize(("annealing", "lambda_"), [(None, False), ({"gamma": 0.5}, True)])
def test_a_preview_is_drawn_without_faces_and_nothing_is_trained(tmp_path, annealing, lambda_):
    given = command(tmp_path / "nowhere", tmp_path / "run", "--preview", config=TINY.changed(annealing=annealing))
    ran = subprocess.run(given, capture_output=True, text=True, check=True)
    assert ran.stdout == f"Preview: {tmp_path / 'run' / 'preview.html'}\n"
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["preview.html"]
    heads = re.findall(r"<th[^>]*>([^<]*)", (tmp_path / "run" / "preview.html").read_text())
    assert ("lambda" in heads) == lambda_
    assert "acts like m: close" in heads
    if not lambda_:  # the margin is m = 3 from the first step to the last
        rows = re.findall(r"<tr>(.*?)</tr>", (tmp_path / "run" / "preview.html").read_text(), re.DOTALL)
        cells = [re.findall(r"<td[^>]*>([^<]*)", row) for row in rows]
        assert {tuple(row[2:5]) for row in cells if row} == {("3", "3", "3")}


def test_unreadable_images_are_refused_at_the_start_or_left_out(faces, tmp_path):
    shutil.copytree(faces, tmp_path / "faces")
    spoiled = tmp_path / "faces" / "p0003" / "0002.png"
    spoiled.write_bytes(spoiled.read_bytes()[:500])
    with pytest.raises(UnreadableImage, match="1 of 40 images cannot be read"):
        run(tmp_path / "faces", tmp_path / "fail")
    assert run(tmp_path / "faces", tmp_path / "skip", missing="skip").outcome == "finished"
    assert "p0003/0002.png" in (tmp_path / "skip" / "scan.json").read_text()


def test_faces_that_are_replaced_since_their_files_broke_are_counted_and_named(faces, whole, tmp_path, capsys):
    """The files break between two parts of a run: the known scan keeps them in the order of the batches."""
    shutil.copytree(faces, tmp_path / "faces")
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-00000024")
    broken = {12: "p0002/0002.png", 33: "p0006/0003.png"}
    for name in broken.values():
        (tmp_path / "faces" / name).write_bytes(b"no image")
    run(tmp_path / "faces", tmp_path / "run", resume=True, missing="skip")
    places = sum(int(np.isin(Shuffled(40, 12, TINY.seed).indices(step), list(broken)).sum()) for step in range(20, 24))
    assert places >= 2
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "replaced" in line]
    assert said.startswith(f"step 24: {places} faces of batches were replaced by others: files broke since the start")
    assert all(name in said for name in broken.values())
    end = read_log(tmp_path / "run")[-1]
    assert (end["outcome"], end["replaced"]) == ("finished", places)
    with pytest.raises(UnreadableImage) as error:
        decode(b"no image")
    assert end["broken_later"] == dict.fromkeys(broken.values(), error.value.reason)
    assert [entry["text"] in said for entry in read_log(tmp_path / "run") if entry["kind"] == "note"] == [True]


def test_a_run_that_replaced_nothing_does_not_speak_of_it(whole):
    assert "replaced" not in read_log(whole)[-1]


def test_a_damaged_scan_of_an_earlier_part_is_named_with_the_way_out(faces, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "scan.json").write_text('{"count": 3}')
    with pytest.raises(DataFormatError, match=r"scan\.json: damaged; remove it to check the faces again"):
        run(faces, tmp_path / "run", resume=True)


def test_unreadable_images_to_validate_on_are_said(faces, tmp_path):
    shutil.copytree(faces, tmp_path / "faces")
    for person in range(8):
        (tmp_path / "faces" / f"p{person:04d}" / "0002.png").write_bytes(b"no image")
    notes = []
    config = TINY.changed(validation_people=3, steps=2, milestones=())
    train(
        config, Place(tmp_path / "faces", tmp_path / "run", workers=0, device="cpu", missing="skip"), say=notes.append
    )
    assert any(line.startswith("3 images to validate on cannot be read, such as p000") for line in notes)


def test_people_are_set_aside_to_validate_on(faces, tmp_path):
    config = TINY.changed(validation_people=3, validate_every=10)
    trained = run(faces, tmp_path / "run", config)
    validations = [entry for entry in read_log(tmp_path / "run") if entry["kind"] == "validation"]
    assert [entry["step"] for entry in validations] == [10, 20, 24]
    start = read_log(tmp_path / "run")[0]
    assert start["data"]["people"] == 5
    assert start["validation"]["faces"] == 15
    assert start["validation"]["pairs"] == validations[-1]["same"] + validations[-1]["different"]
    assert trained.scores.as_dict()["accuracy"] == validations[-1]["accuracy"]
    assert "Angles between photos of people never seen" in (tmp_path / "run" / "report.html").read_text()


def test_a_run_that_sets_nobody_aside_shows_angles_and_faces_of_people_it_was_trained_on(faces, tmp_path):
    trained = run(faces, tmp_path / "run", TINY.changed(steps=2, milestones=()))
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Angles between photos of people who were trained on" in page
    assert "All pairs are of people who were trained on." in page
    assert all(part in page for part in ("angular Fisher score", "The hardest pairs"))
    assert "never seen" not in page
    assert trained.scores is None  # that is no validation
    assert not [entry for entry in read_log(tmp_path / "run") if entry["kind"] == "validation"]


def test_people_with_one_photo_each_make_a_report_without_pairs(faces, tmp_path):
    for person in range(4):
        (tmp_path / f"faces/p{person}").mkdir(parents=True)
        shutil.copy(faces / f"p{person:04d}/0000.png", tmp_path / f"faces/p{person}/0000.png")
    assert run(tmp_path / "faces", tmp_path / "run", TINY.changed(steps=2, batch=4, milestones=())).step == 2
    assert "Angles" not in (tmp_path / "run" / "report.html").read_text()


def test_a_list_of_pairs_is_validated_on_and_who_of_it_is_trained_on_is_said(faces, tmp_path):
    names = sorted(path.name for path in faces.iterdir() if path.is_dir())
    alike = [f"{name}/0000.jpg\t{name}/0001.jpg\t1\n" for name in names[:4]]  # the faces are .png
    unlike = [f"{a}/0000.jpg\t{b}/0000.jpg\t0\n" for a, b in pairwise(names[:5])]
    (tmp_path / "pairs.txt").write_text("".join(alike + unlike))
    (tmp_path / "exclude.txt").write_text("".join(f"{name}\n" for name in names[:5]))
    config, pairs = TINY.changed(steps=2, milestones=()), {"pairs": tmp_path / "pairs.txt", "pairs_faces": faces}
    for out, options, people in (
        ("seen", {}, "people of pairs.txt, of whom 5 of 5 are trained on"),
        ("unseen", {"exclude": tmp_path / "exclude.txt"}, "people of pairs.txt, none of them trained on by name"),
    ):
        notes = []
        train(config, Place(faces, tmp_path / out, workers=0, device="cpu", **pairs, **options), say=notes.append)
        (line,) = (entry for entry in read_log(tmp_path / out) if entry["kind"] == "validation")
        assert line["whose"] == people
        assert any("are not open-set; --exclude" in each for each in notes) == (out == "seen")
        assert f"All pairs are of {people}." in (tmp_path / out / "report.html").read_text()


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


def test_excluded_people_take_no_part(faces, tmp_path):
    (tmp_path / "exclude.txt").write_text("# not these\np0001\np0002/0003.png\n")
    run(faces, tmp_path / "run", TINY.changed(steps=2, milestones=()), exclude=tmp_path / "exclude.txt")
    assert read_log(tmp_path / "run")[0]["data"] | {"path": "", "fingerprint": ""} == {
        "path": "", "fingerprint": "", "faces": 34, "people": 7,
    }  # fmt: skip


def together(
    faces: str, out: str, classifier: str, steps: int, every: int, resume: bool, changes: dict[str, Any] | None = None
) -> list[float]:
    """One process of several; at each checkpoint it tells the loss, and `notes.txt` keeps what the first one said."""
    torch.set_num_threads(1)
    config = TINY.changed(classifier=classifier, steps=steps, milestones=(16,), checkpoint_every=every)
    place = Place(Path(faces), Path(out), workers=0, device="cpu", resume=resume)
    notes: list[str] = []
    train(config.changed(**changes or {}), place, say=notes.append)
    if parallel.rank() == 0:
        (Path(out) / "notes.txt").write_text("\n".join(notes))
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
        assert f"saved by 2 processes, resumed on {count}" in (out / "notes.txt").read_text()


@pytest.mark.parametrize("accumulate", [2, 4])  # of a share of 6 faces: three parts of two, and two of three
def test_parts_of_a_batch_are_the_batch_on_two_processes_too(faces, tmp_path, accumulate):
    alone = together(str(faces), str(tmp_path / "one"), "replicated", 6, 1, False)
    parts = {"accumulate": accumulate}
    both, _ = parallel.launch(together, 2, str(faces), str(tmp_path / "two"), "replicated", 6, 1, False, parts)
    assert both == pytest.approx(alone, rel=0, abs=1e-4)
    for name, value in weights(tmp_path / "one").items():
        torch.testing.assert_close(weights(tmp_path / "two")[name], value, rtol=1e-3, atol=1e-4)


def test_a_third_process_draws_the_sample_that_the_other_two_draw(faces, tmp_path):
    sampled = {"loss_options": {"m": 3, "sample": 0.5}}
    whole = parallel.launch(together, 3, str(faces), str(tmp_path / "three"), "replicated", 10, 5, False, sampled)[0]
    parallel.launch(together, 2, str(faces), str(tmp_path / "two"), "replicated", 10, 5, False, sampled)
    (tmp_path / "two" / "model.safetensors").unlink()
    shutil.rmtree(tmp_path / "two" / "checkpoints" / "step-00000010")
    resumed = parallel.launch(together, 3, str(faces), str(tmp_path / "two"), "replicated", 10, 5, True, sampled)[0]
    assert resumed == pytest.approx(whole, rel=0, abs=1e-4)


def test_batch_norm_on_several_processes_is_said_to_depend_on_their_number(faces, tmp_path):
    parallel.launch(together, 2, str(faces), str(tmp_path / "two"), "replicated", 2, 2, False, {"norm": "batch"})
    assert (
        "batch norm takes its statistics from the 6 faces of each process" in (tmp_path / "two/notes.txt").read_text()
    )
