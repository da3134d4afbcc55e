"""The toy runs: fair, kept, watched without being changed; and what is measured of their angles."""

import itertools
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from sphereface.experiments.loop import Budget
from sphereface.experiments.paper import toy
from sphereface.experiments.paper.material import Drawn
from sphereface.experiments.paper.toy import Plan, Toy, Trained
from sphereface.loading.subset import Subset
from sphereface.metrics import eer

SMALL = Plan(Budget(steps=3, batch=8, lr=0.01), width=0.0625, photos=5, shown=3, snapshots=3)


@pytest.fixture(autouse=True)
def small_toys(monkeypatch):
    monkeypatch.setitem(toy.PLANS, "tiny", SMALL)
    monkeypatch.setattr(toy, "SYNTHETIC", Drawn(6, 6, 0))


def of(setting, *methods: str, seed: int = 0, people: int = 3, watched: bool = True) -> list[Trained]:
    return toy.train_all(setting, [Toy(method, people, 3, seed, watched) for method in methods])


class Faces:
    """A set of images that are never read."""

    people = ("ann", "bob", "cem", "dee")
    labels = np.array([0, 1, 1, 1, 2, 3, 3, 3, 3, 1])
    paths = tuple(f"{number}.png" for number in range(10))


def test_people_are_those_with_the_most_photos_the_largest_first_and_ties_in_their_order():
    faces = Subset(Faces(), np.arange(10), Faces.people, Faces.labels)
    chosen = toy.most_photos(faces, 3, 3)
    assert chosen.people == ["bob", "dee", "ann"]  # four photos each, then one
    assert chosen.labels.tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert chosen.paths == ["1.png", "2.png", "3.png", "5.png", "6.png", "7.png", "0.png"]


def test_a_second_call_does_not_train_again_and_returns_the_same(setting, monkeypatch):
    first = of(setting, "softmax")[0]

    def refused(task):
        raise AssertionError(task)

    monkeypatch.setattr(toy, "train", refused)
    again = of(setting, "softmax")[0]
    assert again.features.tobytes() == first.features.tobytes()
    assert again.history.tobytes() == first.history.tobytes()
    with pytest.raises(AssertionError):
        of(setting, "softmax", seed=1)
    monkeypatch.setitem(toy.PLANS, "tiny", replace(SMALL, budget=replace(SMALL.budget, lr=0.02)))
    with pytest.raises(AssertionError):
        of(setting, "softmax")


def test_all_losses_begin_with_the_same_network_and_end_with_another(setting):
    modified, margin = of(setting, "modified_softmax", "a_softmax")
    np.testing.assert_array_equal(modified.history[0], margin.history[0])
    np.testing.assert_array_equal(modified.weights[0], margin.weights[0])
    assert np.abs(modified.history[-1] - margin.history[-1]).max() > 1e-4
    other = of(setting, "a_softmax", seed=1)[0]
    assert np.abs(other.history[0] - margin.history[0]).max() > 1e-4


def test_snapshots_run_from_before_training_to_its_end(setting):
    found = of(setting, "a_softmax_m2")[0]
    assert found.steps.tolist() == [0, 1, 3]
    assert found.history.shape == (3, 9, 3)
    assert found.labels[found.shown].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    np.testing.assert_allclose(found.history[-1], found.features[found.shown], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found.weights[-1], found.weight)
    assert len(found.losses) == 3


def test_watching_a_run_does_not_change_it(setting):
    watched, alone = of(setting, "a_softmax")[0], of(setting, "a_softmax", watched=False)[0]
    assert watched.features.tobytes() == alone.features.tobytes()
    assert len(alone.history) == 0


def test_a_task_that_is_sent_to_a_process_trains_to_the_same_bits(setting, tmp_path):
    here = of(setting, "softmax")[0]
    known = toy.known_faces(toy.toy_sets(setting))
    task = toy.Task(Toy("softmax", 3, 3, 0, watched=True), SMALL, toy.most_photos(known, 3, 5), tmp_path / "run.npz")
    torch.manual_seed(99)  # the caller's random numbers do not matter
    toy.train(pickle.loads(pickle.dumps(task)))
    assert toy.read_trained(task.path).features.tobytes() == here.features.tobytes()


def test_only_the_margin_has_a_lambda_and_only_softmax_a_bias(setting):
    softmax, modified, margin = of(setting, "softmax", "modified_softmax", "a_softmax")
    assert [float(each.lambda_) for each in (softmax, modified, margin)] == [0, 0, 5]
    assert np.abs(softmax.bias).max() > 0
    assert not modified.bias.any()
    np.testing.assert_allclose(np.linalg.norm(margin.weight, axis=1), 1, rtol=1e-5)
    expected = [[float(x @ w) + b for w, b in zip(softmax.weight, softmax.bias, strict=True)] for x in softmax.features]
    np.testing.assert_allclose(softmax.logits, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [2, 5, 12])
def test_snapshots_are_closer_at_first(count):
    steps = toy.snapshot_steps(1_000, count)
    assert (steps[0], steps[-1], len(steps)) == (0, 1_000, count)
    assert (np.diff(steps, 2) > 0).all()


def brute_force_arc(angles: np.ndarray, first: np.ndarray) -> float:
    """The best accuracy over every arc between two photos, and none or all of the circle."""
    best = max(first.mean(), 1 - first.mean())
    for start, end in itertools.product(angles, angles):
        inside = (angles - start) % (2 * math.pi) <= (end - start) % (2 * math.pi)
        best = max(best, float((inside == first).mean()))
    return best


@pytest.mark.parametrize("seed", range(12))
def test_the_best_arc_is_the_best_of_all_arcs(seed):
    rng = np.random.default_rng(seed)
    angles, first = rng.uniform(-math.pi, math.pi, 17), rng.random(17) < rng.uniform(0.2, 0.8)
    lengths = rng.uniform(0.1, 9, 17)
    features = lengths[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert toy.best_arc_accuracy(features, first) == pytest.approx(brute_force_arc(angles, first))


def test_a_class_around_minus_x_is_one_arc_although_its_angles_jump():
    angles = np.radians([170, 175, -175, -170, 0, 10, -10])
    features = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert toy.best_arc_accuracy(features, np.arange(7) < 4) == 1
    assert toy.best_arc_accuracy(features, np.arange(7) >= 4) == 1


def test_features_of_one_direction_cannot_be_told_apart_by_angle_whatever_their_lengths():
    ray = np.outer(np.repeat([1.0, 8.0], 20), [0.6, 0.8])
    ray[5] = [1.2, 1.6]  # exactly twice as long as the others
    assert toy.best_arc_accuracy(ray, np.arange(40) < 20) == 0.5


def test_pair_angles_are_those_of_every_pair():
    rng = np.random.default_rng(3)
    features, labels = rng.normal(size=(11, 3)), rng.integers(0, 3, 11)
    same, different = [], []
    for (a, one), (b, other) in itertools.combinations(zip(features, labels, strict=True), 2):
        angle = math.acos(a @ b / math.sqrt((a @ a) * (b @ b)))
        (same if one == other else different).append(angle)
    found = toy.pair_angles(features, labels)
    np.testing.assert_allclose(np.sort(found.same), np.sort(same))
    np.testing.assert_allclose(np.sort(found.different), np.sort(different))
    two = toy.pair_angles(features, labels, (0, 2))
    assert len(two.different) == (labels == 0).sum() * (labels == 2).sum()
    assert found.distance == pytest.approx(np.mean(different) - np.mean(same))
    assert found.eer() == pytest.approx(
        eer([True] * len(same) + [False] * len(different), [-a for a in same + different])
    )


def test_a_gap_is_above_zero_if_every_person_is_narrower_than_the_space_between_people():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 50)
    apart = 5 * np.eye(3)[labels] + rng.normal(scale=0.1, size=(100, 3))
    mixed = rng.normal(size=(100, 3))
    assert toy.pair_angles(apart, labels).gap > 0.9
    assert toy.pair_angles(apart, labels).eer() == 0
    assert toy.pair_angles(mixed, labels).gap < -1


def test_the_nearest_weight_is_one_of_angles_only():
    features = np.array([[1.0, 0.2], [0.2, 1.0], [9.0, 1.0]], np.float32)
    weight = np.array([[0.1, 0.0], [3.0, 4.0]], np.float32)  # the second is longer, so its products are larger
    nothing = np.zeros(0)
    labels = np.array([0, 1, 0])
    found = Trained(
        features, labels, weight, np.zeros(2, np.float32), nothing, nothing, nothing, nothing, nothing, nothing
    )
    assert toy.nearest_weight_accuracy(found) == 1
    assert (found.logits.argmax(axis=1) == labels).mean() == pytest.approx(1 / 3)


def test_several_values_are_shown_with_their_ends():
    assert toy.spread([0.25], toy.percent) == "25.0 %"
    assert toy.spread([10.0, 20.0, 60.0], toy.degrees) == "30° (10° to 60°)"
