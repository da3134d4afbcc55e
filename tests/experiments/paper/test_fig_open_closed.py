"""Figure 1: which faces each protocol tests with, what perfect and empty features score, and the drawing."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from sphereface.contract import Card
from sphereface.data.reading import read_face
from sphereface.embed.embedder import Embedder
from sphereface.errors import UserError
from sphereface.experiments.paper import fig_open_closed, open_closed_drawing, splits
from sphereface.experiments.paper.fig_open_closed import (
    PHOTOS,
    Network,
    People,
    Sets,
    choose_rows,
    measure,
    needed,
    score,
    test_sets,
)
from sphereface.experiments.paper.open_closed_drawing import Answer, Column, draw_protocols
from sphereface.experiments.paper.result import read_result
from sphereface.experiments.paper.runs import Runs, runs_of
from sphereface.experiments.paper.setting import Data
from tests.experiments.paper.test_fig_pipeline import assert_legible, drawn_light, quick_plan

test_sets.__test__ = False  # a function of the package, not a test
__all__ = ["quick_plan"]  # a fixture


def test_only_people_with_enough_photos_are_chosen_with_their_first_ones():
    people = np.array([0, 1, 0, 2, 0, 1, 0, 2, 2, 2, 0, 2, 1])
    rows = choose_rows(people, 2)
    np.testing.assert_array_equal(rows, [0, 2, 4, 6, 3, 7, 8, 9])
    drawn = {tuple(people[choose_rows(people, 1, seed=seed)]) for seed in range(20)}
    assert drawn == {(0,) * PHOTOS, (2,) * PHOTOS}


def test_the_closed_set_has_photos_that_are_left_out_of_people_who_are_not(quick_plan, setting):
    runs = runs_of(setting)
    sets, known = test_sets(setting, runs), runs.known
    left_out = set(splits.left_out(splits.CLOSED, known))
    trained = {bytes(read_face(known, row, None)) for row, path in enumerate(known.paths) if path not in left_out}
    assert not trained & {bytes(face) for each in (sets.closed, sets.open) for face in each.pixels}
    learned = np.unique([known.labels[row] for row, path in enumerate(known.paths) if path not in left_out])
    assert set(sets.classes) <= set(learned.tolist())
    for row in (0, -1):
        face = next(each for each in range(len(known.paths)) if bytes(read_face(known, each, None)) == bytes(
            sets.closed.pixels[row]))  # fmt: skip
        assert known.labels[face] == sets.classes[row]
    for each in (sets.closed, sets.open):
        np.testing.assert_array_equal(np.bincount(each.people), PHOTOS)
    assert sets.closed.pixels.shape == sets.open.pixels.shape == (12 * PHOTOS, 112, 96, 3)


def marked(people, values):
    """Faces whose first pixel is a value for each person."""
    pixels = np.zeros((len(people), 112, 96, 3), np.uint8)
    pixels[:, 0, 0, 0] = np.asarray(values)[people]
    return People(pixels, np.asarray(people))


def knows(inputs, *, values):
    """A direction of its own for each known value, and one direction for everybody else."""
    found = np.rint(inputs[:, 0, 0, 0] * 128 + 127.5)
    features = (found[:, None] == np.asarray(values)).astype(np.float32)
    features[~features.any(1), -1] = 1
    return features


def test_a_network_that_knows_its_own_people_alone_is_perfect_in_the_closed_set_and_lost_in_the_open_one():
    people = np.repeat(np.arange(6), PHOTOS)
    closed, others = marked(people, range(10, 16)), marked(people, range(20, 26))
    card = Card(feature_rule="image")
    network = Network(Embedder(partial(knows, values=range(10, 17)), card), np.eye(6, 7, dtype=np.float32), np.zeros(6))
    both = measure(network, Sets(closed, others, people))
    assert both.closed == (1, 1, 1, 1, 1, 1)
    assert (both.open.nearest, both.open.nearest_of_all, both.open.tar) == (0, 0, 0)  # ties count against the person
    assert both.open.accuracy <= 0.5
    assert np.isnan(both.open.classified)


def test_a_class_counts_by_the_label_of_training_and_a_bias_can_change_it():
    people = np.repeat(np.arange(4), PHOTOS)
    closed = marked(people, (10, 11, 12, 13))
    embedder = Embedder(partial(knows, values=range(10, 14)), Card(feature_rule="image"))
    network = Network(embedder, np.eye(4, dtype=np.float32), np.zeros(4, np.float32))
    np.testing.assert_array_equal(network.classify(closed.pixels), people)
    biased = network._replace(bias=np.array([0, 0, 5, 0], np.float32))
    assert set(biased.classify(closed.pixels)) == {2}
    right = measure(biased, Sets(closed, closed, people)).closed
    assert right.classified == pytest.approx(1 / 4)
    assert right.classified_pairs == pytest.approx(0.5)  # all are one person: right for the same pairs
    assert right.nearest == 1  # features have no bias


def test_random_features_are_near_chance():
    rng = np.random.default_rng(0)
    people = np.repeat(np.arange(40), PHOTOS)
    found = score(rng.normal(size=(160, 64)).astype(np.float32), marked(people, range(40)))
    assert found.nearest < 0.08
    assert 0.4 < found.accuracy < 0.6
    assert found.tar < 0.06


def test_the_runs_leave_photos_out_and_have_twice_the_steps_at_the_scale_tiny(quick_plan, setting):
    found = needed(Runs(setting, dry=True))
    assert set(found) == {"softmax", "a_softmax"}
    assert {run.split for some in found.values() for run in some} == {splits.CLOSED}
    assert {run.settings.steps for some in found.values() for run in some} == {2 * quick_plan.base.steps}


def test_the_result_has_both_protocols_by_rule_and_examples_with_answers(quick_plan, setting):
    result = fig_open_closed.run(setting)
    folder = result.write(setting.out)
    assert read_result(folder).as_json() == result.as_json()
    rows = {(row.cells[0], row.cells[1]): row.cells[2:] for row in result.tables[0].rows}
    by_class = fig_open_closed.NAMES["classified"]
    assert list(rows["softmax", by_class][1:]) == ["-", "-"]
    assert ("before training", by_class) not in rows
    shown = rows["softmax", fig_open_closed.NAMES["nearest"]]
    numbers = result.numbers["softmax"]
    assert shown[0] == f"{100 * numbers['closed']['nearest']:.1f}"
    assert shown[1] == f"{100 * numbers['open']['nearest']:.1f}"
    assert "classified" not in numbers["open"]
    assert "NaN" not in (folder / "result.json").read_text()


def test_no_words_of_the_schematic_overlap(monkeypatch):
    monkeypatch.setattr(open_closed_drawing, "picture", drawn_light)
    face = np.zeros((112, 96, 3), np.uint8)
    answers = [Answer((face, face), words, right=False) for words in ("-0.07, two people", "Arnold_Schwa", "p0001")]
    columns = [
        Column(title, {"Identification, nearest of 10,572 enrolled photos: 100.0% right": answers,
                       "Verification, cosine above a threshold: 100.0% right": answers}, "features need a large margin")
        for title in ("Closed set: new photos of the same people", "Open set: photos of other people")
    ]  # fmt: skip
    assert_legible(draw_protocols([face] * 8, 10_572, columns))


def test_without_people_to_test_with_the_way_out_is_named(setting, tmp_path):
    given = replace(setting, data=Data(faces=(tmp_path,)))
    with pytest.raises(UserError, match="LFW"):
        test_sets(given, Runs(given))
