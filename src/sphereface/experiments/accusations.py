"""False findings of `--groups` for a network trained on as many people of both looks: their rate and their causes.

A finding may be caused by the network, which treats two looks differently by chance of its training, or by the choice
of people in the test. So each crowd of new people is tested twice: with their looks, and with all looks exchanged. The
exchange inverts the effect of the people on the ratio of error rates, and keeps the effect of the network.
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

LEVEL = 0.05  # largest p-value of a finding that is kept; common levels are not higher


class Verdict(NamedTuple):
    """Ratio of the error rates of two groups, and the p-value of a finding, for one assignment of looks."""

    ratio: dict[Which, float]  # the rate of blue people over that of red ones
    p: float | None  # lowest corrected p-value of a finding at 5 %; None without a finding


class Crowd(NamedTuple):
    """The same new people with their looks, and with all looks exchanged."""

    as_drawn: Verdict
    exchanged: Verdict

    def network(self, which: Which) -> float:
        """The network's part in the logarithm of blue over red: it is the same after the exchange."""
        return (log(self.as_drawn.ratio[which]) + log(self.exchanged.ratio[which])) / 2

    def people(self, which: Which) -> float:
        """The people's part in the logarithm of blue over red: the exchange inverts it."""
        return (log(self.as_drawn.ratio[which]) - log(self.exchanged.ratio[which])) / 2


class Accusations(NamedTuple):
    """The verdicts on one network for many crowds."""

    seed: int
    crowds: tuple[Crowd, ...]

    @property
    def tests(self) -> int:
        """Number of tests: two for each crowd."""
        return 2 * len(self.crowds)

    def named(self, level: float) -> int:
        """Number of tests with a finding at this level."""
        return sum(test.p is not None and test.p <= level for crowd in self.crowds for test in crowd)

    def network(self, which: Which) -> tuple[float, float, float]:
        """The network's part in blue over red: geometric mean over crowds, minus and plus two standard errors."""
        parts = [crowd.network(which) for crowd in self.crowds]
        middle, error = float(np.mean(parts)), float(np.std(parts, ddof=1)) / len(parts) ** 0.5
        return exp(middle), exp(middle - 2 * error), exp(middle + 2 * error)

    def people(self, which: Which) -> float:
        """The factor by which the choice of people changes the ratio: one standard deviation of its logarithm."""
        return exp(float(np.mean([crowd.people(which) ** 2 for crowd in self.crowds])) ** 0.5)

    def as_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
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
    """Test a network on crowds of new people; no person is in two crowds or in the experiment's test."""
    first = TEST + people
    if first + crowds * people > DISTRACTORS:
        raise UserError(
            f"{crowds} crowds of {people} people; only {DISTRACTORS - first:,} people are left: take fewer crowds"
        )
    population, blue = SyntheticPeople(seed=seed), every_other_family(people)
    done = []
    for crowd in range(crowds):
        start = first + crowd * people
        faces, labels = population.faces(range(start, start + people), photos, workers=workers)
        reports = [judge(embedder, faces, labels, look, far=far, rounds=rounds, error=LEVEL) for look in (blue, ~blue)]
        done.append(Crowd(*map(_verdict, reports)))
        progress(crowd + 1, crowds)
    return Accusations(seed, tuple(done))


def judge(
    embedder: Embedder, faces: Image, labels: Int64, blue: Bools, *, far: float, rounds: int, error: float
) -> GroupReport:
    """The report of `evaluate folder --groups` on faces (N, H, W, 3), with the people of a mask (P,) in blue."""
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
    """Number of tests of several networks with a finding at this level, and number of all tests."""
    return sum(each.named(level) for each in networks), sum(each.tests for each in networks)


def _verdict(report: GroupReport) -> Verdict:
    lines = {line.name: line for line in report.attributes[0].groups}
    # Half an error is added to each count, as in findings: 0 has no logarithm.
    fmr, fnmr = (
        {look: getattr(lines[look], rate).value + HALF / getattr(lines[look], trials) for look in LOOKS}
        for rate, trials in (("fmr", "different"), ("fnmr", "same"))
    )
    ratio: dict[Which, float] = {"FMR": fmr["blue"] / fmr["red"], "FNMR": fnmr["blue"] / fnmr["red"]}
    return Verdict(ratio, min((found.p for found in report.findings), default=None))
