"""Ensembles of patches: windows on the face, the choice on held-out people, and the test, with very short runs."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from sphereface.data.formats.sets import open_set
from sphereface.data.reading import read_face
from sphereface.embed.embedder import Embedder
from sphereface.experiments.paper import app_ensemble, material, patches
from sphereface.experiments.paper.app_ensemble import gain
from sphereface.experiments.paper.measures import lfw_of
from sphereface.experiments.paper.patches import WHOLE, WINDOWS, final, folds_of, greedy, region, through
from sphereface.experiments.paper.plans import PLANS
from sphereface.experiments.paper.runs import Runs
from sphereface.experiments.paper.setting import Data, Setting
from sphereface.metrics import tar_at_far
from sphereface.training.run import MODEL

PATCHES = list(WINDOWS)


@pytest.fixture(scope="module")
def plan():
    """A plan with few steps and one fold, fewer drawn people, and runs without pictures in their reports."""
    tiny = PLANS["tiny"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sphereface.training.telling.report.can_draw", lambda: False)
        for name, people in {"TRAIN": 12, "LFW": 20}.items():
            patched.setattr(material, name, getattr(material, name)._replace(people=people))
        yield replace(tiny, base=tiny.base.with_steps(4).changed(batch=16), search_steps=2, held_out=4, rounds=19)


@pytest.fixture(scope="module")
def setting(drawn_once, tmp_path_factory):
    return Setting(scale="tiny", runs=drawn_once / "runs", out=tmp_path_factory.mktemp("ensemble"), jobs=1)


@pytest.fixture(scope="module")
def done(plan, setting):
    runs = Runs(setting, plan)
    return runs, app_ensemble.of_runs(runs)


# Windows.


@pytest.mark.parametrize("patch", PATCHES)
@pytest.mark.parametrize("point", [(47.5, 62.0), (44.0, 68.0), (51.2, 55.3)])
def test_a_point_of_the_face_lies_at_zoom_times_the_point_plus_shift(patch, point):
    window = WINDOWS[patch]
    rows, columns = np.mgrid[:112, :96]
    blob = np.exp(-((columns - point[0]) ** 2 + (rows - point[1]) ** 2) / 8)
    seen = through(np.repeat(np.rint(255 * blob).astype(np.uint8)[..., None], 3, axis=2), window)[..., 0].astype(float)
    found = (columns * seen).sum() / seen.sum(), (rows * seen).sum() / seen.sum()
    expected = window.zoom * point[0] + window.shift[0], window.zoom * point[1] + window.shift[1]
    assert found == pytest.approx(expected, abs=0.05)


def test_the_whole_face_keeps_every_pixel_and_the_other_windows_do_not():
    face = np.random.default_rng(0).integers(0, 256, (112, 96, 3), dtype=np.uint8)
    assert np.array_equal(through(face, WINDOWS[WHOLE]), face)
    others = [through(face, WINDOWS[patch]) for patch in PATCHES if patch != WHOLE]
    assert not any(np.array_equal(one, other) for one, other in combinations([face, *others], 2))


@pytest.mark.parametrize("patch", PATCHES)
def test_no_window_shows_more_than_the_face(patch):
    window = WINDOWS[patch]
    left, right, top, bottom = region(window)
    assert 0 <= left < right <= 95
    assert 0 <= top < bottom <= 111
    corners = np.array([[left, top], [right, bottom]]) * window.zoom + window.shift
    np.testing.assert_allclose(corners, [[0, 0], [95, 111]], atol=1e-9)


def test_left_and_right_are_each_other_in_the_mirror():
    face = np.random.default_rng(1).integers(0, 256, (112, 96, 3), dtype=np.uint8)
    mirrored = through(face[:, ::-1], WINDOWS["right"])[:, ::-1].astype(int)
    assert np.abs(mirrored - through(face, WINDOWS["left"])).max() <= 1


# The choice.


def test_the_greedy_choice_is_the_best_of_all_at_each_size_where_patches_add_up():
    worth = dict(zip("abcde", (3.0, 9.0, 1.0, 7.0, 2.0), strict=True))
    order, tried = greedy("abcde", lambda some: sum(worth[name] for name in some) ** 0.5)
    for size in range(1, 6):
        best = max(combinations("abcde", size), key=lambda some: sum(worth[name] for name in some))
        assert set(order[:size]) == set(best)
        assert max(tried[size - 1].values()) == sum(worth[name] for name in best) ** 0.5


def test_each_step_is_the_best_addition_also_where_patches_do_not_add_up():
    rng = np.random.default_rng(0)
    score = {frozenset(some): rng.random() for size in range(1, 5) for some in combinations("abcd", size)}
    order, tried = greedy("abcd", lambda some: score[frozenset(some)])
    for step, (name, of) in enumerate(zip(order, tried, strict=True)):
        before = frozenset(order[:step])
        by_hand = {other: score[before | {other}] for other in "abcd" if other not in before}
        assert of == by_hand
        assert by_hand[name] == max(by_hand.values())


def test_nobody_is_in_two_folds(plan, setting):
    runs = Runs(setting, replace(plan, folds=2))
    first, second = (set(fold.tolist()) for fold in folds_of(runs))
    assert len(first) == len(second) == 4
    assert not first & second
    assert folds_of(Runs(setting, replace(plan, folds=2)))[0].tolist() == sorted(first)


def test_every_network_is_listed_without_being_trained(plan, setting):
    runs = Runs(setting, replace(plan, folds=2), dry=True)
    needed = patches.needed(runs)
    assert list(needed) == PATCHES
    assert {len(some) for some in needed.values()} == {2 + len(setting.seeds)}
    assert len({run.folder for some in needed.values() for run in some}) == 5 * (2 + len(setting.seeds))
    assert needed[WHOLE][-1] == runs.of("a_softmax", 0), "the whole face has the network of the tables"
    assert not any((setting.runs / "tiny" / run.folder / MODEL).exists() for run in needed["upper"][:-1])


def test_a_gain_draws_networks_of_one_seed_together():
    rng = np.random.default_rng(0)
    found = []
    for seed in range(3):
        draws = seed + rng.normal(size=200)
        lfw = {"statistics": {"tar": seed, "tar_unit": seed + 0.25}, "draws": {"tar": draws, "tar_unit": draws + 0.25}}
        found.append({"lfw": lfw})
    same, other = gain(found, found), gain(found, found, "tar_unit")
    assert same.paired.interval == (0, 0), "the seeds differ by whole points, the two sides of a seed do not"
    assert same.p == 1
    assert other.paired.difference == pytest.approx(0.25)
    assert other.paired.interval == pytest.approx((0.25, 0.25))


# All of it.


def test_the_experiment_from_windows_to_figures(done, setting):
    runs, result = done
    order = result.numbers["order"]
    assert sorted(order) == sorted(PATCHES)

    ensemble, alone, choice = result.tables
    ours = [row for row in ensemble.rows if row.stamp == "tiny"]
    assert [row.cells[1] for row in ours] == [" + ".join(order[:count]) for count in range(1, 6)]
    published = [row.cells for row in ensemble.rows if row.stamp == "published"]
    assert [(row[0], row[6], row[7]) for row in published] == [("1", "72.729", "85.561"), ("3", "75.766", "89.142")]
    assert [row.cells[0] for row in alone.rows] == PATCHES
    assert [row.cells[-1] for row in choice.rows] == order
    assert [row.cells.count("-") for row in choice.rows] == [0, 1, 2, 3, 4]
    folder = result.write(setting.out)
    assert {path.name for path in folder.glob("*.pdf")} == {"patches.pdf", "ensemble.pdf"}

    # The whole face alone is measured as in the tables.
    (table,) = runs.measured([runs.of("a_softmax", 0)], "lfw")
    whole = result.numbers["lfw"][WHOLE]
    assert whole["tar"] == pytest.approx(table["lfw"]["statistics"]["tar"])
    assert whole["accuracy"] == pytest.approx(table["lfw"]["statistics"]["accuracy"])

    # The rate of the three patches, from the features of each, pair by pair.
    test = lfw_of(setting).test
    parts = []
    for patch in order[:3]:
        embedder = Embedder.load(patches.place(runs, final(runs, patch, 0)) / MODEL)
        parts.append(embedder.embed(np.stack([through(face, WINDOWS[patch]) for face in test.pixels])))
    left, right = np.triu_indices(len(test.people), 1)
    same = test.people[left] == test.people[right]
    for end, scaled in (("", parts), ("_unit", [part / np.linalg.norm(part, axis=1)[:, None] for part in parts])):
        unit = np.concatenate(scaled, axis=1).astype(np.float64)
        unit /= np.linalg.norm(unit, axis=1)[:, None]
        rate = tar_at_far(same, (unit @ unit.T)[left, right], far=1e-2)
        assert result.numbers["lfw"]["+".join(order[:3])][f"tar{end}"] == pytest.approx(rate, abs=2 / same.sum())


def test_a_network_of_a_fold_does_not_learn_from_its_people(done):
    runs, _ = done
    held = {runs.known.people[label] for label in folds_of(runs)[0]}
    assert len(held) == 4
    for patch in PATCHES:
        network = patches.of_fold(runs, patch, 0)
        excluded = set((patches.place(runs, network) / "exclude.txt").read_text().split())
        assert excluded == held
        assert not held & set(patches.sets_of(runs, final(runs, patch, 0)).exclude)


def test_the_set_of_a_patch_holds_each_face_through_the_window(done):
    runs, _ = done
    faces = open_set(patches.patch_folder(runs, "lower"))
    assert list(faces.people) == list(runs.known.people)
    assert np.array_equal(faces.labels, runs.known.labels)
    for row in (0, 57, len(faces.labels) - 1):
        expected = through(read_face(runs.known, row, "112x96"), WINDOWS["lower"]).astype(int)
        assert np.abs(read_face(faces, row, "112x96") - expected).mean() < 5


def test_a_second_call_trains_and_cuts_nothing(done, plan, setting, monkeypatch):
    _, result = done
    monkeypatch.setattr(patches, "train", None)
    monkeypatch.setattr(patches, "features_of", None)
    chosen, found = patches.outcomes(Runs(setting, plan))
    assert chosen["order"] == result.numbers["order"]
    assert found[WHOLE,][0]["lfw"]["statistics"] == result.numbers["lfw"][WHOLE]


def test_a_new_folder_of_results_takes_the_networks_that_are_there(done, plan, setting, monkeypatch, tmp_path):
    runs, result = done
    networks = [patches.place(runs, each) / MODEL for some in patches.networks(runs) for each in some]
    times = [path.stat().st_mtime_ns for path in networks]
    monkeypatch.setattr(patches, "write_patch", lambda *_: pytest.fail("cut again"))
    chosen, found = patches.outcomes(Runs(replace(setting, out=tmp_path), plan))
    assert chosen["tried"][0][chosen["order"][0]] == result.numbers["held_out"][0]
    assert {"+".join(some): of[0]["lfw"]["statistics"] for some, of in found.items()} == result.numbers["lfw"]
    assert [path.stat().st_mtime_ns for path in networks] == times
    outcomes = {path.name.rsplit(".", 2)[1] for path in (tmp_path / "runs" / "tiny").iterdir()}
    assert outcomes == {"choice", "patches"}
    assert len(list((tmp_path / "runs" / "tiny").iterdir())) == 1 + 5 + 4


def test_without_faces_to_test_on_the_choice_alone_is_shown(done, plan, setting, tmp_path):
    runs, _ = done
    given = replace(setting, data=Data(faces=runs.sets.faces), out=tmp_path / "other")
    result = app_ensemble.of_runs(Runs(given, plan))
    assert sorted(result.numbers["order"]) == sorted(PATCHES)
    assert result.findings[-1].startswith("Not tested")
    assert {row.stamp for row in result.tables[0].rows} == {"published"}
    assert len(result.figures) == 2
