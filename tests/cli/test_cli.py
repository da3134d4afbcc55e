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
    "arguments", [("--help",), ("demo", "--help"), ("bench", "--help"), ("bench", "head", "--help")]
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


def test_an_error_of_ours_is_one_line_and_exit_code_two():
    ran = subprocess.run(
        [sys.executable, "-c", "import sphereface.cli as c\n"
         "def broken(): raise ValueError('this came; that was wanted')\n"
         "c.app.command('broken')(broken)\nc.main(['broken'])"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 2
    assert ran.stderr == "sphereface: this came; that was wanted\n"


def test_a_failed_job_is_one_line_and_exit_code_one():
    ran = subprocess.run(
        [sys.executable, "-c", "import sphereface.cli as c\n"
         "def broken(): raise RuntimeError('out of memory\\nlong story')\n"
         "c.app.command('broken')(broken)\nc.main(['broken'])"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 1
    assert ran.stderr.startswith("sphereface: out of memory")
    assert ran.stderr.count("\n") == 1


def test_without_torch_a_verb_names_the_extra():
    code = "import sys\nsys.modules['torch'] = None\nimport sphereface.cli as c\nc.main(['demo'])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "sphereface[train]" in ran.stderr


def test_the_demo_prints_one_json_object_and_margins_turn_classes_apart():
    ran = run("demo", "--json")
    rows = {row["loss"]: row for row in json.loads(ran.stdout)["rows"]}
    assert rows["A-Softmax m = 4"]["between"] > rows["modified softmax"]["between"]
    assert all(0 < row["within"] < row["between"] < 180 for row in rows.values())
