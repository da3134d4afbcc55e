"""The training runs that tables share: searched, trained once, kept, and counted without being trained."""

import json
import shutil

import pytest

from sphereface.errors import UserError
from sphereface.experiments.paper import splits, table4
from sphereface.experiments.paper.dry import planned
from sphereface.experiments.paper.methods import METHODS
from sphereface.experiments.paper.runs import Runs


def test_a_run_takes_the_rate_with_the_highest_rate_on_held_out_people(small_plan, setting):
    runs = Runs(setting)
    run = runs.of("softmax", 5)
    found = runs.rate_search(METHODS["softmax"])
    assert set(found) == set(small_plan.rates)
    assert run.settings.lr == max(found, key=found.__getitem__)
    assert (run.settings.seed, run.settings.steps, run.settings.validation_people) == (5, 4, 0)
    searched = list((setting.out / "runs" / "tiny").glob("softmax-*.held-out.json"))
    assert len(searched) == 2
    assert {json.loads(path.read_text())["about"]["config"]["validation_people"] for path in searched} == {4}


def test_a_weight_is_the_best_over_folds_of_people(small_plan, setting):
    runs = Runs(setting)
    run = runs.of("center", 0)
    found = runs.weight_search(METHODS["center"])
    assert run.settings.loss_options["weight"] == max(found, key=found.__getitem__)
    folds = list((setting.out / "runs" / "tiny").glob("center-weight0.01-*.held-out.json"))
    assert {json.loads(path.read_text())["about"]["config"]["seed"] for path in folds} >= {0, 1}


def test_outcomes_serve_where_the_runs_are_gone(small_plan, setting, tmp_path):
    runs = Runs(setting)
    run = runs.of("softmax", 0)
    (before,) = runs.measured([run], "lfw", "training")
    shutil.rmtree(setting.runs / "tiny" / run.folder)
    (after,) = Runs(setting).measured([run], "lfw", "training")
    assert before == after
    assert not (setting.runs / "tiny" / run.folder).exists()
    assert set(before["lfw"]["statistics"]) == {"accuracy", "tar", "fisher", "rank_1"}
    assert len(before["lfw"]["draws"]["tar"]) == small_plan.rounds
    assert len(before["training"]["lengths"]) == len(runs.known.people)


def test_runs_of_other_settings_or_faces_have_other_folders(small_plan, setting):
    runs = Runs(setting)
    folders = {
        runs.of("softmax", 0).folder, runs.of("softmax", 1).folder, runs.of("softmax", 0, layers=10).folder,
        runs.of("softmax", 0, split=splits.LONG_TAILED).folder, runs.of("modified_softmax", 0).folder,
        runs.of("softmax", 0)._replace(faces="other").folder,
    }  # fmt: skip
    assert len(folders) == 6


def test_a_dry_call_lists_every_search_and_run_and_trains_none(small_plan, setting):
    plan = planned(["table4"], setting)
    methods = len(table4.SHOWN)
    searches = 2 * methods + 2 * 2  # two rates each; two weights of center by two folds
    assert plan.total["runs"] == searches + methods
    assert not (setting.out / "runs").exists()
    one = next(each for each in plan.runs if each["run"].startswith("softmax") and each["steps"] == 4)
    assert one["images"] == 4 * 16
    assert "12 people" in plan.data["faces"] or plan.data["faces"].startswith("synthetic: 12 people")
    assert "Nothing was started" in plan.text()


def test_the_long_tail_keeps_the_photos_of_a_fifth_and_four_of_the_others(small_plan, setting):
    known = Runs(setting).known
    left = splits.long_tailed(known)
    sizes = [int((known.labels[~left] == person).sum()) for person in range(12)]
    assert sorted(sizes) == [4] * 10 + [20] * 2


def test_a_split_of_no_name_is_an_error_that_lists_them(small_plan, setting):
    with pytest.raises(UserError, match="choose one of whole, long-tailed, closed-set"):
        splits.left_out("half", Runs(setting).known)
