"""Appendix E: each change from softmax to A-Softmax (rows A to G): accuracy and angular Fisher score."""

from sphereface.experiments.paper.comparison import cell, difference, measured, note, of_methods
from sphereface.experiments.paper.methods import ABLATION
from sphereface.experiments.paper.published import ABLATION as PUBLISHED
from sphereface.experiments.paper.result import Result, Row, Table
from sphereface.experiments.paper.runs import Run, Runs, runs_of
from sphereface.experiments.paper.setting import Setting

# Row: last ReLU removed, biases removed, weights normalised, A-Softmax.
CHANGES = {
    "A": ("no", "no", "no", "no"), "B": ("yes", "no", "no", "no"), "C": ("yes", "yes", "no", "no"),
    "D": ("yes", "yes", "yes", "no"), "E": ("yes", "yes", "yes", "m = 2"), "F": ("yes", "yes", "yes", "m = 3"),
    "G": ("yes", "yes", "yes", "m = 4"),
}  # fmt: skip
STEPS = (*zip("ABCDEF", "BCDEFG", strict=True), ("D", "G"))
HEAD = ("row", "no last ReLU", "no biases", "unit weights", "A-Softmax")


def needed(runs: Runs) -> dict[str, list[Run]]:
    """The runs of this table, by row."""
    found = of_methods(runs, tuple(ABLATION.values()), layers=4)
    return {row: found[method] for row, method in ABLATION.items()}


def run(setting: Setting) -> Result:
    """Train the 4-layer network with each row's settings, and compare each row with the one before."""
    runs = runs_of(setting)
    found = measured(runs, needed(runs), "lfw")
    rows = []
    for row, of in found.items():
        accuracy, fisher = cell(of, "lfw", "accuracy"), cell(of, "lfw", "fisher", unit=1, form="{:.4f}")
        rows.append(Row([row, *CHANGES[row], accuracy, fisher, "ours"], setting.scale))
        theirs = PUBLISHED[row]
        rows.append(Row([row, *CHANGES[row], f"{theirs[0]:.2f}", f"{theirs[1]:.4f}", "paper, appendix E"], "published"))
    accuracies, scores = (
        {step: difference(found[step[1]], found[step[0]], name) for step in STEPS} for name in ("accuracy", "fisher")
    )
    steps = [
        Row([f"{before} to {after}", accuracies[before, after].text(), scores[before, after].text(1, 4),
             f"{PUBLISHED[after][1] - PUBLISHED[before][1]:+.4f}",
             "yes" if scores[before, after].paired.difference < 0 else "no"], setting.scale)
        for before, after in STEPS
    ]  # fmt: skip
    falls = [f"{before} to {after}" for before, after in STEPS if scores[before, after].paired.interval.high < 0]
    return Result(
        "app-ablation",
        "ablation of the paper's changes",
        setting.scale,
        findings=[
            "The angular Fisher score falls, with its interval below 0, from "
            f"{', '.join(falls) or 'no row to another'}. In the paper it falls at every step."
        ],
        tables=[
            Table("ablation", "Rows A to G, 4 layers", (*HEAD, "LFW, %", "angular Fisher score", "source"), rows,
                  "The score counts people with two photos or more; lower is better. " + note(runs, "lfw")),
            Table("steps", "Each change",
                  ("step", "accuracy, points", "angular Fisher score", "score in the paper", "falls, as there"), steps,
                  "Differences with their 95 % intervals, by a bootstrap over test people and seeds."),
        ],
        numbers={"fisher": {" to ".join(step): list(scores[step].paired.interval) for step in STEPS}},
    )  # fmt: skip
