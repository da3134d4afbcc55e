"""What a run survives: kills at any moment, a full disk, a recipe that diverges, broken files."""

import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import datetime
from importlib import import_module
from multiprocessing.connection import wait
from pathlib import Path

import cv2
import pytest
import torch
from torch.distributed import TCPStore

from sphereface import parallel
from sphereface.cli import main
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.training import run as run_module
from sphereface.training.checkpoints.reading import open_checkpoint
from sphereface.training.run import is_finished
from sphereface.training.telling.log import LOG, read_log
from tests.training.conftest import TINY, arguments, command, run, same, small_disk, weights

MOMENTS = {1: 10, 2: 10}  # how often a run is killed, by the number of its processes
LONG = TINY.changed(steps=160, milestones=(100,), checkpoint_every=4)
FORK = multiprocessing.get_context("fork")


def environment():
    """As many threads for a command as here: another number of them sums in another order."""
    return {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}


def ended(given):
    """A command that ran to its end."""
    return subprocess.run(given, env=environment(), capture_output=True, text=True, check=False)


def log_lines(out, *kinds):
    """The lines of a log as they were written, also those that were void later."""
    lines = [json.loads(line) for line in (out / LOG).read_text().splitlines()]
    return [line for line in lines if line["kind"] in kinds]


def checkpoints(out):
    """The steps of the checkpoints that are finished."""
    return sorted(int(path.parent.name[5:]) for path in (out / "checkpoints").glob("step-*/manifest.json"))


# Killed at random moments.


def take_part(given, rank, ranks, port):
    """One process of a run, as `torchrun` starts it, but for the interpreter's own beginning."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    main(given)


def attempt(given, ranks, *, moment=None, victim=None):
    """Run a command until its processes end, or until the moment when the victim, or everyone, is killed; exit codes.

    Where one has ended badly, the others are asked to end, as `torchrun` does.
    """
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    processes = [
        FORK.Process(target=take_part, args=(given, rank, ranks, store.port), daemon=True) for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    first = wait([process.sentinel for process in processes], timeout=moment)
    if not first:
        for process in processes if victim is None else [processes[victim]]:
            process.kill()
            process.join()
    for process in processes:
        if any(other.exitcode for other in processes):
            process.terminate()
        process.join(60)
        assert process.exitcode is not None, "it waits for those who are dead"
    return [process.exitcode for process in processes]


def kill_at_random(faces, folder, ranks):
    """Kill a run at random moments, spread over all of its time, and resume it each time; tells what happened.

    This process imports everything and forks those that train, so that none of their time is spent on that.
    """
    for module in ("torch._dynamo", "matplotlib.backends.backend_agg"):  # wanted by an optimizer and by a report
        with suppress(ImportError):
            import_module(module)
    torch.set_num_threads(1)
    folder, chance, moments = Path(folder), random.Random(ranks), MOMENTS[ranks]
    begun = time.time()
    undisturbed = attempt(arguments(faces, folder / "whole", config=LONG), ranks)
    done = time.time()
    times = [datetime.fromisoformat(line["time"]).timestamp() for line in log_lines(folder / "whole", "checkpoint")]
    start, pace, end = times[0] - begun, (times[-1] - times[0]) / LONG.steps, done - times[-1]
    for haste in (1, 2, 4):  # where a run was quicker than its killer, its time was taken on a busier machine
        out, kills = folder / f"killed-{haste}", []
        given = arguments(faces, out, "--resume", config=LONG)
        while len(kills) < moments and not is_finished(out):
            left = (pace * (LONG.steps - max(checkpoints(out), default=0)) + end) / haste
            moment = chance.uniform(0, start + 2 * left / (moments - len(kills) + 2))
            victim = chance.randrange(ranks) if chance.random() < 0.5 else None
            codes = attempt(given, ranks, moment=moment, victim=victim)
            kills.append({"moment": moment, "codes": codes, "kept": max(checkpoints(out), default=0)})
        if not is_finished(out):
            break
    last = attempt(given, ranks)
    return {"undisturbed": undisturbed, "last": last, "kills": kills, "out": out.name, "times": [start, pace, end]}


@pytest.fixture(scope="module", params=MOMENTS, ids=["one process", "two processes"])
def killed(request, faces, tmp_path_factory):
    """A run that was killed again and again beside one that was not."""
    folder = tmp_path_factory.mktemp("killed")
    (result,) = parallel.launch(kill_at_random, 1, str(faces), str(folder), request.param)
    return request.param, folder / "whole", folder / result["out"], result


def test_a_run_killed_at_random_moments_ends_with_the_weights_of_one_that_was_not(killed):
    ranks, whole, out, result = killed
    assert result["undisturbed"] == result["last"] == [0] * ranks
    assert len(result["kills"]) == MOMENTS[ranks]
    assert all(-signal.SIGKILL in kill["codes"] and 0 not in kill["codes"] for kill in result["kills"])
    assert len([kill for kill in result["kills"] if kill["kept"]]) >= 3  # after the first checkpoint
    assert len([line for line in log_lines(out, "resume") if line["step"]]) >= 3
    if ranks == 1:
        assert same(weights(out), weights(whole))
    for name, value in weights(whole).items():
        torch.testing.assert_close(weights(out)[name], value, rtol=0, atol=1e-6)


def test_the_log_of_a_killed_run_tells_of_every_step_once(killed):
    _, whole, out, _ = killed
    assert (out / "report.html").exists()
    history = read_log(out)
    assert history[-1]["outcome"] == "finished"
    steps, expected = ([e for e in read_log(folder) if e["kind"] == "step"] for folder in (out, whole))
    assert [entry["step"] for entry in steps] == [entry["step"] for entry in expected]
    assert [entry["loss"] for entry in steps] == pytest.approx([entry["loss"] for entry in expected], rel=0, abs=1e-6)


@pytest.mark.parametrize("killed", [2], indirect=True, ids=["two processes"])
def test_a_worker_killed_under_torchrun_ends_the_run_and_the_next_one_goes_on(killed, faces, tmp_path):
    _, whole, _, _ = killed
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "sphereface"]
    out = tmp_path / "run"
    given = [*launcher, *arguments(faces, out, "--resume", config=LONG)]
    process = subprocess.Popen(given, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and len(checkpoints(out)) < 2:
        time.sleep(0.01)
    tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
    workers = [int(child) for children in tasks for child in children.read_text().split()]
    assert len(workers) == 2
    os.kill(workers[-1], signal.SIGKILL)
    assert process.wait(timeout=120) != 0
    assert not is_finished(out)
    kept = checkpoints(out)[-1]
    again = ended(given)
    assert again.returncode == 0, again.stderr
    assert [line["step"] for line in log_lines(out, "resume")] == [kept]
    for name, value in weights(whole).items():
        torch.testing.assert_close(weights(out)[name], value, rtol=0, atol=1e-6)


KILLED_WHERE_IT_OPENS = """
import os, signal, sys
name = sys.argv.pop(1)
def watch(event, values):
    if event == "open" and name in str(values[0]):
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(watch)
from sphereface.cli import main
main()
"""


def test_killed_while_it_writes_its_report_a_run_is_not_taken_for_finished(faces, whole, tmp_path):
    out = tmp_path / "run"
    first = ended([sys.executable, "-c", KILLED_WHERE_IT_OPENS, ".report.html", *arguments(faces, out)])
    assert first.returncode == -signal.SIGKILL
    assert checkpoints(out)[-1] == TINY.steps
    assert not is_finished(out)
    assert run(faces, out, resume=True).outcome == "finished"
    assert same(weights(out), weights(whole))
    assert (out / "report.html").exists()


# A full disk.


def test_a_run_on_a_full_disk_says_so_keeps_its_checkpoints_and_goes_on_once_there_is_room(faces, whole, tmp_path):
    size = sum(file.stat().st_size for file in (whole / "checkpoints" / "step-00000020").iterdir())
    with small_disk(tmp_path / "disk", "8m") as disk:
        others, out = disk / "others", disk / "run"
        others.write_bytes(bytes(shutil.disk_usage(disk).free - 5 * size // 2))
        ran = ended(command(faces, out))
        assert ran.returncode == 1
        *_, said = ran.stderr.splitlines()
        assert said.startswith(f"sphereface: {out}/checkpoints/step-00000015: checkpoint not saved, ")
        assert "No space left on device" in said
        assert "Traceback" not in ran.stderr
        assert sorted(os.listdir(out / "checkpoints")) == ["step-00000005", "step-00000010"]
        assert [open_checkpoint(out / "checkpoints" / f"step-{step:08d}").step for step in (5, 10)] == [5, 10]
        others.unlink()
        ran = ended(command(faces, out, "--resume"))
        assert ran.returncode == 0
        assert "resumed at step 10" in ran.stderr
        assert same(weights(out), weights(whole))


# What reaches the disk, and when.


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_strace_sees_a_checkpoint_on_the_disk_before_the_run_announces_it(faces, tmp_path):
    out, trace = tmp_path / "run", tmp_path / "trace"
    watched = "trace=fsync,fdatasync,write,/rename.*"
    tracer = ["strace", "-f", "-y", "-qq", "-s", "80", "--seccomp-bpf", "-e", watched, "-o", str(trace)]
    ran = ended([*tracer, *command(faces, out, config=TINY.changed(steps=5, milestones=(), checkpoint_every=3))])
    if ran.returncode and "ptrace" in ran.stderr.lower():
        pytest.skip(f"strace may not trace here: {ran.stderr.strip()}")
    assert ran.returncode == 0, ran.stderr
    lines = trace.read_text().splitlines()

    def places(*parts):
        return [place for place, line in enumerate(lines) if all(part in line for part in parts)]

    assert checkpoints(out) == [3, 5]
    announced = places("write(", f"<{out / LOG}>", r"{\"kind\": \"checkpoint\"")
    assert len(announced) == 2
    for step, logged in zip((3, 5), announced, strict=True):
        folder = out / "checkpoints" / f"step-{step:08d}"
        files = [places("fsync(", f"<{file}>", " = 0")[0] for file in folder.glob("*.safetensors")]
        assert len(files) >= 4  # network, loss, optimizer, random numbers
        [put] = places("rename", f'"{folder}/manifest.json"', " = 0")
        [manifest] = places("fsync(", f"<{folder}/.manifest.json.", " = 0")
        listed = places("fsync(", f"<{folder}>", " = 0")
        assert max(files) < max(place for place in listed if place < put)
        assert manifest < put
        assert any(put < place < logged for place in listed)
        assert any(put < place < logged for place in places("fsync(", f"<{folder.parent}>", " = 0"))
        assert any(logged < place for place in places("fsync(", f"<{out / LOG}>", " = 0"))


# Recipes that diverge.


def test_a_recipe_that_diverges_at_any_rate_ends_with_exit_code_1_and_advice_in_one_line(faces, tmp_path):
    out = tmp_path / "run"
    ran = ended(command(faces, out, config=TINY.changed(lr=1e6, clip=None, weight_decay=0.0)))
    assert ran.returncode == 1
    *_, said = ran.stderr.splitlines()
    assert said.startswith("sphereface: loss ")
    assert "after 3 rollbacks; lower lr, clip gradients, or let lambda fall more slowly; there is no earlier" in said
    assert "Traceback" not in ran.stderr
    assert [line["lr_factor"] for line in log_lines(out, "rollback")] == [0.5, 0.25, 0.125]
    assert [(line["outcome"], line["reason"]) for line in log_lines(out, "end")] == [("failed", said[12:])]
    assert not is_finished(out)


def test_a_recipe_that_diverges_as_its_rate_rises_is_taken_back_slowed_and_ends_well(faces, tmp_path):
    out = tmp_path / "run"
    rising = TINY.changed(lr=2.0, warmup=100, steps=40, milestones=(), clip=None, guard={"lr_factor": 0.01})
    ran = ended(command(faces, out, config=rising))
    assert ran.returncode == 0, ran.stderr
    rollback, *_ = log_lines(out, "rollback")
    assert rollback["step"] > 0
    assert f"{rollback['reason']}: back to step {rollback['step']}, rate x 0.01" in ran.stderr
    losses = [entry["loss"] for entry in read_log(out) if entry["kind"] == "step"]
    assert losses[-1] < losses[0]
    assert all(torch.isfinite(value).all() for value in weights(out).values())


def test_a_checkpoint_with_lost_weights_is_not_gone_back_to(faces, tmp_path, monkeypatch):
    """The tenth step leaves weights that are no numbers; that is seen at the eleventh, and they are saved by then."""
    real, calls = run_module.learn, []

    def poisoned(net, *rest):
        calls.append(1)
        report = real(net, *rest)
        if len(calls) == 10:
            with torch.no_grad():
                next(net.parameters()).fill_(float("nan"))
        return report

    monkeypatch.setattr(run_module, "learn", poisoned)
    assert run(faces, tmp_path / "run").outcome == "finished"
    [rollback] = log_lines(tmp_path / "run", "rollback")
    assert rollback["step"] == 5
    assert "at step 10" in rollback["reason"]


# Broken files.


@pytest.fixture
def broken_faces(tmp_path):
    """Two hundred faces, of which one in a hundred is broken: a JPEG that was cut off, and a file of no bytes."""
    folder = tmp_path / "broken"
    SyntheticPeople(seed=2).write(folder, 20, 10)
    empty, cut = folder / "p0003" / "0002.png", folder / "p0011" / "0007.png"
    _, jpeg = cv2.imencode(".jpg", cv2.imread(str(cut)))
    cut.unlink()
    cut.with_suffix(".jpg").write_bytes(jpeg.tobytes()[: len(jpeg) // 2])
    empty.write_bytes(b"")
    return folder


def test_one_broken_file_in_a_hundred_is_refused_before_the_first_step_or_left_out_and_listed(broken_faces, tmp_path):
    broken, out = ["p0003/0002.png", "p0011/0007.jpg"], tmp_path / "run"
    ran = ended(command(broken_faces, out, "--missing", "fail"))
    assert ran.returncode == 2
    *_, said = ran.stderr.splitlines()
    assert said.startswith(f"sphereface: {broken[0]}: ")
    assert "2 of 200 images cannot be read" in said
    assert all(name in said for name in broken)
    assert os.listdir(out) == ["config.toml"]

    ran = ended(command(broken_faces, out, "--missing", "skip"))
    assert ran.returncode == 0, ran.stderr
    assert f"2 images cannot be read and are left out; {out / 'scan.json'} lists them" in ran.stderr.splitlines()
    listed = json.loads((out / "scan.json").read_text())["unreadable"]
    assert [path for path, _ in listed] == broken
    assert [line["data"]["faces"] for line in log_lines(out, "start")] == [198]
    assert log_lines(out, "end")[-1]["step"] == TINY.steps
