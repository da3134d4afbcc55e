"""What all thirteen losses promise."""

import copy
import inspect
import io
import math
import re
from dataclasses import replace
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
import torch
from torch.func import functional_call
from torch.nn import functional as F
from torch.testing import assert_close

from sphereface import Annealing, create_loss
from sphereface.errors import UserError
from sphereface.losses import LOSSES, MODES
from sphereface.losses.blocks import ClassBlocks
from sphereface.losses.classifier import MarginSoftmax
from sphereface.losses.options import options_of
from sphereface.losses.others import sum_over_others
from sphereface.losses.softmax import margin_cross_entropy
from tests.losses import naive

B, D, K = 8, 5, 12
each_loss = pytest.mark.parametrize("name", LOSSES)
each_chunked = pytest.mark.parametrize("name", [name for name in LOSSES if "chunked" in MODES[name]])
each_sampled = pytest.mark.parametrize("name", [name for name in LOSSES if "sampled" in MODES[name]])
LABELS = torch.tensor([0, 3, 3, 7, 11, 0, 5, 7])


def batch(dtype=torch.double, length=3.0):
    return length * torch.randn(B, D, dtype=torch.double).to(dtype), LABELS.clone()


# (name, options): every loss whose gradient is that of its value; the others have tests of their own below.
EXACT = [
    ("softmax", {}),
    ("softmax", {"bias": False}),
    ("softmax", {"normalize": True}),
    ("modified_softmax", {}),
    *[("a_softmax", {"m": m}) for m in (1, 2, 3, 4)],
    ("a_softmax", {"m": 4, "annealing": None}),
    ("l_softmax", {"m": 2, "annealing": None}),
    ("l_softmax", {}),
    ("contrastive", {}),
    ("contrastive", {"normalize_features": False, "margin": 5.0, "weight": 1.0}),
    ("triplet", {"mining": "hard"}),
    ("triplet", {"mining": "semi-hard", "margin": 0.5}),
    ("triplet", {"normalize_features": False, "mining": "hard", "margin": 4.0}),
    ("center", {"weight": 0.5}),
    ("normface", {}),
    ("cosface", {}),
    ("arcface", {}),
    ("sphereface_plus", {}),
    ("sphereface_plus", {"power": 0, "weight": 3.0}),
    ("sphereface2", {}),
]


@pytest.mark.parametrize(("name", "options"), EXACT, ids=lambda value: str(value))
@pytest.mark.parametrize("chunk", [None, 5], ids=["fused", "chunked"])
def test_the_gradient_is_that_of_the_loss(name, options, chunk):
    if chunk and "chunked" not in MODES[name]:
        with pytest.raises(ValueError, match="no option 'chunk'"):
            create_loss(name, D, K, **options, chunk=chunk)
        return
    loss = create_loss(name, D, K, **options, **({"chunk": chunk} if chunk else {})).double().eval()
    names = [parameter for parameter, _ in loss.named_parameters()]
    x, labels = batch()
    values = [parameter.detach().clone() + 0.1 * torch.randn_like(parameter) for parameter in loss.parameters()]

    def of(features, *parameters):
        return functional_call(loss, dict(zip(names, parameters, strict=True)), (features, labels))

    assert torch.autograd.gradcheck(of, [tensor.requires_grad_() for tensor in (x, *values)], atol=1e-6)


@pytest.mark.parametrize("normalization", ["hard", "soft", "none"])
@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("chunk", [None, 5])
def test_sphereface_r_detaches_exactly_the_offset_from_the_plain_cosine(version, normalization, chunk):
    options = {"version": version, "normalization": normalization}
    loss = create_loss("sphereface_r", D, K, **options, chunk=chunk).double()
    x, labels = batch()
    x.requires_grad_()
    value, expected = loss(x, labels), naive.sphereface_r(x, loss.weight, labels, **options)
    assert_close(value, expected, rtol=0, atol=1e-10)
    assert_close(
        torch.autograd.grad(value, (x, loss.weight)), torch.autograd.grad(expected, (x, loss.weight)), rtol=0, atol=1e-9
    )


def naive_value(name, loss, x, labels):
    if name == "sphereface2":
        return naive.sphereface2(x, loss.weight, labels, bias=loss.bias)
    if name in ("a_softmax", "l_softmax"):
        return getattr(naive, name)(x, loss.weight, labels, lambda_=loss.lambda_.item())
    return getattr(naive, name)(x, loss.weight, labels)


@each_chunked
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_chunked_equals_fused_equals_naive(name, dtype):
    x, labels = batch(dtype)
    torch.manual_seed(3)
    start = create_loss(name, D, K).to(dtype)
    answers = []
    for chunk in (None, 1, 5, 100):
        loss = create_loss(name, D, K, chunk=chunk).to(dtype)
        loss.load_state_dict(start.state_dict())
        features = x.clone().requires_grad_()
        value = loss(features, labels)
        answers.append((value, *torch.autograd.grad(value, (features, loss.weight))))
    features = x.clone().requires_grad_()
    value = naive_value(name, loss, features, labels)
    answers.append((value, *torch.autograd.grad(value, (features, loss.weight))))
    for answer in answers[1:]:
        assert_close(answer, answers[0], rtol=1e-5, atol=1e-5)


@each_chunked
def test_a_chunk_bounds_what_is_held_and_nothing_is_kept(name, monkeypatch):
    made = []
    build = ClassBlocks.__init__

    def spy(self, *arguments, **options):
        build(self, *arguments, **options)
        made.append((self, options["buffers"]))

    monkeypatch.setattr(ClassBlocks, "__init__", spy)
    loss = create_loss(name, D, 90, chunk=30)
    value = loss(*batch(torch.float32))
    for blocks, buffers in made:
        assert blocks.size * buffers <= 30
        assert not blocks.kept
    value.backward()
    create_loss(name, D, 90)(*batch(torch.float32))
    assert made[-1][0].kept  # in one piece the products wait for the way back


@each_chunked
def test_without_a_gradient_to_come_nothing_is_kept(name, monkeypatch):
    made = []
    build = ClassBlocks.__init__
    monkeypatch.setattr(ClassBlocks, "__init__", lambda self, *a, **o: made.append(self) or build(self, *a, **o))
    with torch.no_grad():
        create_loss(name, D, K)(*batch(torch.float32))
    assert made
    assert not any(blocks.kept for blocks in made)


def in_blocks(loss, x, labels, most):
    """The part of a loss that visits all classes."""
    weight = loss.weight
    if isinstance(loss, MarginSoftmax):
        return margin_cross_entropy(x, weight, loss.bias, labels, replace(loss.form(), most=most))
    return sum_over_others(x, weight, loss.bias, labels, loss.negative, chunk=None, most=most).mean()


@each_chunked
def test_many_blocks_equal_one(name):
    x, labels = batch()
    loss = create_loss(name, D, K).double().eval()
    parameters = (x.requires_grad_(), *loss.parameters())
    whole = in_blocks(loss, x, labels, None)
    expected = torch.autograd.grad(whole, parameters)
    value = in_blocks(loss, x, labels, 5)
    assert_close(value, whole, rtol=1e-12, atol=0)
    assert_close(torch.autograd.grad(value, parameters), expected, rtol=0, atol=1e-12)


@each_sampled
def test_a_sample_of_all_classes_equals_all_classes(name):
    x, labels = batch()
    full, sampled = create_loss(name, D, K).double(), create_loss(name, D, K, sample=1.0).double()
    sampled.load_state_dict(full.state_dict())
    x.requires_grad_()
    answers = []
    for loss in (full, sampled):
        value = loss(x, labels)
        answers.append((value, *torch.autograd.grad(value, (x, loss.weight))))
    assert_close(answers[0], answers[1], rtol=1e-12, atol=1e-14)


@each_sampled
def test_a_sample_is_the_loss_over_the_sampled_classes_alone(name, monkeypatch):
    from sphereface.losses import classifier

    x, labels = batch()
    chosen = []
    draw = classifier.sample_classes
    monkeypatch.setattr(classifier, "sample_classes", lambda *a: chosen.append(draw(*a)) or chosen[-1])
    loss = create_loss(name, D, K, sample=0.75).double()
    small = create_loss(name, D, 9).double()
    features = x.clone().requires_grad_()
    value = loss(features, labels)
    (classes,) = chosen
    assert len(classes) == 9
    state = loss.state_dict()
    keep = {key: value[classes] if value.ndim and len(value) == K else value for key, value in state.items()}
    if name == "center":  # the first batch meets centers at zero
        keep["centers"] = torch.zeros(9, D, dtype=torch.double)
    if "step" in keep:
        keep["step"] = torch.tensor(0)
    small.load_state_dict(keep)
    again = x.clone().requires_grad_()
    expected = small(again, torch.searchsorted(classes, labels))
    assert_close(value, expected, rtol=1e-12, atol=0)
    d_weight, d_features = torch.autograd.grad(value, (loss.weight, features))
    d_small, d_again = torch.autograd.grad(expected, (small.weight, again))
    assert_close(d_features, d_again, rtol=0, atol=1e-12)
    assert_close(d_weight[classes], d_small, rtol=0, atol=1e-12)
    missed = torch.ones(K, dtype=torch.bool).index_fill(0, classes, False)
    assert (d_weight[missed] == 0).all()


def test_a_sample_has_every_true_class_the_asked_size_and_no_class_twice():
    from sphereface.losses.classifier import sample_classes

    for seed in range(20):
        torch.manual_seed(seed)
        classes = sample_classes(LABELS, K, 0.6)
        assert set(LABELS.tolist()) <= set(classes.tolist())
        assert len(classes) == len(set(classes.tolist())) == 8  # ceil(0.6 x 12)
        assert classes.tolist() == sorted(classes.tolist())
    assert sample_classes(LABELS, K, 0.01).tolist() == sorted(set(LABELS.tolist()))


@each_sampled
def test_a_sample_is_drawn_in_training_only(name):
    x, labels = batch()
    loss = create_loss(name, D, K, sample=0.5).double().eval()
    full = create_loss(name, D, K).double().eval()
    full.load_state_dict(loss.state_dict())
    assert torch.equal(loss(x, labels), full(x, labels))


@each_loss
def test_the_table_of_modes_is_what_the_losses_take(name):
    for mode, option in (("chunked", {"chunk": 4}), ("sampled", {"sample": 0.5})):
        if mode in MODES[name]:
            assert create_loss(name, D, K, **option)(*batch()).isfinite()
        else:
            with pytest.raises(ValueError, match="has no option"):
                create_loss(name, D, K, **option)


HARDEST = {"annealing": None}  # no lambda to soften the margin
VARIANTS = [
    *[(name, HARDEST if name in ("a_softmax", "l_softmax", "sphereface_plus") else {}) for name in LOSSES],
    ("a_softmax", {"gradient": "caffe", "annealing": None}),
    ("sphereface_r", {"version": "v2", "normalization": "soft"}),
    ("sphereface_r", {"version": "v1", "normalization": "none"}),
    ("triplet", {"mining": "hard", "normalize_features": False}),
    ("contrastive", {"normalize_features": False, "margin": 10.0}),
    ("sphereface_plus", {"power": 0}),
]
HAZARDS = [
    "zero",
    "aligned",
    "opposite",
    "equal",
    *[f"length {length:g}" for length in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e4)],
]


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("hazard", HAZARDS)
@pytest.mark.parametrize("size", [1, B])
def test_loss_and_gradients_stay_finite(name, options, dtype, hazard, size):
    loss = create_loss(name, D, K, **options)
    labels = LABELS[:size]
    directions = loss.weight.detach()[labels] if hasattr(loss, "weight") else torch.randn(size, D)
    if hazard.startswith("length"):
        features = float(hazard.split()[1]) * F.normalize(torch.randn(size, D))
    else:
        directions = 7 * F.normalize(directions)
        features = {
            "zero": torch.zeros(size, D),
            "aligned": directions,
            "opposite": -directions,
            "equal": torch.ones(size, D),
        }[hazard]
    features = features.to(dtype).requires_grad_()
    value = loss(features, labels)
    assert value.isfinite()
    value.backward()
    for tensor in (features, *loss.parameters()):
        assert tensor.grad.isfinite().all()


@each_loss
def test_inside_autocast_the_loss_runs_in_float32(name):
    loss = create_loss(name, D, K).eval()
    x, labels = batch(torch.bfloat16)
    x.requires_grad_()
    outside = loss(x, labels)
    expected = torch.autograd.grad(outside, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = loss(x, labels)
        if name not in (
            "contrastive",
            "triplet",
        ):  # their plain matrix products follow torch's advice: backward outside
            assert torch.equal(torch.autograd.grad(inside, x, retain_graph=True)[0], expected[0])
    assert inside.dtype == torch.float32
    assert torch.equal(inside, outside)
    assert torch.equal(torch.autograd.grad(inside, x)[0], expected[0])


@each_loss
def test_float64_features_get_float64_mathematics(name):
    loss = create_loss(name, D, K).eval()  # weights in float32
    x, labels = batch()
    value = loss(x, labels)
    assert value.dtype == torch.float64
    assert_close(value, copy.deepcopy(loss).double()(x, labels), rtol=1e-6, atol=0)


@each_loss
def test_a_forward_pass_changes_no_parameter(name):
    loss = create_loss(name, D, K)
    before = [parameter.detach().clone() for parameter in loss.parameters()]
    loss(*batch(torch.float32))
    assert all(map(torch.equal, before, loss.parameters()))


@each_loss
def test_projection_sets_weights_to_length_one_where_the_loss_takes_them_so(name):
    loss = create_loss(name, D, K)
    if not hasattr(loss, "weight"):
        loss.project_()
        return
    with torch.no_grad():
        loss.weight.mul_(3)
    before = loss.weight.detach().clone()
    loss.project_()
    keeps_length = name in ("softmax", "l_softmax", "contrastive", "center")
    assert_close(loss.weight.detach(), before if keeps_length else F.normalize(before))


def test_projection_of_half_precision_weights_gives_no_nan():
    loss = create_loss("a_softmax", D, K).half()
    with torch.no_grad():
        loss.weight[0] = 0
    loss.project_()
    assert loss.weight.isfinite().all()


@each_loss
def test_the_length_of_unit_weights_does_not_matter(name):
    if name in ("softmax", "l_softmax", "contrastive", "center", "triplet"):
        return
    loss = create_loss(name, D, K).double().eval()
    x, labels = batch()
    value = loss(x, labels)
    with torch.no_grad():
        loss.weight.mul_(torch.rand(K, 1, dtype=torch.double) + 0.5)
    assert_close(loss(x, labels), value, rtol=1e-12, atol=1e-12)


@each_loss
def test_the_state_survives_a_round_trip(name):
    loss = create_loss(name, D, K)
    loss(*batch(torch.float32))
    buffer = io.BytesIO()
    torch.save(loss.state_dict(), buffer)
    buffer.seek(0)
    other = create_loss(name, D, K)
    other.load_state_dict(torch.load(buffer, weights_only=True))
    x, labels = batch(torch.float32)
    assert torch.equal(loss.eval()(x, labels), other.eval()(x, labels))


@each_loss
def test_a_frozen_head_or_frozen_features_leave_the_other_gradient_as_it_is(name):
    loss = create_loss(name, D, K).eval()
    x, labels = batch(torch.float32)
    parameters = list(loss.parameters())
    expected = torch.autograd.grad(loss(x.requires_grad_(), labels), [x, *parameters])
    if parameters:
        found = torch.autograd.grad(loss(x.detach(), labels), parameters)
        assert all(map(torch.equal, found, expected[1:]))
    loss.requires_grad_(False)
    assert torch.equal(torch.autograd.grad(loss(x, labels), x)[0], expected[0])


BAD = {
    "out of range": (torch.zeros(2, D), torch.tensor([0, K]), rf"0 to {K}; wanted 0 to {K - 1}"),
    "negative": (torch.zeros(2, D), torch.tensor([-1, 0]), "run from -1"),
    "float labels": (torch.zeros(2, D), torch.tensor([0.0, 1.0]), "float32; wanted whole numbers"),
    "bool labels": (torch.zeros(2, D), torch.tensor([False, True]), "bool; wanted whole numbers"),
    "label shape": (torch.zeros(2, D), torch.zeros(2, 1, dtype=torch.long), r"\(2, 1\); wanted \(2,\)"),
    "width": (torch.zeros(2, D + 1), torch.zeros(2, dtype=torch.long), rf"\(2, {D + 1}\); wanted \(B, {D}\)"),
    "one sample": (torch.zeros(D), torch.zeros((), dtype=torch.long), rf"\({D},\); wanted"),
    "empty": (torch.zeros(0, D), torch.zeros(0, dtype=torch.long), "B >= 1"),
    "integer features": (torch.zeros(2, D, dtype=torch.long), torch.zeros(2, dtype=torch.long), "floating-point"),
}


@each_loss
@pytest.mark.parametrize("case", BAD)
def test_a_bad_batch_is_an_error_that_says_what_came_and_what_was_wanted(name, case):
    features, labels, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        create_loss(name, D, K)(features, labels)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8, torch.uint16])
def test_any_whole_number_type_serves_as_labels(dtype):
    x, labels = batch()
    loss = create_loss("a_softmax", D, K).double().eval()
    assert torch.equal(loss(x, labels.to(dtype)), loss(x, labels))


def test_a_cosine_that_rounds_beyond_one_is_taken_as_one():
    direction = torch.full((1, 7), 0.1, dtype=torch.float32)
    for name in ("a_softmax", "arcface", "sphereface_r", "sphereface2"):
        loss = create_loss(name, 7, 3)
        with torch.no_grad():
            loss.weight.copy_(torch.tensor([[0.1], [-0.2], [0.3]]) * torch.ones(1, 7))
        for scale in torch.logspace(-3, 3, 50):
            assert loss(scale * direction, torch.tensor([0])).isfinite()


def test_an_unknown_loss_or_option_names_its_neighbours():
    with pytest.raises(ValueError, match="choose one of softmax, modified_softmax, a_softmax"):
        create_loss("sphereface", D, K)
    with pytest.raises(ValueError, match="it takes m, annealing, gradient, chunk, sample"):
        create_loss("a_softmax", D, K, margin=4)
    with pytest.raises(ValueError, match=r"arcface has no option 'sampel'; did you mean sample or scale\?$"):
        create_loss("arcface", D, K, sampel=0.5)


# Values that no option of their type takes; Python counts True as an int, and 8.0 cannot be a size.
WRONG = {
    "int": ["four", True, 2.5, 8.0, np.float32(8), math.nan],
    "float": ["x", True, -1.0, math.inf],
    "bool": ["yes", 1, None],
}


@each_loss
def test_an_option_of_a_wrong_type_is_an_error_that_says_what_came_and_what_is_taken(name):
    """Types are read from the source of the signature here, and from Python's own records there."""
    build = LOSSES[name]
    text = inspect.getsource(build.__init__ if inspect.isclass(build) else build)
    typed = re.findall(r"(\w+): (int|float|bool)(?: \| None)? = ", text)
    for option, kind in typed + ([("chunk", "int"), ("sample", "float")] if "**mode" in text else []):
        for value in WRONG[kind]:
            with pytest.raises(ValueError, match=rf"^{option} is {re.escape(repr(value))}; {name} takes [a-z]"):
                create_loss(name, D, K, **{option: value})


@each_loss
def test_every_option_takes_its_own_default(name):
    given = inspect.signature(LOSSES[name]).parameters.values()
    defaults = {each.name: each.default for each in given if each.default is not inspect.Parameter.empty}
    state = create_loss(name, D, K, **defaults).state_dict()
    assert state.keys() == create_loss(name, D, K).state_dict().keys()


@each_loss
def test_every_number_may_come_from_numpy_or_as_a_fraction_and_gives_the_same_loss(name):
    """What a constructor accepts, the first forward pass computes with."""
    chosen = {"m": 2, "chunk": 5, "sample": 0.5, "scale": 8, "weight": 0.25, "margin": 0.5, "alpha": 0.5, "power": 2,
              "r": 8, "t": 2, "soft_weight": 0.25, "shard": [0, 1]}  # fmt: skip
    chosen |= {"m": 0.25} if name in ("cosface", "arcface") else {}
    known = options_of(LOSSES[name])
    plain = {option: value for option, value in chosen.items() if option in known}
    numbers = [option for option in plain if option != "shard"]
    assert {option for option, kind in known.items() if {int, float} & {kind, *get_args(kind)}} == set(numbers)

    def run(options):
        torch.manual_seed(1)
        x, labels = batch(torch.float32)
        loss = create_loss(name, D, K, **options)
        value = loss(x.requires_grad_(), labels)
        return value, torch.autograd.grad(value, x)[0]

    expected = run(plain)
    for of_integer, of_float in ((np.int64, np.float32), (np.uint8, np.float64), (int, Fraction)):
        kinds = {option: of_integer if isinstance(plain[option], int) else of_float for option in numbers}
        found = run({**plain, **{option: kind(plain[option]) for option, kind in kinds.items()}})
        assert torch.equal(found[0], expected[0])
        assert torch.equal(found[1], expected[1])


def test_the_number_of_classes_and_features_is_an_integer():
    for name in LOSSES:
        with pytest.raises(UserError, match=r"12\.0 classes of 5 features; it takes integers"):
            create_loss(name, D, 12.0)
        with pytest.raises(UserError, match="12 classes of '5' features; it takes integers"):
            create_loss(name, "5", K)
        create_loss(name, np.int64(D), np.int32(K))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("a_softmax", {"m": 0}, "m is 0"),
        ("a_softmax", {"m": float("inf")}, "m is inf"),
        ("a_softmax", {"annealing": 5}, "annealing is 5"),
        ("a_softmax", {"chunk": 2.5}, "chunk is 2.5"),
        ("a_softmax", {"gradient": "approximate"}, "exact, caffe"),
        ("a_softmax", {"chunk": 0}, "chunk is 0"),
        ("a_softmax", {"sample": 1.5}, "sample is 1.5"),
        ("arcface", {"m": 4.0}, "below pi"),
        ("cosface", {"m": -0.1}, "m is -0.1"),
        ("cosface", {"scale": 0.0}, "scale is 0"),
        ("triplet", {"mining": "easy"}, "hard, semi-hard"),
        ("sphereface_r", {"m": 0.5}, "at least 1"),
        ("sphereface_r", {"version": "v3"}, "v1, v2"),
        ("sphereface_r", {"normalization": "half"}, "hard, soft, none"),
        ("sphereface2", {"alpha": 1.0}, "alpha 1.0"),
        ("cosface", {"shard": "first"}, r"shard is 'first'; cosface takes \(an integer, an integer\) or None"),
        ("a_softmax", {"gradient": ["exact"]}, r"gradient is \['exact'\]; a_softmax takes one of exact, caffe"),
    ],
)
def test_a_bad_option_is_an_error_that_names_it(name, options, message):
    with pytest.raises(ValueError, match=message):
        create_loss(name, D, K, **options)


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="at least 2 classes"):
        create_loss("a_softmax", D, 1)


@pytest.mark.parametrize("name", ["a_softmax", "softmax", "sphereface2", "cosface"])
def test_a_few_steps_lower_the_loss(name):
    torch.manual_seed(0)
    options = {"annealing": Annealing(gamma=1.0)} if name == "a_softmax" else {}
    loss = create_loss(name, D, K, **options)
    features = torch.nn.Parameter(torch.randn(B, D))
    optimizer = torch.optim.SGD([features, *loss.parameters()], lr=0.05, momentum=0.9)
    values = []
    for _ in range(60):
        optimizer.zero_grad()
        value = loss(features, LABELS)
        value.backward()
        optimizer.step()
        loss.project_()
        values.append(value.item())
    assert values[-1] < 0.7 * values[0]
