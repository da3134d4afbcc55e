"""Speed of `train` against a bare loop of the same network and loss, and against a plain loop of torch's layers.

Candidates run in turns, each in its own process, because `train` makes the C library keep freed memory.
"""

import math
import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from datetime import datetime
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sphereface.bench.timing import machine, spread
from sphereface.bench.turns import Task, Turns, Work, measure
from sphereface.data.manifest import SetManifest, write_manifest
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.errors import JobFailed
from sphereface.loading import Batch, FaceLoader
from sphereface.loading.ready import CACHE_BYTES
from sphereface.models import create_model
from sphereface.models.spherefacenet import HEIGHT, WIDTH
from sphereface.progress import Say, mute
from sphereface.training.allocation import keep_freed_memory
from sphereface.training.config import GuardConfig, TrainConfig
from sphereface.training.learner import build_learner
from sphereface.training.recipes import paper, small
from sphereface.training.run import train
from sphereface.training.setting import Place
from sphereface.training.telling.log import read_log

NETWORKS = ("sphereface4", "sphereface20")
CLASSES = 10_572  # CASIA-WebFace less three people
PORTRAITS = (64, 4)  # drawn people and photos of each; all classes share them, as speed does not depend on pixels
STEPS = {"sphereface4": 4}  # steps of a turn
DEEP_STEPS = 1  # for deeper networks, which take seconds for a step
LEARNING_RATE = 1e-4  # small, so that the loss stays finite on any faces


def plain_loop(task: Task, turns: Turns) -> None:
    """A common training loop: default memory format, torch's layers, linear layer, cross-entropy, default SGD."""
    config = task.config
    images, labels = tensors_in_memory(task)
    net = create_model(config.model, **config.architecture.model_dump(exclude={"name"})).train()
    head = nn.Linear(config.features, task.classes)
    optimizer = torch.optim.SGD(
        [*net.parameters(), *head.parameters()],
        lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay,
    )  # fmt: skip
    value = torch.zeros(())
    for _ in turns:
        optimizer.zero_grad()
        value = F.cross_entropy(head(net(images)), labels)
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    require_finite(value)


def bare_loop(task: Task, turns: Turns) -> None:
    """The network, loss, optimizer and memory settings of `train`, on one batch in memory."""
    keep_freed_memory()
    images, labels = tensors_in_memory(task)
    images = images.contiguous(memory_format=torch.channels_last)
    learner = build_learner(task.config, task.classes, torch.device("cpu"))
    net, loss, optimizer = learner.net, learner.loss, learner.optimizer
    parameters = [*net.parameters(), *loss.parameters()]
    value = torch.zeros(())
    for _ in turns:
        optimizer.zero_grad()
        value = loss(net(images), labels)
        value.backward()
        if task.config.clip is not None:
            torch.nn.utils.clip_grad_norm_(parameters, task.config.clip)
        optimizer.step()
        loss.project_()
    require_finite(value)


def whole_run(task: Task, turns: Turns) -> None:
    """`train` itself: loader, log, guard and checkpoints.

    `train` has no turns, so in this process the loader waits for its turn before each batch; a step with all its work
    ends when the loader asks for the next batch. The loader's workers gain no time between turns: they stay a fixed
    number of batches ahead, and start another only when one was taken.
    """
    load = FaceLoader.__iter__

    def in_turns(loader: FaceLoader) -> Iterator[Batch]:
        return (batch for _, batch in zip(turns, load(loader), strict=False))

    FaceLoader.__iter__ = in_turns  # type: ignore[method-assign]
    with redirect_stderr(StringIO()):  # not a terminal, so `train` shows no live line
        trained = train(task.config, Place(task.faces, task.out, device="cpu"), say=mute)
    if trained.outcome != "finished":
        raise JobFailed(f"train ended as {trained.outcome!r} at step {trained.step}; wanted 'finished'")


CANDIDATES: dict[str, Work] = {"plain": plain_loop, "bare": bare_loop, "train": whole_run}


def tensors_in_memory(task: Task) -> tuple[Tensor, Tensor]:
    """A random batch of network inputs, with labels."""
    torch.manual_seed(0)
    images = torch.rand(task.config.batch, 3, HEIGHT, WIDTH) * 2 - 1
    return images, torch.randint(0, task.classes, (task.config.batch,))


def require_finite(loss: Tensor) -> None:
    """Raise if the loss of the timed loop is not finite."""
    value = float(loss.detach())
    if not math.isfinite(value):
        raise JobFailed(f"the loss became {value}; wanted a finite one, as the timed loop must train")


def write_faces(folder: Path, classes: int, photos: int) -> Path:
    """Write a list of `photos` faces for each of `classes` people with 256 portraits in all; returns its path."""
    people, shots = PORTRAITS
    SyntheticPeople().write(folder / "portraits", people, shots)
    portraits = [f"portraits/p{person:04d}/{shot:04d}.png" for person in range(people) for shot in range(shots)]
    lines = [f"{portraits[face % len(portraits)]} {face // photos}\n" for face in range(classes * photos)]
    path = folder / "faces.txt"
    path.write_text("".join(lines))
    write_manifest(path, SetManifest(made_by="sphereface bench training"))
    return path


def photos_beyond_memory(classes: int) -> int:
    """Photos of each person so that the decoded set exceeds the cache, and `train` reads files as with CASIA."""
    return CACHE_BYTES // (3 * HEIGHT * WIDTH * classes) + 1


def recipe_for(network: str) -> TrainConfig:
    """The recipe for a network."""
    return small() if network == small().model else paper().changed(model=network)


def checkpoint_seconds(run: Path) -> list[float]:
    """Seconds of each checkpoint of a run: the time since the line before it in the log, which is its step's."""
    history = read_log(run)
    if any(entry["kind"] == "rollback" for entry in history):
        raise JobFailed("the run diverged and was rolled back; wanted an undisturbed run to time: measure again")
    return [
        (datetime.fromisoformat(entry["time"]) - datetime.fromisoformat(before["time"])).total_seconds()
        for before, entry in pairwise(history)
        if entry["kind"] == "checkpoint"
    ]


def bench_network(
    config: TrainConfig, *, faces: Path, classes: int, rounds: int, steps: int, threads: int, say: Say
) -> dict[str, object]:
    """Measure all candidates on one network, in turns; `faces` is a list of `classes` people.

    A turn of `train` is far shorter than the time between two checkpoints. So each turn ends with a checkpoint, and of
    its seconds only the share of a turn at the recipe's `checkpoint_every` is counted.
    """
    total = (1 + rounds) * steps
    timed = config.changed(
        steps=total, lr=LEARNING_RATE, checkpoint_every=steps,
        guard=GuardConfig(window=max(200, total + 1)),  # at this learning rate a constant loss is no fault
    )  # fmt: skip
    with tempfile.TemporaryDirectory(dir=faces.parent) as folder:
        task = Task(timed, classes, steps, threads, faces, Path(folder) / "run")
        say(f"{config.model}: preparing {', '.join(CANDIDATES)}")
        seconds = measure(CANDIDATES, task, rounds=rounds, say=say)
        checkpoints = checkpoint_seconds(task.out)[1:]  # without that of the warm-up turn
    share = steps / config.checkpoint_every
    seconds["train"] = [
        turn - saving + share * saving for turn, saving in zip(seconds["train"], checkpoints, strict=True)
    ]
    rates = {name: [steps * config.batch / turn for turn in turns] for name, turns in seconds.items()}
    ratios = {
        f"train_to_{peer}": spread([own / other for own, other in zip(rates["train"], rates[peer], strict=True)])
        for peer in ("bare", "plain")
    }
    return {
        "network": config.model,
        "recipe": config.recipe,
        "batch": config.batch,
        "classes": classes,
        "steps_a_turn": steps,
        "faces_per_second": {name: statistics.median(values) for name, values in rates.items()},
        **ratios,
        "checkpoint_seconds": spread(checkpoints),
        "checkpoint_every": config.checkpoint_every,
    }


def bench_training(
    *,
    networks: Sequence[str] = NETWORKS,
    batch: int | None = None,
    classes: int = CLASSES,
    rounds: int = 15,
    steps: int | None = None,
    threads: int = 2,
    photos: int | None = None,
    width: float = 1.0,
    say: Say = mute,
) -> dict[str, Any]:
    """Faces a second of `train` and its peers, and ratios within each round; `say` receives progress lines.

    `batch` is by default that of each network's recipe; `steps` is the number of steps of a turn, by default those of
    a few seconds; `photos` is the number of photos of each person, by default more than fit into memory.
    """
    photos = photos or photos_beyond_memory(classes)
    recipes = [recipe_for(network).changed(width=width) for network in networks]
    configs = [recipe.changed(batch=batch) if batch else recipe for recipe in recipes]
    with tempfile.TemporaryDirectory() as folder:
        say(f"drawing {math.prod(PORTRAITS)} portraits for {classes:,} people")
        faces = write_faces(Path(folder), classes, photos)
        rows = [
            bench_network(
                config, faces=faces, classes=classes, rounds=rounds, threads=threads, say=say,
                steps=steps or STEPS.get(config.model, DEEP_STEPS),
            )
            for config in configs
        ]  # fmt: skip
    return {
        "what": "faces a second, medians; ratios within each round, their median and range. train: with its loader, "
        "log, guard and share of checkpoints; bare: the same network, loss, optimizer and memory on a batch in memory; "
        "plain: default memory format, torch's layers, linear layer, cross-entropy and SGD on a batch in memory",
        "command": "sphereface bench training --json",
        "rounds": rounds,
        "faces": classes * photos,
        **machine(),
        "threads": threads,  # of each candidate
        "cores": os.cpu_count(),
        "rows": rows,
    }


def table(result: Mapping[str, Any]) -> str:
    """The result as a text table."""
    peers = ("train_to_bare", "train_to_plain")
    lines = [
        f"{'faces a second':<14}  {''.join(f'{name:>8}' for name in CANDIDATES)}"
        + "".join(f"   {peer.replace('_', ' '):<20}" for peer in peers).rstrip()
    ]
    for row in result["rows"]:
        rates = "".join(f"{row['faces_per_second'][name]:8.1f}" for name in CANDIDATES)
        ratios = (
            f"   {row[peer]['median']:.3f} ({row[peer]['lowest']:.3f}-{row[peer]['highest']:.3f})" for peer in peers
        )
        lines.append(f"{row['network']:<14}  {rates}{''.join(ratios)}")
    return "\n".join(lines)
