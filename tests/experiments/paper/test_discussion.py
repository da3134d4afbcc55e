"""Section 3.5: counts by enumeration, active shares against the losses themselves, boundaries against the real loss."""

import math
from itertools import combinations

import numpy as np
import pytest
import torch

from sphereface.experiments.paper import discussion, discussion_margins, material
from sphereface.experiments.paper.discussion import activity, equal_sizes, expand, pair_costs, triplet_costs, visited
from sphereface.experiments.paper.discussion_margins import accepted_angle, beyond, l_softmax_margin, settle
from sphereface.experiments.paper.result import read_result
from sphereface.geometry import angular_margin, chebyshev, psi
from sphereface.losses import create_loss
from sphereface.losses.pairs import contrastive, unit

SMALL = discussion.Size(steps=5, network="sphereface4", width=0.125, batch=8, rounds=1)


def enumerated(labels):
    people = range(len(labels))
    same = sum(labels[a] == labels[b] for a, b in combinations(people, 2))
    triplets = sum(
        a != p and labels[a] == labels[p] and labels[a] != labels[n] for a in people for p in people for n in people
    )
    return len(labels), same, math.comb(len(labels), 2), triplets


@pytest.mark.parametrize("counts", [[1, 1], [3, 2], [5, 1, 4, 2], [4, 4, 4]])
def test_formulas_count_what_an_enumeration_counts(counts):
    labels = [person for person, number in enumerate(counts) for _ in range(number)]
    assert tuple(expand(counts)) == enumerated(labels)


def test_equal_classes_have_the_fewest_same_pairs_and_triplets():
    rng = np.random.default_rng(0)
    for _ in range(50):
        counts = 1 + rng.multinomial(60, rng.dirichlet(np.full(12, 3.0)))
        if counts.max() > (counts.sum() + 1) / 3:  # triplets are convex up to there
            continue
        fewest, found = expand(equal_sizes(int(counts.sum()), 12)), expand(counts.tolist())
        assert (fewest.samples, fewest.pairs) == (found.samples, found.pairs)
        assert fewest.same <= found.same
        assert fewest.triplets <= found.triplets


def test_casia_has_its_images_and_people_and_a_run_its_batches():
    sizes = equal_sizes(494_414, 10_575)
    assert (sum(sizes), len(sizes), max(sizes) - min(sizes)) == (494_414, 10_575, 1)
    assert expand(sizes).pairs == 494_414 * 494_413 // 2
    assert visited() == tuple(28_000 * each for each in enumerated(np.repeat(np.arange(32), 4).tolist()))


@pytest.fixture
def batch():
    torch.manual_seed(0)
    return torch.randn(12, 5), torch.arange(4).repeat_interleave(3)


def test_costs_of_pairs_have_the_mean_of_the_contrastive_loss(batch):
    features, labels = unit(batch[0]), batch[1]
    costs = pair_costs(features, labels, 1.0)
    assert len(costs) == 66
    torch.testing.assert_close(costs.mean(), contrastive(features, labels, margin=1.0))


def test_costs_of_triplets_are_those_of_a_triple_loop(batch):
    features, labels = unit(batch[0]), batch[1]
    x, y = features.numpy(), labels.tolist()
    slow = [
        max(0.0, float(((x[a] - x[p]) ** 2).sum() - ((x[a] - x[n]) ** 2).sum()) + 0.2)
        for a in range(12) for p in range(12) for n in range(12) if a != p and y[a] == y[p] and y[a] != y[n]
    ]  # fmt: skip
    torch.testing.assert_close(triplet_costs(features, labels, 0.2), torch.tensor(slow), atol=1e-5, rtol=0)


def test_activity_knows_which_units_have_a_loss():
    corners = torch.tensor([[1.0, 0], [1, 0], [-1, 0], [-1, 0]])  # two people, each in one place
    labels = torch.tensor([0, 0, 1, 1])
    assert activity(create_loss("contrastive", 2, 2), corners, labels)[:2] == (6, 0.0)
    assert activity(create_loss("triplet", 2, 2), corners, labels)[:2] == (8, 0.0)
    near = torch.tensor([[1.0, 0], [0, 1], [-1, 0], [-1, 0]])  # one same pair at a distance, and no different one
    assert activity(create_loss("contrastive", 2, 2), near, labels) == (6, 1 / 6, 1 / 6)


def test_every_sample_has_a_loss_and_equal_ones_make_half_together(batch):
    loss = create_loss("a_softmax", 5, 4, annealing=None)
    found = activity(loss, *batch)
    assert found[:2] == (12, 1.0)
    assert 1 / 12 <= found.half <= 0.5
    alike = batch[0][:1].expand(12, -1)
    assert activity(loss, alike, torch.zeros(12, dtype=torch.int64)).half == 0.5


def test_a_training_is_watched_in_every_batch_and_all_samples_stay_active(small_plan, setting, monkeypatch):
    monkeypatch.setitem(discussion.SIZES, "tiny", SMALL)
    seen = discussion.watch(setting, material.known_faces(material.training_sets(setting)))
    assert {method: {each.units for each in batches} for method, batches in seen.items()} == {
        "contrastive": {120}, "triplet": {16 * 3 * 12}, "a_softmax": {16},
    }  # fmt: skip
    assert {len(batches) for batches in seen.values()} == {5}
    assert all(each.active == 1 for each in seen["a_softmax"])
    assert all(each.active < 1 for method in ("contrastive", "triplet") for each in seen[method])


@pytest.mark.parametrize("m", [2, 3, 4])
def test_without_psi_features_stay_beyond_pi_over_m_and_with_it_none_does(m, monkeypatch):
    monkeypatch.setattr(discussion_margins, "FEATURES", 120)
    plain, ours = (settle(formula, m, dimensions=3) for formula in (chebyshev, psi))
    np.testing.assert_array_equal(plain.start, ours.start)
    assert beyond(plain.start, m) > 0.4
    assert beyond(plain.end, m) > 0.9 * beyond(plain.start, m)
    assert beyond(ours.end, m) == 0
    assert ours.loss < plain.loss


def test_on_rising_arcs_features_turn_away_from_their_class(monkeypatch):
    monkeypatch.setattr(discussion_margins, "FEATURES", 120)
    found = settle(chebyshev, 4, dimensions=3)
    degrees = np.degrees(found.start)
    inner = (degrees > 55) & (degrees < 80)  # the other classes pull as well, so not up to the ends of the arc
    assert inner.sum() > 5
    assert (found.end[inner] > found.start[inner]).all()
    np.testing.assert_allclose(np.degrees(found.end[inner]), 90, atol=2)  # the next maximum of cos(4 theta)


def boundary_of(name, ratio, theta12):
    """The last angle from w1 at which the real loss still prefers class 1: there both logits are equal."""
    loss = create_loss(name, 2, 2, annealing=None).double()
    weights = torch.tensor([[ratio, 0.0], [math.cos(theta12), math.sin(theta12)]], dtype=torch.float64)
    loss.weight.data.copy_(weights)
    turns = torch.linspace(0, theta12, 201, dtype=torch.float64)
    fan, mine = torch.stack([turns.cos(), turns.sin()], dim=1), torch.zeros(1, dtype=torch.int64)
    accepted = [bool(loss(fan[i : i + 1], mine) < math.log(2)) for i in range(len(fan))]
    return float(turns[sum(accepted)])


@pytest.mark.parametrize("ratio", [0.4, 1.0, 3.0])
@pytest.mark.parametrize("degrees", [60, 110])
def test_the_boundary_of_l_softmax_is_that_of_the_real_loss(ratio, degrees):
    theta12 = math.radians(degrees)
    assert accepted_angle(ratio, theta12, 4) == pytest.approx(boundary_of("l_softmax", ratio, theta12), abs=0.011)
    at_any_length = theta12 / 5  # A-Softmax: m theta_1 = theta_2
    assert boundary_of("a_softmax", ratio, theta12) == pytest.approx(at_any_length, abs=0.011)


def test_l_softmax_has_the_margin_of_a_softmax_at_equal_lengths_and_is_symmetric_in_the_classes():
    for theta12 in (0.4, 1.0, 2.0, 3.0):
        assert l_softmax_margin(1.0, theta12, 4) == pytest.approx(angular_margin(theta12, 4))
        assert l_softmax_margin(2.5, theta12, 4) == pytest.approx(l_softmax_margin(1 / 2.5, theta12, 4))


def test_a_class_loses_its_own_weight_where_the_others_length_outweighs_the_angle():
    theta12 = math.radians(60)
    assert accepted_angle(0.499, theta12, 4) == pytest.approx(0, abs=1e-6)
    assert accepted_angle(0.51, theta12, 4) > 0.001


def test_the_result_names_the_source_of_each_row(small_plan, setting, monkeypatch):
    monkeypatch.setitem(discussion.SIZES, "tiny", SMALL)
    monkeypatch.setattr(discussion, "CASIA", (494_414, 500))  # fewer class weights to time
    for name, value in {"FEATURES": 12, "DESCENT": 5, "SPACES": (3, 8)}.items():
        monkeypatch.setattr(discussion_margins, name, value)
    result = discussion.run(setting)
    folder = result.write(setting.out)
    assert read_result(folder).as_json() == result.as_json()
    tables = {table.name: table for table in result.tables}
    assert [row.stamp for row in tables["expansion"].rows] == ["tiny", "derived", "derived"]
    assert {row.stamp for name in ("activity", "time", "stuck") for row in tables[name].rows} == {"tiny"}
    assert {row.stamp for name in ("rising", "l-softmax") for row in tables[name].rows} == {"derived"}
    assert list(tables["expansion"].rows[0].cells[1:4]) == ["240", "2,280", "28,680"]
    assert {figure.name for figure in result.figures} == {"psi", "l-softmax", "activity"}
    assert all(found["step"] > 0 for found in result.numbers["seconds"].values())
