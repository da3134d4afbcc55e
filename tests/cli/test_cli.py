import json
import os
import subprocess
import sys

import cv2
import pytest

from sphereface import __version__
from sphereface.faces.images import encode_png


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
        ("data", "align", "--help"),
        ("data", "convert", "--help"),
        ("data", "audit", "--help"),
        ("bench", "detection", "--help"),
        ("bench", "loading", "--help"),
        ("bench", "training", "--help"),
        ("bench", "scale", "--help"),
        ("bench", "megaface", "--help"),
        ("models", "calibrate", "--help"),
        ("models", "card", "--help"),
        ("reproduce", "real-faces", "--help"),
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
    code = f"""
import sphereface.cli
from sphereface.errors import JobFailed, Setting, UserError

@sphereface.cli.app.command()
def broken():
    raise {error}

sphereface.cli.main(["broken"])
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_an_error_of_ours_is_one_line_and_exit_code_two():
    ran = run_broken("UserError('this came; that was wanted')")
    assert ran.returncode == 2
    assert ran.stderr == "sphereface: this came; that was wanted\n"


def test_a_setting_that_an_error_suggests_is_an_option_on_the_command_line():
    said = run_broken("UserError('2 are lost; ', Setting('small', 'leave out'), ' drops them')").stderr
    assert said == "sphereface: 2 are lost; --small leave-out drops them\n"


@pytest.mark.parametrize("error", ["ValueError('operands could not be broadcast')", "KeyError('a')"])
def test_an_error_that_is_not_ours_is_called_a_bug_in_one_line(error):
    ran = run_broken(error)
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"sphereface: a bug in sphereface, {error.partition('(')[0]}: ")
    assert ran.stderr.endswith("(SPHEREFACE_DEBUG=1 shows where)\n")
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize("error", ["UserError('this came')", "ValueError('this came')", "JobFailed('this came')"])
def test_every_error_shows_where_if_asked(error, monkeypatch):
    monkeypatch.setenv("SPHEREFACE_DEBUG", "1")
    assert "Traceback" in run_broken(error).stderr


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


def photos(root):
    """Two photos of one face, one of a wall, and a file that is no photo."""
    from skimage import data as samples

    astronaut = cv2.resize(samples.astronaut(), (200, 200), interpolation=cv2.INTER_AREA)
    for name, image in {"eileen/1.png": astronaut, "eileen/2.png": astronaut, "wall/1.png": astronaut * 0 + 77}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(encode_png(image))
    (root / "wall" / "2.png").write_bytes(b"no photo")
    return root


def test_photos_become_faces_and_faces_are_looked_through(tmp_path):
    source, faces = photos(tmp_path / "photos"), tmp_path / "faces"
    ran = run("data", "align", str(source), str(faces), "--json", "--workers", "1")
    report = json.loads(ran.stdout)
    assert (report["found"], report["none"], list(report["unreadable"])) == (2, ["wall/1.png"], ["wall/2.png"])
    ran = run("data", "align", str(source), str(faces), "--workers", "1")
    assert ran.returncode == 0
    assert "no face" in ran.stdout
    ran = run("data", "align", str(faces), str(tmp_path / "again"))
    assert ran.returncode == 2
    assert "faces already" in ran.stderr
    ran = run("data", "audit", str(faces), "--out", str(tmp_path / "audit"), "--json")
    found = json.loads(ran.stdout)
    assert [(pair["first"], pair["second"]) for pair in found["duplicates"]] == [("eileen/1.jpg", "eileen/2.jpg")]
    assert (tmp_path / "audit" / "exclude.txt").read_text().endswith("eileen/2.jpg\n")


def test_a_policy_that_is_not_met_fails_the_job(tmp_path):
    ran = run("data", "align", str(photos(tmp_path / "photos")), str(tmp_path / "faces"), "--misses", "fail")
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith("sphereface: 1 photos without a face and 1 unreadable")


def test_a_set_is_converted_and_comes_back(tmp_path):
    source = tmp_path / "faces"
    run("data", "synth", str(source), "--people", "2", "--photos", "2", "--workers", "1")
    ran = run("data", "convert", str(source), str(tmp_path / "set.rec"), "--to", "rec", "--json")
    assert json.loads(ran.stdout)["images"] == 4, ran.stderr
    assert run("data", "convert", str(tmp_path / "set.rec"), str(tmp_path / "back"), "--to", "folder").returncode == 0
    for path in source.rglob("*.png"):
        assert (tmp_path / "back" / path.relative_to(source)).read_bytes() == path.read_bytes()
    assert (tmp_path / "back" / "manifest.json").read_bytes() == (source / "manifest.json").read_bytes()
    ran = run("data", "convert", str(source), str(tmp_path / "back"), "--to", "folder")
    assert ran.returncode == 2
    assert ran.stderr.count("\n") <= 2


def test_a_shell_completes_verbs():
    asked = {"_SPHEREFACE_COMPLETE": "complete_bash", "COMP_WORDS": "sphereface evaluate l", "COMP_CWORD": "2"}
    command = [sys.executable, "-c", "import sys; sys.argv[0] = 'sphereface'; from sphereface.cli import main; main()"]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["lfw"], done.stderr
