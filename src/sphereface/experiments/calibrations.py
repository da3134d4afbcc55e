"""Calibration of models on the people of LFW's DevTrain, on whom none of ours was trained."""

from functools import partial

import numpy as np

from sphereface.arrays import Float32
from sphereface.embed.embedder import Embedder
from sphereface.evaluation.calibration.measure import calibrate
from sphereface.evaluation.calibration.result import Calibration
from sphereface.experiments.lfw_dev import Unseen, people_of_dev_train
from sphereface.metrics.support import comparison_rate, supports_far, supports_searches

MEASURED_ON = "LFW view 1, people of DevTrain"
SEARCHES = {0.1: (100, 1_000, 3_000), 0.01: (100,)}  # gallery sizes by FPIR


def calibrate_on_dev_train(embedder: Embedder, features: Float32, test: Unseen, *, rounds: int = 1_000) -> Calibration:
    """Thresholds from the features (N, D) of all test faces: the usual rates, and searches that the people support."""
    rows = people_of_dev_train(test)
    people = test.people[rows]
    count = len(np.unique(people))
    measure = partial(
        calibrate, features[rows], people, feature_rule=embedder.card.feature_rule, measured_on=MEASURED_ON,
        rounds=rounds,
    )  # fmt: skip
    found = measure()
    for fpir, sizes in SEARCHES.items():
        supported = [
            size for size in sizes
            if supports_searches(fpir, size, count) or supports_far(comparison_rate(fpir, size), count)
        ]  # fmt: skip
        if supported:
            found = found.with_thresholds(
                measure(fars=[], fpirs=[fpir], gallery_sizes=supported, template_sizes=()).thresholds
            )
    return found
