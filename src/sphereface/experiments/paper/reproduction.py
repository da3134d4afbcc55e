"""The page docs/reproduction.md: what was found at each scale, and how to run the paper's own sizes.

Every number comes from the results, from `published`, or from a formula.
"""

from collections.abc import Iterable
from pathlib import Path

from sphereface.experiments.paper.catalogue import CATALOGUE
from sphereface.experiments.paper.dry import cost
from sphereface.experiments.paper.methods import EFFECT_OF_M, METHODS, RIVALS
from sphereface.experiments.paper.plans import PLANS
from sphereface.experiments.paper.result import NOT_VERIFIED, Result, read_result
from sphereface.experiments.paper.result import RESULT as FILE
from sphereface.experiments.tables import table

CASIA = 10_572  # people of CASIA-WebFace without the three of the test sets
GPU = 15e12  # operations a second, assumed of one GPU in float32
SHOWN = ("table3", "table4", "app-ablation", "app-depth", "app-norms", "app-biases", "app-annealing", "app-mnist",
         "app-relu", "app-bias", "fig-depth", "app-ensemble")  # fmt: skip
HEAD = """# Reproduction of the paper

`sphereface reproduce list` names every table and figure of the paper; `sphereface reproduce ID` runs one, `sphereface
reproduce all` all of them, with one report. Three scales:

| scale | data and networks | time |
|---|---|---|
| tiny | synthetic faces, scikit-learn's digits, narrow networks, few steps: a check that all of it runs | 25 minutes |
| small | faces and MNIST that you give, width 0.5, each loss at its best learning rate | hours on 2 cores |
| paper | CASIA-WebFace, 64 layers, 28,000 steps | days on a GPU |

Training runs are shared between experiments and known by a hash of their settings and faces. The outcome of each is a
file in the folder of results as soon as the run ends, so the same command continues in another sitting, inside of a
run, too. `python -m sphereface.experiments.paper.reproduction` makes this page from `results/reproduction`; its tables
stand there as CSV, its figures as PNG and PDF.
"""
PAPERS_RUN = """## The paper's run

Needed: CASIA-WebFace, LFW with `pairs.txt`, and, for the columns that want them, YouTube Faces with `splits.txt` and
MegaFace with its devkit's lists. Their owners give them for research; nothing is downloaded from here.

    # Photos to faces; InsightFace's faces_webface_112x112 (train.rec) is aligned already
    sphereface data align CASIA-WebFace casia
    sphereface data align lfw lfw-112x96
    sphereface data align YouTubeFaces ytf-112x96

    # Are the data whole, what would run, and at what cost? 10,572 people are wanted: 0166921, 1056413 and 1193098 are
    # in the test sets and are left out
    sphereface reproduce table4 --scale paper --dry-run --faces casia --lfw lfw-112x96 --ytf ytf-112x96

    # Table 4 on one GPU; the same command continues
    sphereface reproduce table4 --scale paper --faces casia --lfw lfw-112x96 --ytf ytf-112x96 --out paper --jobs 1

    # On eight: eight runs at a time, each on a GPU of its own
    sphereface reproduce table4 --scale paper --faces casia --lfw lfw-112x96 --ytf ytf-112x96 --out paper --jobs 8
    sphereface reproduce table5 --scale paper --faces casia --megaface megaface --out paper --jobs 8

`--faces train.rec` takes the record file instead of the folder. Its people have numbers for names, so the three people
of the test sets cannot be found by name: InsightFace's file has 10,572 people, without them.
"""


def build(results: Path) -> str:
    """The whole page, from a folder of results."""
    found = [read_result(results / name) for name in CATALOGUE if (results / name / FILE).is_file()]
    some = [each for each in found if each.scale == "small"]
    parts = [HEAD, *overview(some), PAPERS_RUN, costs(), *(section(each) for each in some if each.id in SHOWN)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def overview(results: Iterable[Result]) -> list[str]:
    """What each experiment found at the scale small, and the state of the paper's scale."""
    rows = [[each.id, each.scale, " ".join(each.findings), NOT_VERIFIED] for each in results]
    if not rows:
        return ["## What was found", "No result at the scale small yet."]
    return ["## What was found", table(("ID", "scale", "found", "the paper's scale"), rows)]


def section(result: Result) -> str:
    """The tables of one experiment."""
    tables = [each.markdown() for each in result.tables if each.name != "systems"]
    return "\n\n".join([f"## {result.id}: {result.title}", *result.findings, *tables])


def costs() -> str:
    """Operations, hours and disk of the paper's runs, from formulas."""
    plan = PLANS["paper"]
    losses = dict.fromkeys((*EFFECT_OF_M, *RIVALS))
    whole = [cost(METHODS[name].config(plan.base), CASIA) for name in losses]
    searches = [
        cost(METHODS[name].config(plan.base).with_steps(plan.search_steps), CASIA - plan.held_out)
        for name, weights in plan.weights.items() for _ in range(len(weights) * plan.folds)
    ]  # fmt: skip
    depths = [
        cost(METHODS[name].config(plan.at_depth(layers).base), CASIA)
        for layers in plan.depths[:-1] for name in ("softmax", "a_softmax")
    ]  # fmt: skip
    rows = []
    for name, each in {
        "losses of Tables 3, 4 and 5": whole, "search of weights": searches, "depths of Figure 6": depths,
        "all": [*whole, *searches, *depths],
    }.items():  # fmt: skip
        operations = sum(one["petaflop"] for one in each)
        hours = operations * 1e15 / GPU / 3600
        rows.append([
            name, f"{len(each)}", f"{operations:,.0f}", f"{hours:,.0f}", f"{hours / 8:,.0f}",
            f"{sum(one['disk_gigabytes'] for one in each):,.0f}",
        ])  # fmt: skip
    head = ("runs", "number", "10^15 operations", "hours, 1 GPU", "hours, 8 GPUs", "checkpoints, GB")
    return (
        f"{table(head, rows)}\n\n"
        f"Operations: two for each multiply-add, three forward passes for a step. Hours assume {GPU / 1e12:g} x 10^12 "
        "operations a second and GPU, in float32: an assumption, for no GPU was at hand. A batch of "
        f"{plan.base.batch} faces of the 64-layer network wants some 7 GB of memory, for activations above all "
        "(estimated); `accumulate` in a recipe halves it. Each run writes its last "
        f"{plan.base.keep} checkpoints. A resumed command continues inside of a run."
    )


def main() -> None:
    """Write docs/reproduction.md."""
    Path("docs/reproduction.md").write_text(build(Path("results/reproduction")))


if __name__ == "__main__":
    main()
