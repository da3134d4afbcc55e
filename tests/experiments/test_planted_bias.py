"""The planted bias, tiny: the starved people, equally hard looks, the findings, and the files that are kept."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from sphereface.cli import app
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.embed.embedder import Embedder
from sphereface.evaluation.groups.compare import Finding
from sphereface.evaluation.protocols.folder import evaluate_folder
from sphereface.experiments.loop import Budget, fit
from sphereface.experiments.openset import TEST
from sphereface.experiments.planted_bias import (
    FULL,
    LOSS,
    QUICK,
    Run,
    blue_people,
    run_planted,
)
from sphereface.experiments.planted_bias_page import as_markdown
from sphereface.experiments.two_looks import dressed, every_other_family
from sphereface.faces.images import decode
from sphereface.metrics.intervals import Interval
from sphereface.models import create_model, load_model
from sphereface.models.inputs import to_tensor
from sphereface.progress import silent, unseen

TRAININGS = ("balanced", "blue starved", "red starved")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    return run_planted(QUICK, runs, workers=1, begin=unseen), runs / QUICK.folder(0)


@pytest.mark.parametrize("plan", [FULL, QUICK], ids=["full", "quick"])
def test_half_are_blue_or_a_few_are_or_all_but_a_few_and_relatives_are_of_one_look(plan):
    masks = {training: blue_people(training, plan) for training in TRAININGS}
    assert [mask.sum() for mask in masks.values()] == [plan.people // 2, plan.starved, plan.people - plan.starved]
    for mask in (*masks.values(), every_other_family(plan.test_people)):
        assert (mask[2::4] == mask[3::4]).all()  # every fourth person resembles the one before
    assert every_other_family(plan.test_people).sum() == plan.test_people / 2


def test_the_people_of_the_full_test_are_enough_for_the_rate_that_is_asked_for():
    photos = FULL.test_people // 2 * FULL.test_photos
    pairs = photos * (photos - FULL.test_photos) / 2
    assert FULL.far * pairs >= 10 * 10  # ten times what `groups` insists on


def test_exchanging_who_is_blue_is_exchanging_the_colours_of_every_face():
    faces = np.random.default_rng(0).integers(256, size=(6, 4, 5, 3), dtype=np.uint8)
    blue = np.array([True, False, False, True, True, False])
    assert (dressed(faces, ~blue) == dressed(faces, blue)[..., [2, 1, 0]]).all()
    assert (dressed(faces, blue)[~blue] == faces[~blue]).all()
    assert (dressed(faces, blue)[blue][..., 0] == faces[blue][..., 2]).all()


def test_neither_look_is_harder_for_a_network_whose_first_weights_have_the_colours_exchanged_learns_the_same():
    faces, labels = SyntheticPeople(seed=0).faces(range(8), 2)
    blue = np.arange(16) < 4
    features = []
    for exchanged in (False, True):
        torch.manual_seed(0)
        net = create_model("sphereface4", features=16, width=0.125, norm="batch").double()
        loss = LOSS.build(16, 8, steps=3).double()
        if exchanged:
            first = next(net.parameters())
            first.data = first.data[:, [2, 1, 0]].contiguous()
        shown = to_tensor(dressed(faces, blue ^ exchanged))
        with pytest.MonkeyPatch.context() as patch:  # in double precision, where the order of sums matters little
            patch.setattr("sphereface.experiments.loop.to_input", lambda batch: (batch.double() - 127.5) / 128)
            fit(net, loss, shown, torch.from_numpy(labels), Budget(steps=3, batch=8), seed=0)
        with torch.no_grad():
            features.append(net.eval()((shown.double() - 127.5) / 128).numpy())
    assert np.abs(features[0]).max() > 0.01
    np.testing.assert_allclose(features[1], features[0], rtol=1e-6, atol=1e-8)


def test_every_training_of_every_seed_is_tested_on_new_people_half_of_them_blue(done):
    planted, home = done
    assert [(run.seed, run.training) for run in planted.runs] == [(0, training) for training in TRAININGS]
    for run in planted.runs:
        lines = run.report.attributes[0].groups
        assert [(line.name, line.people, line.photos) for line in lines] == [("blue", 20, 40), ("red", 20, 40)]
        assert run.report.stated == QUICK.far
    first, fifth = (decode((home / f"test/faces/p{number:04d}/0001.png").read_bytes()) for number in (0, 4))
    people = SyntheticPeople(seed=0)
    assert (first == people.face(TEST, 1)).all()
    assert (fifth == people.face(TEST + 4, 1)[..., ::-1]).all()


def test_the_report_is_that_of_evaluate_folder_with_groups_on_the_files_that_are_left(done):
    planted, home = done
    model = Embedder.load(home / "red-starved.safetensors")
    by_folder = evaluate_folder(
        model, home / "test/faces", groups=home / "test/groups.csv", far=QUICK.far, rounds=QUICK.rounds,
        pairs=20, splits=2, hardest=0, fars=(0.1,), fpirs=(0.1,),
    )  # fmt: skip
    assert by_folder.groups.as_dict() == planted.runs[2].report.as_dict()


def test_a_second_call_trains_nothing_and_finds_the_same_and_a_lost_model_is_made_again(done):
    planted, home = done
    begun = []

    def begin(what: str):
        begun.append(what)
        return silent

    again = run_planted(QUICK, home.parent, workers=1, begin=begin)
    assert again.as_json() == planted.as_json()
    tests = [*(f"seed 0, {training}: testing" for training in TRAININGS), "seed 0, balanced: crowds"]
    assert begun == tests

    lost = home / "blue-starved.safetensors"
    weights = load_model(lost).state_dict()  # not the bytes of the file: the order of its metadata is left to chance
    lost.unlink()
    assert run_planted(QUICK, home.parent, workers=1, begin=begin).as_json() == planted.as_json()
    assert begun[len(tests) :][:2] == ["seed 0: faces to train on", "seed 0, blue starved: training"]
    made_again = load_model(lost).state_dict()
    assert all(torch.equal(made_again[name], weights[name]) for name in weights)


def test_another_plan_has_another_folder_unless_only_the_test_is_read_otherwise():
    others = {"people": 16, "photos": 4, "starved": 8, "steps": 3, "test_people": 48, "test_photos": 3}
    folders = {replace(QUICK, **{name: value}).folder(0) for name, value in others.items()}
    assert len(folders | {QUICK.folder(0), QUICK.folder(1)}) == len(others) + 2
    assert replace(QUICK, rounds=5, far=0.1).folder(0) == QUICK.folder(0)


def found(group, which):
    other = {"red": "blue", "blue": "red"}[group]
    return Finding("look", group, which, 3.0, (2.0, 4.5), 1e-4, (other,))


@pytest.mark.parametrize(
    ("training", "findings", "as_planted"),
    [
        ("balanced", [], True),
        ("balanced", [("red", "FNMR")], False),
        ("balanced", [("blue", "FMR")], False),
        ("blue starved", [], False),
        ("blue starved", [("red", "FMR")], False),
        ("blue starved", [("red", "FNMR")], False),
        ("blue starved", [("blue", "FMR")], True),
        ("red starved", [("blue", "FMR")], False),
        ("red starved", [("red", "FMR"), ("blue", "FNMR")], True),
    ],
)
def test_only_the_starved_look_by_name_counts_as_found_and_of_a_balanced_network_only_silence(
    done, training, findings, as_planted
):
    planted, _ = done
    report = replace(planted.runs[0].report, findings=tuple(found(*each) for each in findings))
    run = Run(0, training, report)
    assert run.as_planted == as_planted
    page = as_markdown(planted._replace(runs=(run,)))
    assert f"| {'yes' if as_planted else '**no**'} |" in page
    right = int(as_planted)
    starved, balanced = (f"{right} of 1", "0 of 0") if training != "balanced" else ("0 of 0", f"{right} of 1")
    assert f"found in {starved} networks; nothing was reported of {balanced} that learned" in page


def test_a_ratio_called_detectable_is_found_nine_times_in_ten(done):
    planted, _ = done
    run = planted.runs[0]
    spread = 0.3
    ends = Interval(math.exp(0.1 - 1.96 * spread), math.exp(0.1 + 1.96 * spread))
    ratio = run.report.attributes[0].max_over_min["FNMR"]._replace(value=math.exp(0.1), interval=ends)
    attribute = replace(run.report.attributes[0], max_over_min={"FMR": ratio, "FNMR": ratio})
    detectable = run._replace(report=replace(run.report, attributes=(attribute,))).detectable
    drawn = math.log(detectable) + spread * np.random.default_rng(0).standard_normal(100_000)
    p = np.array([2 * math.erfc(each / spread / math.sqrt(2)) for each in drawn])  # two comparisons, FMR and FNMR
    assert (p <= 0.01).mean() == pytest.approx(0.9, abs=0.005)


def test_the_page_tells_every_rate_and_every_finding(done):
    planted, _ = done
    page = as_markdown(planted)
    for run in planted.runs:
        for line in run.report.attributes[0].groups:
            assert line.fmr.percent() in page
            assert line.fnmr.percent() in page
        assert all(finding.sentence in page for finding in run.findings)
    assert "`sphereface reproduce planted-bias --out results`" in page


def test_the_command_writes_page_and_numbers_and_prints_one_json_object(done, tmp_path):
    planted, home = done
    arguments = ["--quick", "--json", "--workers", "1", "--out", str(tmp_path / "out"), "--runs", str(home.parent)]
    ran = CliRunner().invoke(app, ["reproduce", "planted-bias", *arguments])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout) == json.loads(json.dumps(planted.as_json()))
    assert json.loads((tmp_path / "out" / "planted-bias.json").read_text()) == json.loads(ran.stdout)
    assert (tmp_path / "out" / "planted-bias.md").read_text() == as_markdown(planted)
