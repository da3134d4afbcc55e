"""`sphereface doctor`, from the command line."""

import json
import os
import re
import subprocess
import sys

import pytest
import torch

from sphereface.losses import LOSSES


def doctor(*arguments, code="from sphereface.cli import main", **environment):
    program = f"{code}\nimport sys\nmain(['doctor', *sys.argv[1:]])"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True, text=True, check=False, env={**os.environ, **environment},
    )  # fmt: skip


@pytest.fixture(scope="module")
def healthy():
    ran = subprocess.run(
        [sys.executable, "-m", "sphereface", "doctor", "--device", "cpu"],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran


def test_a_healthy_machine_passes_every_check_with_its_number_and_its_limit(healthy):
    lines = [line for line in healthy.stdout.splitlines() if line.startswith(("PASS", "FAIL", "SKIP"))]
    passed = [re.fullmatch(r"PASS  (\S.*\S)\s+(\d\.\de[+-]\d\d), limit (\S+)(  .*)?", line) for line in lines]
    names = {found[1].strip() for found in passed if found}
    for precision in ("float32", "bfloat16"):
        assert {f"{name} {precision}" for name in (*LOSSES, "5 steps", "resume")} <= names
        assert {f"network {precision}, features", f"network {precision}, gradients"} <= names
    assert "sharding, gloo on cpu" in names
    assert all(float(found[2]) <= float(found[3]) for found in passed if found)
    assert [line.split()[:2] for line, found in zip(lines, passed, strict=True) if not found] == [
        ["SKIP", "tf32"], ["SKIP", "float16"],
    ]  # fmt: skip


def test_the_block_is_all_of_the_output_and_can_be_pasted(healthy):
    lines = healthy.stdout.splitlines()
    assert lines[0] == lines[-1] == "```"
    assert lines[1] == "sphereface doctor --device cpu"
    shown = {line[:13].strip(): line[13:].strip() for line in lines[2 : lines.index("")]}
    assert shown["torch"] == torch.__version__
    assert torch.backends.cpu.get_cpu_capability() in shown["torch on cpu"]
    assert {"python", "numpy", "opencv", "onnxruntime", "system", "cpu"} <= shown.keys()
    assert "OMP_NUM_THREADS=1" in shown["environment"]
    assert re.fullmatch(r"\d+ passed, 0 failed, 2 skipped in \d+ s", lines[-2])
    assert "checking resume float32\n" in healthy.stderr
    assert "Traceback" not in healthy.stderr
    assert "Warning" not in healthy.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there_is_one_line_with_the_way_out():
    ran = doctor("--device", "cuda")
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert re.fullmatch(r"sphereface: device is cuda; torch \S+ reports: .*; choose cpu, or .*\n", ran.stderr)


def test_without_torch_the_versions_are_shown_and_the_rest_is_skipped():
    ran = doctor("--json", code="import sys\nsys.modules['torch'] = None\nfrom sphereface.cli import main")
    found = json.loads(ran.stdout)
    assert ran.returncode == 0
    assert found["machine"]["torch"] == "not installed"
    assert found["machine"]["numpy"]
    assert (found["passed"], found["failed"], found["skipped"]) == (0, 0, 5)
    assert all("sphereface[train]" in check["note"] for check in found["checks"])


def test_a_broken_torch_is_a_failure_that_is_told_in_the_block(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise OSError('libcudart.so.12: cannot open shared object file')")
    ran = doctor(PYTHONPATH=str(tmp_path))
    assert ran.returncode == 1
    assert re.search(r"^torch +broken: libcudart.so.12", ran.stdout, re.MULTILINE)
    assert re.search(r"^FAIL  resume +libcudart.so.12.* \(OSError in __init__.py:1\)$", ran.stdout, re.MULTILINE)
    assert "Traceback" not in ran.stderr


def test_help_is_there_and_asks_for_no_torch():
    ran = doctor("--help", code="import sys\nsys.modules['torch'] = None\nfrom sphereface.cli import main")
    assert ran.returncode == 0
    assert "--device" in ran.stdout
