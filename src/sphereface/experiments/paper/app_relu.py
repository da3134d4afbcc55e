"""Appendix A: 2-D features of digits with and without the last ReLU."""

from sphereface.experiments.paper.comparison import cell, values
from sphereface.experiments.paper.digit_images import PARTS
from sphereface.experiments.paper.digits import DigitRuns, Run
from sphereface.experiments.paper.digits_drawing import NAMES, scatter
from sphereface.experiments.paper.result import Figure, Result, Row, Table
from sphereface.experiments.paper.setting import Setting

WITH, WITHOUT = "softmax_relu", "softmax"  # rows A and B of the paper's ablation


def run(setting: Setting) -> Result:
    """Train both networks; measure the share of features in the first quadrant, and the angles that they use."""
    runs = DigitRuns(setting)
    found = runs.over_seeds((WITH, WITHOUT))
    first = {name: runs.drawn([Run(name, setting.seeds[0])])[0] for name in found}
    titles = {WITH: "with the last ReLU", WITHOUT: "without the last ReLU"}
    inside = {name: min(min(values(found[name], part, "first_quadrant")) for part in PARTS) for name in found}
    arc = {name: cell(found[name], "test", "arc", unit=1, form="{:.0f}") for name in found}
    accuracy = {name: cell(found[name], "test", "accuracy", form="{:.1f}") for name in found}
    everywhere = "all features lie" if inside[WITH] == 1 else f"{inside[WITH]:.2%} of the features lie"
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
        "app-relu",
        "2-D digits with and without the last ReLU",
        setting.scale,
        findings=[
            f"With the last ReLU {everywhere} in the first quadrant, without it "
            f"{cell(found[WITHOUT], 'test', 'first_quadrant', form='{:.0f}')} % of those of test images: as in the "
            "paper, the ReLU leaves a quarter of the plane.",
            f"99 % of the directions of test images lie in an arc of {arc[WITH]} degrees with the ReLU, and of "
            f"{arc[WITHOUT]} degrees without it; accuracy on test images is {accuracy[WITH]} % and "
            f"{accuracy[WITHOUT]} %.",
        ],
        tables=[
            Table(
                "relu", "2-D features with and without the last ReLU",
                ("network", "images", "in the first quadrant, %", "arc of 99 %, degrees", "accuracy, %",
                 "angular Fisher score"), rows,
                f"Softmax with biases; {runs.about}.",
            )
        ],
        figures=[
            Figure("relu", scatter({titles[name]: first[name] for name in found}, width=2.6),
                   "2-D features with and without the last ReLU; lines: class weights. As the figure of appendix A.")
        ],
        numbers={name: {part: [each[part] for each in found[name]] for part in PARTS} for name in found},
    )  # fmt: skip


FORMS = (("first_quadrant", 100, "{:.1f}"), ("arc", 1, "{:.1f}"), ("accuracy", 100, "{:.2f}"), ("fisher", 1, "{:.4f}"))
