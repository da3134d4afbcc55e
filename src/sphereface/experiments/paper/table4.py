"""Table 4: all losses that the paper compares, with one network and one set of faces, on LFW and YTF."""

from sphereface.experiments.paper.comparison import (
    NOTHING,
    difference_table,
    measured,
    of_methods,
    order,
    order_table,
    pair_cells,
    pairs_table,
    values,
)
from sphereface.experiments.paper.methods import METHODS, RIVALS
from sphereface.experiments.paper.published import SYSTEMS, TABLE_4
from sphereface.experiments.paper.result import Result, Row, Table
from sphereface.experiments.paper.runs import Run, Runs, runs_of
from sphereface.experiments.paper.setting import Setting

SHOWN = ("softmax", "modified_softmax", *RIVALS[1:])  # with modified softmax, which the paper has in Table 3


def needed(runs: Runs) -> dict[str, list[Run]]:
    """The runs of this table, by method."""
    return of_methods(runs, SHOWN)


def run(setting: Setting) -> Result:
    """Train with every loss, each at its best learning rate, and compare A-Softmax with all others."""
    runs = runs_of(setting)
    found = measured(runs, needed(runs), "lfw", "ytf")
    differences, tar = difference_table(
        "differences", "A-Softmax m = 4 against its rivals", found, "a_softmax", SHOWN[:-1], runs
    )
    means = {method: sum(values(of, "lfw", "tar")) for method, of in found.items()}
    ahead = [METHODS[rival].label for rival, each in tar.items() if each.paired.difference > 0 and each.p < 0.05]
    behind = [METHODS[rival].label for rival, each in tar.items() if each.paired.difference < 0 and each.p < 0.05]
    published = order(RIVALS, lambda method: TABLE_4[method].lfw or 0)
    return Result(
        "table4",
        "all losses on LFW and YTF",
        setting.scale,
        findings=[
            f"By TAR on LFW: {order(SHOWN, means.__getitem__)}. The paper, by accuracy: {published}.",
            f"A-Softmax m = 4 is ahead of {', '.join(ahead) or 'none'} and behind {', '.join(behind) or 'none'} "
            "in TAR on LFW (p < 0.05 after Holm's correction).",
        ],
        tables=[
            pairs_table("accuracy", "All losses", runs, found, TABLE_4, "paper, Table 4"),
            order_table(runs, found, TABLE_4, "paper's Table 4"),
            differences,
            searches(runs),
            systems(),
        ],
        numbers={"p": {rival: each.p for rival, each in tar.items()}},
    )


def searches(runs: Runs) -> Table:
    """The settings of each loss: learning rate and weight, searched on people held out of training."""
    rows = []
    for method in SHOWN:
        of = METHODS[method]
        rates = runs.rate_search(of)
        weights = runs.weight_search(of) if len(runs.weights(of)) > 1 else {}
        shown = [f"{rate:g}: {tar:.2%}" if len(rates) > 1 else f"{rate:g}" for rate, tar in rates.items()]
        rows.append(
            Row([of.label, ", ".join(shown), f"{runs.best_rate(of):g}",
                 ", ".join(f"{weight:g}: {tar:.2%}" for weight, tar in weights.items()) or NOTHING,
                 f"{max(weights, key=weights.__getitem__):g}" if weights else NOTHING], runs.setting.scale)
        )  # fmt: skip
    plan = runs.plan
    about = (
        f"TAR at FAR {plan.search_far:g} on {plan.held_out} people held out of training, {plan.search_steps:,} steps; "
        f"weights of the second loss: the mean of {plan.folds} folds of people."
        if len(plan.rates) > 1
        else "One learning rate for all losses, and the weights of their definitions: no search at this scale."
    )
    head = ("loss", "TAR by learning rate", "taken", "TAR by weight", "taken ")
    return Table("searches", "Settings searched on held-out people", head, rows, about)


def systems() -> Table:
    """The systems of others in the paper's table."""
    rows = [Row([each.name, str(each.models), each.data, *pair_cells(each.pairs)], "published") for each in SYSTEMS]
    head = ("system", "models", "training data", "LFW, %", "YTF, %")
    return Table("systems", "Systems of others, as the paper's Table 4 prints them (*: private data)", head, rows)
