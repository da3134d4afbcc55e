"""The experiment behind the demo, small: fair, complete, repeatable, and safe to interrupt."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from sphereface.cli import app
from sphereface.cli.demo import tell
from sphereface.experiments import demo, openset, study
from sphereface.experiments.openset import CONTENDERS, Scale, make_pairs
from sphereface.progress import silent, unseen
from tests.reports.browser import complaints, needs_chromium

TINY = Scale(
    people=6,
    photos=5,
    test_people=30,
    test_photos=3,
    held_out_people=8,
    distractors=12,
    pairs=100,
    steps=2,
    sphere_photos=8,
    sphere_steps=2,
)


def test_pairs_are_balanced_distinct_and_share_no_person_between_folds():
    pairs = make_pairs(240, 8)
    assert len(pairs.same) == 6000 == len(set(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)))
    assert pairs.same.sum() == 3000
    left, right = pairs.left // 8, pairs.right // 8
    assert ((left == right) == pairs.same).all()
    homes: dict[int, set[int]] = {}
    for person, fold in zip([*left, *right], [*pairs.fold, *pairs.fold], strict=True):
        homes.setdefault(int(person), set()).add(int(fold))
    assert all(len(folds) == 1 for folds in homes.values())
    assert np.bincount(pairs.fold).tolist() == [600] * 10


def test_more_pairs_than_there_are_is_refused():
    with pytest.raises(ValueError, match="there are only"):
        make_pairs(20, 2)


def test_the_full_demo_tests_on_at_least_two_hundred_people_and_so_does_the_quick_one():
    for scale in (openset.FULL, openset.QUICK):
        assert scale.test_people >= 200
        assert len(make_pairs(scale.test_people, scale.test_photos).same) == 6000


def test_populations_never_meet():
    spans = [(openset.TRAIN, openset.FULL.people), (openset.HELD_OUT, openset.FULL.held_out_people),
             (openset.TEST, openset.FULL.test_people), (openset.DISTRACTORS, openset.FULL.distractors)]  # fmt: skip
    numbers = [number for start, count in spans for number in range(start, start + count)]
    assert len(numbers) == len(set(numbers))


def test_drawing_tells_how_far_it_is_and_ends_at_the_announced_number():
    counts: list[int] = []
    sets = openset.draw_sets(TINY, workers=1, progress=lambda count, _: counts.append(count))
    assert counts == sorted(counts)
    assert counts[-1] == TINY.faces == sum(len(each.people) for each in sets[:3])


def test_every_contender_sees_the_same_faces_and_starts_from_the_same_network(monkeypatch):
    seen = {}

    def spy(net, loss, faces, labels, budget, *, seed, on_step):
        seen[len(seen)] = (net.fc1.weight.detach().clone(), faces, budget, seed)

    monkeypatch.setattr(openset, "fit", spy)
    faces = openset.draw(0, 3, 2, workers=1)
    for contender in CONTENDERS:
        openset.train(contender, faces, TINY, seed=4)
    first = seen[0]
    for other in seen.values():
        assert (other[0] == first[0]).all()
        assert other[1] is first[1]
        assert replace(other[2], lr=0.0) == replace(first[2], lr=0.0)
        assert other[3] == 4


def test_a_demo_makes_a_whole_report_and_the_same_one_again(tmp_path):
    found = [demo.run_demo(TINY, tmp_path / str(run), seed=0, workers=1, begin=unseen) for run in range(2)]
    assert all(each.finished for each in found)
    assert found[0].rows() == found[1].rows()
    assert [row.loss for row in found[0].rows()] == [contender.name for contender in CONTENDERS]
    html = (tmp_path / "0" / "report.html").read_text()
    assert html.count("<figure") == 5
    assert "not finished" not in html
    assert all(row.loss in html for row in found[0].rows())


@needs_chromium
@pytest.mark.parametrize("interrupted", [False, True])
def test_chromium_opens_the_report_of_a_demo_without_an_error(tmp_path, interrupted):
    def begin(what: str):
        if interrupted and what == "training modified softmax":
            raise KeyboardInterrupt
        return silent

    demo.run_demo(TINY, tmp_path, seed=0, workers=1, begin=begin)
    assert complaints(tmp_path / "report.html", scheme="dark", width=390) == []


@pytest.mark.parametrize("when", ["drawing six people", "3-D features: A-Softmax m = 2", "training A-Softmax m = 2"])
def test_an_interrupt_leaves_a_valid_partial_report(tmp_path, when):
    def begin(what: str):
        if what == when:
            raise KeyboardInterrupt
        return silent

    found = demo.run_demo(TINY, tmp_path, seed=0, workers=1, begin=begin)
    assert not found.finished
    html = (tmp_path / "report.html").read_text()
    assert html.rstrip().endswith("</html>")
    assert "not finished" in html
    if when.startswith("training"):
        assert [row.loss for row in found.rows()] == ["softmax", "modified softmax"]
        assert "modified softmax" in html


def test_the_first_picture_is_there_before_the_long_training(tmp_path):
    seen = {}

    def begin(what: str):
        page = tmp_path / "report.html"
        seen[what] = page.exists() and "on the sphere" in page.read_text()
        return silent

    demo.run_demo(TINY, tmp_path, seed=0, workers=1, begin=begin)
    assert seen["drawing faces"]


def test_a_demo_is_told_as_a_table_or_as_one_json_object(tmp_path, capsys):
    found = demo.run_demo(TINY, tmp_path, seed=0, workers=1, begin=unseen).as_json()
    tell(found, tmp_path / "report.html", as_json=True)
    result = json.loads(capsys.readouterr().out)
    assert result["finished"]
    assert [row["loss"] for row in result["rows"]] == [contender.name for contender in CONTENDERS]
    assert result["report"] == str(tmp_path / "report.html")
    tell(found, tmp_path / "report.html", as_json=False)
    head, *lines, last = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["loss", "accuracy"]
    assert [f"{row['accuracy']:.2%}" in line for row, line in zip(result["rows"], lines, strict=True)] == [True] * 5
    assert last == f"Report: {tmp_path / 'report.html'}"


def test_an_interrupted_demo_exits_with_130(tmp_path, monkeypatch):
    def interrupted(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(openset, "draw", interrupted)
    ran = CliRunner().invoke(app, ["demo", "--quick", "--workers", "1", "--out", str(tmp_path)])
    assert ran.exit_code == 130
    assert "partial report" in ran.stdout
    assert (tmp_path / "report.html").exists()
    ran = CliRunner().invoke(app, ["demo", "--quick", "--json", "--workers", "1", "--out", str(tmp_path)])
    assert (ran.exit_code, json.loads(ran.stdout)["finished"]) == (130, False)


def test_a_study_chooses_rates_on_held_out_people_and_compares_with_softmax(monkeypatch):
    found = study.run_study(TINY, seeds=(0, 1), workers=1, rounds=10, say=lambda _: None)
    assert list(found.search) == [contender.name for contender in CONTENDERS]
    for name, by_rate in found.search.items():
        assert tuple(by_rate) == openset.RATES
        assert by_rate[found.chosen[name]] == max(by_rate.values())
        assert len(found.runs[name]) == 2
    page = study.as_markdown(found)
    assert page.count("| A-Softmax m = 4 |") == 3
    json.dumps(found.as_json())
    means = {name: np.mean([run["accuracy"] for run in runs]) for name, runs in found.runs.items()}
    expected = means["A-Softmax m = 4"] - means["softmax"]
    assert found.against_softmax["A-Softmax m = 4"]["accuracy"].difference == pytest.approx(expected, abs=1e-9)


def test_difficulty_is_measured_with_softmax_alone(monkeypatch):
    from sphereface.experiments import difficulty

    trained = []
    train = difficulty.train
    monkeypatch.setattr(
        difficulty, "train", lambda contender, *a, **o: trained.append(contender) or train(contender, *a, **o)
    )
    found = difficulty.run_difficulty(TINY, workers=1, say=lambda _: None)
    assert [contender.loss for contender in trained] == ["softmax"]
    assert 0 <= found.training_accuracy <= 1
    assert 0 <= found.verification_accuracy <= 1
