"""Section 3.5: pairs and triplets against samples; cos(m theta) with and without psi; the margin of L-Softmax.

- A set of N photos makes N samples, N (N - 1) / 2 pairs and sum n (n - 1) (N - n) triplets, n photos of each person.
  For CASIA-WebFace the sizes of classes are taken as equal: same pairs and triplets are convex in them (triplets up to
  n = (N + 1) / 3), so these two numbers are lower bounds.
- A pair, triplet or sample is active if its loss is not zero. All three losses train on the same batches.
- The time of a step is measured with one network, one batch and the number of people of CASIA-WebFace.

The last two subjects are in `discussion_margins`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sphereface.bench.timing import interleaved
from sphereface.choices import Scale
from sphereface.experiments.paper import discussion_margins, material
from sphereface.experiments.paper.methods import METHODS, RIVALS
from sphereface.experiments.paper.plans import PLANS
from sphereface.experiments.paper.result import Figure, Result, Row, Stamp, Table
from sphereface.experiments.paper.setting import Setting
from sphereface.loading import FaceLoader, PeoplePhotos, prepare
from sphereface.loading.subset import Subset
from sphereface.losses import FaceLoss
from sphereface.losses.euclidean import Contrastive, Triplet
from sphereface.losses.pairs import squared_distances, unit
from sphereface.models.spherefacenet import HEIGHT, WIDTH
from sphereface.reports.figures import COLOURS, Picture, Theme, chart
from sphereface.training.learner import Learner, build_learner
from sphereface.training.optimizer import set_rate
from sphereface.training.setting import choose_device
from sphereface.training.step import learn

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CASIA = 494_414, 10_575  # images and people, as the paper counts them
PAPER_STEPS, PAPER_BATCH = 28_000, 128
PHOTOS = 4  # of each person in a batch, for pairs and triplets
WATCHED = {"contrastive": "pairs", "triplet": "triplets", "a_softmax": "samples"}
LATE = 0.2  # share of a training at its end over which active shares are averaged
RATE = 1e-4  # of the timed steps: small, so that the loss stays finite on random images


class Size(NamedTuple):
    """Steps of the training that is watched; network, width and batch of the timed steps, and their rounds."""

    steps: int
    network: str
    width: float
    batch: int
    rounds: int


SIZES: dict[Scale, Size] = {
    "tiny": Size(60, "sphereface4", 0.5, 32, 3),
    "small": Size(600, "sphereface20", 1.0, 64, 9),
    "paper": Size(4_000, "sphereface64", 1.0, PAPER_BATCH, 15),
}


# Numbers of samples, pairs and triplets.


class Expansion(NamedTuple):
    """What a set of photos makes in one epoch."""

    samples: int
    same: int  # pairs of one person
    pairs: int  # all pairs
    triplets: int  # anchor, another photo of its person, a photo of somebody else


def expand(counts: Sequence[int]) -> Expansion:
    """The numbers of samples, pairs and triplets of people with these numbers of photos."""
    photos = [int(n) for n in counts]  # Python's integers: triplets of large sets exceed 64 bits
    total = sum(photos)
    same = sum(n * (n - 1) // 2 for n in photos)
    return Expansion(total, same, total * (total - 1) // 2, sum(n * (n - 1) * (total - n) for n in photos))


def equal_sizes(images: int, people: int) -> list[int]:
    """The numbers of photos of people who have as equally many as possible."""
    few, more = divmod(images, people)
    return [few + 1] * more + [few] * (people - more)


def visited() -> Expansion:
    """The samples, pairs and triplets in all batches of the paper's run, with 32 people x 4 photos in each."""
    batch = expand([PHOTOS] * (PAPER_BATCH // PHOTOS))
    return Expansion(*(PAPER_STEPS * number for number in batch))


def expansion_table(here: Expansion, casia: Expansion, people: int, scale: Scale) -> Table:
    """Samples, pairs and triplets of the set at hand and of CASIA-WebFace, and those that the paper's run can visit."""
    lines: list[tuple[str, Expansion, Stamp]] = [
        (f"one epoch of the set here, {people:,} people", here, scale),
        (f"one epoch of CASIA-WebFace, {CASIA[1]:,} people of equal size", casia, "derived"),
        (f"all batches of {PAPER_STEPS:,} steps with {PAPER_BATCH} = 32 x {PHOTOS} faces", visited(), "derived"),
    ]
    note = (
        "By closed formulas from the sizes of classes. CASIA-WebFace: samples and pairs are exact; same pairs and "
        "triplets are at least these numbers, because they are fewest for equal classes."
    )
    rows = [Row([name, *(f"{number:,}" for number in found)], stamp) for name, found, stamp in lines]
    head = ["faces", "samples", "same pairs", "pairs", "triplets"]
    return Table("expansion", "Samples, pairs and triplets", head, rows, note)


# The active share of pairs, triplets and samples.


def pair_costs(features: Tensor, labels: Tensor, margin: float) -> Tensor:
    """The contrastive loss of each pair of a batch."""
    row, column = torch.triu_indices(len(features), len(features), offset=1, device=features.device)
    squared = squared_distances(features)[row, column]
    too_near = (margin - squared.sqrt()).clamp_min(0) ** 2
    return torch.where(labels[row] == labels[column], squared, too_near) / 2


def triplet_costs(features: Tensor, labels: Tensor, margin: float) -> Tensor:
    """The triplet loss of each triplet of a batch."""
    squared = squared_distances(features)
    same = labels[:, None] == labels[None, :]
    positive = same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    valid = positive[:, :, None] & ~same[:, None, :]  # anchor, positive, negative
    return (squared[:, :, None] - squared[:, None, :] + margin).clamp_min(0)[valid]


class Activity(NamedTuple):
    """The pairs, triplets or samples of one batch."""

    units: int
    active: float  # the share with a loss
    half: float  # the smallest share that makes half of the loss


@torch.no_grad()
def activity(loss: FaceLoss, features: Tensor, labels: Tensor) -> Activity:
    """How many units of a batch have a loss: triplets, pairs, or for losses with a softmax alone samples."""
    if isinstance(loss, Triplet):
        costs = triplet_costs(unit(features), labels, loss.margin)
    elif isinstance(loss, Contrastive):
        costs = pair_costs(unit(features), labels, loss.margin)
    else:
        costs = torch.stack([loss(features[i : i + 1], labels[i : i + 1]) for i in range(len(labels))])
    running = costs.double().sort(descending=True).values.cumsum(0)
    half = int((running < running[-1] / 2).sum()) + 1
    return Activity(len(costs), float((costs > 0).double().mean()), half / len(costs))


def watch(setting: Setting, known: Subset) -> dict[str, list[Activity]]:
    """The activity in each batch of a short training, by loss; all losses see the same batches."""
    faces, steps = prepare(known), SIZES[setting.scale].steps
    found: dict[str, list[Activity]] = {method: [] for method in WATCHED}
    for method, seen in found.items():
        setting.say(f"training with {METHODS[method].label}, {steps} steps")
        config = METHODS[method].config(PLANS[setting.scale].base.with_steps(steps))
        learner = build_learner(config, len(faces.people), choose_device("auto"))
        sampler = PeoplePhotos(faces.labels, people=config.batch // PHOTOS, photos=PHOTOS, least=2)
        for batch in FaceLoader(faces, sampler, steps=steps, mirror=config.mirror, device=learner.device):
            note = partial(_note, seen, learner.loss, batch.labels)
            with learner.net.register_forward_hook(note):
                step(learner, batch.images, batch.labels, rate=config.lr_at(batch.step))
    return found


def _note(seen: list[Activity], loss: FaceLoss, labels: Tensor, _net: object, _inputs: object, out: Tensor) -> None:
    seen.append(activity(loss, out.detach(), labels))


def step(learner: Learner, images: Tensor, labels: Tensor, *, rate: float) -> None:
    """One step of training, as `train` makes it."""
    set_rate(learner.optimizer, rate, caffe_momentum=learner.config.caffe_momentum)
    learn(learner.net, learner.loss, learner.optimizer, learner.scaler, images, labels, learner.config)


def activity_table(seen: Mapping[str, list[Activity]], scale: Scale) -> Table:
    """Active shares at the beginning and at the end of the training."""
    rows = []
    for method, batches in seen.items():
        cells = [METHODS[method].label, WATCHED[method], f"{batches[0].units:,}", f"{batches[0].active:.1%}",
                 f"{late(batches, 'active'):.1%}", f"{late(batches, 'half'):.1%}"]  # fmt: skip
        rows.append(Row(cells, scale))
    head = ["loss", "units", "in a batch", "active at first", "active at the end", "make half of the loss at the end"]
    note = f"At the end: mean over the last {LATE:.0%} of {len(batches)} steps. Same pairs are always active."
    return Table("activity", "Pairs, triplets and samples with a loss", head, rows, note)


def late(batches: Sequence[Activity], field: str) -> float:
    """The mean of a share over the last steps."""
    last = batches[-max(1, round(LATE * len(batches))) :]
    return float(np.mean([getattr(each, field) for each in last]))


# The time of a step.


def time_steps(size: Size) -> dict[str, tuple[float, float]]:
    """Seconds of a step with the whole network, and of the loss alone, by method; with CASIA-WebFace's people."""
    device = choose_device("auto")
    base = PLANS["paper"].base.changed(model=size.network, width=size.width, batch=size.batch, photos=None)
    labels = torch.arange(size.batch // PHOTOS, device=device).repeat_interleave(PHOTOS)
    images = torch.randint(0, 256, (size.batch, 3, HEIGHT, WIDTH), dtype=torch.uint8, device=device)
    features = torch.randn(size.batch, base.features, device=device)
    runs: dict[str, Callable[[], object]] = {}
    for method in RIVALS:
        learner = build_learner(METHODS[method].config(base), CASIA[1], device)
        runs[method] = partial(step, learner, images, labels, rate=RATE)
        runs[f"{method} alone"] = partial(_back, learner.loss, features, labels)
    seconds = interleaved(runs, repeats=size.rounds, device=str(device))
    return {method: (seconds[method], seconds[f"{method} alone"]) for method in RIVALS}


def _back(loss: FaceLoss, features: Tensor, labels: Tensor) -> None:
    """Forward and backward pass of a loss."""
    loss.zero_grad()
    loss(features.detach().requires_grad_(), labels).backward()


def time_table(seconds: Mapping[str, tuple[float, float]], size: Size, scale: Scale) -> Table:
    """Time of a step by loss."""
    softmax = seconds["softmax"][0]
    rows = [
        Row([METHODS[method].label, f"{1000 * whole:.0f}", f"{1000 * alone:.0f}", f"{whole / softmax:.2f}"], scale)
        for method, (whole, alone) in seconds.items()
    ]
    note = (
        f"{size.network}, width {size.width:g}, batch {size.batch}, {CASIA[1]:,} people, in turns, median of "
        f"{size.rounds} rounds. Triplet has no class weights. Pairs and triplets are those of the batch."
    )
    return Table("time", "Time of a training step", ["loss", "step, ms", "loss alone, ms", "to softmax"], rows, note)


def draw_activity(seen: Mapping[str, list[Activity]]) -> Picture:
    """The active share along the training, by loss."""

    def draw(axes: "Axes", _: Theme) -> None:
        for place, (method, batches) in enumerate(seen.items()):
            shares = [100 * each.active for each in batches]
            label = f"{METHODS[method].label}: {WATCHED[method]}"
            axes.plot(range(1, len(shares) + 1), shares, label=label, color=COLOURS[1 + place], linewidth=1.6)
        axes.set_ylim(0, 150)  # room for the legend above 100 %
        axes.set_yticks(range(0, 101, 20))

    says = "Share of pairs, triplets and samples with a loss, along a training"
    return chart(draw, says, height=3.0, x="step", y="active, %", loc="upper right", pdf=True)


def findings(
    here: Expansion, casia: Expansion, seen: Mapping[str, list[Activity]], seconds: Mapping[str, tuple[float, float]]
) -> list[str]:
    """What was found about samples, pairs and triplets, in sentences."""
    run, shares = visited(), {name: (each[0].active, late(each, "active")) for name, each in seen.items()}
    relative = {method: whole / seconds["softmax"][0] for method, (whole, _) in seconds.items()}
    samples_stay = min(each.active for each in seen["a_softmax"])
    half = {method: f"{late(batches, 'half'):.1%} of the {WATCHED[method]}" for method, batches in seen.items()}
    return [
        f"The {here.samples:,} photos here make {here.pairs:,} pairs and {here.triplets:,} triplets, "
        f"{here.pairs / here.samples:,.0f} and {here.triplets / here.samples:,.0f} times the samples. Those of "
        f"CASIA-WebFace make {casia.pairs:.3g} pairs and at least {casia.triplets:.3g} triplets. The paper's run shows "
        f"each sample {run.samples / casia.samples:.1f} times, but its batches hold at most "
        f"{run.pairs / casia.pairs:.2%} of the pairs and {run.triplets / casia.triplets:.3%} of the triplets.",
        f"Of the pairs in a batch {shares['contrastive'][0]:.0%} have a loss at first and "
        f"{shares['contrastive'][1]:.0%} at the end of a short training, of the triplets {shares['triplet'][0]:.0%} "
        f"and {shares['triplet'][1]:.0%}; of the samples with A-Softmax never fewer than {samples_stay:.0%}. "
        f"At the end half of the loss comes from {half['contrastive']}, {half['triplet']} and {half['a_softmax']}.",
        "Per step the losses differ less: against softmax a step takes "
        + ", ".join(f"{relative[method]:.2f} with {METHODS[method].label}" for method in RIVALS[1:])
        + ". The cost of pairs and triplets is their number, not the time of a batch of them.",
    ]


def run(setting: Setting) -> Result:
    """Numbers and active shares of samples, pairs and triplets, times of steps, psi, and L-Softmax's margin."""
    known = material.known_faces(material.training_sets(setting))
    counts, size = np.bincount(known.labels).tolist(), SIZES[setting.scale]
    here, casia = expand(counts), expand(equal_sizes(*CASIA))
    seen = watch(setting, known)
    setting.say("timing a step of each loss")
    seconds = time_steps(size)
    setting.say("descent with and without psi")
    margins = discussion_margins.compare(setting.scale)
    return Result(
        "discussion",
        "Pairs, triplets and samples; psi; L-Softmax's margin",
        setting.scale,
        findings=[*findings(here, casia, seen, seconds), *margins.findings],
        tables=[
            expansion_table(here, casia, len(counts), setting.scale), activity_table(seen, setting.scale),
            time_table(seconds, size, setting.scale), *margins.tables,
        ],
        figures=[
            *margins.figures,
            Figure("activity", draw_activity(seen), "Share of the pairs, triplets and samples of each batch that have "
                   "a loss, along a short training on the same batches."),
        ],
        numbers={
            "expansion": {"here": here._asdict(), "casia": casia._asdict(), "visited": visited()._asdict()},
            "active": {method: [each.active for each in batches] for method, batches in seen.items()},
            "half": {method: late(batches, "half") for method, batches in seen.items()},
            "seconds": {method: {"step": whole, "loss": alone} for method, (whole, alone) in seconds.items()},
            **margins.numbers,
        },
    )  # fmt: skip
