"""How hard the synthetic faces are: softmax alone, trained until it knows its people, tested on others."""

from typing import NamedTuple

import numpy as np
import torch

from sphereface.experiments.loop import extract
from sphereface.experiments.openset import CONTENDERS, Scale, draw_sets, measure, train
from sphereface.progress import Say


class Difficulty(NamedTuple):
    """Softmax's share of training faces put to the right person, and of pairs of new people decided rightly."""

    training_accuracy: float
    verification_accuracy: float


def run_difficulty(scale: Scale, *, workers: int, seed: int = 0, say: Say) -> Difficulty:
    """Train softmax with the demo's network and budget; no margin loss has a part in this."""
    say("drawing faces")
    sets = draw_sets(scale, workers=workers)
    say("training softmax")
    net, loss = train(CONTENDERS[0], sets.train, scale, seed=seed)
    features = torch.from_numpy(extract(net, sets.train.images, mirror=False))
    with torch.no_grad():
        guesses = (features @ loss.weight.t() + loss.bias).argmax(1).numpy()  # type: ignore[operator]
    return Difficulty(float(np.mean(guesses == sets.train.people)), measure(net, sets).accuracy())
