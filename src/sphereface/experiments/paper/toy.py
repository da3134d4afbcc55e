"""The toy experiments on faces: features of two or three numbers of the people with the most photos.

All losses train the same small network from the same initial weights, with the same faces in the same order and the
same number of steps. A trained run is a file among the runs, with snapshots of its features along training.
"""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sphereface.arrays import Bools, Float32, Float64, Floating, Int64, Integers, unit_rows
from sphereface.choices import Scale
from sphereface.data.files.workers import mapping
from sphereface.data.files.writing import whole_file
from sphereface.data.reading import read_face
from sphereface.experiments.loop import Budget, Step, extract, fit
from sphereface.experiments.paper.material import Drawn, drawn, known_faces, training_sets
from sphereface.experiments.paper.methods import METHODS
from sphereface.experiments.paper.setting import Setting
from sphereface.experiments.trials import Sets
from sphereface.loading.subset import Subset, fingerprint
from sphereface.losses import Annealing, FaceLoss, create_loss
from sphereface.losses.classifier import ASoftmax, MarginSoftmax
from sphereface.metrics import eer
from sphereface.models import create_model
from sphereface.models.inputs import to_tensor
from sphereface.training.config import ANNEALED

SYNTHETIC = Drawn(6, 100, 0)  # without data: as many photos as a person with many has in the set of the other tables
WORTH_A_PROCESS = 500  # steps; a shorter run takes less time than the start of a worker


@dataclass(frozen=True)
class Plan:
    """The size of all runs of a scale, whatever their loss; the paper prints none of it for its toy experiments."""

    budget: Budget
    width: float  # of sphereface4, with batch norm: see the recipe `small`
    photos: int  # of each person at most, those that come first
    shown: int  # photos of each person in a snapshot
    snapshots: int  # along training, the first before it and the last after it


# Of the rates 0.01, 0.025 and 0.05, the first gave m = 1, 2 and 4 the highest accuracy on the training photos of six
# people at the scale tiny, synthetic and real ones: a network of so few people learns within a few steps.
PLANS: dict[Scale, Plan] = {
    "tiny": Plan(Budget(steps=150, batch=32, lr=0.01), width=0.125, photos=100, shown=40, snapshots=12),
    "small": Plan(Budget(steps=1_000, batch=64, lr=0.01), width=0.125, photos=400, shown=60, snapshots=24),
    "paper": Plan(Budget(steps=8_000, batch=128, lr=0.01), width=1.0, photos=1_000, shown=80, snapshots=32),
}


@dataclass(frozen=True)
class Toy:
    """One run: a method of `METHODS`, the number of people, the length of a feature, and the seed."""

    method: str
    people: int
    features: int
    seed: int
    watched: bool = False  # with snapshots

    @property
    def label(self) -> str:
        """The name of its method."""
        return METHODS[self.method].label

    def build_loss(self, steps: int) -> FaceLoss:
        """The loss with new weights; annealing fits the run: lambda reaches 5 at 44 % of its steps."""
        method = METHODS[self.method]
        options = {"annealing": Annealing(gamma=450 / steps)} if method.loss in ANNEALED else {}
        return create_loss(method.loss, self.features, self.people, **{**method.options, **options})


@dataclass(frozen=True, eq=False)
class Trained:
    """A run after its end. Labels count people by their number of photos: class 0 has the most."""

    features: Float32  # (N, D), of the photos that it learned from
    labels: Int64  # (N,)
    weight: Float32  # (K, D)
    bias: Float32  # (K,), zeros where the loss has none
    lambda_: Float64  # (), at the last step; 0 where the loss has none
    losses: Float64  # (steps,)
    steps: Int64  # (S,), of the snapshots; 0 is before training
    shown: Int64  # (M,), rows of the photos in a snapshot
    history: Float32  # (S, M, D), their features
    weights: Float32  # (S, K, D), the class weights

    @property
    def logits(self) -> Float64:
        """What the classifier sees without a margin, w x + b, (N, K)."""
        return np.asarray(self.features.astype(np.float64) @ self.weight.T + self.bias)


class Task(NamedTuple):
    """A run with all that decides its result, and its file; for a worker process."""

    run: Toy
    plan: Plan
    faces: Subset
    path: Path


def train_all(setting: Setting, runs: Sequence[Toy]) -> list[Trained]:
    """The trained runs; only those without a file are trained."""
    plan, known = PLANS[setting.scale], known_faces(toy_sets(setting))
    faces = {people: most_photos(known, people, plan.photos) for people in {run.people for run in runs}}
    tasks = [_task(setting, run, plan, faces[run.people]) for run in runs]
    waiting = [task for task in tasks if not task.path.is_file()]
    jobs = min(setting.jobs, len(waiting)) if plan.budget.steps >= WORTH_A_PROCESS else 1
    with mapping(jobs) as run_all:
        for task, _ in zip(waiting, run_all(train, waiting), strict=True):
            setting.say(f"{task.path.stem}: done")
    return [read_trained(task.path) for task in tasks]


def toy_sets(setting: Setting) -> Sets:
    """The training set of the setting; without data, synthetic people with many photos."""
    return training_sets(setting) if setting.data.faces else Sets((drawn(setting, "toy", SYNTHETIC),))


def most_photos(known: Subset, people: int, photos: int) -> Subset:
    """The first photos of the people with the most of them; labels count from the one with the most."""
    labels = np.asarray(known.labels)
    largest = np.argsort(-np.bincount(labels), kind="stable")[:people]
    rows = [np.flatnonzero(labels == person)[:photos] for person in largest]
    own = np.repeat(np.arange(len(rows)), [len(each) for each in rows])
    return Subset(known, np.concatenate(rows), [known.people[person] for person in largest], own)


def _task(setting: Setting, run: Toy, plan: Plan, faces: Subset) -> Task:
    about = json.dumps([asdict(run), asdict(plan), fingerprint(faces)])
    short = hashlib.sha256(about.encode()).hexdigest()[:8]
    name = f"toy-{run.method}-{run.people}people-{run.features}d-seed{run.seed}-steps{plan.budget.steps}-{short}.npz"
    return Task(run, plan, faces, setting.runs / setting.scale / name)


def train(task: Task) -> None:
    """Train a run and write its file, on one thread: the same bits on machines with any number of cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = _train(task.run, task.plan, read_pixels(task.faces), np.asarray(task.faces.labels))
    finally:
        torch.set_num_threads(threads)
    task.path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(task.path) as file:
        np.savez_compressed(file, **{field.name: getattr(found, field.name) for field in fields(found)})


def read_trained(path: Path) -> Trained:
    """The run in a file."""
    with np.load(path) as arrays:
        return Trained(**arrays)


@lru_cache(maxsize=1)  # for the losses of a comparison, which learn from the same faces
def read_pixels(faces: Subset) -> Tensor:
    """All faces of a set (N, 3, 112, 96) uint8."""
    return to_tensor(np.stack([read_face(faces, row, "112x96") for row in range(len(faces.rows))]))


def _train(run: Toy, plan: Plan, images: Tensor, labels: Int64) -> Trained:
    with torch.random.fork_rng():
        torch.manual_seed(run.seed)
        net = create_model("sphereface4", features=run.features, width=plan.width, norm="batch")
        loss = run.build_loss(plan.budget.steps)
    assert isinstance(loss, MarginSoftmax), f"{run.method}: a loss without class weights has no arrows to draw"
    wanted = snapshot_steps(plan.budget.steps, plan.snapshots) if run.watched else []
    shown = np.concatenate([np.flatnonzero(labels == person)[: plan.shown] for person in range(run.people)])
    losses, history, weights = list[float](), list[Float32](), list[Float32]()

    def look() -> None:
        history.append(extract(net, images[shown], mirror=False))
        weights.append(loss.weight.detach().numpy().copy())
        net.train()  # extract leaves it in evaluation mode

    def on_step(step: Step) -> None:
        losses.append(step.loss)
        if step.step in wanted:
            look()

    if wanted:
        look()
    fit(net, loss, images, torch.from_numpy(labels), plan.budget, seed=run.seed, on_step=on_step)
    return Trained(
        features=extract(net, images, mirror=False),
        labels=labels,
        weight=loss.weight.detach().numpy(),
        bias=np.zeros(run.people, np.float32) if loss.bias is None else loss.bias.detach().numpy(),
        lambda_=np.array(loss.lambda_.item() if isinstance(loss, ASoftmax) else 0.0),
        losses=np.array(losses),
        steps=np.array(wanted, np.int64),
        shown=shown,
        history=np.array(history, np.float32),
        weights=np.array(weights, np.float32),
    )


def snapshot_steps(steps: int, count: int) -> list[int]:
    """The steps of snapshots, from 0 to the last step; close at first, when features move fast."""
    return sorted({round(steps * share**1.6) for share in np.linspace(0, 1, count).tolist()})


# What the toy experiments measure.


@dataclass(frozen=True, eq=False)
class PairAngles:
    """The angles, in radians, of pairs of features of one person and of two people."""

    same: Float64
    different: Float64

    @property
    def distance(self) -> float:
        """How much further apart two photos of two people are than two of one person, on average."""
        return float(self.different.mean() - self.same.mean())

    @property
    def widest(self) -> float:
        """The angle that 99 % of the pairs of one person stay below."""
        return float(np.quantile(self.same, 0.99))

    @property
    def nearest(self) -> float:
        """The angle that 99 % of the pairs of two people exceed."""
        return float(np.quantile(self.different, 0.01))

    @property
    def gap(self) -> float:
        """The angle between the two; above 0, the paper's criterion holds but for one pair in a hundred.

        The criterion: the largest distance within a class is smaller than the smallest one between classes.
        """
        return self.nearest - self.widest

    def eer(self) -> float:
        """The equal error rate of these pairs: how much the two distributions overlap."""
        truth = np.repeat([True, False], [len(self.same), len(self.different)])
        return eer(truth, -np.concatenate([self.same, self.different]))


def pair_angles(features: Floating, labels: Integers, people: Sequence[int] | None = None) -> PairAngles:
    """The angles of all pairs of features (N, D) of some people, or of all."""
    kept = np.ones(len(labels), bool) if people is None else np.isin(labels, people)
    unit, own = unit_rows(features[kept]), labels[kept]
    one, other = np.triu_indices(len(own), 1)
    angles = np.arccos(np.clip((unit @ unit.T)[one, other], -1, 1))
    same = own[one] == own[other]
    return PairAngles(angles[same], angles[~same])


def nearest_weight_accuracy(trained: Trained) -> float:
    """The share of photos whose class weight is the one at the smallest angle, whatever lengths and biases are."""
    cosines = unit_rows(trained.features) @ unit_rows(trained.weight).T
    return float((cosines.argmax(axis=1) == trained.labels).mean())


def best_arc_accuracy(features: Floating, first: Bools) -> float:
    """The accuracy of the best rule that looks at the angle alone: inside one arc of the circle is the first class.

    Features are (N, 2). In the order of their angles, an arc is a run of photos that may go round the circle; it is
    right about the first class inside it and about the second one outside. It cannot end between equal angles.
    """
    angles = np.mod(np.arctan2(features[:, 1], features[:, 0]), 2 * math.pi)
    order = np.argsort(angles)
    ends = np.concatenate([[0], np.flatnonzero(np.diff(angles[order])) + 1, [len(order)]])
    gain = np.concatenate([[0], np.cumsum(np.where(first[order], 1, -1))])[ends]
    straight = (gain - np.minimum.accumulate(gain)).max()  # the best run from one place to a later one
    around = gain[-1] - (gain - np.maximum.accumulate(gain)).min()  # all but the worst run
    return float((max(straight, around) + (~first).sum()) / len(first))


# Numbers as text.


def spread(values: Sequence[float], form: Callable[[float], str]) -> str:
    """A mean, with the lowest and the highest of several values."""
    mean = form(float(np.mean(values)))
    return mean if len(values) == 1 else f"{mean} ({form(min(values))} to {form(max(values))})"


def percent(share: float) -> str:
    """A share as per cent."""
    return f"{share:.1%}".replace("%", " %")


def degrees(angle: float) -> str:
    """An angle in degrees."""
    return f"{angle:.0f}°"
