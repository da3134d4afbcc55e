"""Runs with a name: the paper's, the authors' prototxt, one for each rival, one for little data.

A recipe says nothing about where data lie or what device runs it, and `batch` is the global one.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from sphereface.losses import LOSSES
from sphereface.training.config import AnnealingConfig, TrainConfig, read_config


def paper() -> TrainConfig:
    """Section 4.1: A-Softmax m = 4, batch 128, rate 0.1, a tenth of it at 16k and at 24k, 28k iterations, mirror."""
    return TrainConfig(recipe="paper", annealing=AnnealingConfig(), loss_options={"m": 4})


def prototxt() -> TrainConfig:
    """The authors' released solver: as the paper, with Caffe's momentum and 256 faces a step, for one GPU."""
    return paper().changed(recipe="prototxt", batch=256, caffe_momentum=True)


def rival(loss: str) -> TrainConfig:
    """The paper's run with another loss; losses on pairs see four photos of each person in a batch."""
    return paper().with_loss(loss).changed(recipe=f"paper_{loss}")


def patch(crop: str) -> TrainConfig:
    """The paper's run for one net of an ensemble, on another crop of the face."""
    return paper().changed(recipe=f"paper_patch_{crop}", crop=crop)


def small() -> TrainConfig:
    """Little data and a laptop: the 4-layer net with batch norm, gradients clipped, lambda at 5 after 44 % of the run.

    Without batch norm, or with lambda at its end after a tenth of the run, so short a run of A-Softmax stays near
    log K: the easiest way out of a margin is a short feature.
    """
    return TrainConfig(
        recipe="small",
        model="sphereface4",
        norm="batch",
        batch=64,
        steps=2_400,
        lr=0.05,
        milestones=(1_440, 2_040),
        clip=5.0,
        loss_options={"m": 4},
        annealing=AnnealingConfig(gamma=450 / 2_400),
        checkpoint_every=200,
    )


def finetune() -> TrainConfig:
    """New people for a trained network (`--init`): a tenth of the rate, a new classifier, a warm-up."""
    return small().changed(recipe="finetune", lr=0.01, warmup=100, steps=1_200, milestones=(800, 1_050))


RECIPES: dict[str, Callable[[], TrainConfig]] = {
    "small": small,
    "paper": paper,
    "prototxt": prototxt,
    "finetune": finetune,
    **{f"paper_{loss}": partial(rival, loss) for loss in LOSSES if loss != "a_softmax"},
    **{f"paper_patch_{crop}": partial(patch, crop) for crop in ("wide", "upper")},
}


def load_recipe(name: str) -> TrainConfig:
    """A recipe by name, or from a TOML file."""
    if name in RECIPES:
        return RECIPES[name]()
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        return read_config(path)
    raise ValueError(f"unknown recipe {name!r}; choose one of {', '.join(RECIPES)}, or a .toml file")
