"""Laws that every margin obeys."""

import math
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from sphereface.losses import margins

THETA = torch.linspace(0, math.pi, 4001, dtype=torch.double)
COS = THETA.cos()

FORMULAS = {
    "no_margin": margins.no_margin,
    **{f"a_softmax m={m}": partial(margins.a_softmax, m=m) for m in range(1, 7)},
    "a_softmax m=4 lambda=5": partial(margins.a_softmax, m=4, lambda_=5.0),
    "cosface": partial(margins.cosface, m=0.35),
    "arcface": partial(margins.arcface, m=0.5),
    "arcface m=1.2": partial(margins.arcface, m=1.2),
    "sphereface_r v1": partial(margins.sphereface_r_v1, m=1.5),
}
JUMPS = {"arcface": math.pi - 0.5, "arcface m=1.2": math.pi - 1.2}
FLAT_FROM = {"sphereface_r v1": math.pi / 1.5}

each_formula = pytest.mark.parametrize("name", FORMULAS)


@each_formula
@pytest.mark.parametrize("length", [1.0, 30.0])
def test_a_margin_never_grows_with_the_angle_and_never_helps(name, length):
    logit = FORMULAS[name](COS, torch.full_like(COS, length))
    assert (logit.diff() <= 1e-9 * length).all()
    assert (logit <= length * (COS + 1e-7)).all()


@each_formula
def test_a_margin_falls_strictly_unless_its_formula_is_flat(name):
    logit = FORMULAS[name](COS, torch.ones_like(COS))
    falling = logit[::20].diff() < -1e-9
    expected = THETA[::20][1:] <= FLAT_FROM.get(name, math.inf)
    assert (falling | ~expected).all()
    assert not falling[THETA[::20][:-1] > FLAT_FROM.get(name, math.inf)].any()


@each_formula
def test_a_margin_is_continuous_but_for_the_stated_jump(name):
    logit = FORMULAS[name](COS, torch.ones_like(COS))
    steps = logit.diff().abs()
    jumps = THETA[1:][steps > 0.01]
    if name in JUMPS:
        assert len(jumps) == 1
        assert jumps.item() == pytest.approx(JUMPS[name], abs=1e-3)
    else:
        assert len(jumps) == 0


def test_arcface_beyond_pi_minus_m_steps_down_from_minus_one_to_the_stated_value():
    m = 0.5
    edge = torch.tensor([math.pi - m - 1e-9, math.pi - m + 1e-9], dtype=torch.double).cos()
    before, after = margins.arcface(edge, torch.ones(2, dtype=torch.double), m=m)
    assert before.item() == pytest.approx(-1)
    assert after.item() == pytest.approx(-(math.cos(m) + m * math.sin(m)))


@each_formula
def test_the_derivatives_handed_out_are_those_of_the_formula(name):
    cos = torch.linspace(-0.951, 0.95, 76, dtype=torch.double)
    length = torch.linspace(0.5, 9, 76, dtype=torch.double)
    formula, step = FORMULAS[name], 1e-6
    target = margins.exact(formula)(cos, length)
    by_length = (formula(cos, length + step) - formula(cos, length - step)) / (2 * step)
    by_cos = (formula(cos + step, length) - formula(cos - step, length)) / (2 * step)
    assert_close(target.logit, formula(cos, length))
    assert_close(target.d_length, by_length, atol=1e-7, rtol=1e-6)
    if name.startswith("sphereface_r"):
        assert_close(target.d_cos, length)  # the offset from the plain cosine is detached
        assert (by_cos - length).abs().max() > 0.1
    else:
        near_a_jump = (cos.acos() - JUMPS.get(name, 9)).abs() < 0.03
        assert_close(target.d_cos[~near_a_jump], by_cos[~near_a_jump], atol=1e-4, rtol=1e-5)


def test_the_other_classes_of_sphereface_r_v2_score_at_least_their_cosine():
    others = margins.sphereface_r_v2_others(COS, m=1.4)
    assert_close(others, (THETA / 1.4).cos())
    assert (others >= COS - 1e-12).all()
