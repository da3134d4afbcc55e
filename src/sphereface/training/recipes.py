"""Recipes by name: the paper's, the authors' prototxt, one for each other loss, one for little data.

Paths and devices are no part of a recipe, and `batch` is the global one.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sphereface.contract import read_card
from sphereface.errors import ContractMismatch, UserError
from sphereface.loading.augment import Augmentation
from sphereface.losses import LOSSES
from sphereface.training.config import AnnealingConfig, TeachingConfig, TrainConfig, read_config


def paper() -> TrainConfig:
    """Section 4.1: A-Softmax m = 4, batch 128, rate 0.1, a tenth of it at 16k and at 24k, 28k iterations, mirror."""
    return TrainConfig(recipe="paper", annealing=AnnealingConfig(), loss_options={"m": 4})


def prototxt() -> TrainConfig:
    """The authors' released solver and layer: Caffe's momentum, that layer's gradient, 256 faces a step, for one GPU.

    Their own crops are made with the template "matlab"; this recipe keeps "sphereface", as all others do.
    """
    options = {"m": 4, "gradient": "caffe"}
    return paper().changed(recipe="prototxt", batch=256, caffe_momentum=True, loss_options=options)


def rival(loss: str) -> TrainConfig:
    """The paper's run with another loss; losses on pairs get four photos of each person in a batch."""
    return paper().with_loss(loss).changed(recipe=f"paper_{loss}")


def patch(crop: str) -> TrainConfig:
    """The paper's run for one net of an ensemble, on another crop of the face."""
    return paper().changed(recipe=f"paper_patch_{crop}", crop=crop)


def small() -> TrainConfig:
    """Little data and a laptop: the 4-layer net with batch norm, gradients clipped, lambda at 5 after 44 % of the run.

    Without batch norm, or with lambda at its end after a tenth of the run, a short run of A-Softmax stays near log K:
    short features reduce the loss of a margin most easily.
    """
    return TrainConfig(
        recipe="small", model="sphereface4", norm="batch", batch=64, steps=2_400, lr=0.05, milestones=(1_440, 2_040),
        clip=5.0, loss_options={"m": 4}, annealing=AnnealingConfig(gamma=450 / 2_400), checkpoint_every=200,
    )  # fmt: skip


def finetune() -> TrainConfig:
    """New people for any trained network (`--init`): half the steps of `small`, a fifth of its rate, a warm-up."""
    return small().with_steps(1_200).changed(recipe="finetune", lr=0.01, warmup=100)


def mini() -> TrainConfig:
    """The model in the box: a narrow network of 10 layers, taught by a larger model alone.

    With A-Softmax beside it, it recognised new people less well: see results/mini.md.
    """
    return TrainConfig(
        recipe="mini", model="sphereface10", width=0.625, features=128, norm="batch-all", batch=128, steps=8_000,
        optimizer="adamw", lr=0.004, schedule="cosine", milestones=(), warmup=400, clip=5.0, ema=0.999,
        precision="bfloat16", loss_options={"m": 4}, annealing=AnnealingConfig(gamma=0.018),
        teaching=TeachingConfig(views=3, similarity=2.0, labels=0.0),
        augmentation=Augmentation(
            shift=3, scale=0.06, rotation=6, colour=0.2, grey=0.1, blur=0.15, low_resolution=0.2, jpeg=0.2
        ),
        checkpoint_every=500, keep=2, validation_people=60, validate_every=1_000,
    )  # fmt: skip


RECIPES: dict[str, Callable[[], TrainConfig]] = {
    "small": small,
    "mini": mini,
    "paper": paper,
    "prototxt": prototxt,
    "finetune": finetune,
    **{f"paper_{loss}": partial(rival, loss) for loss in LOSSES if loss != "a_softmax"},
    **{f"paper_patch_{crop}": partial(patch, crop) for crop in ("wide", "upper")},
}


def network_of(model: Path) -> dict[str, Any]:
    """The fields of a config that a trained model decides: the network, and the template and crop of its faces."""
    card = read_card(model)
    if card.architecture is None:
        raise ContractMismatch(f"{model}: its card names no architecture; wanted one that `sphereface train` made")
    network = card.architecture.model_dump()
    return {"model": network.pop("name"), **network, **card.preprocessing.alignment.model_dump()}


def load_recipe(name: str, init: Path | None = None) -> TrainConfig:
    """A recipe by name, or from a TOML file; the model `init` fills in fields of network and faces that it leaves open.

    `finetune` leaves all of them open, a file those that it does not name, and every other recipe none.
    """
    if name in RECIPES:
        config = RECIPES[name]()
        return config if init is None or name != "finetune" else config.changed(**network_of(init))
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        config = read_config(path)
        network = network_of(init) if init is not None else {}
        return config.changed(**{field: network[field] for field in network.keys() - config.model_fields_set})
    raise UserError(f"unknown recipe {name!r}; choose one of {', '.join(RECIPES)}, or a .toml file")
