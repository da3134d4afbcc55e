"""Digits in place of faces: a small network with 2-D or 3-D features, as in the paper's appendix.

The digits are MNIST's, or scikit-learn's if MNIST is not given. All losses are trained with the same settings. A run is
kept among the runs, and shared by the experiments; what is measured of it is kept among the outcomes.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from sphereface.arrays import Float32, Float64, Floating, Integers, UInt8, unit_rows
from sphereface.choices import Scale
from sphereface.data.files.workers import mapping
from sphereface.data.files.writing import whole_file
from sphereface.experiments.loop import batches
from sphereface.experiments.outcomes import Outcome, kept, outcome
from sphereface.experiments.paper.digit_images import (
    CLASSES,
    PARTS,
    Digits,
    Images,
    load_digits,
    long_tailed,
    read_digits,
)
from sphereface.experiments.paper.methods import METHODS
from sphereface.experiments.paper.setting import Setting
from sphereface.losses import Annealing, FaceLoss, create_loss
from sphereface.metrics.fisher import angular_fisher_score
from sphereface.models.cpu import speed_up_
from sphereface.models.inputs import to_input
from sphereface.models.spherefacenet import Residual, SphereFaceNet, convolution
from sphereface.training.config import ANNEALED
from sphereface.training.setting import choose_device

KEPT = 1_500  # features of each part that are kept for drawings
PAIRED = 1_000  # features of each class that are paired with each other


class DigitNet(SphereFaceNet):
    """Stages of the paper's kind for small grey images (N, 1, H, W) -> features (N, D): a strided convolution, units.

    With batch norm, as in the network for MNIST that the authors released with L-Softmax: without it the rate of that
    network is too high. Initial values and groups of parameters are those of the networks for faces.
    """

    def __init__(self, side: int, features: int, *, widths: Sequence[int], units: int, last_relu: bool) -> None:
        nn.Module.__init__(self)  # the layers of the network for faces are not made
        layers: list[nn.Module] = []
        for channels, width in pairwise((1, *widths)):
            layers += convolution(channels, width, stride=2, bias=False, batch_norm=True)
            layers += [Residual(width, batch_norm=True) for _ in range(units)]
            side = math.ceil(side / 2)
        self.stages = nn.Sequential(*layers)
        self.fc1 = nn.Linear(widths[-1] * side * side, features)
        self.last = nn.ReLU() if last_relu else nn.Identity()
        self.reset_parameters()

    def forward(self, images: Tensor) -> Tensor:
        """Features (N, D) at their own length."""
        return self.last(self.fc1(self.stages(images).flatten(1)))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Plan:
    """The settings that all runs of a scale share, whatever their loss."""

    steps: int
    batch: int
    lr: float
    widths: tuple[int, ...]
    units: int = 1  # in each stage
    warmup: float = 0.1  # share of the run in which the rate rises; without it a last ReLU lets both features die
    milestones: tuple[float, ...] = (0.6, 0.85)  # shares of the run after which the rate falls to a tenth
    annealed: float = 0.4  # share of the run in which lambda falls from 1000 to its minimum
    lambda_min: float = 5.0
    momentum: float = 0.9
    weight_decay: float = 5e-4
    clip: float = 1.0  # largest norm of the gradient

    def rate(self, step: int) -> float:
        """The factor on the learning rate at a step, counted from 0."""
        falls = sum(step >= round(at * self.steps) for at in self.milestones)
        return float(min(1.0, (step + 1) / max(1.0, self.warmup * self.steps)) * 0.1**falls)

    @property
    def annealing(self) -> Annealing:
        """The schedule of lambda, of the paper's form."""
        steps = self.annealed * self.steps
        return Annealing(gamma=(Annealing.base / self.lambda_min - 1) / steps, minimum=self.lambda_min)


# The paper prints no settings for MNIST. Those of "paper", from widths to milestones, are of the network for MNIST that
# the authors released with L-Softmax: github.com/wy1iu/LargeMargin_Softmax_Loss, myexamples/mnist.
PLANS: dict[Scale, Plan] = {
    "tiny": Plan(steps=400, batch=64, lr=0.1, widths=(16, 32)),
    "small": Plan(steps=3_000, batch=128, lr=0.1, widths=(16, 32, 64)),
    "paper": Plan(
        steps=30_000, batch=128, lr=0.1, widths=(64, 128, 256), milestones=(1 / 6, 1 / 4, 1 / 3), annealed=0.15
    ),
}


class Run(NamedTuple):
    """One training run; the method is a name of `methods.METHODS`."""

    method: str
    seed: int
    features: int = 2
    tail: bool = False  # trained on the long-tailed digits

    @property
    def label(self) -> str:
        """The name of its method."""
        return METHODS[self.method].label


class Trained(NamedTuple):
    """A network with its loss, on the device where they were trained or loaded."""

    net: DigitNet
    loss: FaceLoss


class Task(NamedTuple):
    """A run with all that decides its result, and its folder; for a worker process."""

    run: Run
    plan: Plan
    mnist: Path | None
    folder: Path

    @property
    def train(self) -> Images:
        """The images that it learns from."""
        pixels, labels = read_digits(self.mnist).train
        rows = long_tailed(labels, self.run.seed) if self.run.tail else np.arange(len(labels))
        return Images(pixels[rows], labels[rows])

    def build(self) -> Trained:
        """The network and the loss, with new weights."""
        run, plan, method = self.run, self.plan, METHODS[self.run.method]
        side = read_digits(self.mnist).train.pixels.shape[1]
        options = {"annealing": plan.annealing} if method.loss in ANNEALED else {}
        device = choose_device("auto")
        net = DigitNet(side, run.features, widths=plan.widths, units=plan.units, last_relu=method.last_relu)
        loss = create_loss(method.loss, run.features, CLASSES, **{**method.options, **options})
        return Trained(net.to(device), loss.to(device))

    def load(self) -> Trained:
        """The network and the loss, as they were kept."""
        trained = self.build()
        nn.ModuleDict(trained._asdict()).load_state_dict(load_file(self.folder / WEIGHTS))
        return trained


WEIGHTS, DONE = "weights.safetensors", "run.json"


def train(task: Task) -> None:
    """Train a run and keep its weights, on one thread: the same bits on machines with any number of cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        trained, losses = fit(task)
    finally:
        torch.set_num_threads(threads)
    task.folder.mkdir(parents=True, exist_ok=True)
    weights = nn.ModuleDict(trained._asdict()).state_dict()
    with whole_file(task.folder / WEIGHTS) as file:
        file.write(save({name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}))
    with whole_file(task.folder / DONE) as file:  # last: a run with this file is finished
        file.write((json.dumps({"losses": [round(value, 4) for value in losses]}) + "\n").encode())


def fit(task: Task) -> tuple[Trained, list[float]]:
    """Train a run; returns it with the loss at each step."""
    plan, (pixels, labels) = task.plan, task.train
    with torch.random.fork_rng():
        torch.manual_seed(task.run.seed)
        net, loss = task.build()
    device = net.fc1.weight.device
    images, classes = torch.from_numpy(pixels)[:, None].to(device), torch.from_numpy(labels).to(device)
    speed_up_(net)
    net.to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    head = {"params": list(loss.parameters()), "lr": plan.lr, "weight_decay": plan.weight_decay}
    groups = net.parameter_groups(lr=plan.lr, weight_decay=plan.weight_decay)
    optimizer = torch.optim.SGD([*groups, head], momentum=plan.momentum)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, plan.rate)
    losses: list[Tensor] = []
    for chosen, _ in batches(len(images), plan.batch, plan.steps, torch.Generator().manual_seed(task.run.seed)):
        batch = chosen.to(device)  # never mirrored: a mirrored digit is another character
        loss.advance()
        optimizer.zero_grad()
        value = loss(net(_input(images[batch])), classes[batch])
        value.backward()
        torch.nn.utils.clip_grad_norm_([*net.parameters(), *loss.parameters()], plan.clip)
        optimizer.step()
        loss.project_()
        schedule.step()
        losses.append(value.detach())
    return Trained(net, loss), torch.stack(losses).tolist()


@torch.no_grad()
def extract(net: DigitNet, pixels: UInt8, *, batch: int = 1_000) -> Float32:
    """Features (N, D) of images, not normalised."""
    net.eval()
    images = torch.from_numpy(pixels)[:, None].to(net.fc1.weight.device)
    return torch.cat([net(_input(part)) for part in torch.split(images, batch)]).cpu().numpy()


def _input(images: Tensor) -> Tensor:
    """Images (N, 1, H, W) uint8 as network input, in the memory format that is fastest."""
    return to_input(images).contiguous(memory_format=torch.channels_last)


class DigitRuns:
    """The runs of a setting on digits, each trained once, and their outcomes."""

    def __init__(self, setting: Setting, plan: Plan | None = None) -> None:
        self.setting, self.plan = setting, plan or PLANS[setting.scale]
        self.digits = load_digits(setting)

    @property
    def about(self) -> str:
        """The data and the size of the runs, in words."""
        digits = "scikit-learn's digits" if self.setting.data.mnist is None else "MNIST"
        seeds = f"{len(self.setting.seeds)} seed" + "s" * (len(self.setting.seeds) > 1)
        ours, theirs = (f"{len(part.labels):,}" for part in (self.digits.train, self.digits.test))
        return f"{digits}: {ours} images to train on, {theirs} to test with; {self.plan.steps:,} steps, {seeds}"

    def measured(self, runs: Sequence[Run]) -> list[Outcome]:
        """The measures of runs; trains those that have none."""
        return self._outcomes(runs, "measures", measures)

    def over_seeds(self, methods: Iterable[str], *, features: int = 2) -> dict[str, list[Outcome]]:
        """The measures of methods for each seed of the setting, by method."""
        wanted = {method: [Run(method, seed, features) for seed in self.setting.seeds] for method in methods}
        self.measured([run for some in wanted.values() for run in some])  # all at once: they share the cores
        return {method: self.measured(some) for method, some in wanted.items()}

    def drawn(self, runs: Sequence[Run]) -> list[Outcome]:
        """Features of runs for drawings, with the class weights; trains those that have none."""
        return self._outcomes(runs, "features", features_to_draw)

    def _outcomes(self, runs: Sequence[Run], name: str, method: Any) -> list[Outcome]:
        files = [self.setting.out / "runs" / self.setting.scale / f"{self.folder(run)}.{name}.json" for run in runs]
        self._train([run for run, file in zip(runs, files, strict=True) if not kept(file)])
        return [
            outcome(file, self._about(run), partial(method, self._task(run), self.digits))
            for run, file in zip(runs, files, strict=True)
        ]

    def _train(self, runs: Sequence[Run]) -> None:
        tasks = [self._task(run) for run in dict.fromkeys(runs)]
        waiting = [task for task in tasks if not (task.folder / DONE).is_file()]
        jobs = min(self.setting.jobs, len(waiting)) if self.plan.steps >= WORTH_A_PROCESS else 1
        with mapping(jobs) as run_all:
            for task, _ in zip(waiting, run_all(train, waiting), strict=True):
                self.setting.say(f"{task.folder.name}: done")

    def folder(self, run: Run) -> str:
        """The name of a run: what people look for, and a hash of everything."""
        short = hashlib.sha256(json.dumps(self._about(run), sort_keys=True).encode()).hexdigest()[:8]
        return f"digits-{run.method}{'-tail' * run.tail}-{run.features}d-seed{run.seed}-steps{self.plan.steps}-{short}"

    def _task(self, run: Run) -> Task:
        folder = self.setting.runs / self.setting.scale / self.folder(run)
        return Task(run, self.plan, self.setting.data.mnist, folder)

    def _about(self, run: Run) -> Mapping[str, Any]:
        method = METHODS[run.method]
        options = {"loss": method.loss, "options": dict(method.options), "last_relu": method.last_relu}
        images = {"digits": self.digits.hash, "images": len(self.digits.train.labels)}
        return json.loads(json.dumps({**run._asdict(), **options, "plan": asdict(self.plan), **images}))  # type: ignore[no-any-return]


WORTH_A_PROCESS = 1_000  # steps; a shorter run takes less time than the start of a worker


# What is measured.


def measures(task: Task, digits: Digits) -> Outcome:
    """The measures of a run on images that it was trained on and on others, and its class weights and biases."""
    (net, loss), seen = task.load(), task.train
    weight, bias = class_weights(loss)
    found: Outcome = {
        "sizes": np.bincount(seen.labels, minlength=CLASSES).tolist(),
        "lengths": np.linalg.norm(weight, axis=1).tolist(),
        "biases": bias.tolist(),
        "loss": float(np.mean(json.loads((task.folder / DONE).read_bytes())["losses"][-100:])),
    }
    for part, (pixels, labels) in zip(PARTS, (seen, digits.test), strict=True):
        features = extract(net, pixels)
        found[part] = {
            "accuracy": float(np.mean((features @ weight.T + bias).argmax(1) == labels)),
            "fisher": angular_fisher_score(features, labels),
            "first_quadrant": float((features >= 0).all(axis=1).mean()),
            "separated": separated_pairs(features, labels),
            "length": float(np.linalg.norm(features, axis=1).mean()),
        } | ({"arc": smallest_arc(features)} if task.run.features == 2 else {})
    return found


def features_to_draw(task: Task, digits: Digits) -> Outcome:
    """The first features of each part with their labels, and the class weights."""
    net, loss = task.load()
    found: Outcome = {"weights": class_weights(loss)[0].round(4).tolist()}
    for part, (pixels, labels) in zip(PARTS, (task.train, digits.test), strict=True):
        features = extract(net, pixels[:KEPT])
        found[part] = {"features": features.round(3).astype(float).tolist(), "labels": labels[:KEPT].tolist()}
    return found


def class_weights(loss: FaceLoss) -> tuple[Float64, Float64]:
    """The class weights (K, D) and biases (K,) of a loss, zeros if it has none."""
    weight = np.asarray(loss.get_parameter("weight").detach().cpu(), np.float64)
    bias = getattr(loss, "bias", None)
    return weight, np.zeros(len(weight)) if bias is None else np.asarray(bias.detach().cpu(), np.float64)


def smallest_arc(features: Floating, share: float = 0.99) -> float:
    """The smallest arc, in degrees, that holds a share of the directions of 2-D features; zeros have no direction."""
    x, y = features[(features != 0).any(axis=1)].astype(np.float64).T
    angles = np.sort(np.degrees(np.arctan2(y, x)))
    held = math.ceil(share * len(angles))
    if held < 2:
        return 0.0
    around = np.concatenate([angles, angles + 360])
    return float((around[held - 1 : held - 1 + len(angles)] - angles).min())


def separated_pairs(features: Floating, labels: Integers) -> float:
    """The share of pairs of classes that are further from each other than either is wide.

    Of two classes, the 1st percentile of the angles between them exceeds the 99th percentile of those within each:
    the criterion of the paper's section 3.4, without the most extreme hundredth. Of a class, the first 1,000 count.
    """
    classes = [unit_rows(features[labels == digit][:PAIRED]) for digit in np.unique(labels)]
    # Of cosines: a cosine falls with its angle, so percentiles change places.
    within = [np.percentile(_of_pairs(unit), 1) for unit in classes]
    return float(
        np.mean([
            np.percentile(first @ second.T, 99) < min(wide, other)
            for (first, wide), (second, other) in combinations(zip(classes, within, strict=True), 2)
        ])
    )  # fmt: skip


def _of_pairs(unit: Float64) -> Float64:
    """The cosines of all pairs of two different rows."""
    return (unit @ unit.T)[np.triu_indices(len(unit), 1)]


class Lengths(NamedTuple):
    """Sizes of classes (K,) in a training set, in ascending order, and lengths (K,) of their weights."""

    sizes: Float64
    lengths: Float64


def weight_lengths(setting: Setting) -> Lengths:
    """Appendix B: the sizes of classes and the lengths of their weights after training on long-tailed digits.

    The loss is softmax without a bias, which could hold the prior of a class, too. Each seed makes other digits rare; a
    length is the mean over seeds of the classes of one size, so that it depends little on the shape of a digit.
    """
    found = DigitRuns(setting).measured([Run("softmax_no_bias", seed, tail=True) for seed in setting.seeds])
    sizes, lengths = (np.array([each[name] for each in found], np.float64) for name in ("sizes", "lengths"))
    order = np.argsort(sizes, axis=1)
    return Lengths(*(np.take_along_axis(each, order, axis=1).mean(axis=0) for each in (sizes, lengths)))
