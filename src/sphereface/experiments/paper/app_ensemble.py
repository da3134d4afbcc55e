"""Appendix H: ensembles of 1 to 5 patches: a network for each, their features concatenated without PCA."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.experiments.outcomes import Outcome
from sphereface.experiments.paper.comparison import NOTHING, Difference, Found, cell, note, values
from sphereface.experiments.paper.patches import (
    PAPERS,
    STATISTICS,
    WHOLE,
    WINDOWS,
    Chosen,
    folds_of,
    of_fold,
    outcomes,
    region,
    through,
)
from sphereface.experiments.paper.patches import needed as needed  # a dry call looks for it here
from sphereface.experiments.paper.published import TABLE_5, MegaFace
from sphereface.experiments.paper.result import Figure, Result, Row, Table
from sphereface.experiments.paper.runs import Runs, runs_of
from sphereface.experiments.paper.setting import Setting
from sphereface.experiments.trials import SEARCH_PHOTOS
from sphereface.metrics.bootstrap import draws_over_runs, middle_95, paired_of_draws, two_sided
from sphereface.metrics.intervals import Interval
from sphereface.reports.figures import COLOURS, INK, Theme, blank, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

SHOWN = (0, 1)  # the synthetic person and photo of the figure: no photo of a real person
LENGTHS = {  # label, style and colour of a line, by the end of a statistic's name
    "": ("LFW, features at their own lengths", "-", COLOURS[4]),
    "_unit": ("LFW, each at length one", "--", COLOURS[1]),
}
SAYS = "A face with five windows, the patch of each, its network, and the concatenated features"
SOURCE = "paper, Table 5"


def run(setting: Setting) -> Result:
    """Train a network for each patch, choose patches on held-out people, and test 1 to 5 of them on LFW."""
    return of_runs(runs_of(setting))


def of_runs(runs: Runs) -> Result:
    """The experiment with the networks of some runs."""
    chosen, found = outcomes(runs)
    order, tried = chosen["order"], chosen["tried"]
    held = [tried[step][patch] for step, patch in enumerate(order)]  # TAR on held-out people by number of patches
    shown = [Figure("patches", picture(partial(draw_patches, order, runs.plan.base.model), SAYS, pdf=True),
                    "The five patches on one synthetic face, from the top in the order of the choice; the features of "
                    "their networks are concatenated. The figure of appendix H shows three patches.",
                    wide=True)]  # fmt: skip
    says = "Accuracy and true accept rate by number of patches, with 95 % intervals"
    shown.append(
        Figure("ensemble", picture(partial(draw_numbers, order, held, found, runs), says, pdf=True),
               "By number of patches, in the order of the choice, with 95 % intervals over people and seeds. "
               "Held-out people are other people than those of LFW.")
    )  # fmt: skip
    return Result(
        "app-ensemble",
        "ensembles of 1 to 5 patches",
        runs.setting.scale,
        findings=findings(runs, order, held, found),
        tables=[ensemble_table(runs, order, found), patch_table(runs, tried[0], found), choice_table(runs, chosen)],
        figures=shown,
        numbers={
            "order": order,
            "held_out": held,
            "lfw": {"+".join(some): {name: float(np.mean(values(of, "lfw", name))) for name in STATISTICS}
                    for some, of in found.items()},
        },
    )  # fmt: skip


def findings(runs: Runs, order: Sequence[str], held: Sequence[float], found: Mapping[Chosen, Found]) -> list[str]:
    """What was found, in sentences."""
    paper = TABLE_5["ensemble"].tar - TABLE_5["a_softmax"].tar
    said = [
        f"Chosen on {people_held(runs)}: {', then '.join(order)}. TAR at FAR {runs.plan.search_far:g} on them is "
        f"{100 * held[0]:.2f} % with the first patch, {100 * held[PAPERS - 1]:.2f} % with {PAPERS} patches, "
        f"{100 * held[-1]:.2f} % with all {len(order)}."
    ]
    if not found:
        return [*said, "Not tested: no folder of LFW is given (--lfw)."]
    three, five, whole = found[tuple(order[:PAPERS])], found[tuple(order)], found[WHOLE,]
    return [
        *said,
        f"{PAPERS} patches have {cell(three, 'lfw', 'tar')} % TAR at FAR {runs.plan.far:g} on LFW, the whole face "
        f"alone {cell(whole, 'lfw', 'tar')} %: {gain(three, whole).text()} points. The paper has {paper:+.2f} points "
        "on MegaFace, at FAR 1e-6 (Table 5).",
        f"All {len(order)} patches against {PAPERS}: {gain(five, three).text()} points. The paper: more patches could "
        "increase the performance further.",
        f"With each patch's feature at length one, {PAPERS} patches have {cell(three, 'lfw', 'tar_unit')} %, "
        f"{gain(three, three, 'tar_unit').text()} points against features at their own lengths, as in the paper.",
    ]


def people_held(runs: Runs) -> str:
    """The folds in words."""
    sizes = [len(fold) for fold in folds_of(runs)]
    folds = "one fold" if len(sizes) == 1 else f"{len(sizes)} folds"
    return f"{folds} of {sizes[0]} training people held out"


def gain(ours: Found, theirs: Found, name: str = "tar", their_name: str = "tar") -> Difference:
    """Ours - theirs of a statistic of LFW, over the same draws of people and of seeds, for networks are in both."""
    mine = np.array([each["lfw"]["draws"][name] for each in ours])
    draws = draws_over_runs(mine - [each["lfw"]["draws"][their_name] for each in theirs], seed=1)
    mean = float(np.mean(values(ours, "lfw", name)) - np.mean(values(theirs, "lfw", their_name)))
    return Difference(paired_of_draws(mean, draws), two_sided(draws))


def interval(found: Found, name: str) -> Interval:
    """The 95 % interval of a statistic over draws of people and seeds."""
    return middle_95(draws_over_runs(np.array([each["lfw"]["draws"][name] for each in found]), seed=1))


def with_interval(found: Found, name: str) -> str:
    """The mean over seeds with its interval, in per cent."""
    low, high = interval(found, name)
    return f"{100 * np.mean(values(found, 'lfw', name)):.2f} [{100 * low:.2f}, {100 * high:.2f}]"


def ensemble_table(runs: Runs, order: Sequence[str], found: Mapping[Chosen, Found]) -> Table:
    """Ensembles of 1 to 5 patches, and the paper's on MegaFace."""
    rows: list[Row] = []
    for count in range(1, len(order) + 1) if found else ():
        some = tuple(order[:count])
        of, same = found[some], some == (WHOLE,)
        rows.append(
            Row([str(count), " + ".join(some), with_interval(of, "accuracy"), with_interval(of, "tar"),
                 NOTHING if same else gain(of, found[WHOLE,]).text(),
                 NOTHING if count == 1 else cell(of, "lfw", "tar_unit"), NOTHING, NOTHING, "ours"],
                runs.setting.scale)
        )  # fmt: skip
    rows += [paper_row(1, TABLE_5["a_softmax"]), paper_row(PAPERS, TABLE_5["ensemble"])]
    far = f"TAR at FAR {runs.plan.far:g}"
    head = ("patches", "which", "LFW, %", f"{far}, %", "against the whole face, points",
            f"{far}, parts at length one, %", "MegaFace rank 1, %", "MegaFace TAR, %", "source")  # fmt: skip
    return Table(
        "ensemble", "Ensembles of 1 to 5 patches", head, rows,
        "With 95 % intervals, by a bootstrap over test people and seeds. Features are concatenated without PCA, at "
        "their own lengths as in the paper, or each at length one as sphereface.embed.ensemble does. MegaFace: "
        "FaceScrub probes, a million distractors, FAR 1e-6. " + note(runs, "lfw"),
    )  # fmt: skip


def paper_row(count: int, row: MegaFace) -> Row:
    """A row of the paper's Table 5."""
    which = "its single model" if count == 1 else "its ensemble"
    cells = [str(count), which, *[NOTHING] * 4, f"{row.rank_1:.3f}", f"{row.tar:.3f}", SOURCE]
    return Row(cells, "published")


def patch_table(runs: Runs, held: Mapping[str, float], found: Mapping[Chosen, Found]) -> Table:
    """Each patch alone: its window, and how well its network does."""
    rows = []
    for patch, window in WINDOWS.items():
        left, right, top, bottom = region(window)
        cells = [patch, f"{left:.1f} to {right:.1f}", f"{top:.1f} to {bottom:.1f}", f"{100 * held[patch]:.2f}"]
        if found:
            of = found[patch,]
            length = np.mean([each["lfw"]["lengths"][0] for each in of])
            cells += [with_interval(of, "accuracy"), with_interval(of, "tar"), f"{length:.1f}"]
        rows.append(Row(cells if found else [*cells, *[NOTHING] * 3], runs.setting.scale))
    head = ("patch", "columns", "rows", f"held-out TAR at FAR {runs.plan.search_far:g}, %", "LFW, %",
            f"TAR at FAR {runs.plan.far:g}, %", "median length of a feature")  # fmt: skip
    return Table(
        "patches", "Each patch alone", head, rows,
        "Columns and rows of the aligned face, 112 high and 96 wide, scaled to that size. The paper shows its patches "
        "in a figure only; these windows are our choice.",
    )  # fmt: skip


def choice_table(runs: Runs, chosen: Outcome) -> Table:
    """The TAR on held-out people with each patch added, step by step."""
    rows = [
        Row([str(step), *(f"{100 * of[patch]:.2f}" if patch in of else NOTHING for patch in WINDOWS), added],
            runs.setting.scale)
        for step, (of, added) in enumerate(zip(chosen["tried"], chosen["order"], strict=True), start=1)
    ]  # fmt: skip
    steps = of_fold(runs, WHOLE, 0).run.settings.steps
    return Table(
        "choice", f"Choice of patches: TAR at FAR {runs.plan.search_far:g} on held-out people, %, if a patch is added",
        ("step", *WINDOWS, "added"), rows,
        f"{people_held(runs).capitalize()}, up to {SEARCH_PHOTOS} photos of each; the networks of a fold, trained for "
        f"{steps:,} steps, did not learn from its people. The paper does not say how many folds it has.",
    )  # fmt: skip


def colour_of(patch: str) -> str:
    """The colour of a patch."""
    return COLOURS[1 + list(WINDOWS).index(patch)]


def draw_patches(order: Sequence[str], model: str, theme: Theme) -> "Drawing":
    """The face with its windows; from each a patch, a network and a feature; all features in a row."""
    from matplotlib.patches import FancyBboxPatch, Rectangle

    face = SyntheticPeople().face(*SHOWN)
    row, size, scale = 0.92, 0.8, 2.8 / 112  # inches: a patch's row, its height, a pixel of the face
    width, height = 8.0, row * len(order) + 0.5
    middle_of_all = row * len(order) / 2 + 0.1
    figure = blank(width, height)
    axes = figure.add_subplot()
    x, y = 0.15, middle_of_all + 56 * scale  # upper left corner of the face
    axes.imshow(face, extent=(x, x + 96 * scale, y - 112 * scale, y), interpolation="bilinear")
    for place, patch in enumerate(order):
        colour, middle = colour_of(patch), height - 0.4 - row * (place + 0.5)
        left, right, top, bottom = region(WINDOWS[patch])
        corner = (x + scale * (left + 0.5), y - scale * (bottom + 0.5))  # (0, 0) is the middle of the first pixel
        axes.add_patch(Rectangle(corner, scale * (right - left), scale * (bottom - top), fill=False, ec=colour, lw=2))
        arrow(axes, (2.65, middle_of_all + 0.3 * (middle - middle_of_all)), (3.1, middle), theme)
        side, low = size * 96 / 112, middle - size / 2
        axes.imshow(
            through(face, WINDOWS[patch]), extent=(3.15, 3.15 + side, low, low + size), interpolation="bilinear"
        )
        axes.add_patch(Rectangle((3.15, low), side, size, fill=False, ec=colour, lw=2.5))
        axes.text(3.25 + side, middle + 0.2, patch, color=colour, fontweight="bold", va="center")
        arrow(axes, (3.2 + side, middle), (4.75, middle), theme)
        box = FancyBboxPatch(
            (4.85, middle - 0.2), 1.15, 0.4, boxstyle="round,pad=0.03", fill=False, ec=INK[theme], lw=1
        )
        axes.add_patch(box)
        axes.text(5.425, middle, model, ha="center", va="center", fontsize=8.5)
        arrow(axes, (6.08, middle), (6.5, middle), theme)
        axes.add_patch(Rectangle((6.55, middle - row / 2), 0.3, row, fc=colour, ec="none", alpha=0.85))
    top, bottom = height - 0.43, height - 0.37 - PAPERS * row
    axes.plot([6.98, 7.06, 7.06, 6.98], [top, top, bottom, bottom], color=INK[theme], linewidth=1)
    axes.text(7.14, (top + bottom) / 2, f"{PAPERS} patches,\nas many as\nin the paper", va="center", fontsize=8.5)
    titles = {1.35: "aligned face", 3.5: "patches", 5.425: "networks", 6.7: "features, concatenated"}
    for at, title in titles.items():
        axes.text(at, height - 0.2, title, ha="center", va="center")
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    axes.set_axis_off()
    return figure


def arrow(axes: "Axes", start: tuple[float, float], end: tuple[float, float], theme: Theme) -> None:
    """An arrow from one place to another."""
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": INK[theme], "linewidth": 1, "shrinkA": 0})


def draw_numbers(
    order: Sequence[str], held: Sequence[float], found: Mapping[Chosen, Found], runs: Runs, _: Theme
) -> "Drawing":
    """Accuracy on LFW on the left; TAR on LFW and on held-out people on the right."""
    counts = np.arange(1, len(order) + 1)
    figure = blank(8.0 if found else 4.5, 3.4)
    panels = figure.subplots(1, 2 if found else 1, squeeze=False)[0]
    for axes, name in zip(panels, ("accuracy", "tar"), strict=True) if found else ():
        for end, (label, style, colour) in LENGTHS.items():
            each = [found[tuple(order[:count])] for count in counts.tolist()]
            means = 100 * np.array([np.mean(values(of, "lfw", name + end)) for of in each])
            ends = 100 * np.array([interval(of, name + end) for of in each]).T
            axes.errorbar(
                counts + (0.05 if end else -0.05), means, np.abs(ends - means), fmt=style, marker="o", markersize=4,
                color=colour, capsize=2, linewidth=1.5, elinewidth=0.8, label=label,
            )  # fmt: skip
    last = panels[-1]
    last.plot(counts, [100 * each for each in held], ":", color=COLOURS[0], marker="o", markersize=4,
              label=f"held-out people, FAR {runs.plan.search_far:g}")  # fmt: skip
    panels[0].set_title("accuracy on LFW")
    last.set_title(f"TAR at FAR {runs.plan.far:g} on LFW" if found else "TAR on held-out people")
    for axes in panels:
        axes.set_xticks(counts, [f"{'' if count == 1 else '+ '}{patch}" for count, patch in enumerate(order, start=1)])
        axes.set_ylabel("%")
        axes.grid(alpha=0.2)
    figure.supxlabel("patches, in the order of the choice", fontsize=9)
    figure.legend(*last.get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=8)
    return figure
