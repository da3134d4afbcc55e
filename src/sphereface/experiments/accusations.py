"""How often `--groups` names a look of a network that learned from as many of both, and what such a finding is made of.

A finding may come from the network, which treats two looks differently by the chance of its training, or from who
happens to be in the test. New people are therefore tested twice: as they are dressed, and with all colours exchanged.
Then whoever was red is blue, so that the part of the people turns round and the part of the network stays.
"""

from collections.abc import Sequence
from math import exp, log
from typing import Any, NamedTuple

import numpy as np

from sphereface.arrays import Bools, Image, Int64
from sphereface.data.lists.attributes import Attributes
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.embed.embedder import Embedder
from sphereface.errors import UserError
from sphereface.evaluation.groups.compare import WHICH, groups_of_set
from sphereface.evaluation.groups.result import GroupReport
from sphereface.evaluation.sources import WholeSet
from sphereface.experiments.openset import DISTRACTORS, TEST
from sphereface.experiments.two_looks import LOOKS, dressed, every_other_family
from sphereface.metrics.group_rates import HALF, Which
from sphereface.progress import Progress

LEVEL = 0.05  # up to which p is kept; above, a test found nothing at any level that people use


class Verdict(NamedTuple):
    """What groups showed of some people in one dress."""

    ratio: dict[Which, float]  # the rate of blue people over that of red ones
    p: float | None  # of the surest finding at 5 %, corrected; None if there is none


class Crowd(NamedTuple):
    """The same new people, dressed one way and the other."""

    as_drawn: Verdict
    exchanged: Verdict

    def network(self, which: Which) -> float:
        """The logarithm of blue over red that stays when all colours are exchanged."""
        return (log(self.as_drawn.ratio[which]) + log(self.exchanged.ratio[which])) / 2

    def people(self, which: Which) -> float:
        """The part that turns round with the colours."""
        return (log(self.as_drawn.ratio[which]) - log(self.exchanged.ratio[which])) / 2


class Accusations(NamedTuple):
    """A network on many crowds."""

    seed: int
    crowds: tuple[Crowd, ...]

    @property
    def tests(self) -> int:
        """How many there were, two of each crowd."""
        return 2 * len(self.crowds)

    def named(self, level: float) -> int:
        """In how many of them a look was named at this level."""
        return sum(test.p is not None and test.p <= level for crowd in self.crowds for test in crowd)

    def network(self, which: Which) -> tuple[float, float, float]:
        """The network's own blue over red, the geometric mean of all crowds, and two standard errors to either side."""
        parts = [crowd.network(which) for crowd in self.crowds]
        middle, error = float(np.mean(parts)), float(np.std(parts, ddof=1)) / len(parts) ** 0.5
        return exp(middle), exp(middle - 2 * error), exp(middle + 2 * error)

    def people(self, which: Which) -> float:
        """The factor by which who is in a test moves the ratio: one standard deviation of its logarithm."""
        return exp(float(np.mean([crowd.people(which) ** 2 for crowd in self.crowds])) ** 0.5)

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "seed": self.seed,
            "network": {which: self.network(which) for which in WHICH},
            "people": {which: self.people(which) for which in WHICH},
            "crowds": [[test._asdict() for test in crowd] for crowd in self.crowds],
        }


def try_crowds(
    embedder: Embedder,
    seed: int,
    crowds: int,
    *,
    people: int,
    photos: int,
    far: float,
    rounds: int,
    workers: int,
    progress: Progress,
) -> Accusations:
    """Test a network on so many crowds of new people, none of whom is in another crowd or in the experiment's test."""
    first = TEST + people
    if first + crowds * people > DISTRACTORS:
        raise UserError(f"{crowds} crowds of {people} people; only {DISTRACTORS - first:,} are left to draw from")
    population, blue = SyntheticPeople(seed=seed), every_other_family(people)
    done = []
    for crowd in range(crowds):
        start = first + crowd * people
        faces, labels = population.faces(range(start, start + people), photos, workers=workers)
        tests = [
            _told(judge(embedder, faces, labels, dress, far=far, rounds=rounds, error=LEVEL)) for dress in (blue, ~blue)
        ]
        done.append(Crowd(*tests))
        progress(crowd + 1, crowds)
    return Accusations(seed, tuple(done))


def judge(
    embedder: Embedder,
    faces: Image,
    labels: Int64,
    blue: Bools,
    *,
    far: float,
    rounds: int,
    error: float,
) -> GroupReport:
    """What `evaluate folder --groups` says of faces (N, H, W, 3), after these of the people, (P,), got blue."""
    people = [f"p{person:04d}" for person in range(len(blue))]
    looks = {name: LOOKS[int(is_blue)] for name, is_blue in zip(people, blue, strict=True)}
    whole = WholeSet(
        data="crowd",
        features=embedder.embed(dressed(faces, blue[labels])),
        labels=labels,
        people=people,
        paths=[f"{people[person]}/{place:04d}.png" for place, person in enumerate(labels.tolist())],
        card=embedder.card,
        unreadable={},
    )
    table = Attributes("looks", "person", tuple(people), {"look": looks})
    return groups_of_set(whole, table, far=far, rounds=rounds, error=error)


def named_at(level: float, networks: Sequence[Accusations]) -> tuple[int, int]:
    """In how many tests of some networks a look was named, and of how many."""
    return sum(each.named(level) for each in networks), sum(each.tests for each in networks)


def _told(report: GroupReport) -> Verdict:
    lines = {line.name: line for line in report.attributes[0].groups}
    # Half an error is added to each count, as findings do it: 0 has no logarithm.
    fmr, fnmr = (
        {look: getattr(lines[look], rate).value + HALF / getattr(lines[look], trials) for look in LOOKS}
        for rate, trials in (("fmr", "different"), ("fnmr", "same"))
    )
    ratio: dict[Which, float] = {"FMR": fmr["blue"] / fmr["red"], "FNMR": fnmr["blue"] / fnmr["red"]}
    return Verdict(ratio, min((found.p for found in report.findings), default=None))
