import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import torch

from sphereface.errors import DataFormatError
from sphereface.training.telling.log import KINDS, RunLog, read_log, versions


def entries(folder, *kinds):
    return [(entry["kind"], entry["step"]) for entry in read_log(folder) if not kinds or entry["kind"] in kinds]


def steps(log, first, last, **values):
    for step in range(first, last + 1):
        log.write("step", step, {"loss": float(step), **values})


# The file


def test_every_line_is_one_object_with_kind_step_and_time(tmp_path):
    before = datetime.now(UTC)
    with RunLog(tmp_path / "run") as log:
        log.write("start", 0, {"config": {"lr": 0.1, "milestones": (1, 2)}, "data": Path("faces")})
        log.write("step", 1, {"loss": np.float32(0.5), "lambda": torch.tensor(892.5), "name": "M\u00fcller\n"})
    lines = (tmp_path / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    start, step = (json.loads(line) for line in lines)
    assert start["config"] == {"lr": 0.1, "milestones": [1, 2]}
    assert start["data"] == "faces"
    assert (step["kind"], step["step"], step["loss"], step["lambda"]) == ("step", 1, 0.5, 892.5)
    assert step["name"] == "M\u00fcller\n"
    assert before.timestamp() - 1 < datetime.fromisoformat(step["time"]).timestamp() < time.time() + 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan"), torch.tensor(math.inf)])
def test_what_is_not_finite_is_null_wherever_it_stands(tmp_path, value):
    with RunLog(tmp_path) as log:
        log.write("step", 1, {"loss": value, "tar": {"0.1": value}, "list": [1.0, value]})
    text = (tmp_path / "log.jsonl").read_text()
    entry = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert (entry["loss"], entry["tar"], entry["list"]) == (None, {"0.1": None}, [1.0, None])


def test_a_line_cannot_lie_about_its_kind_step_or_time(tmp_path):
    with RunLog(tmp_path) as log:
        log.write("note", 3, {"step": 7, "kind": "end", "text": "x"})
        with pytest.raises(ValueError, match="rollback"):
            log.write("rolback", 3)
    assert entries(tmp_path) == [("note", 3)]


def test_a_run_names_what_it_was_made_with():
    found = versions()
    assert found["torch"] == torch.__version__
    assert {"sphereface", "python", "numpy", "opencv", "system", "device"} <= set(found)


# Resuming


def test_a_resume_makes_void_what_was_told_of_later_steps(tmp_path):
    with RunLog(tmp_path) as log:
        log.write("start", 0)
        steps(log, 1, 3)
        log.write("checkpoint", 3)
        steps(log, 4, 6)
        log.write("note", 6, {"text": "lost"})
    with RunLog(tmp_path, resume=3) as log:
        steps(log, 4, 5)
    assert entries(tmp_path, "step") == [("step", step) for step in (1, 2, 3, 4, 5)]
    assert entries(tmp_path, "checkpoint", "note", "resume") == [("checkpoint", 3), ("resume", 3)]
    with RunLog(tmp_path, resume=2) as log:  # the newest checkpoint was corrupt
        log.write("step", 3, {"loss": -1.0})
    assert [entry["loss"] for entry in read_log(tmp_path) if entry["kind"] == "step"] == [1.0, 2.0, -1.0]
    assert entries(tmp_path, "resume") == [("resume", 2)]


def test_a_rollback_takes_back_steps_but_not_that_it_happened(tmp_path):
    with RunLog(tmp_path) as log:
        log.write("start", 0)
        steps(log, 1, 5)
        log.write("rollback", 4)
        steps(log, 5, 7)
        log.write("note", 7, {"text": "diverged again"})
        log.write("rollback", 2)
        steps(log, 3, 3)
    assert entries(tmp_path, "step") == [("step", step) for step in (1, 2, 3)]
    assert entries(tmp_path, "rollback", "note") == [("rollback", 4), ("note", 7), ("rollback", 2)]


def test_a_run_that_starts_anew_has_no_history(tmp_path):
    for _ in range(2):
        with RunLog(tmp_path) as log:
            log.write("start", 0)
            log.write("step", 1)
    assert entries(tmp_path) == [("start", 0), ("step", 1)]


# Kills, damage and full disks


def test_a_line_cut_off_anywhere_is_left_out_and_mended_by_the_next(tmp_path):
    path = tmp_path / "log.jsonl"
    with RunLog(tmp_path) as log:
        steps(log, 1, 2)
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole)):
        path.write_bytes(whole[:cut])
        assert entries(tmp_path) == [("step", 1)]
        with RunLog(tmp_path) as log:
            log.write("step", 9)
        assert entries(tmp_path) == [("step", 1), ("step", 9)]
        assert path.read_bytes().startswith(whole[:first])


def test_a_killed_run_loses_no_line_that_was_written_and_needs_no_tensorboard(tmp_path):
    code = (
        "import sys, itertools\nfrom sphereface.training.telling.log import RunLog\nlog = RunLog(sys.argv[1])\n"
        "print('tensorboard' in sys.modules)\n"
        "for step in itertools.count(1): log.write('step', step); print(step, flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout.readline() == "False\n"  # it is imported only where it is wanted
        for _ in range(200):
            last = int(run.stdout.readline())
        os.kill(run.pid, signal.SIGKILL)
        rest = run.stdout.read().split()
    last = int(rest[-1]) if rest else last
    found = [entry["step"] for entry in read_log(tmp_path)]
    assert found == list(range(1, len(found) + 1))
    assert len(found) >= last - 1  # the last printed number may itself be cut off


def test_damage_within_the_log_is_named_by_line(tmp_path):
    with RunLog(tmp_path) as log:
        steps(log, 1, 3)
    path = tmp_path / "log.jsonl"
    lines = path.read_bytes().split(b"\n")
    for wrong in (b"{", b"[]", b'{"kind": "step"}', b'{"kind": "stop", "step": 1}', b"\xff\xfe"):
        path.write_bytes(b"\n".join([lines[0], wrong, *lines[2:]]))
        with pytest.raises(DataFormatError, match="line 2"):
            read_log(tmp_path)
    with pytest.raises(DataFormatError, match="folder of a run"):
        read_log(tmp_path / "nowhere")


def test_a_full_disk_costs_lines_and_not_the_run(tmp_path):
    said = []
    log = RunLog(tmp_path, say=said.append)
    log.write("step", 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:  # no file may grow beyond half a line more
        resource.setrlimit(resource.RLIMIT_FSIZE, (log.path.stat().st_size + 20, limits[1]))
        log.write("step", 2)
        log.write("checkpoint", 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert entries(tmp_path) == [("step", 1)]
    assert log.path.read_bytes().endswith(b"\n")
    log.write("step", 3)
    log.close()
    assert entries(tmp_path) == [("step", 1), ("step", 3)]
    assert len(said) == 1
    assert "cannot be written" in said[0]


# TensorBoard


def board(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {
        tag: [(event.step, round(event.value, 4)) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }


def test_tensorboard_shows_the_true_history(tmp_path):
    with RunLog(tmp_path, tensorboard=True) as log:
        log.write("start", 0, {"config": {"lr": 0.1}})
        steps(log, 1, 4, lr=0.1, gradient_norm=None)
        log.write("validation", 4, {"accuracy": 0.75, "rule": "authors", "tar": {"0.01": 0.5}})
        steps(log, 5, 6, lr=0.1)
    with RunLog(tmp_path, tensorboard=True, resume=4) as log:
        log.write("step", 5, {"loss": 50.0})
        log.write("rollback", 3)
        log.write("step", 4, {"loss": 40.0})
        log.write("end", 4, {"outcome": "finished"})
    found = board(tmp_path)
    assert set(found) == {"step/loss", "step/lr", "validation/accuracy", "validation/tar/0.01"}
    assert found["step/loss"] == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 40.0)]
    history = [(entry["step"], entry["loss"]) for entry in read_log(tmp_path) if entry["kind"] == "step"]
    assert found["step/loss"] == history


def test_without_tensorboard_there_is_one_note_and_no_failure(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    said = []
    with RunLog(tmp_path, tensorboard=True, say=said.append) as log:
        steps(log, 1, 3)
        log.write("rollback", 1)
        log.write("end", 1)
    assert len(said) == 1
    assert "sphereface[train]" in said[0]
    assert [entry["text"] for entry in read_log(tmp_path) if entry["kind"] == "note"] == said
    assert not (tmp_path / "tensorboard").exists()


def test_the_page_about_the_log_names_every_kind():
    page = (Path(__file__).parents[3] / "docs" / "reference" / "training-log.md").read_text(encoding="utf-8")
    assert all(f"`{kind}`" in page for kind in KINDS)
