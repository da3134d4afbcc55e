"""The open-set experiment on synthetic faces: train on some people, test on others, with one budget for all losses."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sphereface.arrays import Bools, Float32, Float64, Int64, unit_rows
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.errors import UserError
from sphereface.evaluation import Verification, verify_folds
from sphereface.experiments.loop import Budget, Step, extract, fit
from sphereface.losses import Annealing, FaceLoss, create_loss
from sphereface.metrics import AllPairs, angular_fisher_score, mate_ranks
from sphereface.metrics.bootstrap import pair_weights
from sphereface.models import create_model
from sphereface.models.inputs import to_tensor
from sphereface.models.spherefacenet import SphereFaceNet
from sphereface.progress import Progress, silent

FAR = 1e-2
FOLDS = 10
PAIRS = 6_000
RATES = (0.025, 0.05, 0.1)  # the same three for every loss
# Batch norm: without it, features of such a small network grow too slowly in a short run, and A-Softmax, which is
# minimised most easily by short features, stays near log K (docs/first-run/demo.md).
NET: dict[str, Any] = {"width": 0.125, "norm": "batch"}

# First person of each population; the populations share no person.
TRAIN, HELD_OUT, TEST, DISTRACTORS = 0, 5_000, 10_000, 20_000


@dataclass(frozen=True)
class Scale:
    """Numbers of people, photos, pairs and steps."""

    people: int = 200
    photos: int = 40
    test_people: int = 240
    test_photos: int = 8
    held_out_people: int = 60
    distractors: int = 1_000
    pairs: int = PAIRS
    steps: int = 1_200
    sphere_photos: int = 100  # photos of each person in the figure of 3-D features
    sphere_steps: int = 120

    @property
    def faces(self) -> int:
        """Number of faces that `draw_sets` draws."""
        return self.people * self.photos + self.test_people * self.test_photos + self.distractors


FULL = Scale()
TINY = Scale(people=8, photos=6, test_people=40, test_photos=4, held_out_people=10, distractors=20, pairs=200, steps=3)
QUICK = Scale(
    people=80, photos=30, test_people=200, test_photos=7, held_out_people=0, distractors=300, steps=180, sphere_steps=50
)


@dataclass(frozen=True)
class Contender:
    """A loss in the comparison, with its best learning rate on held-out people (results/demo.md)."""

    loss: str
    m: int | None = None
    lr: float = 0.05

    @property
    def name(self) -> str:
        """The common name of the loss."""
        return {"softmax": "softmax", "modified_softmax": "modified softmax"}.get(self.loss, f"A-Softmax m = {self.m}")

    def build(self, features: int, classes: int, steps: int) -> FaceLoss:
        """Create the loss; annealing is scaled to the run: lambda reaches 5 at 44 % of its steps."""
        if self.m is None:
            return create_loss(self.loss, features, classes)
        return create_loss(self.loss, features, classes, m=self.m, annealing=Annealing(gamma=450 / steps, minimum=5))


CONTENDERS = (
    Contender("softmax"),
    Contender("modified_softmax"),
    *(Contender("a_softmax", m=m) for m in (2, 3, 4)),
)


class Faces(NamedTuple):
    """Faces (N, 3, 112, 96) uint8 and their people (N,)."""

    images: Tensor
    people: Int64


def draw(
    start: int, people: int, photos: int, *, seed: int = 0, workers: int = 2, progress: Progress = silent
) -> Faces:
    """Draw `people` people of the synthetic population, from number `start` on."""
    images, labels = SyntheticPeople(seed=seed).faces(
        range(start, start + people), photos, workers=workers, progress=progress
    )
    return Faces(to_tensor(images), labels)


class Pairs(NamedTuple):
    """Verification pairs: indices of two faces, true if they are one person, and the fold."""

    left: Int64
    right: Int64
    same: Bools
    fold: Int64


def random_pair(group: Int64, photos: int, *, same: bool, rng: np.random.Generator) -> tuple[int, int]:
    """Indices of two random photos of one person, or of two people, of a group; the lower index first."""
    if same:
        person = int(rng.choice(group))
        a, b = (person * photos + int(photo) for photo in rng.choice(photos, 2, replace=False))
    else:
        one, two = rng.choice(group, 2, replace=False)
        a, b = int(one) * photos + int(rng.integers(photos)), int(two) * photos + int(rng.integers(photos))
    return min(a, b), max(a, b)


def make_pairs(people: int, photos: int, *, pairs: int = PAIRS, folds: int = FOLDS, seed: int = 0) -> Pairs:
    """As many same as different pairs, no pair twice, no person in two folds; faces are ordered by person."""
    rng = np.random.default_rng(seed)
    groups = np.array_split(rng.permutation(people), folds)
    chosen: dict[tuple[int, int], tuple[bool, int]] = {}
    for fold, group in enumerate(groups):
        for same in (True, False):
            wanted = pairs // folds // 2
            size = len(group)
            available = size * photos * (photos - 1) // 2 if same else photos**2 * size * (size - 1) // 2
            if wanted > available:
                raise UserError(f"{wanted} pairs from {size} people with {photos} photos; there are only {available}")
            enough = len(chosen) + wanted
            while len(chosen) < enough:
                chosen.setdefault(random_pair(group, photos, same=same, rng=rng), (same, fold))
    places = np.array(list(chosen))
    truth = np.array([same for same, _ in chosen.values()])
    return Pairs(places[:, 0], places[:, 1], truth, np.array([fold for _, fold in chosen.values()]))


class Sets(NamedTuple):
    """The faces of the comparison: people to train on, other people to test on, and distractors."""

    train: Faces
    test: Faces
    distractors: Faces
    pairs: Pairs


def draw_sets(scale: Scale, *, workers: int, progress: Progress = silent) -> Sets:
    """Draw all faces of a comparison; `progress` counts those drawn of `scale.faces`."""
    done = 0

    def album(start: int, people: int, photos: int) -> Faces:
        nonlocal done
        faces = draw(
            start, people, photos, workers=workers, progress=lambda count, _: progress(done + count, scale.faces)
        )
        done += len(faces.people)
        return faces

    return Sets(
        train=album(TRAIN, scale.people, scale.photos),
        test=album(TEST, scale.test_people, scale.test_photos),
        distractors=album(DISTRACTORS, scale.distractors, 1),
        pairs=make_pairs(scale.test_people, scale.test_photos, pairs=scale.pairs),
    )


@dataclass(frozen=True)
class Measured:
    """Statistics of features (N, 2 D) of unseen people; `drawn` weights people, for a bootstrap."""

    features: Float32
    people: Int64
    pairs: Pairs
    distractors: Float32

    @cached_property
    def scores(self) -> Float64:
        """The cosine of each verification pair."""
        unit = unit_rows(self.features, dtype=np.float32)
        return np.asarray((unit[self.pairs.left] * unit[self.pairs.right]).sum(1), dtype=np.float64)

    @cached_property
    def verification(self) -> Verification:
        """Ten folds under the authors' rule."""
        left, right = self.features[self.pairs.left], self.features[self.pairs.right]
        return verify_folds(left, right, self.pairs.same, self.pairs.fold)

    @cached_property
    def all_pairs(self) -> AllPairs:
        """Every pair of test faces, sorted."""
        return AllPairs(self.features, self.people)

    def accuracy(self, drawn: Float64 | None = None) -> float:
        """Share of pairs that are decided correctly, with thresholds from the other folds."""
        if drawn is None:
            return self.verification.accuracy
        weights = pair_weights(drawn, self.people[self.pairs.left], self.people[self.pairs.right])
        return float(np.average(self.verification.correct, weights=weights))

    def tar(self, drawn: Float64 | None = None) -> float:
        """True accept rate at a false accept rate of 1e-2, over all pairs."""
        return self.all_pairs.tar_at_far(FAR, drawn)

    def fisher(self, drawn: Float64 | None = None) -> float:
        """The angular Fisher score; lower is better."""
        return angular_fisher_score(self.features, self.people, weights=None if drawn is None else drawn[self.people])

    def rank_1(self) -> float:
        """Share of people for which the second photo is the best match of the first, among distractors."""
        unit, others = unit_rows(self.features, dtype=np.float32), unit_rows(self.distractors, dtype=np.float32)
        first = np.searchsorted(self.people, np.unique(self.people))
        mates = (unit[first] * unit[first + 1]).sum(1)
        return float((mate_ranks(mates, unit[first] @ others.T) == 1).mean())


def train(
    contender: Contender,
    faces: Faces,
    scale: Scale,
    *,
    seed: int,
    features: int = 128,
    lr: float | None = None,
    on_step: Callable[[Step], None] = lambda _: None,
) -> tuple[SphereFaceNet, FaceLoss]:
    """Train one contender; network, faces, batches and number of steps are the same for all."""
    torch.manual_seed(seed)
    net = create_model("sphereface4", features=features, **NET)
    loss = contender.build(features, int(faces.people.max()) + 1, scale.steps)
    budget = Budget(steps=scale.steps, lr=lr or contender.lr)
    fit(net, loss, faces.images, torch.from_numpy(faces.people), budget, seed=seed, on_step=on_step)
    return net, loss


def measure(net: SphereFaceNet, sets: Sets) -> Measured:
    """Extract the features of the test faces and of the distractors."""
    return Measured(extract(net, sets.test.images), sets.test.people, sets.pairs, extract(net, sets.distractors.images))
