"""Searches in galleries of new people: is as many a stranger named as was promised? And groups of unnamed faces.

The model is calibrated on the people of DevTrain and tested on those of DevTest, of whom it has seen nothing. Galleries
are drawn from the test people; all others of them are strangers, with one photo each. The threshold is that of
`recognize.thresholds` for this gallery; one constant threshold, that of two photos at a FAR of 1e-3, stands beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sphereface.arrays import Float32, Float64, Int64, unit_rows
from sphereface.embed.embedder import Embedder
from sphereface.errors import UserError
from sphereface.experiments.calibrations import calibrate_on_dev_train
from sphereface.experiments.lfw_dev import Unseen, people_of_dev_test
from sphereface.gallery.index import ExactIndex
from sphereface.metrics.templates import pool
from sphereface.progress import Begin, unseen
from sphereface.recognize.grouping import group_faces
from sphereface.recognize.thresholds import FAR, pair_threshold, search_threshold


class Setup(NamedTuple):
    """A kind of gallery and the promised rate of a search in it."""

    people: int
    photos: int  # of each person
    fpir: float


@dataclass(frozen=True)
class Plan:
    """The galleries and groups of the experiment."""

    setups: tuple[Setup, ...] = tuple(
        Setup(people, photos, fpir)
        for fpir in (0.1, 0.01) for photos, sizes in ((1, (10, 100, 400)), (3, (10, 100))) for people in sizes
    )  # fmt: skip
    draws: int = 200
    groups: int = 5  # draws
    several: int = 400  # photos of people with two or more
    singles: int = 100  # photos of people with one
    seed: int = 0
    rounds: int = 1_000  # of the calibration's intervals


FULL = Plan()
QUICK = Plan(
    setups=(Setup(4, 1, 0.1), Setup(3, 2, 0.1)), draws=4, groups=1, several=8, singles=2, rounds=9
)  # fmt: skip


class Rates(NamedTuple):
    """Means over galleries; shares of strangers and of other photos of enrolled people."""

    fpir: float  # strangers who are named
    interval: tuple[float, float]  # the middle 95 % of galleries
    miss: float  # enrolled people who are not named, or by another name
    false_name: float  # enrolled people who are named by another name


class Measured(NamedTuple):
    """A setup with its threshold, and what came of it."""

    setup: Setup
    threshold: float
    ours: Rates
    constant: Rates  # with one threshold for every gallery
    rank_1: float  # enrolled people whose most similar template is their own

    @property
    def ratio(self) -> float:
        """The measured FPIR over the promised one."""
        return self.ours.fpir / self.setup.fpir

    @property
    def constant_ratio(self) -> float:
        """The same with one threshold for every gallery."""
        return self.constant.fpir / self.setup.fpir


class Grouped(NamedTuple):
    """A draw of photos in groups: shares of pairs of photos."""

    precision: float  # of pairs in one group, those of one person
    recall: float  # of pairs of one person, those in one group

    @property
    def f1(self) -> float:
        """The harmonic mean."""
        return 2 * self.precision * self.recall / max(self.precision + self.recall, 1e-12)


class OpenSet(NamedTuple):
    """The results of one model."""

    model: str
    people: int  # of the test
    photos: int
    failed: int  # photos without a face: failures to enroll
    constant: float  # the threshold
    measured: list[Measured]
    unsupported: list[Setup]  # that the card refuses
    groups: list[Grouped]
    grouping_threshold: float

    def as_json(self) -> dict[str, Any]:
        """The results as a JSON object."""
        rows = [
            {**each.setup._asdict(), "threshold": each.threshold, "rank_1": each.rank_1, "ours": each.ours._asdict(),
             "constant": each.constant._asdict(), "ratio": each.ratio, "constant_ratio": each.constant_ratio}
            for each in self.measured
        ]  # fmt: skip
        return {
            **self._asdict(),
            "measured": rows,
            "unsupported": [each._asdict() for each in self.unsupported],
            "groups": [{**each._asdict(), "f1": each.f1} for each in self.groups],
            "mean_f1": float(np.mean([each.f1 for each in self.groups])),
        }


class _People(NamedTuple):
    """The photos of the test people."""

    units: Float32
    photos: list[Int64]  # rows of each person


def run_open_set(
    embedder: Embedder, test: Unseen, plan: Plan = FULL, *, failed: int = 0, begin: Begin = unseen
) -> OpenSet:
    """Calibrate on the people of DevTrain and measure on those of DevTest; `failed` photos had no face."""
    features = embedder.embed(test.pixels, progress=begin("embedding"))
    found = calibrate_on_dev_train(embedder, features, test, rounds=plan.rounds)
    card = found.card(embedder.card)
    rows = people_of_dev_test(test)
    units, owner = unit_rows(features[rows]).astype(np.float32), test.people[rows]
    people = _People(units, [np.flatnonzero(owner == person) for person in np.unique(owner)])
    measured, refused = [], []
    progress = begin("searching")
    for done, setup in enumerate(plan.setups, 1):
        try:
            threshold = search_threshold(card, {setup.photos: setup.people}, setup.fpir).score
        except UserError:
            refused.append(setup)
        else:
            measured.append(_measure(people, setup, threshold, pair_threshold(card, FAR).score, plan))
        progress(done, len(plan.setups))
    grouping = search_threshold(card, {1: plan.several + plan.singles}).score
    return OpenSet(
        embedder.card.called, len(people.photos), len(units), failed, pair_threshold(card, FAR).score, measured,
        refused,
        [_group(people, grouping, plan, draw) for draw in range(plan.groups)], grouping,
    )  # fmt: skip


def _measure(people: _People, setup: Setup, threshold: float, constant: float, plan: Plan) -> Measured:
    rng = np.random.default_rng((plan.seed, *setup[:2]))  # the same galleries at every rate
    enough = np.array([person for person, photos in enumerate(people.photos) if len(photos) >= setup.photos])
    draws = [_search(people, rng.permutation(enough)[: setup.people], setup.photos, rng) for _ in range(plan.draws)]
    return Measured(
        setup, threshold, _rates(draws, threshold), _rates(draws, constant),
        float(np.mean(np.concatenate([right for _, _, right in draws]))),
    )  # fmt: skip


def _search(people: _People, gallery: Int64, photos: int, rng: np.random.Generator) -> tuple[Float64, Float64, Float64]:
    """The best scores of strangers, those of the enrolled people's other photos, and whether these are their own."""
    index, mates, of = ExactIndex(), list[int](), list[int]()
    chosen = [rng.permutation(people.photos[person]) for person in gallery]
    enrolled = np.concatenate([each[:photos] for each in chosen])
    index.put(gallery, pool(people.units[enrolled], np.repeat(np.arange(len(gallery)), photos), len(gallery)))
    for person, each in zip(gallery.tolist(), chosen, strict=True):
        mates += each[photos:].tolist()
        of += [person] * (len(each) - photos)
    others = np.setdiff1d(np.arange(len(people.photos)), gallery)
    strangers = np.array([rng.choice(people.photos[person]) for person in others])
    best = index.search(people.units[strangers]).scores[:, 0]
    found = index.search(people.units[np.array(mates, np.int64)])
    return best, found.scores[:, 0], (found.people[:, 0] == np.array(of)).astype(np.float64)


def _rates(draws: Sequence[tuple[Float64, Float64, Float64]], threshold: float) -> Rates:
    named = np.array([(strangers >= threshold).mean() for strangers, _, _ in draws])
    scores, right = (np.concatenate([draw[place] for draw in draws]) for place in (1, 2))
    low, high = np.percentile(named, [2.5, 97.5])
    return Rates(
        float(named.mean()), (float(low), float(high)),
        miss=float(1 - ((scores >= threshold) & (right > 0)).mean()),
        false_name=float(((scores >= threshold) & (right == 0)).mean()),
    )  # fmt: skip


def _group(people: _People, threshold: float, plan: Plan, draw: int) -> Grouped:
    """Group a draw of photos, and compare all pairs of them with the truth."""
    rng = np.random.default_rng((plan.seed, draw))
    rows, who = list[int](), list[int]()
    for person in rng.permutation(len(people.photos)).tolist():
        photos = people.photos[person]
        if len(photos) > 1 and len(rows) < plan.several:
            some = photos[: plan.several - len(rows)]
            rows += some.tolist()
            who += [person] * len(some)
    alone = [person for person, photos in enumerate(people.photos) if len(photos) == 1]
    for person in rng.permutation(alone).tolist()[: plan.singles]:
        rows.append(int(people.photos[person][0]))
        who.append(person)
    truth, found = np.array(who), group_faces(people.units[rows], threshold)
    left, right = np.triu_indices(len(rows), 1)
    same, together = truth[left] == truth[right], found[left] == found[right]
    both = float((same & together).sum())
    return Grouped(both / max(together.sum(), 1), both / max(same.sum(), 1))


def find_faces(given: Path) -> Path:
    """The folder with lfw-dev/ and the lists of pairs, given that folder or lfw-dev itself."""
    for root in (given, given.resolve().parent):
        if (root / "lfw-dev").is_dir() and (root / "pairsDevTrain.txt").is_file():
            return root
    raise UserError(f"{given}: wanted the folder lfw-dev, with pairsDevTrain.txt and pairsDevTest.txt beside it")
