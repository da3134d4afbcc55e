"""A-Softmax against derivations of its own."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from sphereface import Annealing, create_loss
from tests.losses import naive

B, D, K = 12, 7, 20


def constant(lambda_: float) -> Annealing | None:
    return Annealing(base=lambda_, gamma=0, power=1, minimum=0) if lambda_ else None


def problem(seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    x = 3 * torch.randn(B, D, dtype=torch.double, generator=generator)
    w = torch.randn(K, D, dtype=torch.double, generator=generator)
    labels = torch.randint(0, K, (B,), generator=generator)
    x[:4] += 4 * F.normalize(w[labels[:4]])  # some samples near their class, so that every arc of psi is met
    x[4:8] -= 4 * F.normalize(w[labels[4:8]])
    return x.requires_grad_(), w.requires_grad_(), labels


def gradients(value, *tensors):
    return torch.autograd.grad(value, tensors)


def loss_with(w, **options):
    loss = create_loss("a_softmax", D, len(w), **options).double()
    with torch.no_grad():
        loss.weight.copy_(w)
    return loss


@pytest.mark.parametrize("lambda_", [0.0, 5.0, 1000.0])
@pytest.mark.parametrize("m", range(1, 7))
def test_loss_and_both_gradients_equal_a_trigonometric_derivation(m, lambda_):
    for seed in range(3):
        x, w, labels = problem(seed)
        loss = loss_with(w, m=m, annealing=constant(lambda_))
        value, expected = loss(x, labels), naive.a_softmax(x, w, labels, m=m, lambda_=lambda_)
        assert_close(value, expected, rtol=0, atol=1e-10)
        assert_close(gradients(value, x, loss.weight), gradients(expected, x, w), rtol=0, atol=1e-10)


def test_the_problem_meets_every_arc_of_psi():
    arcs = set()
    for seed in range(3):
        x, w, labels = problem(seed)
        theta = naive.angles(x, w)[torch.arange(B), labels]
        arcs |= set((4 * theta / math.pi).floor().int().tolist())
    assert arcs == {0, 1, 2, 3}


def test_m_1_equals_modified_softmax_exactly():
    x, w, labels = problem()
    a, b = loss_with(w, m=1, annealing=None), create_loss("modified_softmax", D, K).double()
    b.load_state_dict({"weight": w.detach()})
    assert torch.equal(a(x, labels), b(x, labels))
    assert all(map(torch.equal, gradients(a(x, labels), x, a.weight), gradients(b(x, labels), x, b.weight)))


def test_the_exact_weight_gradient_is_tangent_to_the_sphere():
    x, w, labels = problem()
    loss = loss_with(w)
    (d_weight,) = gradients(loss(x, labels), loss.weight)
    assert_close((d_weight * loss.weight).sum(1), torch.zeros(K, dtype=torch.double), rtol=0, atol=1e-12)


def caffe_transcription(x, w, labels, m, lambda_):
    """Loss, x-gradient and w-gradient of the released layer, number by number."""
    w = w / np.linalg.norm(w, axis=1, keepdims=True)
    loss, dx, dw = 0.0, np.zeros_like(x), np.zeros_like(w)
    for i, y in enumerate(labels):
        length = np.linalg.norm(x[i])
        c = x[i] @ w[y] / length
        s0 = np.sign(c)
        if m == 2:
            psi = 2 * s0 * c**2 - 1
            a, b = 4 * s0 * c, -(2 * s0 * c**2 + 1) / length
        elif m == 3:
            s1 = np.sign(abs(c) - 0.5)
            s2 = s0 * (1 + s1) - 2
            psi = s1 * (4 * c**3 - 3 * c) + s2
            a, b = s1 * (12 * c**2 - 3), -(8 * s1 * c**3 - s2) / length
        else:
            s3 = s0 * np.sign(2 * c**2 - 1)
            s4 = 2 * s0 + s3 - 3
            psi = s3 * (8 * c**4 - 8 * c**2 + 1) + s4
            a, b = s3 * (32 * c**3 - 16 * c), -(s3 * (24 * c**4 - 8 * c**2 - 1) - s4) / length
        logits = w @ x[i]
        logits[y] = (lambda_ * length * c + length * psi) / (1 + lambda_)
        p = np.exp(logits - logits.max())
        p /= p.sum()
        loss -= np.log(p[y]) / len(x)
        top = p / len(x)
        top[y] -= 1 / len(x)
        for j in range(len(w)):
            dw[j] += top[j] * x[i]
            dx[i] += top[j] * (
                w[j] if j != y else ((a * w[y] + b * x[i]) / np.hypot(a, b) + lambda_ * w[y]) / (1 + lambda_)
            )
    return loss, dx, dw


@pytest.mark.parametrize("lambda_", [0.0, 5.0])
@pytest.mark.parametrize("m", [2, 3, 4])
def test_the_caffe_gradient_equals_a_transcription_of_the_released_layer(m, lambda_):
    x, w, labels = problem()
    loss = loss_with(w, m=m, annealing=constant(lambda_), gradient="caffe")
    value = loss(x, labels)
    expected = caffe_transcription(x.detach().numpy(), w.detach().numpy(), labels.numpy(), m, lambda_)
    for ours, theirs in zip((value, *gradients(value, x, loss.weight)), expected, strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=0, atol=1e-12)


def test_caffe_and_exact_agree_on_the_loss_and_differ_only_in_gradients():
    x, w, labels = problem()
    exact, caffe = (loss_with(w, gradient=gradient) for gradient in ("exact", "caffe"))
    assert_close(exact(x, labels), caffe(x, labels), rtol=0, atol=1e-13)
    (of_exact,), (of_caffe,) = (gradients(loss(x, labels), loss.weight) for loss in (exact, caffe))
    assert (of_exact - of_caffe).abs().max() > 1e-3


def test_the_caffe_gradient_knows_m_up_to_four():
    with pytest.raises(ValueError, match="m = 1, 2, 3, 4"):
        create_loss("a_softmax", D, K, m=5, gradient="caffe")


def test_caffe_with_m_1_is_a_plain_inner_product():
    x, w, labels = problem()
    loss = loss_with(w, m=1, annealing=None, gradient="caffe")
    unit = F.normalize(w.detach()).requires_grad_()
    value = F.cross_entropy(F.linear(x, unit), labels)
    assert_close(gradients(loss(x, labels), x, loss.weight), gradients(value, x, unit), rtol=0, atol=1e-12)
