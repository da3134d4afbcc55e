"""Methods side by side: rows of ours and of the paper, and differences by a bootstrap over people and seeds."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from sphereface.arrays import Float64
from sphereface.experiments.outcomes import Outcome
from sphereface.experiments.paper.measures import possible
from sphereface.experiments.paper.methods import METHODS
from sphereface.experiments.paper.published import Pairs
from sphereface.experiments.paper.result import Row, Table
from sphereface.experiments.paper.runs import Run, Runs
from sphereface.metrics import Paired
from sphereface.metrics.bootstrap import draws_over_runs, holm, paired_of_draws, two_sided

Found = list[dict[str, Outcome]]  # of each seed: measure -> outcome
NOTHING = "-"


class Difference(NamedTuple):
    """A difference of two methods, and the chance of one as large if there were none."""

    paired: Paired
    p: float  # before any correction

    def text(self, unit: float = 100, digits: int = 2) -> str:
        """`+3.00 [+2.00, +4.00]`, in points."""
        middle, low, high = (f"{unit * value:+.{digits}f}" for value in (self.paired.difference, *self.paired.interval))
        return f"{middle} [{low}, {high}]"


def of_methods(runs: Runs, methods: Sequence[str], **changes: Any) -> dict[str, list[Run]]:
    """The runs of some methods, one for each seed; their settings are searched together."""
    runs.search(methods)
    return {method: seeds_of(runs, method, **changes) for method in methods}


def seeds_of(runs: Runs, method: str, **changes: Any) -> list[Run]:
    """The runs of a method, one for each seed of the setting."""
    return [runs.of(method, seed, **changes) for seed in runs.setting.seeds]


def measured(runs: Runs, wanted: Mapping[str, Sequence[Run]], *measures: str) -> dict[str, Found]:
    """The measures of some lists of runs, by name; trains all that is missing first."""
    there = possible(runs.setting, *measures)
    runs.measured([run for some in wanted.values() for run in some], *there)
    return {name: runs.measured(some, *there) for name, some in wanted.items()}


def values(found: Found, measure: str, name: str) -> list[float]:
    """A statistic of each seed."""
    of = (each[measure] for each in found)
    return [float(each["statistics"][name] if "statistics" in each else each[name]) for each in of]


def cell(found: Found, measure: str, name: str, *, unit: float = 100, form: str = "{:.2f}") -> str:
    """The mean over seeds, with the lowest and the highest if there are several; "-" where it was not measured."""
    if not found or measure not in found[0]:
        return NOTHING
    each = [unit * value for value in values(found, measure, name)]
    mean = form.format(float(np.mean(each)))
    return mean if len(each) == 1 else f"{mean} ({form.format(min(each))} to {form.format(max(each))})"


def difference(ours: Found, theirs: Found, name: str, *, measure: str = "lfw") -> Difference:
    """Ours - theirs of a statistic of LFW, over the same draws of people; the seeds of both are drawn, too."""
    mine, others = (np.array([each[measure]["draws"][name] for each in found]) for found in (ours, theirs))
    draws: Float64 = draws_over_runs(mine, seed=1) - draws_over_runs(others, seed=2)
    mean = float(np.mean(values(ours, measure, name)) - np.mean(values(theirs, measure, name)))
    return Difference(paired_of_draws(mean, draws), two_sided(draws))


def against(found: Mapping[str, Found], ours: str, rivals: Sequence[str], name: str) -> dict[str, Difference]:
    """The differences of one method from its rivals in a statistic, with p-values corrected by Holm."""
    each = {rival: difference(found[ours], found[rival], name) for rival in rivals}
    corrected = holm({rival: one.p for rival, one in each.items()})
    return {rival: one._replace(p=corrected[rival]) for rival, one in each.items()}


def pairs_table(
    name: str, title: str, runs: Runs, found: Mapping[str, Found], published: Mapping[str, Pairs], source: str
) -> Table:
    """LFW and YTF of ours, and below each of ours the paper's."""
    far = runs.plan.far
    rows: list[Row] = []
    for method, of in found.items():
        label = METHODS[method].label
        cells = [cell(of, "lfw", "accuracy"), cell(of, "ytf", "accuracy"), cell(of, "lfw", "tar")]
        rows.append(Row([label, *cells, "ours"], runs.setting.scale))
        if method in published:
            rows.append(Row([label, *pair_cells(published[method]), NOTHING, source], "published"))
    return Table(
        name, title, ("loss", "LFW, %", "YTF, %", f"TAR at FAR {far:g}, %", "source"), rows, note(runs, "lfw", "ytf")
    )


def pair_cells(pairs: Pairs) -> list[str]:
    """Accuracies as the paper prints them."""
    return [
        NOTHING if value is None else form.format(value)
        for value, form in zip(pairs, ("{:.2f}", "{:.1f}"), strict=True)
    ]


def difference_table(
    name: str, title: str, found: Mapping[str, Found], ours: str, rivals: Sequence[str], runs: Runs
) -> tuple[Table, dict[str, Difference]]:
    """One method against its rivals in TAR and accuracy on LFW, and the differences in TAR."""
    tar, accuracy = (against(found, ours, rivals, of) for of in ("tar", "accuracy"))
    rows = [
        Row([METHODS[rival].label, tar[rival].text(), f"{tar[rival].p:.3f}", accuracy[rival].text(),
             f"{accuracy[rival].p:.3f}"], runs.setting.scale)
        for rival in rivals
    ]  # fmt: skip
    head = ("rival", f"TAR at FAR {runs.plan.far:g}, points", "p", "accuracy, points", "p")
    return Table(
        name, title, head, rows,
        "Difference with its 95 % interval, by a bootstrap over test people and seeds; p by Holm over the rivals.",
    ), tar  # fmt: skip


def order_table(runs: Runs, found: Mapping[str, Found], published: Mapping[str, Pairs], source: str) -> Table:
    """Each step of the paper's order by accuracy on LFW, and whether ours has it, too."""
    methods = sorted((name for name in found if name in published), key=lambda name: published[name].lfw or 0)
    rows = []
    for before, after in pairwise(methods):
        theirs = (published[after].lfw or 0) - (published[before].lfw or 0)
        accuracy, tar = (difference(found[after], found[before], name) for name in ("accuracy", "tar"))
        step = f"{METHODS[before].label} < {METHODS[after].label}"
        rows.append(Row([step, f"{theirs:+.2f}", accuracy.text(), tar.text(), agreement(tar)], runs.setting.scale))
    head = ("step", f"accuracy in the {source}", "accuracy, points", f"TAR at FAR {runs.plan.far:g}, points", "agrees")
    return Table(
        "order", "The paper's order, step by step", head, rows,
        "yes, no: the interval of TAR is above or below 0; else the sign alone, which may be chance.",
    )  # fmt: skip


def agreement(found: Difference) -> str:
    """Whether a difference that the paper has above 0 is above 0 here."""
    if found.paired.interval.low > 0:
        return "yes"
    if found.paired.interval.high < 0:
        return "no"
    return "the sign does" if found.paired.difference > 0 else "the sign does not"


def note(runs: Runs, *measures: str) -> str:
    """What the numbers of a table were measured on."""
    setting, c = runs.setting, runs.plan.base
    data = (
        "synthetic faces"
        if not setting.data.faces
        else f"{len(runs.known.people):,} people, {len(runs.known.paths):,} faces"
    )
    absent = [name.upper() for name in measures if name not in possible(setting, *measures)]
    missing = f" Not measured, for its data are not given: {', '.join(absent)}." if absent else ""
    several = f"mean of seeds {', '.join(map(str, setting.seeds))} (lowest to highest)"
    seeds = several if len(setting.seeds) > 1 else f"seed {setting.seeds[0]}"
    return (
        f"Ours: trained on {data}; {c.model} at width {c.width:g} unless said otherwise, {c.steps:,} steps of "
        f"{c.batch}; {seeds}.{missing}"
    )


def order(names: Sequence[str], score: Callable[[str], float]) -> str:
    """Methods from the lowest to the highest score, as a sentence's part."""
    return " < ".join(METHODS[name].label for name in sorted(names, key=score))
