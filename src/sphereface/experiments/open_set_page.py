"""The page results/open-set.md and its figure."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sphereface.experiments.tables import mean_and_each, table
from sphereface.reports.figures import COLOURS, Picture, Theme, chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COMMAND = "sphereface reproduce open-set --faces FACES --model NAME --out results"
BAND = (0.5, 2.0)  # of the measured rate over the promised one
HEAD = (
    "promised FPIR", "people", "photos of each", "threshold", "measured FPIR", "over promised",
    "constant threshold: FPIR", "over promised", "rank 1", "missed", "false name",
)  # fmt: skip


def as_markdown(models: Mapping[str, Any]) -> str:
    """The results of all models as Markdown."""
    lines = [
        "# Searches in galleries of new people",
        f"Command: `{COMMAND}`, once for each model. Calibrated on the people of LFW's DevTrain, tested on those of "
        "DevTest, who are others. Galleries are drawn from the test people; all others are strangers, with one photo "
        "each. FPIR: the share of strangers who are named, mean over the galleries with the middle 95 % of them. "
        "Missed: the share of other photos of enrolled people without their name; false name: with another one.",
        "The threshold follows the size of the gallery and the photos of each person; beside it stands one constant "
        "threshold, that of two photos at a FAR of 1e-3.",
        "![Measured over promised FPIR](open-set.png)",
    ]
    for found in models.values():
        lines += _model(found)
    return "\n\n".join(lines) + "\n"


def _model(found: Mapping[str, Any]) -> list[str]:
    groups = found["groups"]
    lines = [
        f"## {found['model']}",
        f"{found['people']:,} people, {found['photos']:,} photos; {found['failed']:,} photos without a face (failures "
        f"to enroll). Constant threshold: {found['constant']:.3f}.",
        table(HEAD, [_row(each) for each in found["measured"]]),
    ]
    if found["unsupported"]:
        refused = "; ".join(
            f"FPIR {each['fpir']:g} with {each['people']} people, {each['photos']} photos each"
            for each in found["unsupported"]
        )
        lines.append(f"Refused, as the people of DevTrain are too few: {refused}.")
    f1, precision, recall = ([each[of] for each in groups] for of in ("f1", "precision", "recall"))
    return [
        *lines,
        f"`group`, {len(groups)} draws of photos of unnamed people, threshold {found['grouping_threshold']:.3f}: "
        f"pairwise F1 {mean_and_each(f1, '{:.3f}')}, precision {mean_and_each(precision, '{:.3f}')}, recall "
        f"{mean_and_each(recall, '{:.3f}')}.",
    ]


def _row(each: Mapping[str, Any]) -> list[str]:
    ours = each["ours"]
    low, high = ours["interval"]
    return [
        f"{each['fpir']:g}", f"{each['people']}", f"{each['photos']}", f"{each['threshold']:.3f}",
        f"{ours['fpir']:.2%} ({low:.2%} to {high:.2%})", f"{each['ratio']:.2f}", f"{each['constant']['fpir']:.2%}",
        f"{each['constant_ratio']:.2f}", f"{each['rank_1']:.2%}", f"{ours['miss']:.2%}", f"{ours['false_name']:.2%}",
    ]  # fmt: skip


def draw_ratios(models: Mapping[str, Any]) -> Picture:
    """Measured over promised FPIR against the gallery's size: ours, and of a constant threshold."""

    def draw(axes: "Axes", _: Theme) -> None:
        axes.axhspan(*BAND, color="#2fb28a", alpha=0.15, label="half to twice the promise")
        for place, found in enumerate(models.values()):
            for kind, marker in (("ratio", "o"), ("constant_ratio", "x")):
                named = "threshold of the gallery" if kind == "ratio" else "constant threshold"
                axes.scatter(
                    [each["people"] * (1 + 0.06 * place) for each in found["measured"]],
                    [max(each[kind], 1e-2) for each in found["measured"]],
                    marker=marker, color=COLOURS[place + 1], label=f"{found['model']}: {named}",
                )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(0.05, 2_000)  # room for the legend

    return chart(
        draw, "Measured over promised FPIR against the size of the gallery, for a threshold that follows it and for "
        "one that does not", height=3.6, x="people in the gallery", y="measured / promised FPIR", loc="upper left",
    )  # fmt: skip
