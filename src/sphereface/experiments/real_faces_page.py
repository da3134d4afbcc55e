"""The page results/real-faces.md."""

from typing import Any

from sphereface.experiments.lfw_dev import IN_LFW
from sphereface.experiments.real_faces import NAMES, SEARCH_FAR, Comparison
from sphereface.experiments.tables import difference_text, mean_and_each, rate_table, table
from sphereface.experiments.trials import SEARCH_PHOTOS
from sphereface.experiments.view1 import FAR, STATISTICS
from sphereface.metrics import Paired


def as_markdown(done: Comparison) -> str:
    """The comparison as Markdown."""
    plan = done.plan
    head = ["loss", "accuracy on DevTest", f"TAR at FAR {FAR:g}"]
    narrow = [
        [NAMES[loss], *(mean_and_each([row[of] for row in rows]) for of in STATISTICS)]
        for loss, rows in done.runs.items()
    ]
    lines = [
        "# A-Softmax against softmax on real faces",
        f"Command: `{done.command}`. Recipe `small` at width {plan.width:g}: "
        f"{done.config['model']}, {_norm(done.config)}, batch {done.config['batch']}, mirror, {plan.steps:,} steps, "
        f"weight decay {done.config['weight_decay']:g}, gradients clipped at {done.config['clip']:g}. Both losses have "
        f"the same network, faces, batches and steps: {done.faces:,} faces of {done.people} people. "
        f"{', '.join(IN_LFW)} are left out: `data audit` found them in LFW (results/audit.md).",
        f"Tested on view 1 of LFW, {done.test_faces:,} faces of {done.test_people:,} people aligned by `data align`; "
        "features of image and mirror image. Accuracy is on DevTest, mean and threshold from DevTrain; "
        f"TAR at FAR {FAR:g} is over all pairs of these faces.",
        "## Learning rate",
        f"TAR at FAR {SEARCH_FAR:g} over all pairs of {plan.held_out} people held out of training (at most "
        f"{SEARCH_PHOTOS} photos of each), {plan.search_steps:,} steps, seed {plan.seeds[0]}; the best of the same "
        f"{len(plan.rates)} is taken.",
        rate_table(done.search, done.chosen, plan.rates, NAMES),
        f"## Test, mean over seeds {', '.join(str(seed) for seed in plan.seeds)} (each seed)",
        table(head, [*narrow, _difference_row(done.difference)]),
    ]
    if done.full_width:
        wide = [[NAMES[loss], *(f"{row[of]:.2%}" for of in STATISTICS)] for loss, row in done.full_width.items()]
        lines += [
            f"## At width {plan.full_width:g}, seed {plan.seeds[0]}",
            table(head, [*wide, _difference_row(done.full_width_difference)]),
        ]
    lines.append(
        "The last row of a table is A-Softmax minus softmax in points: the mean over seeds of the paired "
        "difference, its 95 % interval from a bootstrap over the test people (the same draws for both), and the "
        "difference in standard errors. Training seeds are averaged, not resampled. docs/guides/training.md, under "
        "Real faces, has the choice of recipe and rates, and the data used for it."
    )
    return "\n\n".join(lines) + "\n"


def _difference_row(by: dict[str, Paired]) -> list[str]:
    return ["difference", *(difference_text(by[statistic]) for statistic in STATISTICS)]


def _norm(config: dict[str, Any]) -> str:
    return "batch norm" if config["norm"] == "batch" else "no normalisation layers"
