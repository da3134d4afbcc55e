"""Table 3: effect of m: softmax, and A-Softmax with m = 1 (modified softmax) to 4, on LFW and YTF."""

from sphereface.experiments.paper.comparison import (
    cell,
    difference_table,
    measured,
    of_methods,
    order,
    order_table,
    pairs_table,
    values,
)
from sphereface.experiments.paper.methods import EFFECT_OF_M
from sphereface.experiments.paper.published import TABLE_3
from sphereface.experiments.paper.result import Result
from sphereface.experiments.paper.runs import Run, Runs, runs_of
from sphereface.experiments.paper.setting import Setting


def needed(runs: Runs) -> dict[str, list[Run]]:
    """The runs of this table, by method."""
    return of_methods(runs, EFFECT_OF_M)


def run(setting: Setting) -> Result:
    """Train with softmax and each m, and compare m = 4 with all others."""
    runs = runs_of(setting)
    found = measured(runs, needed(runs), "lfw", "ytf")
    rivals = EFFECT_OF_M[:-1]
    differences, tar = difference_table(
        "differences", "A-Softmax m = 4 against the others", found, "a_softmax", rivals, runs
    )
    means = {method: sum(values(found[method], "lfw", "tar")) for method in EFFECT_OF_M}
    published = order(EFFECT_OF_M, lambda method: TABLE_3[method].lfw or 0)
    return Result(
        "table3",
        "effect of m",
        setting.scale,
        findings=[
            f"By TAR on LFW: {order(EFFECT_OF_M, means.__getitem__)}. The paper, by accuracy: {published}.",
            f"A-Softmax m = 4 has {cell(found['a_softmax'], 'lfw', 'tar')} % TAR, softmax "
            f"{cell(found['softmax'], 'lfw', 'tar')} %: {tar['softmax'].text()} points.",
        ],
        tables=[
            pairs_table("accuracy", "Softmax, and A-Softmax by m", runs, found, TABLE_3, "paper, Table 3"),
            order_table(runs, found, TABLE_3, "paper's Table 3"), differences
        ],
        numbers={"p": {rival: each.p for rival, each in tar.items()}},
    )  # fmt: skip
