"""The comparison on real faces, with drawn ones in their place: what it runs, keeps and tells."""

import json

import numpy as np
import pytest

from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.experiments.lfw_dev import IN_LFW, Unseen
from sphereface.experiments.real_faces import Plan, Trial, compare
from sphereface.experiments.real_faces_page import as_markdown
from sphereface.experiments.view1 import Measured
from sphereface.faces.images import encode_png
from sphereface.metrics import tar_at_far

TINY = Plan(
    rates=(0.05, 0.1), seeds=(0, 1), steps=3, search_steps=2, width=0.125, full_width=0.25, held_out=4, rounds=10
)


def write(root, names, start, photos):
    images, labels = SyntheticPeople(seed=0).faces(range(start, start + len(names)), photos, workers=1)
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        path = root / names[label] / f"{names[label]}_{number % photos + 1:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_png(image))


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    root = tmp_path_factory.mktemp("faces")
    write(root / "train", [*(f"q{number}" for number in range(8)), IN_LFW[0]], 0, 3)
    write(root / "aligned", [f"Ann_{letter}" for letter in "abcdefghijkl"], 100, 3)
    for part, (first, second) in {"Train": ("abcdef", "bcdefa"), "Test": ("ghijkl", "hijklg")}.items():
        same = [f"Ann_{one}\t1\t2" for one in first]
        different = [f"Ann_{one}\t1\tAnn_{two}\t3" for one, two in zip(first, second, strict=True)]
        (root / f"pairsDev{part}.txt").write_text("\n".join(["6", *same, *different]) + "\n")
    return root


@pytest.fixture(scope="module")
def done(faces, tmp_path_factory):
    runs, said = tmp_path_factory.mktemp("runs"), []
    return compare(faces, runs, TINY, aligned=faces / "aligned", jobs=1, say=said.append), runs, said


def test_every_loss_runs_at_every_rate_then_with_every_seed_then_once_wide(done):
    result, runs, _ = done
    folders = {path.parent.name for path in runs.glob("*/model.safetensors")}
    searched = {Trial(loss, lr, 0, 0.125, 2, 4).folder for loss in ("softmax", "a_softmax") for lr in TINY.rates}
    tested = {Trial(loss, result.chosen[loss], seed, 0.125, 3).folder for loss in result.chosen for seed in (0, 1)}
    wide = {Trial(loss, result.chosen[loss], 0, 0.25, 3).folder for loss in result.chosen}
    assert folders == searched | tested | wide
    assert len(folders) == 10
    for loss, found in result.search.items():
        assert found[result.chosen[loss]] == max(found.values())


def test_people_of_the_test_are_left_out_of_training_and_people_set_aside_out_of_the_search(done):
    result, runs, _ = done
    assert (result.faces, result.people) == (24, 8)
    starts = {
        path.parent.name: json.loads(path.read_text().splitlines()[0])["data"] for path in runs.glob("*/log.jsonl")
    }
    assert {data["people"] for name, data in starts.items() if name.endswith("-search")} == {4}
    assert {data["people"] for name, data in starts.items() if not name.endswith("-search")} == {8}


def test_a_second_call_trains_nothing_and_finds_the_same(done, faces):
    result, runs, _ = done
    said = []
    again = compare(faces, runs, TINY, aligned=faces / "aligned", jobs=1, say=said.append)
    assert again.as_json() == result.as_json()
    assert [line for line in said if "runs to do" in line] == [
        "0 of 4 runs to do, 1 at a time", "0 of 4 runs to do, 1 at a time", "0 of 2 runs to do, 1 at a time",
    ]  # fmt: skip


def test_both_losses_differ_in_nothing_but_the_loss_and_its_annealing():
    mine, other = (Trial(loss, 0.05, 1, 0.5, 90).config().model_dump() for loss in ("a_softmax", "softmax"))
    assert {name for name in mine if mine[name] != other[name]} == {"loss", "loss_options", "annealing"}


def test_the_page_tells_every_run_and_the_difference(done):
    result, _, _ = done
    page = as_markdown(result)
    for rows in result.runs.values():
        assert all(f"{row['accuracy']:.2%}" in page and f"{row['tar']:.2%}" in page for row in rows)
    assert page.count("| difference |") == 2
    assert "`sphereface reproduce real-faces FACES --out results`" in page
    narrow = result._replace(full_width={}, full_width_difference={})
    assert "`sphereface reproduce real-faces FACES --out results --no-full-width`" in as_markdown(narrow)
    assert all(f"{100 * paired.difference:+.2f} [" in page for paired in result.difference.values())
    json.dumps(result.as_json())


def test_accuracy_takes_mean_and_threshold_from_dev_train_and_the_rate_counts_all_pairs():
    rng = np.random.default_rng(0)
    people = np.repeat(np.arange(40), 3)
    features = (np.repeat(rng.normal(size=(40, 6)), 3, axis=0) + 0.7 * rng.normal(size=(120, 6)) + 1).astype(np.float32)
    left = np.arange(0, 120, 3)
    left, right = np.concatenate([left, left]), np.concatenate([left + 1, (left + 4) % 120])
    same, tested = people[left] == people[right], people[left] >= 20
    measured = Measured(features, Unseen(np.empty(0, np.uint8), people, left, right, same, tested))

    mean = (features[left[~tested]].mean(0) + features[right[~tested]].mean(0)) / 2
    a, b = features[left] - mean, features[right] - mean
    scores = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    grid = np.arange(-10_000, 10_001) / 10_000
    right_at = [((scores > t) == same)[~tested].mean() for t in grid]
    threshold = grid[np.isclose(right_at, max(right_at))].mean()
    assert measured.accuracy() == pytest.approx(((scores > threshold) == same)[tested].mean())
    assert measured.accuracy(np.ones(40)) == pytest.approx(measured.accuracy())

    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    row, column = np.triu_indices(120, 1)
    expected = tar_at_far(people[row] == people[column], (unit @ unit.T)[row, column].astype(float), far=1e-3)
    assert measured.tar() == pytest.approx(expected, abs=1e-6)
