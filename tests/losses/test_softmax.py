"""The algebra of the classifier: partial results merge, shards add up."""

from functools import partial, reduce

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from sphereface.losses import margins
from sphereface.losses.softmax import LogitForm, Partial, Shard, cross_entropy, margin_cross_entropy, merge

SIZES = st.lists(st.integers(0, 6), min_size=1, max_size=64)
SCALES = st.sampled_from([1e-3, 1.0, 50.0, 1e4])


NOTHING = torch.full((5,), -torch.inf, dtype=torch.double)


def summarize(others: torch.Tensor, target: torch.Tensor) -> Partial:
    """A partial from its definition; a piece without classes is the zero of merge."""
    if not others.shape[1]:
        return Partial(NOTHING, torch.zeros_like(NOTHING), target)
    top = others.max(1).values
    return Partial(top, (others - top[:, None]).exp().sum(1), target)


def pieces_of(sizes: list[int], scale: float) -> tuple[list[Partial], torch.Tensor, torch.Tensor]:
    """Some pieces, all logits of their others, and the target logit, which one of them owns."""
    generator = torch.Generator().manual_seed(len(sizes))
    logits = scale * torch.randn(5, 1 + sum(sizes), dtype=torch.double, generator=generator)
    target, others = logits[:, 0], logits[:, 1:]
    owner = len(sizes) // 2
    targets = [target if piece == owner else NOTHING for piece in range(len(sizes))]
    return [summarize(*each) for each in zip(others.split(sizes, 1), targets, strict=True)], others, target


@given(SIZES, SCALES, st.randoms(use_true_random=False))
def test_partials_merge_to_the_whole_in_any_order_and_any_grouping(sizes, scale, random):
    pieces, others, target = pieces_of(sizes, scale)
    whole = reduce(merge, pieces)
    random.shuffle(pieces)
    while len(pieces) > 1:  # a random tree
        place = random.randrange(len(pieces) - 1)
        pieces[place : place + 2] = [merge(pieces[place], pieces[place + 1])]
    expected = torch.logsumexp(torch.cat([target[:, None], others], 1), 1) - target
    for merged in (whole, pieces[0]):
        assert_close(merged.log_others(), others.logsumexp(1), rtol=1e-12, atol=1e-12)
        assert torch.equal(merged.target, target)
        assert_close(cross_entropy(merged), expected, rtol=1e-12, atol=1e-11)


@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 6), SCALES)
def test_merge_is_associative_and_commutative(a, b, c, scale):
    (x, y, z), _, _ = pieces_of([a, b, c], scale)
    for left, right in zip(merge(merge(x, y), z), merge(x, merge(y, z)), strict=True):
        assert_close(left, right, rtol=1e-12, atol=0)
    assert all(map(torch.equal, merge(x, y), merge(y, x)))


def test_a_small_loss_keeps_its_digits_in_single_precision():
    x = torch.tensor([[30.0, 0.0]], dtype=torch.double, requires_grad=True)
    w = torch.tensor([[1.0, 0.0], [0.2, 1.0], [0.1, -1.0]], dtype=torch.double, requires_grad=True)
    labels = torch.tensor([0])
    exact = margin_cross_entropy(x, w, None, labels, RULES["modified"])
    single = [tensor.detach().float().requires_grad_() for tensor in (x, w)]
    value = margin_cross_entropy(*single, None, labels, RULES["modified"])
    assert exact.item() < 1e-10  # below the last digit of the logits
    assert_close(value.double(), exact, rtol=1e-4, atol=0)
    wanted = torch.autograd.grad(exact, (x, w))
    for found, gradient in zip(torch.autograd.grad(value, single), wanted, strict=True):
        assert_close(found.double(), gradient, rtol=1e-4, atol=1e-4 * gradient.abs().max().item())


RULES = {
    "modified": LogitForm(margins.exact(margins.no_margin)),
    "a_softmax": LogitForm(margins.exact(partial(margins.a_softmax, m=4, lambda_=5.0))),
    "a_softmax caffe": LogitForm(margins.caffe_margin(m=4, lambda_=5.0), tangent=False),
    "l_softmax": LogitForm(margins.exact(partial(margins.a_softmax, m=3)), normalize=False),
    "sphereface_r v2": LogitForm(
        margins.exact(margins.no_margin), others=partial(margins.sphereface_r_v2_others, m=1.4)
    ),
    "softmax": LogitForm(margins.exact(margins.no_margin), normalize=False),
}


@pytest.mark.parametrize("shards", [1, 2, 3, 64, 151])
@pytest.mark.parametrize("name", RULES)
def test_shards_of_the_classes_add_up_to_the_whole_loss_and_gradient(name, shards):
    form, classes = RULES[name], 150  # 151 shards: one of them has no class
    x = (3 * torch.randn(9, 6, dtype=torch.double)).requires_grad_()
    w = torch.randn(classes, 6, dtype=torch.double, requires_grad=True)
    b = torch.randn(classes, dtype=torch.double, requires_grad=True) if name == "softmax" else None
    labels = torch.randint(0, classes, (9,))
    loss = margin_cross_entropy(x, w, b, labels, form)
    loss.backward()

    with torch.no_grad():
        parts = []
        first = 0
        for rows in torch.arange(classes).tensor_split(shards):
            bias = None if b is None else b[rows]
            parts.append(Shard(x, w[rows], bias, labels - first, form))
            first += len(rows)
        whole = reduce(merge, [part.partial() for part in parts])
        shares = [part.gradients(whole, torch.full((9,), 1 / 9, dtype=torch.double)) for part in parts]
    assert_close(cross_entropy(whole).mean(), loss.detach(), rtol=1e-12, atol=0)
    assert_close(sum(share.features for share in shares), x.grad, rtol=0, atol=1e-12)
    assert_close(torch.cat([share.weight for share in shares]), w.grad, rtol=0, atol=1e-12)
    if b is not None:
        assert_close(torch.cat([share.bias for share in shares]), b.grad, rtol=0, atol=1e-12)


def test_a_second_backward_through_a_kept_graph_gives_the_same_gradient():
    x = torch.randn(4, 6, requires_grad=True)
    w = torch.randn(10, 6, requires_grad=True)
    loss = margin_cross_entropy(x, w, None, torch.arange(4), RULES["a_softmax"])
    first = torch.autograd.grad(loss, (x, w), retain_graph=True)
    assert all(map(torch.equal, first, torch.autograd.grad(loss, (x, w))))


def test_weights_that_change_between_the_passes_are_noticed():
    x, w = torch.randn(4, 6, requires_grad=True), torch.randn(10, 6, requires_grad=True)
    loss = margin_cross_entropy(x, w, None, torch.arange(4), RULES["a_softmax"])
    with torch.no_grad():
        w.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
