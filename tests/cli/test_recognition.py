"""verify, enroll, identify, group and gallery, as typed; without torch and without a socket."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sphereface.cli import main
from sphereface.faces.images import read_photo
from tests.recognize.drawn import needs_sface, photo, wall, write, write_model

pytestmark = needs_sface
ALONE = """
import sys
sys.modules['torch'] = None
def refuse(event, arguments):
    if event.startswith("socket.") and event != "socket.__new__":
        raise RuntimeError(f"a socket: {event} {arguments}")
sys.addaudithook(refuse)
from sphereface.cli import main
main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """Photos of people, and a model calibrated on drawn ones."""
    root = tmp_path_factory.mktemp("given")
    write(root / "people" / "ada", one=photo(0), two=photo(0, light=0.9))
    write(root / "people" / "bob", one=photo(2), wall=wall())
    write(root / "new", ada=photo(0, light=0.8), stranger=photo(7), both=photo(2, 7, light=0.95))
    return root, write_model(root)


@pytest.fixture(autouse=True)
def own_gallery(tmp_path, monkeypatch):
    monkeypatch.setenv("SPHEREFACE_GALLERY", str(tmp_path / "people.gallery"))


@pytest.fixture
def run(capsys):
    """Run a verb; its exit code, standard output and error."""

    def call(*arguments):
        capsys.readouterr()
        try:
            main([str(each) for each in arguments])
            code = 0
        except SystemExit as end:
            code = end.code or 0
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def known(run, given):
    """The people of the folder, enrolled."""
    root, model = given
    code, out, said = run("enroll", root / "people", "--model", model, "--json")
    assert code == 0, said
    return json.loads(out)


def test_the_first_minutes_need_no_torch_and_open_no_socket(given, tmp_path):
    root, model = given
    commands = (
        ["verify", root / "new" / "ada.png", root / "people" / "ada" / "one.png"],
        ["enroll", root / "people"],
        ["identify", root / "new", "--draw", tmp_path / "named"],
        ["group", root / "new", "--page", tmp_path / "page.html"],
    )
    for command in commands:
        ran = subprocess.run(
            [sys.executable, "-c", ALONE, *map(str, command), "--model", model, "--json", "--threads", "1"],
            env={**os.environ, "SPHEREFACE_GALLERY": str(tmp_path / "alone.gallery")}, capture_output=True, text=True,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        json.loads(ran.stdout)


def test_verify_answers_for_same_and_for_different_people(run, given):
    root, model = given
    one, two, bob = (root / "people" / name for name in ("ada/one.png", "ada/two.png", "bob/one.png"))
    code, out, _ = run("verify", one, two, "--model", model, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["same"] is True
    assert found["score"] >= found["threshold"]
    assert found["far"] == 1e-3
    assert found["warnings"]
    code, out, _ = run("verify", one, bob, "--model", model, "--far", "0.01")
    assert code == 0
    assert out.startswith("different people: score")
    code, out, said = run("verify", one, bob, "--model", model, "--far", "1e-9")
    assert (code, out) == (2, "")
    assert "FAR 1e-09: the card of" in said
    assert "sphereface models calibrate" in said


def test_verify_says_what_is_wrong_in_one_line(run, given):
    root, model = given
    for other, reason in {"people/bob/wall.png": "no face was found", "people/nobody.png": "cannot be read"}.items():
        code, out, said = run("verify", root / "people" / "ada" / "one.png", root / other, "--model", model)
        assert (code, out) == (2, "")
        assert reason in said.splitlines()[-1]
        assert said.count("\n") == 1


def test_a_folder_of_people_is_enrolled_and_the_second_run_adds_nothing(run, given, known):
    assert (known["people"], known["added"], known["failed"]) == (2, 3, 1)
    assert {each["name"]: each["photos"] for each in known["enrolled"]} == {"ada": 2, "bob": 1}
    root, model = given
    code, out, _ = run("enroll", root / "people", "--model", model)
    assert code == 0
    assert "wall.png: failed to enroll: no face was found" in out
    assert "0 photos added, 1 failed to enroll; 2 people in" in out


def test_enrolling_needs_photos_and_a_face(run, given):
    root, model = given
    code, _, said = run("enroll", "Ada", "--model", model)
    assert code == 2
    assert "Ada: no photos given; wanted a name and photos" in said
    code, _, said = run("enroll", root / "people" / "ada", root / "people" / "bob", "--model", model)  # as a * gives it
    assert code == 2
    assert "wanted the person's name first" in said
    code, _, said = run("enroll", "Ada", root / "new" / "ada.png", "--model", model, "--expires", "soon")
    assert code == 2
    assert not Path(os.environ["SPHEREFACE_GALLERY"]).exists()
    code, out, said = run("enroll", "Wall", root / "people" / "bob" / "wall.png", "--model", model)
    assert code == 1
    assert "no face was found" in out
    assert "no photo was enrolled" in said


def test_identify_names_draws_and_lists(run, given, known, tmp_path):
    root, model = given
    arguments = ("identify", root / "new", "--model", model, "--draw", tmp_path / "named", "--csv", tmp_path / "f.csv")
    code, out, _ = run(*arguments, "--json")
    assert code == 0
    found = json.loads(out)
    names = {Path(each["path"]).stem: [face["name"] for face in each["faces"]] for each in found["photos"]}
    assert names["ada"] == ["ada"]
    assert names["stranger"] == [None]
    assert sorted(names["both"], key=str) == [None, "bob"]
    assert (found["people"], found["fpir"]) == (2, 0.01)
    face = found["photos"][0]["faces"][0]
    assert face.keys() >= {"box", "name", "score", "threshold", "fpir", "quality"}
    drawn = read_photo(tmp_path / "named" / "ada.jpg")
    assert np.abs(drawn.astype(int) - photo(0, light=0.8)).max() > 50
    rows = list(csv.DictReader((tmp_path / "f.csv").read_text().splitlines()))
    assert sorted(row["name"] for row in rows) == ["", "", "ada", "bob"]
    _, out, _ = run(*arguments)
    assert "1 % of strangers would be named (2 people in the gallery); no liveness check" in out
    code, _, said = run("identify", root / "new", "--model", model, "--draw", root / "people" / "ada" / "one.png")
    assert code == 2
    code, _, said = run("identify", root / "new", "--model", model, "--csv", tmp_path / "no" / "f.csv")
    assert code == 2
    assert "there is no folder" in said


def test_drawing_replaces_no_photo(run, given, known, tmp_path):
    _, model = given
    path = write(tmp_path, party=photo(0))["party"].rename(tmp_path / "party.jpg")
    before = path.read_bytes()
    code, _, said = run("identify", path, "--model", model, "--draw", tmp_path)
    assert code == 2
    assert "would replace the photo" in said
    assert path.read_bytes() == before


def test_identify_without_a_gallery_or_photos_says_so(run, given, tmp_path):
    root, model = given
    code, _, said = run("identify", root / "new", "--model", model)
    assert code == 2
    assert "no such gallery; sphereface enroll makes one" in said
    (tmp_path / "empty").mkdir()
    assert run("identify", tmp_path / "empty", "--model", model)[0] == 2


def test_the_gallery_is_corrected_from_the_command_line(run, given, known, tmp_path):
    root, model = given
    assert run("gallery", "rename", "ada", "Ada Lovelace")[0] == 0
    code, out, _ = run("gallery", "list")
    assert code == 0
    assert "Ada Lovelace" in out
    assert "2 people" in out
    code, out, _ = run("gallery", "show", "ada", "--json")
    shown = json.loads(out)
    assert shown["earlier_names"] == ["ada"]
    assert len(shown["photos"]) == 2
    assert [each["action"] for each in shown["log"]] == ["enroll", "rename"]
    assert run("gallery", "expire", "bob", "--on", "2020-01-01")[0] == 0
    _, out, _ = run("identify", root / "new" / "both.png", "--model", model, "--json")
    assert {face["name"] for face in json.loads(out)["photos"][0]["faces"]} == {None}
    code, out, _ = run("gallery", "expire", "--json")
    assert json.loads(out) == {"removed": ["bob"]}
    code, out, _ = run("gallery", "remove", "ada", "--photo", str(shown["photos"][0]["number"]), "--json")
    assert json.loads(out)["erased"] is True
    assert json.loads(run("gallery", "list", "--json")[1])["people"][0]["photos"] == 1
    assert run("gallery", "remove", "Ada Lovelace")[0] == 0
    assert json.loads(run("gallery", "check", "--json")[1])["problems"] == []


def test_people_move_between_files(run, given, known, tmp_path):
    assert run("gallery", "export", tmp_path / "people.jsonl")[0] == 0
    code, out, _ = run("gallery", "import", tmp_path / "people.jsonl", "--gallery", tmp_path / "b.gallery", "--json")
    assert json.loads(out) == {"people": 2, "photos": 3, "renamed": {}}
    assert run("gallery", "backup", tmp_path / "copy.gallery")[0] == 0
    assert run("gallery", "merge", "bob", "ada")[0] == 0
    assert json.loads(run("gallery", "list", "--json")[1])["people"][0]["photos"] == 3
    assert run("gallery", "restore", tmp_path / "copy.gallery")[0] == 0
    assert len(json.loads(run("gallery", "list", "--json")[1])["people"]) == 2
    root, model = given
    code, out, said = run("gallery", "reembed", root / "people", "--model", model, "--json")
    assert code == 0, said
    assert json.loads(out)["photos"] == 3


def test_unknown_names_and_bad_dates_are_one_line(run, known):
    for arguments, reason in (
        (("gallery", "show", "adda"), "nobody is called 'adda'; similar names: ada"),
        (("gallery", "expire", "ada", "--on", "soon"), "'soon' is no date; wanted one such as 2027-01-31"),
        (("gallery", "expire", "ada"), "wanted NAME with --on DATE or --never"),
        (("gallery", "rename", "ada", "bob"), "bob is a name of another person"),
    ):
        code, out, said = run(*arguments)
        assert (code, out) == (2, "")
        assert reason in said


def test_an_encrypted_gallery_gets_its_key_file_and_the_same_names(run, given, tmp_path):
    root, model = given
    files = ("--gallery", tmp_path / "sealed.gallery", "--key-file", tmp_path / "gallery.key")
    code, _, said = run("enroll", root / "people", *files, "--model", model)
    assert code == 0
    assert "a new key; without it the gallery cannot be read" in said
    code, out, _ = run("identify", root / "new" / "ada.png", *files, "--model", model, "--json")
    assert json.loads(out)["photos"][0]["faces"][0]["name"] == "ada"
    code, _, said = run("gallery", "list", "--gallery", tmp_path / "sealed.gallery")
    assert code == 2
    assert "an encrypted gallery; give its key with --key-file FILE" in said
    assert b"ada" not in (tmp_path / "sealed.gallery").read_bytes()


def test_group_enrolls_unnamed_people_and_keeps_corrections(run, given, tmp_path):
    root, model = given
    into, page = tmp_path / "groups.gallery", tmp_path / "groups.html"
    arguments = ("group", root / "people", root / "new", "--into", into, "--page", page, "--model", model, "--json")
    code, out, said = run(*arguments)
    assert code == 0, said
    assert json.loads(out)["enrolled"] == ["unknown-1", "unknown-2", "unknown-3"]
    assert page.read_text().count("data:image/jpeg") == 7
    assert run("gallery", "rename", "unknown-1", "Ada", "--gallery", into)[0] == 0
    again = json.loads(run(*arguments)[1])
    assert again["enrolled"] == []
    assert "Ada" in again["known"]
    assert run("group", root / "new", "--page", tmp_path, "--model", model)[0] == 2
