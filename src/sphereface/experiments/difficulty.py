"""Difficulty of the synthetic faces: accuracy of softmax on its training people and on new people."""

from typing import NamedTuple

import numpy as np
import torch

from sphereface.experiments.loop import extract
from sphereface.experiments.openset import CONTENDERS, Scale, draw_sets, measure, train
from sphereface.progress import Say


class Difficulty(NamedTuple):
    """Softmax's shares of training faces classified correctly, and of pairs of new people decided correctly."""

    training_accuracy: float
    verification_accuracy: float


def run_difficulty(scale: Scale, *, workers: int, seed: int = 0, say: Say) -> Difficulty:
    """Train softmax with the demo's network and budget, and measure it."""
    say("drawing faces")
    sets = draw_sets(scale, workers=workers)
    say("training softmax")
    net, loss = train(CONTENDERS[0], sets.train, scale, seed=seed)
    features = torch.from_numpy(extract(net, sets.train.images, mirror=False))
    with torch.no_grad():
        guesses = (features @ loss.weight.t() + loss.bias).argmax(1).numpy()  # type: ignore[operator]
    return Difficulty(float(np.mean(guesses == sets.train.people)), measure(net, sets).accuracy())
