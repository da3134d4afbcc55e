"""A small version of the benchmark: all candidates really train, in turns; how fast is for a quiet machine."""

import json
import multiprocessing
import os
import signal
import time
from threading import Timer

import numpy as np
import pytest
import torch

from sphereface.bench import training, turns
from sphereface.cli import main
from sphereface.data.formats.sets import open_set
from sphereface.data.manifest import require_faces
from sphereface.errors import JobFailed
from sphereface.loading.ready import CACHE_BYTES


@pytest.fixture
def task(tmp_path):
    return training.Task(
        training.recipe_for("sphereface4"), classes=50, steps=2, threads=1, faces=tmp_path / "faces.txt",
        out=tmp_path / "out",
    )  # fmt: skip


def test_every_candidate_trains_and_the_ratios_are_those_of_their_speeds():
    said = []
    result = training.bench_training(
        networks=["sphereface4"], batch=4, classes=50, rounds=1, steps=2, threads=1, photos=2, width=0.05,
        say=said.append,
    )  # fmt: skip
    assert multiprocessing.active_children() == []
    json.dumps(result)
    assert (result["rounds"], result["threads"], result["faces"]) == (1, 1, 100)
    (row,) = result["rows"]
    assert (row["network"], row["recipe"], row["batch"], row["classes"]) == ("sphereface4", "small", 4, 50)
    assert (row["steps_a_turn"], row["checkpoint_every"]) == (2, 200)
    assert row["checkpoint_seconds"]["median"] > 0
    rates = row["faces_per_second"]
    assert min(rates.values()) > 0
    for peer in ("bare", "plain"):
        found, expected = row[f"train_to_{peer}"], rates["train"] / rates[peer]  # there is one round
        assert found == dict.fromkeys(("median", "lowest", "highest"), pytest.approx(expected))
    assert said[-1] == "sphereface4: round 1 of 1"
    shown = training.table(result).splitlines()
    assert len(shown) == 2
    assert f"{row['train_to_bare']['median']:.3f}" in shown[1]


def note_a(task, turns):
    for _ in turns:
        with task.out.open("a") as file:
            file.write("a")


def note_b_and_fail(task, turns):
    for _ in turns:
        with task.out.open("a") as file:
            file.write("b")
    training.require_finite(torch.tensor(float("nan")))


def test_candidates_take_turns_and_one_that_fails_says_why(task):
    with pytest.raises(JobFailed, match="'b' failed: JobFailed: the loss became nan"):
        turns.measure({"a": note_a, "b": note_b_and_fail}, task, rounds=3, say=lambda _: None)
    assert task.out.read_text() == "aabb" + "aabb" + "bbaa" + "aabb"  # a round to warm up; then each begins in turn
    assert multiprocessing.active_children() == []


def dies(task, turns):
    for _ in turns:
        worker = os.fork()  # holds the pipe open, as a loader's worker does
        if worker == 0:
            time.sleep(600)
        task.out.write_text(str(worker))
        os._exit(3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a worker that holds the pipe is forked")
def test_a_candidate_that_dies_is_an_error_at_once_even_if_its_workers_live(task):
    start = time.monotonic()
    try:
        with pytest.raises(JobFailed, match="'dying' exited without a result, with exit code 3"):
            turns.measure({"dying": dies}, task, rounds=1, say=lambda _: None)
        assert time.monotonic() - start < 300  # its worker sleeps for 600
    finally:
        os.kill(int(task.out.read_text()), signal.SIGKILL)
    assert multiprocessing.active_children() == []


def test_the_time_between_turns_counts_for_nobody():
    here, there = multiprocessing.Pipe()
    here.send(True)
    steps = []
    later = Timer(1.0, lambda: (here.send(True), here.send(False)))
    later.start()
    for _ in turns.turns_of(there, steps=3):
        steps.append(time.perf_counter())
    later.join()
    ready, first, second = (here.recv() for _ in range(3))
    assert ready is None
    assert len(steps) == 6
    assert steps[3] - steps[2] > 0.9 > first + second > 0


def test_the_set_has_every_person_and_more_faces_than_memory_keeps(tmp_path):
    path = training.write_faces(tmp_path, classes=300, photos=2)
    faces = open_set(path)
    assert require_faces(path, faces, training.recipe_for("sphereface4").alignment) is None
    assert np.bincount(faces.labels).tolist() == [2] * 300
    assert len(faces.people) == 300
    assert len(set(faces.paths)) == 256
    assert all((tmp_path / name).is_file() for name in faces.paths)
    photos = training.photos_beyond_memory(training.CLASSES)
    assert (photos - 1) * training.CLASSES * 112 * 96 * 3 <= CACHE_BYTES < photos * training.CLASSES * 112 * 96 * 3


def write_log(folder, *lines):
    entries = [{"kind": kind, "step": step, "time": f"2026-01-01T00:00:{second}+00:00"} for kind, step, second in lines]
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in entries))


def test_a_checkpoint_took_the_time_since_the_line_of_its_step(tmp_path):
    write_log(
        tmp_path, ("start", 0, "00.000"), ("step", 4, "05.000"), ("checkpoint", 4, "05.750"), ("step", 8, "09.000"),
        ("checkpoint", 8, "09.250"), ("end", 8, "30.000"),
    )  # fmt: skip
    assert training.checkpoint_seconds(tmp_path) == [0.75, 0.25]


def test_a_run_that_was_taken_back_is_no_measurement(tmp_path):
    write_log(tmp_path, ("start", 0, "00.000"), ("rollback", 0, "05.000"), ("step", 4, "07.000"))
    with pytest.raises(JobFailed, match="was rolled back"):
        training.checkpoint_seconds(tmp_path)


def test_a_turn_bears_its_share_of_a_checkpoint_and_no_more(tmp_path, monkeypatch):
    config = training.recipe_for("sphereface4")

    def measured(_works, task, **_options):
        task.out.mkdir(parents=True)
        write_log(
            task.out, ("step", 2, "01.000"), ("checkpoint", 2, "09.000"), ("step", 4, "10.000"),
            ("checkpoint", 4, "12.000"),
        )  # fmt: skip
        return {"plain": [2.0], "bare": [1.0], "train": [3.0]}  # of the three seconds, two went into the checkpoint

    monkeypatch.setattr(training, "measure", measured)
    row = training.bench_network(
        config, faces=tmp_path / "faces.txt", classes=50, rounds=1, steps=2, threads=1, say=lambda _: None
    )
    seconds = 3 - 2 + 2 * 2 / config.checkpoint_every
    assert row["faces_per_second"]["train"] == pytest.approx(2 * config.batch / seconds)
    assert row["train_to_bare"]["median"] == pytest.approx(1 / seconds)
    assert row["train_to_plain"]["median"] == pytest.approx(2 / seconds)


def test_a_deep_network_is_trained_as_in_the_paper_and_the_small_one_as_on_a_laptop():
    assert training.recipe_for("sphereface4").clip == 5
    deep = training.recipe_for("sphereface20")
    assert (deep.recipe, deep.model, deep.clip, deep.checkpoint_every) == ("paper", "sphereface20", None, 1000)


def test_an_unknown_network_is_refused_before_anything_starts(capsys):
    with pytest.raises(SystemExit) as left:
        main(["bench", "training", "--network", "sphereface5"])
    assert left.value.code == 2
    assert "unknown model 'sphereface5'" in capsys.readouterr().err


def test_each_network_has_the_batch_of_its_recipe_unless_another_is_asked_for(monkeypatch):
    def batches(**options):
        seen = []
        monkeypatch.setattr(training, "bench_network", lambda config, **_: seen.append(config.batch))
        training.bench_training(classes=50, photos=2, **options)
        return seen

    assert batches() == [64, 128]
    assert batches(batch=16) == [16, 16]
