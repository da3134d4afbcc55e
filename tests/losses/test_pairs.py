"""Contrastive, triplet and center loss against loops over single samples; and the bias of SphereFace2."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from sphereface import create_loss
from sphereface.losses import pairs


def random_batch(seed: int, size: int = 12, people: int = 4):
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(size, 3, dtype=torch.double, generator=generator),
        torch.randint(0, people, (size,), generator=generator),
    )


@given(st.integers(0, 999), st.integers(1, 12), st.integers(1, 6))
def test_hard_triplets_equal_a_loop_over_anchors(seed, size, people):
    x, labels = random_batch(seed, size, people)
    costs = []
    for anchor in range(size):
        d = [((x[anchor] - x[other]) ** 2).sum().item() for other in range(size)]
        positives = [d[i] for i in range(size) if i != anchor and labels[i] == labels[anchor]]
        negatives = [d[i] for i in range(size) if labels[i] != labels[anchor]]
        if positives and negatives:
            costs.append(max(0.0, max(positives) - min(negatives) + 0.2))
    expected = np.mean(costs) if costs else 0.0
    assert pairs.triplet(x, labels, margin=0.2, mining="hard").item() == pytest.approx(expected, abs=1e-10)


@given(st.integers(0, 999), st.integers(1, 12), st.integers(1, 6))
def test_semi_hard_triplets_equal_a_loop_over_anchors_and_positives(seed, size, people):
    x, labels = random_batch(seed, size, people)
    costs = []
    for anchor in range(size):
        d = [((x[anchor] - x[other]) ** 2).sum().item() for other in range(size)]
        negatives = [d[i] for i in range(size) if labels[i] != labels[anchor]]
        for positive in range(size):
            if positive != anchor and labels[positive] == labels[anchor] and negatives:
                further = [distance for distance in negatives if distance > d[positive]]
                costs.append(max(0.0, d[positive] - (min(further) if further else max(negatives)) + 0.2))
    expected = np.mean(costs) if costs else 0.0
    assert pairs.triplet(x, labels, margin=0.2, mining="semi-hard").item() == pytest.approx(expected, abs=1e-10)


def test_centers_move_by_their_own_rule_and_only_in_training():
    loss = create_loss("center", 3, 4, alpha=0.5).double()
    start = torch.randn(4, 3, dtype=torch.double)
    loss.centers.copy_(start)
    x, labels = random_batch(0)
    labels[labels == 3] = 0  # nobody of class 3
    loss(x, labels)
    for j in range(4):
        mine = x[labels == j]
        expected = start[j] - 0.5 * sum((start[j] - each for each in mine), torch.zeros(3)) / (1 + len(mine))
        assert_close(loss.centers[j], expected, check_dtype=False)
    after = loss.centers.clone()
    loss.eval()(x, labels)
    assert torch.equal(loss.centers, after)


def test_center_loss_pulls_features_to_the_centers_as_they_were_before_the_batch():
    loss = create_loss("center", 3, 4, weight=2.0, bias=False).double()
    loss.centers.normal_()
    start = loss.centers.clone()
    x, labels = random_batch(1)
    with torch.no_grad():
        loss.weight.zero_()  # the softmax is log 4 whatever the features
    value = loss(x.requires_grad_(), labels)
    assert_close(value.detach(), math.log(4) + ((x.detach() - start[labels]) ** 2).sum(1).mean())
    assert_close(torch.autograd.grad(value, x)[0], 2 * (x.detach() - start[labels]) / len(x))


def test_a_lone_sample_has_no_pairs():
    x, labels = random_batch(0, size=1)
    assert pairs.contrastive(x, labels, margin=1.0).item() == 0
    assert pairs.triplet(x, labels, margin=0.2, mining="hard").item() == 0


def test_a_feature_of_no_length_has_no_direction_and_no_gradient():
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    unit = pairs.unit(x)
    assert_close(unit.detach(), torch.tensor([[0.0, 0.0], [0.6, 0.8]]))
    unit.sum().backward()
    assert_close(x.grad[0], torch.zeros(2))


@pytest.mark.parametrize("classes", [2, 100, 10_572])
def test_the_bias_of_sphereface2_starts_where_pull_and_push_balance(classes):
    loss = create_loss("sphereface2", 8, classes)
    g = 2 * 0.5**3 - 1

    def sigmoid(z):
        return 1 / (1 + math.exp(-z))

    pull = 0.7 * sigmoid(-(40 * (g - 0.4) + loss.balanced_bias()))
    push = 0.3 * (classes - 1) * sigmoid(40 * (g + 0.4) + loss.balanced_bias())
    assert pull == pytest.approx(push, rel=1e-9)


@pytest.mark.parametrize("classes", [2, 10_572])
def test_the_bias_of_sphereface2_has_no_largest_radius(classes):
    assert math.isfinite(create_loss("sphereface2", 8, classes, r=5000.0).balanced_bias())
