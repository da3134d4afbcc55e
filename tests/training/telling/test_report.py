import math
import re
from dataclasses import replace

import numpy as np
import pytest

from sphereface.training.telling.log import RunLog, read_log
from sphereface.training.telling.report import make_report, seconds_running, smooth, thinned, write_report
from sphereface.training.validation import Hardest, ValidationScores
from tests.reports.browser import complaints, needs_chromium
from tests.reports.pages import cells

CONFIG = {"model": "sphereface4", "loss": "a_softmax", "steps": 400, "lr": 0.1}
LONG = "/" + "/".join(["a_very_long_folder_name_without_any_space"] * 8)


def scores(seed=0):
    rng = np.random.default_rng(seed)
    same, different = rng.normal(0.6, 0.2, 300).clip(-1, 1), rng.normal(0.1, 0.2, 300).clip(-1, 1)
    return ValidationScores(0.91, "authors", {0.1: 0.95, 0.01: 0.7}, 0.97, 0.4, 0.35, same, different)


def faces():
    images = np.random.default_rng(0).integers(0, 256, (16, 112, 96, 3), dtype=np.uint8)
    return Hardest(images, images[:4])


def start(log):
    log.write(
        "start",
        0,
        {"config": CONFIG, "versions": {"torch": "2"}, "command": f"sphereface train --data {LONG}", "data": "ab" * 32},
    )


def step(log, number, **values):
    loss, lambda_ = 5 * 0.99**number, max(5, 1000 / (1 + 0.5 * number))
    fields = {"loss": loss, "lr": 0.1 if number < 250 else 0.01, "lambda": lambda_, "gradient_norm": 2 + loss}
    log.write("step", number, {**fields, "images_per_second": 120.0, **values})


def finished(run):
    with RunLog(run) as log:
        start(log)
        for number in range(1, 301):
            step(log, number)
            if number % 100 == 0:
                accuracy = 0.6 + number / 1000 - (0.05 if number == 300 else 0)
                log.write("validation", number, {**scores().as_dict(), "accuracy": accuracy})
                log.write("checkpoint", number, {"path": LONG})
    with RunLog(run, resume=300) as log:
        for number in range(301, 340):
            step(log, number)
        log.write("rollback", 300, {"lr_factor": 0.5, "gamma_factor": 0.25, "reason": f"loss nan; see {LONG}"})
        for number in range(301, 401):
            step(log, number)
        log.write("validation", 400, scores().as_dict())
        log.write("end", 400, {"outcome": "finished"})
    return {"scores": scores(), "hardest": faces(), "config": "lr = 0.1\n# <b>&\n" + LONG}


def interrupted(run):
    with RunLog(run) as log:
        start(log)
        for number in range(1, 4):
            step(log, number)
        log.write("end", 3, {"outcome": "interrupted", "reason": f"Ctrl-C; saved in {LONG}"})
    return {}


def killed_before_the_first_step(run):
    with RunLog(run) as log:
        start(log)
    return {}


def without_validation_or_lambda(run):
    with RunLog(run) as log:
        start(log)
        for number in range(1, 60):
            log.write("step", number, {"loss": 2.0, "lr": 0.1})
        log.write("end", 400, {"outcome": "finished"})
    return {}


def one_step_that_is_no_number(run):
    with RunLog(run) as log:
        start(log)
        step(log, 1, loss=math.nan, gradient_norm=math.inf)
        log.write("validation", 1, {**scores().as_dict(), "rule": "best", "fisher": None, "tar": {}})
        log.write("end", 1, {"outcome": "failed", "reason": "loss nan at step 1"})
    return {"scores": replace(scores(), rule="best", fisher=None)}


RUNS = [finished, interrupted, killed_before_the_first_step, without_validation_or_lambda, one_step_that_is_no_number]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    written = {}
    for made in RUNS:
        run = tmp_path_factory.mktemp("runs") / made.__name__
        written[made.__name__] = write_report(run, **made(run))
    return written


@pytest.mark.parametrize("name", [made.__name__ for made in RUNS])
def test_every_run_has_a_page_of_one_file_without_scripts(pages, name):
    html = pages[name].read_text()
    sources = re.findall(r'(?:src|srcset|href)="([^"]{0,30})', html)
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert "<script" not in html
    assert all(word not in html for word in (">nan<", ">None<", ">inf<"))
    assert "sphereface train --data" in html


def test_a_finished_run_shows_curves_angles_faces_and_config(pages):
    html = pages["finished"].read_text()
    words = re.findall(r'alt="([^"]+)"', html)
    assert len(words) == 6  # validation, angles, ROC, training, two sheets of faces
    assert "lr = 0.1\n# &lt;b&gt;&amp;" in html
    assert "not finish" not in html
    assert "has not ended" not in html
    assert "400 of 400 steps" in html
    rows = cells(html)
    assert ["accuracy", "91.00%"] in rows
    assert ["TAR at FAR 0.01", "70.00%"] in rows
    assert [row[0] for row in rows if len(row) == 6 and row[1].endswith("%")] == ["100", "200", "300", "400"]
    assert re.search(r"<td>400</td><td class=best>91.00%</td>", html)
    assert any(
        row[2] == "rollback" and row[3].startswith("lr_factor 0.5") and row[3].endswith(" ...")
        for row in rows
        if len(row) == 4
    )


def test_a_run_that_did_not_finish_says_so_and_shows_what_is_known(pages):
    html = pages["interrupted"].read_text()
    assert "did not finish: interrupted at step 3 of 400" in html
    assert "Ctrl-C" in html
    assert len(re.findall("<img", html)) == 1
    assert "has not ended, or was killed" in pages["killed_before_the_first_step"].read_text()
    assert "No step was logged" in pages["killed_before_the_first_step"].read_text()
    assert "no folds to hold out" not in pages["finished"].read_text()
    assert "no folds to hold out" in pages["one_step_that_is_no_number"].read_text()


@pytest.mark.usefixtures("without_matplotlib")  # which is quicker
@pytest.mark.parametrize("rule", ["best", "best threshold"])  # the second in older logs
def test_a_threshold_fitted_to_the_pairs_of_a_logged_validation_is_named(tmp_path, rule):
    with RunLog(tmp_path) as log:
        log.write("validation", 1, {**scores().as_dict(), "rule": rule})
    assert "fitted to these very pairs" in write_report(tmp_path).read_text()


@pytest.mark.usefixtures("without_matplotlib")  # which is quicker
def test_a_run_resumed_after_its_end_has_not_ended(tmp_path):
    interrupted(tmp_path)
    with RunLog(tmp_path, resume=3) as log:
        step(log, 4)
    html = write_report(tmp_path).read_text()
    assert "has not ended, or was killed: the numbers below are those at step 4" in html


@pytest.mark.usefixtures("without_matplotlib")  # which is quicker
def test_the_config_of_the_run_is_shown_where_none_is_given(tmp_path):
    interrupted(tmp_path)
    (tmp_path / "config.toml").write_text('model = "sphereface4"\n')
    assert "model = &quot;sphereface4&quot;" in write_report(tmp_path).read_text()


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 900])
def test_chromium_opens_the_page_of_a_run_without_an_error(pages, scheme, width):
    assert complaints(pages["finished"], scheme=scheme, width=width) == []


@needs_chromium
@pytest.mark.parametrize("name", ["killed_before_the_first_step", "one_step_that_is_no_number"])
def test_chromium_opens_the_page_of_a_short_run_on_a_phone(pages, name):
    assert complaints(pages[name], scheme="light", width=390) == []


@pytest.mark.usefixtures("without_matplotlib")
def test_without_matplotlib_there_are_tables_and_a_word_about_it(tmp_path):
    html = write_report(tmp_path, **finished(tmp_path)).read_text()
    assert "sphereface[plot]" in html
    assert ["accuracy", "91.00%"] in cells(html)
    assert len(re.findall("<img", html)) == 2  # the faces need no matplotlib


def test_the_time_between_a_kill_and_a_resume_does_not_count():
    def at(kind, second):
        return {"kind": kind, "step": 0, "time": f"2026-01-01T00:{second // 60:02d}:{second % 60:02d}.500+00:00"}

    history = [at("start", 0), at("step", 10), at("resume", 600), at("step", 605), at("end", 607)]
    assert seconds_running(history) == 17


def test_smoothing_is_the_mean_of_the_last_fiftieth():
    losses = np.random.default_rng(0).normal(size=500)
    entries = [{"step": place + 1, "loss": loss} for place, loss in enumerate(losses)]
    entries[7]["loss"] = None
    at, values = smooth(entries, "loss")
    known = np.delete(losses, 7)
    assert 8 not in at
    assert values[0] == pytest.approx(known[0])
    assert values[100] == pytest.approx(known[101 - 9 : 101].mean())  # 499 // 50 = 9


def test_long_tables_are_thinned_to_first_last_and_best():
    assert thinned(5) == [0, 1, 2, 3, 4]
    kept = thinned(1000, keep=(333,))
    assert {0, 333, 999} <= set(kept)
    assert len(kept) <= 21


@pytest.mark.usefixtures("without_matplotlib")  # which is quicker
def test_the_page_of_a_run_tells_only_its_true_history(tmp_path):
    with RunLog(tmp_path) as log:
        start(log)
        step(log, 1)
        step(log, 2, loss=12345.0)
    with RunLog(tmp_path, resume=1) as log:
        step(log, 2)
    html = make_report(read_log(tmp_path)).html()
    assert "12,345" not in html
    assert ["1", "4.95"] in [row[:2] for row in cells(html)]
