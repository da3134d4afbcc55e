"""Costs of many processes: a classifier's memory and the bytes sent per step, by formula and measured."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from sphereface import parallel
from sphereface.bench.timing import LINUX, machine, peak_bytes, resident_bytes
from sphereface.losses import create_loss
from sphereface.losses.sharded import global_loss
from sphereface.models import create_model
from sphereface.progress import Say, mute

FLOAT, LABEL = 4, 8  # bytes of a number and of a label
# Arrays (B, D) at the peak of a step in `losses.softmax`: features, weights of their true classes, both at unit length,
# the gradient, and three intermediate results of the gradient of the true classes.
BATCHES = 8
KINDS = {"sharded": True, "replicated": False}  # the smaller first: the peak of a process never falls
WARM_UP, STEPS = 2, 3  # in its first steps DistributedDataParallel also rebuilds its buckets


@dataclass(frozen=True)
class Setup:
    """A step of training with many classes, in float32."""

    ranks: int
    classes: int
    batch: int = 128  # of all processes together
    features: int = 512
    backbone: int = 48_190_000  # parameters of the network; this is the 64-layer one
    sharded: bool = True
    chunk: int | None = None


def classifier_bytes(setup: Setup) -> dict[str, int]:
    """Bytes that the classifier holds in one process, trained by SGD with momentum."""
    rows = -(-setup.classes // setup.ranks) if setup.sharded else setup.classes
    samples = setup.batch if setup.sharded else setup.batch // setup.ranks
    weights = rows * setup.features * FLOAT
    logits = samples * min(rows, setup.chunk or rows) * FLOAT
    batch = BATCHES * samples * setup.features * FLOAT
    return {"weights": weights, "gradients": weights, "momentum": weights, "logits": logits, "batch": batch}


def most_bytes(setup: Setup) -> int:
    """Upper bound where the allocator keeps freed memory: the optimizer needs one more copy of the weights."""
    held = classifier_bytes(setup)
    return sum(held.values()) + held["weights"]


def bytes_sent(setup: Setup) -> dict[str, int]:
    """Bytes sent by one process in a step, without headers; a ring sends (R - 1) / R of a tensor, twice for a sum."""

    def ring(size: int, times: int = 1) -> int:
        return times * (setup.ranks - 1) * size // setup.ranks

    backbone = {"backbone": ring(setup.backbone * FLOAT, 2)}
    if not setup.sharded:
        return backbone | {"classifier": ring(setup.classes * setup.features * FLOAT, 2)}
    return backbone | {
        "features": ring(setup.batch * setup.features * FLOAT),
        "labels": ring(setup.batch * LABEL),
        "partials": ring(setup.batch * 3 * FLOAT, 2),
        "d_features": ring(setup.batch * setup.features * FLOAT),
    }


def bench_scale(
    *, classes: int = 200_000, batch: int = 128, features: int = 512, ranks: tuple[int, ...] = (2, 3), say: Say = mute
) -> dict[str, Any]:
    """Peak memory of a classifier and bytes sent in a step by one of `ranks` processes, beside their formulas."""
    memory, sent = [], []
    for count in ranks:
        say(f"{count} processes: memory of {classes:,} classes, sharded and replicated; bytes sent")
        setup = Setup(count, classes, batch // count * count, features)
        small = Setup(
            count, 6_000, 96 // count * count, features
        )  # few classes, but with network, loss and both passes
        answers = parallel.launch(measure, count, asdict(setup), asdict(small))
        peaks = {kind: max(answer["peaks"][kind] for answer in answers) for kind in KINDS}
        row = {
            kind: {"formula": sum(classifier_bytes(replace(setup, sharded=sharded)).values()), "measured": peaks[kind]}
            for kind, sharded in KINDS.items()
        }
        memory.append({"ranks": count, **row, "sharded_to_replicated": peaks["sharded"] / peaks["replicated"]})
        sent += answers[0]["sent"]
    return {
        "what": "bytes of one process: the most that its classifier holds, and what it sends in a step; float32",
        "command": "sphereface bench scale --json",
        "classes": classes,
        "batch": batch,
        "features": features,
        **machine(),
        "memory": memory,
        "sent": sent,
    }


def measure(large: dict[str, Any], small: dict[str, Any]) -> dict[str, Any]:
    """In one process: peak memory of the large setup's classifier, and bytes sent in a step of the small one."""
    torch.set_num_threads(1)
    peaks = {kind: classifier_peak(replace(Setup(**large), sharded=sharded)) for kind, sharded in KINDS.items()}
    return {"peaks": peaks, "sent": [sent_in_steps(replace(Setup(**small), sharded=each)) for each in KINDS.values()]}


def classifier_peak(setup: Setup) -> int:
    """Peak growth of this process, in bytes, while a classifier is built and trained."""
    grow_to_learn(replace(setup, classes=setup.ranks * 100))  # before the measurement: code, threads and sockets
    before = resident_bytes()
    grow_to_learn(setup)
    return peak_bytes() - before


def grow_to_learn(setup: Setup) -> None:
    """Build a classifier and train it for two steps."""
    local = setup.batch // setup.ranks
    features, labels = torch.randn(local, setup.features).requires_grad_(), torch.randint(0, setup.classes, (local,))
    loss = build_loss(setup)
    optimizer = torch.optim.SGD(loss.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    for _ in range(2):
        learn(nn.Identity(), loss, optimizer, features, labels, sharded=setup.sharded)


def sent_in_steps(setup: Setup) -> dict[str, Any]:
    """Bytes sent in a step with a network: by formula, counted by `parallel`, and written by the kernel."""
    net = create_model("sphereface4", width=0.25, features=setup.features)
    setup = replace(setup, backbone=sum(parameter.numel() for parameter in net.parameters()))
    loss, running = build_loss(setup), DistributedDataParallel(net)
    optimizer = torch.optim.SGD([*net.parameters(), *loss.parameters()], lr=0.01, momentum=0.9)
    local = setup.batch // setup.ranks
    faces, labels = torch.randn(local, 3, 112, 96), torch.randint(0, setup.classes, (local,))
    for _ in range(WARM_UP):
        learn(running, loss, optimizer, faces, labels, sharded=setup.sharded)
    before = written()
    with parallel.count_bytes() as counted:
        for _ in range(STEPS):
            learn(running, loss, optimizer, faces, labels, sharded=setup.sharded)
    after = written()
    return {
        "ranks": setup.ranks,
        "classifier": "sharded" if setup.sharded else "replicated",
        "formula": bytes_sent(setup),
        "formula_total": sum(bytes_sent(setup).values()),
        "counted": {collective: size // STEPS for collective, size in counted.items()},
        "written": None if before is None or after is None else (after - before) // STEPS,
    }


def build_loss(setup: Setup) -> Any:
    """A-Softmax over all classes or this process's shard of them."""
    torch.manual_seed(0)
    shard = (parallel.rank(), parallel.ranks()) if setup.sharded else None
    return create_loss("a_softmax", setup.features, setup.classes, shard=shard, chunk=setup.chunk)


def learn(
    net: nn.Module, loss: Any, optimizer: torch.optim.Optimizer, inputs: Tensor, labels: Tensor, *, sharded: bool
) -> None:
    """One training step."""
    loss.advance()
    optimizer.zero_grad()
    global_loss(loss, net(inputs), labels).backward()  # type: ignore[no-untyped-call]
    if not sharded:
        parallel.all_reduce_mean_(parameter.grad for parameter in loss.parameters())
    optimizer.step()
    loss.project_()


def written() -> int | None:
    """Bytes that this process has written, sockets included; None where the system is not Linux."""
    if not LINUX:
        return None
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("wchar")))


# The table of `docs/guides/scale.md`: 128 images a process, the 64-layer network, chunks where logits exceed memory.
EXAMPLES = [
    Setup(ranks, classes, ranks * 128, chunk=chunk)
    for ranks, classes, chunk in (
        (1, 10_572, None), (8, 85_742, None), (8, 1_000_000, None), (64, 1_000_000, None), (64, 10_000_000, 65_536),
        (256, 10_000_000, 16_384), (1000, 10_000_000, 4_096), (1000, 100_000_000, 4_096),
    )
]  # fmt: skip


def table(examples: list[Setup] = EXAMPLES) -> str:
    """Memory and bytes sent of the setups, as Markdown."""
    lines = [
        "| processes | classes | batch | chunk | weights, gradients, momentum: replicated | sharded | logits "
        "| gathered batch | sent: network | features and back | partials | sent, replicated classifier |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for setup in examples:
        whole, held = classifier_bytes(replace(setup, sharded=False)), classifier_bytes(setup)
        sent, other = bytes_sent(setup), bytes_sent(replace(setup, sharded=False))
        cells = [
            f"{setup.ranks:,}", f"{setup.classes:,}", f"{setup.batch:,}",
            f"{setup.chunk:,}" if setup.chunk else "none",
            size(3 * whole["weights"]), size(3 * held["weights"]), size(held["logits"]), size(held["batch"]),
            size(sent["backbone"]), size(sent["features"] + sent["labels"] + sent["d_features"]),
            size(sent["partials"]), size(other["classifier"]),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def measured_table(found: dict[str, Any]) -> str:
    """Memory as measured by `bench_scale` beside the upper bounds of the formulas, as Markdown."""
    lines = [
        "| processes | replicated | by formula | sharded | by formula | sharded / replicated |",
        "|--:|--:|--:|--:|--:|--:|",
    ]
    for row in found["memory"]:
        ranks = row["ranks"]
        setup = Setup(ranks, found["classes"], found["batch"] // ranks * ranks, found["features"])
        cells = [
            f"{count / 1e6:,.0f} MB"
            for kind in ("replicated", "sharded")
            for count in (row[kind]["measured"], most_bytes(replace(setup, sharded=KINDS[kind])))
        ]
        lines.append(f"| {ranks} | {' | '.join(cells)} | {row['sharded_to_replicated']:.2f} |")
    return "\n".join(lines)


def size(count: int) -> str:
    """A number of bytes in MB, or in GB from 1 GB on."""
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"
