"""The sizes of all training runs at each scale: one recipe for every loss, and what is searched on held-out people."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sphereface.choices import Scale
from sphereface.training.config import TrainConfig
from sphereface.training.recipes import paper, small


class Deep(NamedTuple):
    """A deeper and wider network that is trained once, with the first seed."""

    layers: int
    width: float
    steps: int


@dataclass(frozen=True)
class Plan:
    """The settings that all runs of a scale share, before the loss."""

    base: TrainConfig
    rates: tuple[float, ...]  # each loss takes its best one; a single one is not searched
    weights: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # by method, of its second loss
    search_steps: int = 0
    held_out: int = 0  # people of a search
    folds: int = 1  # of the search for weights: other people are held out in each
    depths: tuple[int, ...] = (4, 10)  # of `fig-depth` and `app-depth`
    deep: Deep | None = None
    far: float = 1e-3  # of the true accept rate on LFW
    rounds: int = 1_000  # of the bootstrap over people
    search_far: float = 1e-2  # with the few faces of held-out people, a FAR of 1e-3 would depend on a handful of pairs

    def at_depth(self, layers: int) -> "Plan":
        """The plan of the network with a number of layers."""
        return Plan(**{**self.__dict__, "base": self.base.changed(model=f"sphereface{layers}")})


WEIGHTS = {"contrastive": (0.01, 0.05, 0.25), "center": (0.0006, 0.003, 0.015)}

PLANS: dict[Scale, Plan] = {
    "tiny": Plan(
        small().with_steps(150).changed(width=0.125, features=128, batch=32), rates=(0.05,),
        depths=(4, 10, 20, 36, 64), far=1e-2, rounds=100,
    ),
    "small": Plan(
        small().changed(width=0.5), rates=(0.025, 0.05, 0.1), weights=WEIGHTS, search_steps=800, held_out=60, folds=2,
        deep=Deep(20, 1.0, 4_800),
    ),
    "paper": Plan(
        paper().changed(model="sphereface64"), rates=(0.1,), weights=WEIGHTS, search_steps=7_000, held_out=500,
        depths=(4, 10, 20, 36, 64),
    ),
}  # fmt: skip
