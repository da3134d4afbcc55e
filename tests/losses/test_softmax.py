"""The algebra of the classifier: partial results merge, shards add up."""

from functools import partial, reduce

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from sphereface.losses import margins
from sphereface.losses.softmax import Partial, Rule, Shard, margin_cross_entropy, merge

SIZES = st.lists(st.integers(0, 6), min_size=1, max_size=64)
SCALES = st.sampled_from([1e-3, 1.0, 50.0, 1e4])


def summarize(logits: torch.Tensor, target: torch.Tensor) -> Partial:
    """A partial from its definition; a piece without classes is the zero of merge."""
    if not logits.shape[1]:
        return Partial(torch.full_like(target, -torch.inf), torch.zeros_like(target), target)
    top = logits.max(1).values
    return Partial(top, (logits - top[:, None]).exp().sum(1), target)


def pieces_of(sizes: list[int], scale: float) -> tuple[list[Partial], torch.Tensor]:
    logits = scale * torch.randn(5, sum(sizes), dtype=torch.double, generator=torch.Generator().manual_seed(len(sizes)))
    owner = 0 if not logits.shape[1] else next(i for i, size in enumerate(sizes) if size)
    nothing = torch.full((5,), -torch.inf, dtype=torch.double)
    targets = [logits[:, 0] if i == owner and logits.shape[1] else nothing for i in range(len(sizes))]
    return [summarize(*each) for each in zip(logits.split(sizes, 1), targets, strict=True)], logits


@given(SIZES, SCALES, st.randoms(use_true_random=False))
def test_partials_merge_to_the_whole_in_any_order_and_any_grouping(sizes, scale, random):
    pieces, logits = pieces_of(sizes, scale)
    whole = reduce(merge, pieces)
    random.shuffle(pieces)
    while len(pieces) > 1:  # a random tree
        place = random.randrange(len(pieces) - 1)
        pieces[place : place + 2] = [merge(pieces[place], pieces[place + 1])]
    for merged in (whole, pieces[0]):
        assert_close(merged.log_total(), logits.logsumexp(1), rtol=1e-12, atol=1e-12)
        if logits.shape[1]:
            assert torch.equal(merged.target, logits[:, 0])


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6), SCALES)
def test_merge_is_associative(a, b, c, scale):
    (x, y, z), _ = pieces_of([a, b, c], scale)
    for left, right in zip(merge(merge(x, y), z), merge(x, merge(y, z)), strict=True):
        assert_close(left, right, rtol=1e-12, atol=0)


RULES = {
    "a_softmax": Rule(margins.exact(partial(margins.a_softmax, m=4, lambda_=5.0))),
    "a_softmax caffe": Rule(margins.caffe_margin(m=4, lambda_=5.0), tangent=False),
    "l_softmax": Rule(margins.exact(partial(margins.a_softmax, m=3)), normalize=False),
    "sphereface_r v2": Rule(margins.exact(margins.no_margin), others=partial(margins.sphereface_r_v2_others, m=1.4)),
    "softmax": Rule(margins.exact(margins.no_margin), normalize=False),
}


@pytest.mark.parametrize("shards", [1, 2, 3, 64])
@pytest.mark.parametrize("name", RULES)
def test_shards_of_the_classes_add_up_to_the_whole_loss_and_gradient(name, shards):
    rule, classes = RULES[name], 150
    x = (3 * torch.randn(9, 6, dtype=torch.double)).requires_grad_()
    w = torch.randn(classes, 6, dtype=torch.double, requires_grad=True)
    b = torch.randn(classes, dtype=torch.double, requires_grad=True) if name == "softmax" else None
    labels = torch.randint(0, classes, (9,))
    loss = margin_cross_entropy(x, w, b, labels, rule)
    loss.backward()

    with torch.no_grad():
        parts = []
        for rows in torch.arange(classes).tensor_split(shards):
            bias = None if b is None else b[rows]
            parts.append(Shard(x, w[rows], bias, labels - rows[0], rule))
        whole = reduce(merge, [part.partial() for part in parts])
        shares = [part.gradients(whole.log_total(), torch.full((9,), 1 / 9, dtype=torch.double)) for part in parts]
    assert_close((whole.log_total() - whole.target).mean(), loss.detach(), rtol=1e-12, atol=0)
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
