"""Figure 1: closed-set and open-set protocols with one network and its features.

The network learns from some photos of each person of the training set; every fifth photo is left out.

- **Closed set**: the left-out photos, of people who were trained on. Identification: the class of the highest logit, or
  the nearest enrolled photo. Verification: do both photos get the same class, or is their cosine above a threshold.
- **Open set**: as many photos of as many people who were not trained on. They have no class: only the nearest enrolled
  photo and the cosine are left.

Both sets are cut to equally many people and photos of each, and go through the same rules. The control is the network
before its training, which knows nobody: what it finds harder in one set is due to the photos.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from sphereface.arrays import Bools, Float32, Float64, Int64, UInt8, unit_rows
from sphereface.choices import Scale
from sphereface.data.reading import read_face
from sphereface.embed.embedder import Embedder
from sphereface.errors import UserError
from sphereface.evaluation import Verification, identify, verify_folds
from sphereface.evaluation.rules.drawn_pairs import Pairs, draw_pairs
from sphereface.experiments.loop import extract
from sphereface.experiments.paper import material, splits
from sphereface.experiments.paper.comparison import seeds_of
from sphereface.experiments.paper.measures import possible
from sphereface.experiments.paper.methods import METHODS
from sphereface.experiments.paper.open_closed_drawing import Answer, Column, draw_accuracy, draw_protocols
from sphereface.experiments.paper.result import Figure, Result, Row, Table
from sphereface.experiments.paper.runs import Run, Runs, runs_of
from sphereface.experiments.paper.setting import Setting
from sphereface.faces.warp import as_crop
from sphereface.loading.subset import Subset
from sphereface.metrics import AllPairs
from sphereface.models import create_model
from sphereface.models.inputs import to_tensor
from sphereface.progress import Say
from sphereface.reports.figures import Picture
from sphereface.training.checkpoints.reading import newest_checkpoint
from sphereface.training.setting import CHECKPOINTS

if TYPE_CHECKING:
    pass

COMPARED = ("softmax", "a_softmax")
LONGER: dict[Scale, int] = {"tiny": 2, "small": 1, "paper": 1}  # in 150 steps a network hardly learns its own people
CROP = "112x96"
PHOTOS, LEAST = 4, 4  # photos of each person in a test; people, so that pairs have two folds
FAR = 1e-2
SPLITS = 10  # draws of the enrolled photos
UNTRAINED = "before training"


@dataclass(frozen=True)
class People:
    """Photos of people to test with: (N, 112, 96, 3), and their people (N,), 0, 1, 2, ..."""

    pixels: UInt8
    people: Int64

    @cached_property
    def pairs(self) -> Pairs:
        """Equal numbers of same and different pairs, each person in one fold."""
        return draw_pairs(self.people)


def choose_rows(people: Int64, number: int, *, seed: int = 0) -> Int64:
    """The rows of the first `PHOTOS` photos of random people among those with as many, person by person."""
    able = np.flatnonzero(np.bincount(people) >= PHOTOS)
    chosen = np.sort(np.random.default_rng(seed).permutation(able)[:number])
    return np.concatenate([np.flatnonzero(people == person)[:PHOTOS] for person in chosen])


@dataclass(frozen=True)
class Sets:
    """The two test sets, of equal size; `classes` are the labels of the people of the closed one."""

    closed: People
    open: People
    classes: Int64  # (N,)


def test_sets(setting: Setting, runs: Runs) -> Sets:
    """The photos that training leaves out, and those of people whom it never sees."""
    if not possible(setting, "lfw"):
        raise UserError("no people to test with; give the folder of LFW beside the faces to train on")
    known, test = runs.known, material.lfw_test(setting)
    rows = np.flatnonzero(splits.closed_set(known))
    labels = np.asarray(known.labels)[rows]
    number = min(int((np.bincount(each) >= PHOTOS).sum()) for each in (labels, test.people))
    if number < LEAST:
        raise UserError(f"{number} people with {PHOTOS} photos in both sets; wanted at least {LEAST}: give larger sets")
    left_out, others = choose_rows(labels, number), choose_rows(test.people, number)
    places = np.repeat(np.arange(number), PHOTOS)
    return Sets(
        People(np.stack([read_face(known, int(row), CROP) for row in rows[left_out]]), places),
        People(np.stack([as_crop(test.pixels[row], CROP) for row in others]), places),
        labels[left_out],
    )


class Network(NamedTuple):
    """A trained network with the classes it was trained on."""

    embedder: Embedder
    weight: Float32  # (K, D)
    bias: Float32  # (K,)

    def classify(self, pixels: UInt8) -> Int64:
        """The class of the highest logit, (N,)."""
        features = self.embedder.with_rule("image").embed(pixels)
        return np.asarray((features @ self.weight.T + self.bias).argmax(1), np.int64)


def needed(runs: Runs) -> dict[str, list[Run]]:
    """The runs of this figure, by loss, one for each seed."""
    factor = LONGER[runs.setting.scale]
    found = {method: seeds_of(runs, method, split=splits.CLOSED) for method in COMPARED}
    return {
        method: [run._replace(settings=run.settings.with_steps(factor * run.settings.steps)) for run in some]
        for method, some in found.items()
    }


def load(model: Path, say: Say) -> Network:
    """A trained network with the class weights of its last checkpoint."""
    checkpoint = newest_checkpoint(model.parent / CHECKPOINTS, say=say, verify=False)
    assert checkpoint is not None, "a finished run has a checkpoint"
    rows = checkpoint.rows(0, checkpoint.manifest.classes)
    weight = rows["loss.weight"].numpy()
    bias = rows["loss.bias"].numpy() if "loss.bias" in rows else np.zeros(len(weight), np.float32)
    return Network(Embedder.load(model), weight, bias)


class Scores(NamedTuple):
    """What features, and in a closed set the classes, of one test set are right about; shares."""

    nearest: float  # identification, one photo enrolled
    nearest_of_all: float  # identification, all photos but one enrolled
    accuracy: float  # verification by cosine
    tar: float
    classified: float = float("nan")  # identification by class
    classified_pairs: float = float("nan")  # verification by class


NAMES = {
    "classified": "identification: class of the highest logit",
    "nearest": "identification: nearest, 1 photo of each enrolled",
    "nearest_of_all": f"identification: nearest, {PHOTOS - 1} photos of each enrolled",
    "classified_pairs": "verification: both of one class",
    "accuracy": "verification: cosine above a threshold",
    "tar": f"verification: TAR at FAR {FAR:g}",
}


def verify(features: Float32, pairs: Pairs) -> Verification:
    """Verification by cosine, with the threshold of the other folds."""
    return verify_folds(features[pairs.left], features[pairs.right], pairs.same, pairs.fold)


def score(features: Float32, test: People, *, right: Bools | None = None, same: Bools | None = None) -> Scores:
    """All measures of one test set; `right` and `same` are the answers by class, for photos and for pairs."""
    one, most = (
        identify(features, test.people, gallery_photos=photos, splits=SPLITS, rounds=2).rank1.value
        for photos in (1, PHOTOS - 1)
    )
    tar = AllPairs(features, test.people).tar_at_far(FAR)
    scores = Scores(one, most, verify(features, test.pairs).accuracy, tar)
    if right is None or same is None:
        return scores
    return scores._replace(classified=float(right.mean()), classified_pairs=float((same == test.pairs.same).mean()))


class Both(NamedTuple):
    """The scores of one network in both protocols."""

    closed: Scores
    open: Scores


def measure(network: Network, sets: Sets) -> Both:
    """Both protocols with a trained network."""
    classes, pairs = network.classify(sets.closed.pixels), sets.closed.pairs
    same = classes[pairs.left] == classes[pairs.right]
    closed, others = (network.embedder.embed(each.pixels) for each in (sets.closed, sets.open))
    return Both(score(closed, sets.closed, right=classes == sets.classes, same=same), score(others, sets.open))


def control(run: Run, sets: Sets) -> Both:
    """Both protocols with the network of a run before its training."""
    torch.manual_seed(run.settings.seed)
    architecture = run.settings.architecture.model_dump()
    net = create_model(architecture.pop("name"), **architecture)
    closed, others = (extract(net, to_tensor(each.pixels)) for each in (sets.closed, sets.open))
    return Both(score(closed, sets.closed), score(others, sets.open))


def mean(found: Sequence[Both]) -> Both:
    """The mean over networks."""
    return Both(*(Scores(*np.mean([each[side] for each in found], axis=0).tolist()) for side in (0, 1)))


def run(setting: Setting) -> Result:
    """Train without the left-out photos, measure both protocols, and draw them."""
    runs = runs_of(setting)
    sets, wanted = test_sets(setting, runs), needed(runs)
    runs.measured([each for some in wanted.values() for each in some], "training")  # trains several at a time
    networks = {method: [load(runs.model(each), setting.say) for each in some] for method, some in wanted.items()}
    found = {METHODS[method].label: mean([measure(each, sets) for each in some]) for method, some in networks.items()}
    found[UNTRAINED] = mean([control(each, sets) for each in wanted[COMPARED[0]]])
    number, scores = len(sets.classes) // PHOTOS, found[METHODS[COMPARED[0]].label]
    bars = {name: [[getattr(side, field) for field in TICKS] for side in both] for name, both in found.items()}
    return Result(
        "fig-open-closed",
        "Closed-set against open-set protocol on the same features",
        setting.scale,
        findings=findings(found, number),
        tables=[table(found, number, setting.scale)],
        figures=[
            Figure("protocols", schematic(networks[COMPARED[0]][0], runs.known, sets, scores),
                   "Both protocols with one network, trained with softmax: some faces and pairs of each test, with its "
                   "answers. Green: right; red: wrong. Shares are over the whole test.", wide=True),
            Figure("accuracy", draw_accuracy(TICKS, bars), "The same rules on people who were trained on (closed "
                   f"set) and on others (open set), {number} people with {PHOTOS} photos each. Other people have no "
                   "class.", wide=True),
        ],
        numbers={
            name: {side: {field: value for field, value in scores._asdict().items() if not np.isnan(value)}
                   for side, scores in both._asdict().items()}
            for name, both in found.items()
        },
    )  # fmt: skip


def findings(found: Mapping[str, Both], number: int) -> list[str]:
    """What was found, in sentences."""
    said = []
    for name, (closed, other) in found.items():
        if name == UNTRAINED:
            continue
        said.append(
            f"{name}, closed set: {closed.classified:.1%} of the left-out photos get their own class, "
            f"{closed.nearest:.1%} are found by the nearest of {number} enrolled photos. Open set, same network and "
            f"rule: {other.nearest:.1%}. By cosine {closed.accuracy:.1%} of the pairs are right in the closed set, "
            f"{other.accuracy:.1%} in the open one; TAR at FAR {FAR:g}: {closed.tar:.1%} and {other.tar:.1%}."
        )
    closed, other = found[UNTRAINED]
    return [
        *said,
        f"Before training the nearest enrolled photo is right for {closed.nearest:.1%} of the closed and "
        f"{other.nearest:.1%} of the open set, so the photos themselves make a difference of "
        f"{100 * (closed.nearest - other.nearest):+.1f} points.",
    ]


def table(found: Mapping[str, Both], number: int, scale: Scale) -> Table:
    """All measures of both protocols."""
    rows = []
    for name, (closed, other) in found.items():
        for field, task in NAMES.items():
            a, b = getattr(closed, field), getattr(other, field)
            if np.isnan(a):
                continue  # without training there is no classifier
            shown = ("-", "-") if np.isnan(b) else (f"{100 * b:.1f}", f"{100 * (a - b):+.1f}")
            rows.append(Row([name, task, f"{100 * a:.1f}", *shown], scale))
    note = (
        f"Per cent right; {number} people with {PHOTOS} photos each in both sets. Identification by the nearest: mean "
        f"of {SPLITS} draws of the enrolled photos. Thresholds come from other folds. -: other people have no class."
    )
    return Table("protocols", "Closed and open set", ["network", "task", "closed set", "open set", "difference"],
                 rows, note)  # fmt: skip


TICKS = {
    "classified": "identify:\nclass", "nearest": "identify:\nnearest of 1", "nearest_of_all":
    f"identify:\nnearest of {PHOTOS - 1}", "classified_pairs": "verify:\nclass", "accuracy": "verify:\ncosine",
    "tar": f"TAR at\nFAR {FAR:g}",
}  # fmt: skip
SHOWN = 3  # examples in a row


def schematic(network: Network, known: Subset, sets: Sets, scores: Both) -> Picture:
    """The paper's Figure 1 of real faces with the answers of a network."""
    first = np.flatnonzero(splits.rank_in_person(known) == 0)
    portraits = {int(known.labels[row]): int(row) for row in first}
    people = len(sets.classes) // PHOTOS
    closed = Column(
        "Closed set: new photos of the same people",
        {f"Identification, class of the highest logit: {scores.closed.classified:.1%} right":
            classified(network, known, portraits, sets),
         f"Verification, are both of one class: {scores.closed.classified_pairs:.1%} right":
            compared_by_class(network, sets)},
        "classification: separable features are enough",
    )  # fmt: skip
    others = Column(
        "Open set: photos of other people",
        {f"Identification, nearest of {people:,} enrolled photos: {scores.open.nearest:.1%} right":
            nearest(network, sets.open),
         f"Verification, cosine above a threshold: {scores.open.accuracy:.1%} right": compared(network, sets.open)},
        "metric learning: features need a large margin",
    )  # fmt: skip
    training = [read_face(known, row, CROP) for row in list(portraits.values())[:8]]
    return draw_protocols(training, len(network.weight), (closed, others))


def _probes(people: int) -> Int64:
    """The second photo of some people, spread over all."""
    return PHOTOS * (np.arange(SHOWN) * people // SHOWN) + 1


def classified(network: Network, known: Subset, portraits: Mapping[int, int], sets: Sets) -> list[Answer]:
    """Left-out photos with the first photo of the class that they get."""
    rows = _probes(len(sets.classes) // PHOTOS)
    return [
        Answer((sets.closed.pixels[row], read_face(known, portraits[label], CROP)), known.people[label][:12],
               bool(label == sets.classes[row]))
        for row, label in zip(rows, network.classify(sets.closed.pixels[rows]).tolist(), strict=True)
    ]  # fmt: skip


def nearest(network: Network, test: People) -> list[Answer]:
    """Photos with the nearest of the first photos of all people."""
    rows, gallery = _probes(len(test.people) // PHOTOS), np.arange(0, len(test.people), PHOTOS)
    unit = unit_rows(network.embedder.embed(test.pixels))
    cosines = unit[rows] @ unit[gallery].T
    return [
        Answer((test.pixels[row], test.pixels[gallery[best]]), f"cosine {cosine[best]:.2f}",
               bool(test.people[row] == test.people[gallery[best]]))
        for row, cosine, best in zip(rows, cosines, cosines.argmax(1), strict=True)
    ]  # fmt: skip


def compared_by_class(network: Network, sets: Sets) -> list[Answer]:
    """Pairs of left-out photos, of one person if they get the same class."""
    pairs, classes = sets.closed.pairs, network.classify(sets.closed.pixels)
    return _pair_answers(sets.closed, classes[pairs.left] == classes[pairs.right])


def compared(network: Network, test: People) -> list[Answer]:
    """Pairs of photos, of one person if their cosine is above the threshold of the other folds."""
    found = verify(network.embedder.embed(test.pixels), test.pairs)
    return _pair_answers(test, found.scores > found.thresholds[found.fold], found.scores)


def _pair_answers(test: People, alike: Bools, cosines: Float64 | None = None) -> list[Answer]:
    """The answers for the first two same pairs and the first different one."""
    pairs = test.pairs
    same, different = np.flatnonzero(pairs.same), np.flatnonzero(~pairs.same)
    return [
        Answer((test.pixels[pairs.left[k]], test.pixels[pairs.right[k]]),
               ("" if cosines is None else f"{cosines[k]:.2f}, ") + ("one person" if alike[k] else "two people"),
               bool(alike[k] == pairs.same[k]))
        for k in (same[0], different[0], same[1])
    ]  # fmt: skip
