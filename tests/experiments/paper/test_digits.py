"""Digits in place of faces: the images, the network, runs that are kept, and what is measured of them."""

import json
import math
import pickle
import sys
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import combinations, product

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from sphereface.data.formats.mnist import write_idx
from sphereface.errors import DataFormatError, UserError
from sphereface.experiments.paper import digit_images, digits
from sphereface.experiments.paper.digit_images import CLASSES, load_digits, long_tailed
from sphereface.experiments.paper.digits import (
    DONE,
    PLANS,
    DigitNet,
    DigitRuns,
    Plan,
    Run,
    class_weights,
    extract,
    fit,
    separated_pairs,
    smallest_arc,
    weight_lengths,
)
from sphereface.experiments.paper.digits_drawing import APART, spread
from sphereface.experiments.paper.methods import METHODS
from sphereface.experiments.paper.setting import Data, Setting
from sphereface.metrics.fisher import angular_fisher_score

SHORT = Plan(steps=12, batch=16, lr=0.05, widths=(4, 8))


@pytest.fixture(autouse=True)
def short_plan(monkeypatch):
    monkeypatch.setitem(PLANS, "tiny", SHORT)


@pytest.fixture
def setting(tmp_path):
    return Setting(scale="tiny", runs=tmp_path / "runs", out=tmp_path / "out", jobs=1)


# The images.


def test_digits_of_scikit_learn_are_split_once_and_for_all():
    from sklearn.datasets import load_digits as original

    ours, whole = load_digits(Setting()), original()
    assert (len(ours.train.labels), len(ours.test.labels)) == (1348, 449)
    together = np.zeros_like(whole.images)
    together[np.arange(len(together)) % 4 != 3] = ours.train.pixels
    together[3::4] = ours.test.pixels
    np.testing.assert_allclose(together, whole.images / 16 * 255, atol=1)
    np.testing.assert_array_equal(ours.test.labels, whole.target[3::4])


def write_mnist(folder, endings=(".gz", ""), digit=lambda n: n % 10):
    folder.mkdir()
    generator = np.random.default_rng(0)
    for (part, count), ending in zip((("train", 40), ("t10k", 20)), endings, strict=True):
        labels = np.array([digit(number) for number in range(count)], np.uint8)
        write_idx(folder / f"{part}-labels-idx1-ubyte{ending}", labels)
        write_idx(folder / f"{part}-images-idx3-ubyte{ending}", generator.integers(0, 256, (count, 6, 6), np.uint8))
    return Setting(data=Data(mnist=folder))


def test_mnist_has_its_own_split_in_plain_or_zipped_files(tmp_path):
    found = load_digits(write_mnist(tmp_path / "mnist"))
    assert found.train.pixels.shape == (40, 6, 6)
    assert found.test.labels.tolist() == [number % 10 for number in range(20)]
    assert found.hash != load_digits(Setting()).hash


def test_without_test_images_an_error_names_the_files(tmp_path):
    setting = write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-images-idx3-ubyte").unlink()
    with pytest.raises(UserError, match=r"no t10k-images-idx3-ubyte and no t10k-images-idx3-ubyte\.gz"):
        load_digits(setting)


def test_a_set_without_ten_digits_is_an_error(tmp_path):
    with pytest.raises(UserError, match="wanted the ten digits"):
        load_digits(write_mnist(tmp_path / "mnist", digit=lambda n: n % 9))


def test_without_scikit_learn_one_line_names_both_ways_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    digit_images.read_digits.cache_clear()
    with pytest.raises(UserError, match=r"^[^\n]*pip install scikit-learn, or give --mnist DIR$"):
        load_digits(Setting())


def test_a_long_tail_is_a_geometric_series_and_seeds_make_other_digits_rare():
    labels = load_digits(Setting()).train.labels
    sizes = [np.bincount(labels[long_tailed(labels, seed)]) for seed in range(3)]
    largest = np.bincount(labels).min()
    expected = [round(largest * 0.02 ** (rank / 9)) for rank in range(CLASSES)]
    assert all(sorted(each, reverse=True) == expected for each in sizes)
    assert len({int(each.argmin()) for each in sizes} | {int(each.argmax()) for each in sizes}) > 2


# The network and its training.


@pytest.mark.parametrize(("side", "places"), [(8, 4), (28, 49), (7, 4)])
def test_a_network_is_strided_convolutions_with_units_and_one_linear_layer(side, places):
    net = DigitNet(side, 3, widths=(4, 8), units=1, last_relu=False)
    x = torch.randn(2, 1, side, side)
    net(x)  # moves the running means and variances
    net.eval()

    def layer(conv, norm, prelu, x, stride=1):
        y = F.conv2d(x, conv.weight, stride=stride, padding=1)
        mean, deviation = norm.running_mean[:, None, None], (norm.running_var[:, None, None] + norm.eps).sqrt()
        return F.prelu((y - mean) / deviation, prelu.weight)

    y = x
    for *head, unit in (net.stages[:4], net.stages[4:]):
        y = layer(*head, y, stride=2)
        y = y + layer(*unit.body[3:], layer(*unit.body[:3], y))
    assert y[0, 0].numel() == places
    torch.testing.assert_close(net(x), y.flatten(1) @ net.fc1.weight.T + net.fc1.bias, rtol=1e-4, atol=1e-5)


def test_the_last_relu_leaves_no_negative_number():
    images = torch.randn(50, 1, 8, 8)
    assert (DigitNet(8, 2, widths=(4,), units=0, last_relu=True)(images) >= 0).all()
    assert (DigitNet(8, 2, widths=(4,), units=0, last_relu=False)(images) < 0).any()


@pytest.mark.parametrize("scale", ["tiny", "small", "paper"])
def test_lambda_reaches_its_minimum_at_the_same_share_of_a_run(scale, monkeypatch):
    monkeypatch.undo()
    plan = PLANS[scale]
    last = round(plan.annealed * plan.steps)
    assert float(plan.annealing(last)) == pytest.approx(plan.lambda_min, rel=1e-3)
    assert float(plan.annealing(last // 2)) > 1.5 * plan.lambda_min
    assert plan.milestones[0] > plan.annealed  # the rate is still high when the margin is whole


def test_the_rate_rises_then_falls_to_a_tenth_at_each_milestone():
    plan = Plan(steps=20, batch=1, lr=1.0, widths=(4,), warmup=0.2, milestones=(0.5, 0.8))
    expected = [0.25, 0.5, 0.75] + [1.0] * 7 + [0.1] * 6 + [0.01] * 4
    assert [plan.rate(step) for step in range(20)] == pytest.approx(expected)


def test_only_losses_with_a_margin_are_annealed(setting):
    runs = DigitRuns(setting)
    losses = {name: runs._task(Run(name, 0)).build().loss for name in METHODS if METHODS[name].loss != "triplet"}
    annealed = {name for name, loss in losses.items() if getattr(loss, "annealing", None) == SHORT.annealing}
    assert annealed == {"a_softmax", "a_softmax_m2", "a_softmax_m3", "l_softmax"}


def test_training_follows_sgd_on_the_chosen_images(setting, monkeypatch):
    """The first step of plain SGD by hand; one step, no momentum, no decay, no clipping."""
    plan = Plan(steps=1, batch=8, lr=0.01, widths=(4,), momentum=0, weight_decay=0, clip=1e9)
    task = DigitRuns(setting, plan)._task(Run("softmax_no_bias", 3))
    trained, _ = fit(task)
    torch.manual_seed(3)
    net, loss = task.build()
    chosen = torch.randperm(1348, generator=torch.Generator().manual_seed(3))[:8]
    x = (torch.from_numpy(task.train.pixels)[chosen, None] - 127.5) / 128
    F.cross_entropy(net(x) @ loss.weight.T, torch.from_numpy(task.train.labels)[chosen]).backward()
    torch.testing.assert_close(trained.loss.weight, loss.weight - 0.01 * loss.weight.grad)
    torch.testing.assert_close(trained.net.fc1.weight, net.fc1.weight - 0.01 * net.fc1.weight.grad)
    torch.testing.assert_close(trained.net.fc1.bias, net.fc1.bias - 0.02 * net.fc1.bias.grad)  # twice the rate


def test_a_seed_gives_the_same_weights_whatever_was_drawn_before(setting):
    runs = DigitRuns(setting)
    (first, losses), _ = fit(runs._task(Run("a_softmax", 1))), torch.rand(7)
    (second, again), (other, _) = (fit(runs._task(Run("a_softmax", seed))) for seed in (1, 2))
    assert losses == again
    assert torch.equal(first.net.fc1.weight, second.net.fc1.weight)
    assert not torch.equal(first.net.fc1.weight, other.net.fc1.weight)
    torch.testing.assert_close(first.loss.weight.norm(dim=1), torch.ones(CLASSES))


# Runs and outcomes.


def test_a_run_is_trained_once_for_all_experiments(setting, monkeypatch):
    trained, train = [], digits.train
    monkeypatch.setattr(digits, "train", lambda task: (trained.append(task.run), train(task)))
    run, more = Run("softmax", 0), Run("softmax", 1)
    found = DigitRuns(setting).measured([run])
    assert DigitRuns(setting).measured([run, more, run]) == [found[0], DigitRuns(setting).measured([more])[0], found[0]]
    DigitRuns(setting).drawn([run])
    assert trained == [run, more]


def test_outcomes_are_enough_and_an_interrupted_run_is_trained_again(setting, monkeypatch):
    runs, run = DigitRuns(setting), Run("softmax", 0)
    found = runs.measured([run])
    (runs._task(run).folder / DONE).unlink()
    trained, train = [], digits.train
    monkeypatch.setattr(digits, "train", lambda task: (trained.append(task.run), train(task)))
    assert runs.measured([run]) == found
    assert trained == []
    runs.drawn([run])
    assert trained == [run]


def test_a_run_has_another_folder_if_anything_is_different(setting, tmp_path):
    runs, run = DigitRuns(setting), Run("a_softmax", 0)
    others = [run._replace(seed=1), run._replace(method="l_softmax"), run._replace(features=3), run._replace(tail=True)]
    folders = [runs.folder(each) for each in (run, *others)]
    changes = {
        "steps": 13, "batch": 17, "lr": 0.06, "widths": (4, 9), "units": 2, "warmup": 0.2, "milestones": (0.5,),
        "annealed": 0.3, "lambda_min": 4.0, "momentum": 0.8, "weight_decay": 0.0, "clip": 4.0,
    }  # fmt: skip
    assert changes.keys() == asdict(SHORT).keys()
    folders += [DigitRuns(setting, replace(SHORT, **{name: value})).folder(run) for name, value in changes.items()]
    other_data = replace(setting, data=write_mnist(tmp_path / "mnist").data)
    folders.append(DigitRuns(other_data).folder(run))
    assert len(set(folders)) == len(folders) == 18


def test_a_damaged_outcome_is_an_error_that_names_it(setting):
    runs, run = DigitRuns(setting), Run("softmax", 0)
    runs.measured([run])
    (file,) = (setting.out / "runs" / "tiny").glob("*.measures.json")
    file.write_text(file.read_text()[:40])
    with pytest.raises(DataFormatError, match=r"damaged"):
        runs.measured([run])


def test_measures_are_those_of_the_kept_network(setting):
    runs, run = DigitRuns(setting), Run("softmax", 0)
    (found,), (drawn,) = runs.measured([run]), runs.drawn([run])
    net, loss = runs._task(run).load()
    pixels, labels = runs.digits.test
    features = extract(net, pixels, batch=100)
    with torch.no_grad():
        logits = F.linear(torch.from_numpy(features), loss.weight, loss.bias)
    assert found["test"]["accuracy"] == (logits.argmax(1).numpy() == labels).mean()
    assert found["test"]["fisher"] == pytest.approx(angular_fisher_score(features, labels), rel=1e-4)
    assert found["test"]["first_quadrant"] == pytest.approx(np.mean([x >= 0 and y >= 0 for x, y in features.tolist()]))
    np.testing.assert_allclose(drawn["test"]["features"], features, atol=6e-4)
    assert drawn["test"]["labels"] == labels.tolist()
    np.testing.assert_allclose(found["lengths"], loss.weight.detach().norm(dim=1), rtol=1e-5)
    assert found["biases"] == class_weights(loss)[1].tolist()
    losses = json.loads((runs._task(run).folder / DONE).read_text())["losses"]
    assert found["loss"] == pytest.approx(np.mean(losses))


def test_long_runs_are_shared_by_workers_and_give_the_same_weights(setting, monkeypatch):
    wanted = [Run("softmax", seed) for seed in (0, 1)]
    here, shared = DigitRuns(setting).measured(wanted), []

    @contextmanager
    def mapping(workers):
        shared.append(workers)
        yield lambda train, tasks: map(*pickle.loads(pickle.dumps((train, tasks))))  # the way to a worker

    monkeypatch.setattr(digits, "mapping", mapping)
    monkeypatch.setattr(digits, "WORTH_A_PROCESS", SHORT.steps)
    apart = replace(setting, runs=setting.runs / "apart", out=setting.out / "apart", jobs=8)
    assert DigitRuns(apart).measured(wanted) == here
    DigitRuns(apart, replace(SHORT, steps=SHORT.steps - 1)).measured(wanted)
    assert shared == [2, 1]


def test_lengths_of_weights_are_means_over_classes_of_one_size(setting, monkeypatch):
    monkeypatch.setattr(Setting, "seeds", (0, 1))
    sizes, lengths = weight_lengths(setting)
    assert (np.diff(sizes) > 0).all()
    found = DigitRuns(setting).measured([Run("softmax_no_bias", seed, tail=True) for seed in (0, 1)])
    for size, length in zip(sizes, lengths, strict=True):
        of_size = [each["lengths"][each["sizes"].index(size)] for each in found]
        assert length == pytest.approx(sum(of_size) / 2)


# Angles.


@pytest.mark.parametrize("share", [0.5, 0.9, 1.0])
def test_the_smallest_arc_is_the_best_of_all_arcs_that_start_at_a_feature(share):
    angles = np.random.default_rng(0).normal(170, 40, 60)  # around the cut at 180 degrees
    features = np.stack([np.cos(np.radians(angles)), np.sin(np.radians(angles))], 1) * angles[:, None] ** 2
    wanted = math.ceil(share * 60)
    arcs = [(start, (stop - start) % 360) for start, stop in product(angles, angles)]
    best = min(reach for start, reach in arcs if np.sum((angles - start) % 360 <= reach + 1e-9) >= wanted)
    assert smallest_arc(features, share) == pytest.approx(best, abs=1e-6)


def test_a_feature_of_zeros_has_no_direction():
    assert smallest_arc(np.array([[0.0, 0], [1, 0], [0, 2]]), 1.0) == pytest.approx(90)
    assert smallest_arc(np.zeros((3, 2))) == 0


def angles_of(pairs):
    return [math.degrees(math.acos(np.dot(a, b) / math.sqrt(np.dot(a, a) * np.dot(b, b)))) for a, b in pairs]


def test_pairs_of_classes_are_separated_by_percentiles_of_angles():
    generator = np.random.default_rng(0)
    centers = generator.normal(size=(6, 3))
    labels = np.repeat(np.arange(6), 40)
    features = (centers[labels] + 0.25 * generator.normal(size=(240, 3))) * generator.uniform(1, 9, (240, 1))
    of = [features[labels == each] for each in range(6)]
    wide = [np.percentile(angles_of(combinations(each, 2)), 99) for each in of]
    apart = [
        np.percentile(angles_of(product(of[a], of[b])), 1) > max(wide[a], wide[b]) for a, b in combinations(range(6), 2)
    ]
    assert 0 < sum(apart) < 15
    assert separated_pairs(features, labels) == pytest.approx(np.mean(apart))


# Drawings.


def test_names_are_moved_apart_and_those_with_room_stay():
    angles = np.radians([0.0, 1, 2, 100, 250, 355])
    moved = spread(angles)
    gaps = np.sort(np.append(np.diff(np.sort(moved)), np.sort(moved)[0] + 2 * np.pi - np.sort(moved)[-1]))
    assert gaps[0] > 0.98 * APART
    np.testing.assert_allclose(moved[3:5], angles[3:5])
    assert np.argsort(moved[:3]).tolist() == [0, 1, 2]
