"""The training runs that the tables share: each is trained once, measured, and its outcome kept in a file.

A run is known by a hash of its settings and of the people and images that it learns from. The outcomes are enough for
every table, so a set of experiments goes on in another sitting, or on another machine.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sphereface.experiments.outcomes import Outcome, kept, outcome
from sphereface.experiments.paper import material, splits
from sphereface.experiments.paper.measures import MEASURES
from sphereface.experiments.paper.methods import METHODS, Method
from sphereface.experiments.paper.plans import PLANS, Deep, Plan
from sphereface.experiments.paper.setting import Setting
from sphereface.experiments.trials import Sets, run_trials, tar_on_held_out
from sphereface.loading.subset import Subset, fingerprint
from sphereface.training.config import TrainConfig
from sphereface.training.run import MODEL

COMMAND = "reproduce"


class Run(NamedTuple):
    """One training run: its settings, and the split of the training set that it learns from."""

    settings: TrainConfig
    split: str
    faces: str  # hash of the set before the split

    @property
    def folder(self) -> str:
        """Its name among the runs: what people look for, and a hash of everything."""
        about = json.dumps([self.settings.model_dump(mode="json", exclude_defaults=True), self.split, self.faces])
        short = hashlib.sha256(about.encode()).hexdigest()[:8]
        c = self.settings
        options = "".join(f"-{name}{value:g}" for name, value in sorted(c.loss_options.items()))
        extras = "-relu" * c.last_relu + (f"-{self.split}" if self.split != splits.WHOLE else "")
        searched = "-search" * bool(c.validation_people)
        return f"{c.loss}{options}{extras}-{c.model}-lr{c.lr:g}-seed{c.seed}-steps{c.steps}{searched}-{short}"

    def config(self) -> TrainConfig:
        """Its settings."""
        return self.settings


class Runs:
    """All runs of a setting; a dry one trains nothing and lists in `planned` what it would train."""

    def __init__(self, setting: Setting, plan: Plan | None = None, *, dry: bool = False) -> None:
        self.setting, self.plan, self.dry = setting, plan or PLANS[setting.scale], dry
        self.planned: dict[str, Run] = {}

    @cached_property
    def sets(self) -> Sets:
        """The faces to train on."""
        return material.training_sets(self.setting)

    @cached_property
    def known(self) -> Subset:
        """The faces to train on, opened."""
        return material.known_faces(self.sets)

    @cached_property
    def hash(self) -> str:
        """A hash of the names of people and images."""
        return fingerprint(self.known)

    def of(
        self, method: str, seed: int, *, split: str = splits.WHOLE, layers: int | None = None, **changes: Any
    ) -> Run:
        """The run of a method at its best settings; searches these first."""
        config = self._chosen(METHODS[method]).changed(seed=seed)
        if layers is not None:
            config = config.changed(model=f"sphereface{layers}")
        return Run(config.changed(**changes), split, self.hash)

    def deep(self, deep: Deep) -> Run:
        """The deep network with A-Softmax, trained once."""
        config = self._chosen(METHODS["a_softmax"]).with_steps(deep.steps)
        return Run(config.changed(model=f"sphereface{deep.layers}", width=deep.width), splits.WHOLE, self.hash)

    # Settings that are searched on held-out people.

    def _chosen(self, method: Method) -> TrainConfig:
        """The settings of a method with its best learning rate and weight."""
        config = method.config(self.plan.base).changed(lr=self.best_rate(method))
        weights = self.weights(method)
        if len(weights) < 2:
            return config
        found = self.weight_search(method)
        best = max(found, key=found.__getitem__)
        return config.changed(loss_options={**config.loss_options, str(method.weighted): best})

    def search(self, methods: Iterable[str]) -> None:
        """Search the rates of some methods, then the weights, so that runs of different methods share the cores."""
        found = [method for method in (METHODS[name] for name in methods) if method.rate_of is None]
        self.on_held_out([run for method in found for run in self._rate_runs(method)])
        self.on_held_out([run for method in found for run in self._weight_runs(method)])

    def best_rate(self, method: Method) -> float:
        """The learning rate with the highest TAR on held-out people, found with the first seed and fewer steps."""
        if method.rate_of is not None:
            return self.best_rate(METHODS[method.rate_of])
        found = self.rate_search(method)
        return max(found, key=found.__getitem__)

    def rate_search(self, method: Method) -> dict[float, float]:
        """TAR on held-out people by learning rate; a single rate is not searched."""
        runs = self._rate_runs(method)
        found = self.on_held_out(runs) if runs else [float("nan")] * len(self.plan.rates)
        return dict(zip(self.plan.rates, found, strict=True))

    def _rate_runs(self, method: Method) -> list[Run]:
        if len(self.plan.rates) < 2:
            return []
        config = self._short(method.config(self.plan.base))
        return [Run(config.changed(lr=rate), splits.WHOLE, self.hash) for rate in self.plan.rates]

    def weights(self, method: Method) -> Sequence[float]:
        """The weights of the second loss that are searched."""
        return next((self.plan.weights[name] for name in self.plan.weights if METHODS[name] == method), ())

    def weight_search(self, method: Method) -> dict[float, float]:
        """The mean TAR over the folds of held-out people by weight of the second loss."""
        weights = self.weights(method)
        found = np.reshape(self.on_held_out(self._weight_runs(method)), (len(weights), self.plan.folds)).mean(axis=1)
        return dict(zip(weights, found.tolist(), strict=True))

    def _weight_runs(self, method: Method) -> list[Run]:
        weights = self.weights(method)
        if len(weights) < 2:
            return []
        config = self._short(method.config(self.plan.base)).changed(lr=self.best_rate(method))
        return [
            Run(config.changed(seed=fold, loss_options={**config.loss_options, str(method.weighted): weight}),
                splits.WHOLE, self.hash)
            for weight in weights for fold in range(self.plan.folds)
        ]  # fmt: skip

    def _short(self, config: TrainConfig) -> TrainConfig:
        return config.with_steps(self.plan.search_steps).changed(seed=0, validation_people=self.plan.held_out)

    def on_held_out(self, runs: Sequence[Run]) -> list[float]:
        """TAR of runs on the people that each held out; trains those without an outcome."""
        if self.dry:
            self.plan_for(runs)
            return [0.0] * len(runs)
        self._train([run for run in runs if not kept(self._file(run, "held-out"))], self._tar)
        return [self._tar(run) for run in runs]

    def plan_for(self, runs: Sequence[Run]) -> None:
        """Add runs to those that a dry call would train."""
        self.planned |= {run.folder: run for run in runs}

    def _tar(self, run: Run) -> float:
        known, model, far = self.known, self._place(run) / MODEL, self.plan.search_far
        found = outcome(
            self._file(run, "held-out"), self._about(run),
            lambda: {"tar": tar_on_held_out(known, model, run.settings, far)},
        )  # fmt: skip
        return float(found["tar"])

    # Runs that are measured.

    def measured(self, runs: Sequence[Run], *measures: str) -> list[dict[str, Outcome]]:
        """Some measures of runs, by name; trains and measures those without an outcome."""
        waiting = [run for run in runs if not all(kept(self._file(run, measure)) for measure in measures)]
        self._train(waiting, lambda run: self._measure(run, measures))
        return [self._measure(run, measures) for run in runs]

    def _measure(self, run: Run, measures: Sequence[str]) -> dict[str, Outcome]:
        place = self._place(run)
        return {
            name: outcome(
                self._file(run, name), self._about(run), partial(MEASURES[name], place, place / MODEL, self.setting)
            )
            for name in measures
        }  # fmt: skip

    def model(self, run: Run) -> Path:
        """The trained network of a run; trains it if it is not there."""
        self._train([run])
        return self._place(run) / MODEL

    def _train(self, runs: Sequence[Run], each: Any = lambda _: None) -> None:
        for split in dict.fromkeys(run.split for run in runs):
            some = list({run.folder: run for run in runs if run.split == split}.values())
            exclude = (*self.sets.exclude, *splits.left_out(split, self.known))
            run_trials(
                some, self.sets._replace(exclude=exclude), self.setting.runs / self.setting.scale, command=COMMAND,
                jobs=self.setting.jobs, say=self.setting.say, each=each,
            )  # fmt: skip

    def _place(self, run: Run) -> Path:
        return self.setting.runs / self.setting.scale / run.folder

    def _file(self, run: Run, measure: str) -> Path:
        return self.setting.out / "runs" / self.setting.scale / f"{run.folder}.{measure}.json"

    def _about(self, run: Run) -> Mapping[str, Any]:
        return {
            "config": run.settings.model_dump(mode="json"), "split": run.split, "faces": len(self.known.paths),
            "people": len(self.known.people),
        }  # fmt: skip


@lru_cache(maxsize=4)
def runs_of(setting: Setting) -> Runs:
    """The runs of a setting, opened once for all experiments."""
    return Runs(setting)
