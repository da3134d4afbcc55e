"""Two and three processes against one: each does all of it itself as well, and reports how far apart they are."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sphereface import create_loss, parallel
from sphereface.losses import LOSSES, MODES, classifier
from sphereface.losses.classifier import class_range
from sphereface.losses.sharded import global_loss, global_mean

B, D = 6, 5
K, FEW = 13, 2  # 13 classes are shared unevenly, 2 leave the third process without any
LIMITS = {"float32": 1e-5, "float64": 1e-10}
SHARDABLE = [name for name in LOSSES if "sharded" in MODES[name]]
OPTIONS = {  # label -> (name, options)
    **{name: (name, {}) for name in SHARDABLE},
    "softmax without bias": ("softmax", {"bias": False}),
    "softmax of unit weights": ("softmax", {"normalize": True}),
    "a_softmax without annealing": ("a_softmax", {"annealing": None}),
    "a_softmax caffe": ("a_softmax", {"gradient": "caffe"}),
    "sphereface_r v2": ("sphereface_r", {"version": "v2"}),
    "sphereface_r v1 soft": ("sphereface_r", {"normalization": "soft"}),
    "sphereface_r v2 none": ("sphereface_r", {"version": "v2", "normalization": "none"}),
}
MODE = {"fused": {}, "chunked": {"chunk": 5}, "sample of all": {"sample": 1.0}}
CASES = [  # (label, mode, classes, dtype)
    (label, mode, classes, dtype)
    for label in OPTIONS
    for mode, classes, dtype in [
        ("fused", K, "float32"), ("chunked", K, "float32"), ("fused", K, "float64"), ("chunked", K, "float64"),
        ("sample of all", K, "float64"), ("fused", FEW, "float64"),
    ]
]  # fmt: skip


def cases(ranks):
    return CASES if ranks == 2 else [case for case in CASES if case[1] == "fused"]


def own_share():
    size = B // parallel.ranks()
    return slice(parallel.rank() * size, (parallel.rank() + 1) * size)


def batch(classes, dtype):
    torch.manual_seed(1)
    return (3 * torch.randn(B, D, dtype=torch.double)).to(dtype), torch.randint(0, classes, (B,))


def apart(found, wanted):
    """The largest difference, as a share of the largest number that was wanted."""
    found, wanted = torch.as_tensor(found).detach().double(), torch.as_tensor(wanted).detach().double()
    assert found.shape == wanted.shape
    return ((found - wanted).abs().max() / wanted.abs().max().clamp_min(1e-12)).item() if found.numel() else 0.0


def built(name, classes, options, dtype, shard):
    """A loss with a bias that is not zero, where it has one, and the random state that building it left."""
    torch.manual_seed(7)
    loss = create_loss(name, D, classes, **options, **({} if shard is None else {"shard": shard}))
    state = torch.get_rng_state()
    first, end = loss.rows
    if getattr(loss, "bias", None) is not None and loss.bias.ndim:
        with torch.no_grad():
            loss.bias.copy_(torch.arange(first, end) / 10)
    return loss.to(dtype), state


def sharded_against_one(name, classes, options, dtype):
    here = (parallel.rank(), parallel.ranks())
    whole, state = built(name, classes, options, dtype, None)
    shard, its_state = built(name, classes, options, dtype, here)
    own, rows = own_share(), slice(*shard.rows)
    same_start = torch.equal(shard.weight, whole.weight[rows]) and torch.equal(state, its_state)
    x, labels = batch(classes, dtype)
    every, mine = x.clone().requires_grad_(), x[own].clone().requires_grad_()
    expected, found = whole(every, labels), shard(mine, labels[own])
    expected.backward()
    found.backward()
    gradients = [(p.grad, q.grad[rows]) for p, q in zip(shard.parameters(), whole.parameters(), strict=True)]
    with torch.no_grad():
        judged = apart(shard.eval()(x[own], labels[own]), whole.eval()(x, labels))
    return {
        "same start": same_start,
        "value": apart(found, expected),
        "value in eval": judged,
        "features": apart(mine.grad, parallel.ranks() * every.grad[own]),
        "head": max(apart(*pair) for pair in gradients),
        "buffers": max([apart(*pair) for pair in zip(shard.buffers(), whole.buffers(), strict=True)], default=0.0),
    }


def replicated_against_one(name, options):
    """`global_loss` of a loss that every process holds whole, over two steps, so that state moves."""
    torch.manual_seed(7)
    whole = create_loss(name, D, K, **options).double()
    torch.manual_seed(7)
    copy = create_loss(name, D, K, **options).double()
    x, labels = batch(K, torch.double)
    own, result = own_share(), {}
    for step in range(2):
        every, mine = x.clone().requires_grad_(), x[own].clone().requires_grad_()
        torch.manual_seed(step)
        expected = whole(every, labels)
        expected.backward()
        torch.manual_seed(step)
        found = global_loss(copy, mine, labels[own])
        found.backward()
        parallel.all_reduce_mean_(parameter.grad for parameter in copy.parameters())
        pairs = zip(copy.parameters(), whole.parameters(), strict=True)
        result[f"step {step}"] = {
            "value": apart(global_mean(found), expected),
            "features": apart(mine.grad, parallel.ranks() * every.grad[own]),
            "head": max([apart(p.grad, q.grad) for p, q in pairs], default=0.0),
            "buffers": max([apart(*pair) for pair in zip(copy.buffers(), whole.buffers(), strict=True)], default=0.0),
        }
        for loss in (copy, whole):
            loss.zero_grad()
    return {key: max(step[key] for step in result.values()) for key in result["step 0"]}


def sampled_against_one(name):
    """The value over a sample, against the loss over the classes that all shards drew, taken together."""
    draw, chosen = classifier.sample_classes, []
    classifier.sample_classes = lambda *given: chosen.append(draw(*given)) or chosen[-1]
    shard, _ = built(name, 30, {"sample": 0.4}, torch.double, (parallel.rank(), parallel.ranks()))
    whole, _ = built(name, 30, {}, torch.double, None)
    x, labels = batch(30, torch.double)
    own, rows = own_share(), slice(*shard.rows)
    mine, every = x[own].clone().requires_grad_(), x.clone().requires_grad_()
    found = shard(mine, labels[own])
    found.backward()
    classifier.sample_classes = draw
    taken = torch.zeros(30, dtype=torch.int64)
    taken[rows][chosen[0]] = 1
    parallel.all_reduce_sum_([taken])
    (classes,) = taken.nonzero(as_tuple=True)
    small = create_loss(name, D, len(classes)).double()
    state = whole.state_dict()
    small.load_state_dict({key: value[classes] if value.ndim else value for key, value in state.items()})
    expected = small(every, torch.searchsorted(classes, labels))
    expected.backward()
    weight = torch.zeros_like(whole.weight).index_copy(0, classes, small.weight.grad)
    return {
        "value": apart(found, expected),
        "features": apart(mine.grad, parallel.ranks() * every.grad[own]),
        "head": apart(shard.weight.grad, weight[rows]),
        "drawn": [taken.sum().item(), len(chosen[0]), len(shard.weight)],
        "true classes in": bool(taken[labels].all()),
    }


def trained(net, loss, batches, *, many):
    """Five steps of SGD with momentum, by hand; the values and the network."""
    running = DistributedDataParallel(net) if many else net
    parameters = [*net.parameters(), *loss.parameters()]
    velocities = [torch.zeros_like(parameter) for parameter in parameters]
    values = []
    for inputs, labels in batches:
        loss.advance()
        features = running(inputs)
        value = global_loss(loss, features, labels) if many else loss(features, labels)
        value.backward()
        if many and not getattr(loss, "sharded", False):
            parallel.all_reduce_mean_(parameter.grad for parameter in loss.parameters())
        with torch.no_grad():
            for parameter, velocity in zip(parameters, velocities, strict=True):
                parameter -= 0.02 * velocity.mul_(0.9).add_(parameter.grad)
                parameter.grad.zero_()
        loss.project_()
        values.append(global_mean(value) if many else value.detach())
    return torch.stack(values), nn.utils.parameters_to_vector(net.parameters()).detach()


def training_against_one(name, sharded):
    runs = {}
    for many in (False, True):
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(9, 16), nn.PReLU(16), nn.Linear(16, D)).double()
        shard = {"shard": (parallel.rank(), parallel.ranks())} if sharded and many else {}
        loss = create_loss(name, D, K, **shard).double()
        own = own_share() if many else slice(None)
        inputs, labels = torch.randn(5, B, 9, dtype=torch.double), torch.randint(0, K, (5, B))
        batches = [(given[own], whose[own]) for given, whose in zip(inputs, labels, strict=True)]
        runs[many] = (loss, *trained(net, loss, batches, many=many))
    (whole, values, net), (loss, its_values, its_net) = runs[False], runs[True]
    rows = slice(*loss.rows) if hasattr(loss, "rows") else slice(None)
    head = [(p, q[rows]) for p, q in zip(loss.parameters(), whole.parameters(), strict=True)]
    return {
        "values": apart(its_values, values),
        "network": apart(its_net, net),
        "head": max([apart(*pair) for pair in head], default=0.0),
        "fell": bool(values[-1] != values[0]),
    }


def half_frozen():
    """A frozen head and frozen features: the other gradient is what it is without."""
    shard, _ = built("a_softmax", K, {}, torch.double, (parallel.rank(), parallel.ranks()))
    shard.eval()
    x, labels = (part[own_share()] for part in batch(K, torch.double))
    x.requires_grad_()
    by_x, by_w = torch.autograd.grad(shard(x, labels), (x, shard.weight))
    (only_w,) = torch.autograd.grad(shard(x.detach(), labels), shard.weight)
    shard.requires_grad_(False)
    (only_x,) = torch.autograd.grad(shard(x, labels), x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        in_half = shard(x.detach().bfloat16(), labels)
    expected = shard(x.detach().bfloat16().double(), labels)
    return {"same": torch.equal(by_x, only_x) and torch.equal(by_w, only_w), "half": apart(in_half, expected)}


def errors_seen():
    """What a misbuilt shard and a bad label say."""
    said = []
    x, labels = (part[own_share()] for part in batch(K, torch.float32))
    wrong = create_loss("cosface", D, K, shard=((parallel.rank() + 1) % parallel.ranks(), parallel.ranks()))
    right = create_loss("cosface", D, K, shard=(parallel.rank(), parallel.ranks()))
    far = labels + K if parallel.rank() == 0 else labels  # bad in one process only
    for loss, whose in ((wrong, labels), (right, far)):
        try:
            loss(x, whose)
        except ValueError as error:
            said.append(str(error))
    return said


def everything():
    """All checks among two processes; among three, those that could come out otherwise."""
    torch.set_num_threads(1)
    two = parallel.ranks() == 2
    return {
        "sharded": {
            f"{label}, {mode}, {classes} classes, {dtype}": sharded_against_one(
                OPTIONS[label][0], classes, OPTIONS[label][1] | MODE[mode], getattr(torch, dtype)
            )
            for label, mode, classes, dtype in cases(parallel.ranks())
        },
        "sampled": {name: sampled_against_one(name) for name in ("softmax", "cosface", "sphereface_r")},
        "replicated": {name: replicated_against_one(name, {}) for name in LOSSES}
        | {f"{name} sampled": replicated_against_one(name, {"sample": 0.5}) for name in ("cosface", "contrastive")},
        "trained": {
            "a_softmax sharded": training_against_one("a_softmax", sharded=True),
            **(
                {}
                if not two
                else {
                    "center sharded": training_against_one("center", sharded=True),
                    "cosface replicated": training_against_one("cosface", sharded=False),
                    "triplet replicated": training_against_one("triplet", sharded=False),
                }
            ),
        },
        "frozen": half_frozen(),
        "errors": errors_seen(),
    }


@pytest.fixture(scope="module", params=[2, 3], ids=["two processes", "three processes"])
def reports(request):
    return parallel.launch(everything, request.param)


def each(reports, part):
    return [(rank, case, found) for rank, report in enumerate(reports) for case, found in report[part].items()]


def test_a_shard_starts_with_the_rows_of_the_whole_loss_and_leaves_the_same_random_state(reports):
    assert all(found["same start"] for _, _, found in each(reports, "sharded"))


@pytest.mark.parametrize("dtype", LIMITS)
def test_sharded_loss_and_gradients_equal_those_of_one_process(reports, dtype):
    found = [case for case in each(reports, "sharded") if case[1].endswith(dtype)]
    assert len(found) == len(reports) * sum(case[3] == dtype for case in cases(len(reports)))
    for case in found:
        for quantity in ("value", "value in eval", "features", "head", "buffers"):
            assert case[2][quantity] < LIMITS[dtype], (quantity, *case)


def test_a_sample_over_shards_is_the_loss_over_all_that_they_drew(reports):
    for rank, name, found in each(reports, "sampled"):
        assert max(found["value"], found["features"], found["head"]) < 1e-10, (rank, name)
        assert found["true classes in"]
        drawn, own, rows = found["drawn"]
        assert own >= 0.4 * rows
        assert drawn < 30


def test_the_number_of_processes_changes_no_loss_that_each_holds_whole(reports):
    for case in each(reports, "replicated"):
        assert max(case[2].values()) < 1e-10, case


def test_training_a_distributed_network_equals_training_in_one_process(reports):
    for rank, name, found in each(reports, "trained"):
        assert found.pop("fell"), name
        assert max(found.values()) < 1e-10, (rank, name, found)


def test_frozen_parts_and_half_precision_change_nothing_else(reports):
    for report in reports:
        assert report["frozen"]["same"]
        assert report["frozen"]["half"] < 1e-5


def test_a_shard_in_the_wrong_process_and_a_bad_label_are_errors_in_every_process(reports):
    for rank, report in enumerate(reports):
        wrong, far = report["errors"]
        assert f"in process {rank} of {len(reports)}" in wrong
        assert f"wanted 0 to {K - 1}" in far


@pytest.mark.parametrize(("classes", "ranks"), [(13, 3), (2, 5), (200_000, 2), (7, 7), (100, 64)])
def test_shards_hold_every_class_once_and_about_equally_many(classes, ranks):
    ranges = [class_range(classes, rank, ranks) for rank in range(ranks)]
    assert [row for first, end in ranges for row in range(first, end)] == list(range(classes))
    sizes = [end - first for first, end in ranges]
    assert max(sizes) - min(sizes) <= 1


def test_many_small_shards_start_with_the_rows_of_the_whole_loss_in_one_process(monkeypatch):
    torch.manual_seed(5)
    whole = create_loss("softmax", 3, 10_000)
    for rank in (0, 1, 2):
        torch.manual_seed(5)
        shard = create_loss("softmax", 3, 10_000, shard=(rank, 3))
        assert torch.equal(shard.weight, whole.weight[slice(*shard.rows)])
        assert shard.classes == 10_000
        assert shard.bias.shape == (len(shard.weight),)


@pytest.mark.parametrize("name", LOSSES)
def test_the_table_of_modes_says_what_can_be_sharded(name):
    if "sharded" in MODES[name]:
        assert len(create_loss(name, D, K, shard=(1, 2)).weight) == 7
    else:
        with pytest.raises(ValueError, match=f"{name} cannot be sharded over processes.*choose one of softmax"):
            create_loss(name, D, K, shard=(1, 2))


@pytest.mark.parametrize("shard", [(2, 2), (-1, 3), (0, 0)])
def test_a_shard_that_does_not_exist_is_refused(shard):
    with pytest.raises(ValueError, match=r"shard is .*it takes \(rank, ranks\)"):
        create_loss("cosface", D, K, shard=shard)


@pytest.mark.parametrize("name", LOSSES)
def test_in_one_process_the_global_loss_is_the_loss(name):
    x, labels = batch(K, torch.double)
    options = {"shard": (0, 1)} if "sharded" in MODES[name] else {}
    one, other = (built(name, K, extra, torch.double, None)[0] if hasattr(create_loss(name, D, K), "rows")
                  else create_loss(name, D, K) for extra in ({}, options))  # fmt: skip
    value = global_loss(other, x, labels)
    assert torch.equal(value, one(x, labels))
    assert torch.equal(global_mean(value), value)


def test_a_shard_alone_says_that_others_are_missing():
    with pytest.raises(ValueError, match=r"shard is \(0, 2\) in process 0 of 1"):
        create_loss("cosface", D, K, shard=(0, 2))(*batch(K, torch.float32))


def test_the_state_of_a_shard_is_its_rows_and_the_common_step():
    shard = create_loss("a_softmax", D, K, shard=(1, 2))
    shard.advance()
    state = shard.state_dict()
    assert state["weight"].shape == (7, D)
    assert state["step"] == 1
    with torch.no_grad():
        shard.weight.mul_(2)
    shard.project_()
    torch.testing.assert_close(shard.weight.norm(dim=1), torch.ones(7))
