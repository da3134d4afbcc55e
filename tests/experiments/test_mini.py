"""The model in the box, made small from drawn faces: its parts, what is kept of them, the card, the page."""

import json
import zipfile

import numpy as np
import pytest
import torch

from sphereface import Embedder, create_model, save_model
from sphereface.contract import Card
from sphereface.errors import DataFormatError, UserError
from sphereface.experiments import mini, mini_parts, students
from sphereface.experiments.lfw_dev import IN_LFW
from sphereface.experiments.mini_page import as_markdown
from sphereface.experiments.mini_parts import Folders, Scale, run_parts
from sphereface.experiments.outcomes import differences, outcome
from sphereface.experiments.real_faces import Plan
from sphereface.hashes import sha256_of
from sphereface.training.recipes import mini as recipe
from tests.experiments.test_real_faces import write

TINY = Plan(rates=(0.05,), seeds=(0,), steps=3, search_steps=2, width=0.125, full_width=None, held_out=4, rounds=9)
MODEL = (
    recipe()
    .with_steps(3)
    .changed(model="sphereface4", width=0.125, batch=16, validation_people=4, teaching={"views": 2}, checkpoint_every=2)
)
SCALE = Scale(TINY, students.QUICK, MODEL, rounds=9)
TESTED = 80  # people of DevTrain: enough for a rate of 1e-2


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    root = tmp_path_factory.mktemp("faces")
    write(root / "train", [*(f"p{number}" for number in range(8)), IN_LFW[0]], 0, 3)
    write(root / "more" / "labelled", [f"q{number}" for number in range(6)], 20, 3)
    write(root / "drawn", [f"u{number}" for number in range(5)], 40, 2)
    with zipfile.ZipFile(root / "more" / "unlabelled.zip", "w") as archive:
        for path in sorted((root / "drawn").rglob("*.png")):
            archive.write(path, f"faces/{path.name}")
    names = [f"A{number:03d}" for number in range(TESTED + 12)]
    write(root / "aligned", names, 100, 2)
    for part, some in {"Train": names[:TESTED], "Test": names[TESTED:]}.items():
        same = [f"{one}\t1\t2" for one in some]
        different = [f"{one}\t1\t{two}\t2" for one, two in zip(some, some[1:] + some[:1], strict=True)]
        (root / f"pairsDev{part}.txt").write_text("\n".join([f"{len(some)}", *same, *different]) + "\n")
    return root


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    path = tmp_path_factory.mktemp("teacher") / "teacher.safetensors"
    torch.manual_seed(3)
    save_model(create_model("sphereface4", features=128, width=0.125).eval(), path, Card(name="teacher"))
    return path


@pytest.fixture(scope="module")
def done(faces, teacher, tmp_path_factory):
    root, found = tmp_path_factory.mktemp("mini"), {}
    folders = Folders(faces, root / "runs", root / "out", root / "weights" / "mini.safetensors", faces / "aligned")
    for part in ("labels", "students", "model"):  # one call each, as in several sittings
        found = run_parts([part], folders, SCALE, teacher=str(teacher), jobs=1, say=lambda _: None)
    return found, folders


def test_every_part_is_kept_and_is_on_the_page(done):
    found, folders = done
    assert json.loads((folders.out / "mini.json").read_text()) == found
    page = as_markdown(found)
    for title in ("## Labels alone", "## Choice of the student", "## The model against its teacher"):
        assert title in page
    assert "| A-Softmax m = 4, few people |" in page
    assert page.count("[") >= 6


def test_few_and_many_people_are_those_of_the_sets_without_people_of_the_test(done):
    found, _ = done
    assert found["labels"]["people"] == {"few": 8, "many": 14}
    assert found["labels"]["faces"] == {"few": 24, "many": 42}


def test_outcomes_serve_where_the_runs_are_gone(done, faces, teacher, tmp_path):
    found, folders = done
    elsewhere = Folders(faces, tmp_path / "runs", folders.out, tmp_path / "m.safetensors", faces / "aligned")
    again = run_parts(["labels"], elsewhere, SCALE, teacher=str(teacher), jobs=1, say=lambda _: None)
    assert again == found
    assert not list((tmp_path / "runs").rglob("*.safetensors"))


def test_the_best_rules_without_and_with_labels_run_again_at_the_best_rate(done):
    found, folders = done
    chosen = found["students"]
    assert sorted(bool(each["labels"]) for each in chosen["long_rules"]) == [False, True]
    rate = max(chosen["rates"], key=lambda each: each["tar"])
    for each in chosen["long_rules"]:
        of_kind = [rule for rule in chosen["rules"] if bool(rule["labels"]) == bool(each["labels"])]
        assert max(of_kind, key=lambda rule: rule["tar"])["labels"] == each["labels"]
        (file,) = (folders.out / "students").glob(
            f"*-{rate['optimizer']}{rate['lr']:g}-labels{each['labels']:g}-*-steps4.json"
        )
        assert json.loads(file.read_text())["tar"] == each["tar"]


def test_every_network_runs_by_the_recipe(done):
    found, folders = done
    for each in found["students"]["networks"]:
        (file,) = (folders.out / "students").glob(
            f"{each['model']}-width{each['width']:g}-adamw0.004-labels0-*-steps3.json"
        )
        kept = json.loads(file.read_text())
        config = kept["about"]["config"]
        assert kept["tar"] == each["tar"]
        assert (config["lr"], config["norm"], config["teaching"]["labels"]) == (
            recipe().lr, recipe().norm, recipe().teaching.labels,
        )  # fmt: skip
        assert config["teaching"]["views"] == 1
        assert each["time"] > 0


def test_the_model_is_written_in_half_precision_with_a_whole_card(done, faces):
    found, folders = done
    embedder = Embedder.load(folders.weights)
    card = embedder.card
    assert (card.feature_rule, card.commercial_use, card.teacher) == ("image", "no", "teacher")
    assert {each.far for each in card.thresholds} == {0.01}  # what 80 people support
    assert card.impostor_tail.people == TESTED
    assert card.accuracy[0].value == pytest.approx(found["model"]["statistics"]["mini"]["accuracy"])
    assert {"weights", "code", "data"} == set(card.licences)
    assert any("FaceScrub" in limit for limit in card.limits)
    trained = folders.runs / "model" / "model.safetensors"
    assert folders.weights.stat().st_size < 0.6 * trained.stat().st_size
    face = np.random.default_rng(0).integers(0, 256, (3, 112, 96, 3)).astype(np.uint8)
    half, whole = embedder.embed(face), Embedder.load(trained).embed(face)
    assert (half * whole).sum(1) / np.linalg.norm(half, axis=1) / np.linalg.norm(whole, axis=1) == pytest.approx(
        1, abs=1e-3
    )
    assert embedder.card.preprocessing == Embedder.load(trained).card.preprocessing


def test_training_leaves_out_the_test_people_alone_and_has_the_faces_without_names(done):
    found, folders = done
    start, *entries = map(json.loads, (folders.runs / "model" / "log.jsonl").read_text().splitlines())
    assert start["data"]["people"] == 14  # as the recipe's 4 people to hold out are not
    assert start["data"]["unlabelled"] == 10
    assert start["validation"]["pairs"] == 2 * TESTED
    (watched,) = {entry["whose"] for entry in entries if entry["kind"] == "validation"}
    assert watched == "people of pairsDevTrain.txt, none of them trained on by name"
    assert found["model"]["faces"] == start["data"]["faces"]
    (training,) = found["model"]["trainings"]
    assert (training["steps"], training["sittings"]) == (3, 1)
    assert training["sha256"] == sha256_of(folders.weights)


def test_a_version_of_the_model_that_a_run_starts_from_keeps_its_training(tmp_path):
    (tmp_path / "one").write_bytes(b"1")
    (tmp_path / "two").write_bytes(b"2")
    kept = {
        "trainings": [
            {"steps": 3, "hours": 1.5, "sittings": 2, "seed": seed, "sha256": sha256_of(tmp_path / name)}
            for seed, name in enumerate(("one", "two"))
        ]
    }
    assert [each.seed for each in mini.trainings_until(tmp_path / "one", kept)] == [0]
    assert [each.seed for each in mini.trainings_until(tmp_path / "two", kept)] == [0, 1]
    with pytest.raises(UserError, match="no version of the model in the results"):
        mini.trainings_until(tmp_path / "one", {})


def test_a_pause_between_two_sittings_does_not_count_as_training():
    entries = [
        {"kind": kind, "time": f"2026-11-18T{clock}:00+00:00"}
        for kind, clock in (("start", "10:00"), ("step", "11:30"), ("resume", "20:00"), ("step", "20:30"))
    ]
    assert mini.hours_of(entries) == pytest.approx(2.0)


def test_an_outcome_of_other_settings_and_a_damaged_one_are_errors(tmp_path):
    path = tmp_path / "o.json"
    assert outcome(path, {"lr": 0.1}, lambda: {"tar": 0.5})["tar"] == 0.5
    assert outcome(path, {"lr": 0.1}, lambda: {"tar": 0.9})["tar"] == 0.5  # kept
    with pytest.raises(DataFormatError, match="of other settings"):
        outcome(path, {"lr": 0.2}, lambda: {"tar": 0.9})
    path.write_text("{")
    with pytest.raises(DataFormatError, match="damaged"):
        outcome(path, {"lr": 0.1}, lambda: {"tar": 0.9})


def test_differences_pair_the_draws_of_two_outcomes():
    rng = np.random.default_rng(0)
    ours, theirs = (
        [{"statistics": {"accuracy": 0.9 - shift, "tar": 0.5 - shift},
          "draws": {name: rng.normal(0.5 - shift, 0.01, 400) for name in ("accuracy", "tar")}} for _ in range(2)]
        for shift in (0.0, 0.1)
    )  # fmt: skip
    found = differences(ours, theirs)["tar"]
    draws = np.mean([one["draws"]["tar"] - two["draws"]["tar"] for one, two in zip(ours, theirs, strict=True)], axis=0)
    assert found.difference == pytest.approx(0.1)
    assert found.interval == pytest.approx(tuple(np.percentile(draws, [2.5, 97.5])))
    assert found.standard_error == pytest.approx(draws.std(ddof=1))


def test_an_unknown_part_names_the_known(faces, tmp_path):
    folders = Folders(faces, tmp_path, tmp_path, tmp_path / "m.safetensors", faces / "aligned")
    with pytest.raises(UserError, match="unknown part 'weights'; choose one of labels, students, model"):
        run_parts(["weights"], folders, teacher="sface", jobs=1, say=print)


def test_models_of_others_are_calibrated_on_people_of_dev_train(faces, tmp_path):
    from sphereface.zoo import list_models

    installed = [model.name for model in list_models() if model.found and model.entry.card]
    if not installed:
        pytest.skip("no model of another project is installed")
    (tmp_path / "aligned").mkdir()
    found = mini_parts.calibrate_others(faces, tmp_path, aligned_112(faces, tmp_path / "aligned"), jobs=1, say=print)
    assert set(found) == set(installed)
    assert found["sface"]["impostor_tail"]["people"] == TESTED


def aligned_112(faces, folder):
    """The drawn faces with margins at both sides, as crops of 112x112 have."""
    from sphereface.faces.images import decode, encode_png

    for path in (faces / "aligned").rglob("*.png"):
        wide = np.pad(decode(path.read_bytes()), ((0, 0), (8, 8), (0, 0)), mode="edge")
        place = folder / path.relative_to(faces / "aligned")
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(encode_png(wide))
    return folder
