import json
import subprocess
import sys

import pytest

from sphereface import __version__


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "sphereface", *arguments], capture_output=True, text=True, check=False)


def test_the_version_is_the_package_version():
    assert run("--version").stdout.strip() == __version__


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("demo", "--help"),
        ("bench", "--help"),
        ("bench", "head", "--help"),
        ("data", "synth", "--help"),
        ("reproduce", "synthetic", "--help"),
    ],
)
def test_help_is_there_for_every_verb(arguments):
    ran = run(*arguments)
    assert ran.returncode == 0
    assert "--help" in ran.stdout


@pytest.mark.parametrize("arguments", [("fly",), ("bench", "head", "--repeats", "0"), ("demo", "--speed")])
def test_bad_usage_exits_with_two(arguments):
    ran = run(*arguments)
    assert ran.returncode == 2
    assert ran.stdout == ""


def run_broken(error: str) -> subprocess.CompletedProcess[str]:
    """A verb that raises."""
    code = (
        f"import sphereface.cli as c\ndef broken(): raise {error}\nc.app.command('broken')(broken)\nc.main(['broken'])"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_an_error_of_ours_is_one_line_and_exit_code_two():
    ran = run_broken("ValueError('this came; that was wanted')")
    assert ran.returncode == 2
    assert ran.stderr == "sphereface: this came; that was wanted\n"


def test_a_failed_job_is_one_line_and_exit_code_one():
    ran = run_broken("RuntimeError('out of memory' + chr(10) + 'long story')")
    assert ran.returncode == 1
    assert ran.stderr.startswith("sphereface: out of memory")
    assert ran.stderr.count("\n") == 1


def test_without_torch_a_verb_names_the_extra():
    code = "import sys\nsys.modules['torch'] = None\nimport sphereface.cli as c\nc.main(['demo'])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "sphereface[train]" in ran.stderr


def test_synthetic_data_does_not_depend_on_the_number_of_workers(tmp_path):
    folders = []
    for workers in ("1", "2"):
        folder = tmp_path / workers
        ran = run("data", "synth", str(folder), "--people", "3", "--photos", "2", "--workers", workers, "--json")
        assert json.loads(ran.stdout)["people"] == 3, ran.stderr
        folders.append({path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*.png"))})
    assert folders[0] == folders[1]
    assert len(folders[0]) == 6


def test_groups_are_asked_for_by_name(tmp_path):
    assert run("data", "synth", str(tmp_path / "a"), "--people", "1", "--photos", "1", "--skin", "dark").returncode == 0
    ran = run("data", "synth", str(tmp_path / "b"), "--skin", "blue")
    assert ran.returncode == 2
    assert "light" in ran.stderr
