"""Two processes with one shard of the classes each, against one process with all classes."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch

from sphereface import parallel
from sphereface.doctor.devices import tf32
from sphereface.doctor.findings import Check, Measured, Skipped
from sphereface.doctor.parity import CLASSES, CONFIG, STEPS, batch, distance, learn_once
from sphereface.training.checkpoints.reading import open_checkpoint
from sphereface.training.learner import build_learner
from sphereface.training.run import spread

COUNT, LIMIT = 2, 1e-5
PATIENCE = 300.0  # seconds until the processes are ended without a result


def checks(device: torch.device, folder: Path) -> Iterator[Check]:
    """The checks on CPUs through gloo, and on CUDA devices through nccl."""
    if device.type == "cuda":
        yield Check("sharding, nccl on cuda", partial(sharding_parity, "cuda", folder))
    yield Check("sharding, gloo on cpu", partial(sharding_parity, "cpu", folder))


def sharding_parity(kind: str, folder: Path) -> Measured:
    """Some steps of training with one shard and with two; network and classifier must agree."""
    if kind == "cuda" and torch.cuda.device_count() < COUNT:
        raise Skipped(f"{torch.cuda.device_count()} CUDA device; wanted {COUNT}")
    alone, together = folder / f"{kind}-alone", folder / f"{kind}-together"
    steps(kind, str(alone))
    parallel.launch(steps, COUNT, kind, str(together), device=kind, patience=PATIENCE)
    saved = [open_checkpoint(path / f"step-{STEPS:08d}") for path in (together, alone)]
    found, wanted = ({**checkpoint.group("net"), **checkpoint.rows(0, CLASSES)} for checkpoint in saved)
    apart = max(distance([found[name]], [wanted[name]]) for name in wanted)
    return Measured(apart, LIMIT, f"{COUNT} processes, {CLASSES} classes")


def steps(kind: str, folder: str) -> None:
    """The work of each process: learn from its share of every batch, and save a checkpoint."""
    device = parallel.begin(kind)
    if parallel.ranks() > 1:
        torch.set_num_threads(max(1, torch.get_num_threads() // COUNT))
    with torch.random.fork_rng(devices=[]), tf32(False):
        learner = build_learner(CONFIG.changed(classifier="sharded"), CLASSES, device)
        images, labels = (part.chunk(parallel.ranks())[parallel.rank()] for part in batch(device))
        net = spread(learner.net)
        for _ in range(STEPS):
            learn_once(learner, images, labels, net)
    learner.save(Path(folder), STEPS, {})
