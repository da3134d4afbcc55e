"""Appendix C: 2-D features of digits with and without biases of the last layer."""

import numpy as np

from sphereface.experiments.paper.comparison import cell, values
from sphereface.experiments.paper.digit_images import PARTS
from sphereface.experiments.paper.digits import DigitRuns, Run
from sphereface.experiments.paper.digits_drawing import NAMES, scatter
from sphereface.experiments.paper.result import Figure, Result, Row, Table
from sphereface.experiments.paper.setting import Setting

WITH, WITHOUT = "softmax", "softmax_no_bias"  # rows B and C of the paper's ablation


def run(setting: Setting) -> Result:
    """Train softmax with and without biases; compare how far the features use the plane, and how well they separate."""
    runs = DigitRuns(setting)
    found = runs.over_seeds((WITH, WITHOUT))
    first = {name: runs.drawn([Run(name, setting.seeds[0])])[0] for name in found}
    titles = {WITH: "with biases", WITHOUT: "without biases"}
    arc, fisher, accuracy = (
        {name: cell(found[name], "test", of, unit=unit, form=form) for name in found}
        for of, unit, form in (("arc", 1, "{:.0f}"), ("fisher", 1, "{:.4f}"), ("accuracy", 100, "{:.2f}"))
    )
    biases = np.array([each["biases"] for each in found[WITH]])
    # The largest logit that a feature can reach: the length of a feature times that of a weight.
    logit = float(np.mean([np.mean(each["lengths"]) * each["test"]["length"] for each in found[WITH]]))
    gain = np.mean(values(found[WITHOUT], "test", "fisher")) - np.mean(values(found[WITH], "test", "fisher"))
    rows = [
        Row(
            [
                titles[name],
                NAMES[part],
                *(cell(found[name], part, of, unit=unit, form=form) for of, unit, form in FORMS),
            ],
            setting.scale,
        )
        for name in found
        for part in PARTS
    ]
    return Result(
        "app-bias",
        "2-D digits with and without biases",
        setting.scale,
        findings=[
            f"99 % of the directions of test images lie in an arc of {arc[WITH]} degrees with biases and of "
            f"{arc[WITHOUT]} degrees without them. The paper: both make full use of the learning space.",
            f"Without biases the angular Fisher score on test images is {fisher[WITHOUT]}, with them {fisher[WITH]}: a "
            f"difference of {gain:+.4f}; accuracy is {accuracy[WITHOUT]} % and {accuracy[WITH]} %.",
            f"The largest bias is {np.abs(biases).max():.2f}, where logits reach about {logit:.0f}.",
        ],
        tables=[
            Table(
                "bias", "2-D features with and without biases of the last layer",
                ("loss", "images", "arc of 99 %, degrees", "accuracy, %", "angular Fisher score"), rows,
                f"Softmax; {runs.about}.",
            )
        ],
        figures=[
            Figure("bias", scatter({titles[name]: first[name] for name in found}, width=2.6),
                   "2-D features with and without biases of the last layer; lines: class weights. As the second figure "
                   "of appendix C.")
        ],
        numbers={name: {part: [each[part] for each in found[name]] for part in PARTS} for name in found}
        | {"biases": biases.tolist()},
    )  # fmt: skip


FORMS = (("arc", 1, "{:.1f}"), ("accuracy", 100, "{:.2f}"), ("fisher", 1, "{:.4f}"))
