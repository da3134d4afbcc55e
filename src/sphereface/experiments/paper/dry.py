"""What experiments would train, and its cost, without training anything."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from sphereface.experiments.paper import splits
from sphereface.experiments.paper.catalogue import CATALOGUE
from sphereface.experiments.paper.material import described
from sphereface.experiments.paper.runs import Run, Runs
from sphereface.experiments.paper.setting import Setting
from sphereface.experiments.paper.table2 import parts_of
from sphereface.experiments.tables import table
from sphereface.models import create_model
from sphereface.training.config import TrainConfig

STEP = 3  # forward passes that a training step costs, about
STATE = 3  # weights, momentum, gradients
FLOAT = 4  # bytes


@dataclass(frozen=True)
class Planned:
    """The data that were found, and the runs that are to be trained."""

    data: dict[str, str]
    runs: list[dict[str, Any]]

    def as_json(self) -> dict[str, Any]:
        """The plan as a JSON object."""
        return {"data": self.data, "runs": self.runs, "total": self.total}

    @property
    def total(self) -> dict[str, float]:
        """The sums over all runs."""
        names = ("images", "petaflop", "disk_gigabytes")
        return {"runs": len(self.runs)} | {name: sum(each[name] for each in self.runs) for name in names}

    def text(self) -> str:
        """The plan as tables."""
        data = table(("data", "found"), list(self.data.items()))
        rows = [
            [each["run"], f"{each['steps']:,}", f"{each['images']:,}", f"{each['petaflop']:,.2f}",
             f"{each['disk_gigabytes']:.2f}"] for each in self.runs
        ]  # fmt: skip
        runs = table(("run", "steps", "faces", "10^15 operations", "disk, GB"), rows)
        total = self.total
        return "\n\n".join([
            data, runs,
            f"{total['runs']:,} runs, {total['images']:,} faces, {total['petaflop']:,.1f} x 10^15 operations, "
            f"{total['disk_gigabytes']:.1f} GB of checkpoints. Nothing was started.",
        ])  # fmt: skip


def planned(names: Sequence[str], setting: Setting) -> Planned:
    """Check the data, and list the runs that some experiments need and that have no outcome yet."""
    runs = Runs(setting, dry=True)
    for name in names:
        module = importlib.import_module(f"sphereface.experiments.paper.{CATALOGUE[name].module}")
        needed = getattr(module, "needed", None)
        if needed is not None:
            runs.plan_for([run for some in needed(runs).values() for run in some])
    return Planned(
        described(setting, runs.known),
        [{"run": title(run), **cost(run.settings, len(runs.known.people))} for run in runs.planned.values()],
    )


def title(run: Run) -> str:
    """The name of a run without its hash, with its split."""
    return run.folder.rsplit("-", 1)[0] + ("" if run.split == splits.WHOLE else f" ({run.split})")


def cost(c: TrainConfig, people: int) -> dict[str, Any]:
    """The steps of a run on a number of people, its faces, its operations, its memory and its checkpoints."""
    classes = people - (c.validation_people if c.validation_people else 0)
    with torch.device("meta"):
        net = create_model(c.model, width=c.width, features=c.features, norm=c.norm, last_relu=c.last_relu).eval()
        one_face = sum(part.multiply_adds for part in parts_of(net).values()) + classes * c.features
    weights = sum(each.numel() for each in net.parameters()) + classes * c.features
    images = c.steps * c.batch
    return {
        "steps": c.steps,
        "images": images,
        "petaflop": 2 * STEP * images * one_face / 1e15,
        "disk_gigabytes": c.keep * STATE * FLOAT * weights / 1e9,
    }
