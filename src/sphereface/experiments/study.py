"""The demo's comparison as a study: learning rates searched on held-out people, three seeds, paired intervals."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sphereface.data.synthetic.people import VERSION
from sphereface.experiments import openset, tables
from sphereface.experiments.loop import extract
from sphereface.experiments.openset import CONTENDERS, FAR, FOLDS, NET, RATES, Measured, Scale
from sphereface.metrics import AllPairs, Paired, PeopleBootstrap
from sphereface.progress import Say

SEEDS = (0, 1, 2)
STATISTICS = ("accuracy", "tar", "fisher")


class Study(NamedTuple):
    """All results in results/demo.md."""

    scale: Scale
    seeds: Sequence[int]
    search: dict[str, dict[float, float]]  # contender -> learning rate -> TAR on held-out people
    chosen: dict[str, float]
    runs: dict[str, list[dict[str, float]]]  # contender -> one row a seed
    against_softmax: dict[str, dict[str, Paired]]  # contender -> statistic -> difference

    def as_json(self) -> dict[str, Any]:
        """The result as a JSON object, as in results/demo.json."""
        return {
            "command": "sphereface reproduce synthetic --out results",
            "synthetic_version": VERSION,
            "scale": self.scale.__dict__,
            "net": {"name": "sphereface4", "features": 128, **NET},
            "pairs": self.scale.pairs,
            "folds": FOLDS,
            "far": FAR,
            "seeds": list(self.seeds),
            "search": tables.search_json(self.search),
            "chosen": self.chosen,
            "runs": self.runs,
            "against_softmax": {name: tables.differences_json(by) for name, by in self.against_softmax.items()},
        }


def run_study(scale: Scale, *, seeds: Sequence[int] = SEEDS, workers: int, rounds: int = 500, say: Say) -> Study:
    """Search each contender's learning rate on held-out people, train it with every seed, and compare with softmax."""
    say("drawing faces")
    sets = openset.draw_sets(scale, workers=workers)
    held_out = openset.draw(openset.HELD_OUT, scale.held_out_people, scale.test_photos, workers=workers)
    search: dict[str, dict[float, float]] = {}
    chosen: dict[str, float] = {}
    measured: dict[str, list[Measured]] = {}
    for contender in CONTENDERS:
        found, first = {}, {}
        for rate in RATES:
            net, _ = openset.train(contender, sets.train, scale, seed=seeds[0], lr=rate)
            found[rate] = AllPairs(extract(net, held_out.images), held_out.people).tar_at_far(FAR)
            first[rate] = openset.measure(net, sets)  # the run of the first seed, if this rate is chosen
            say(f"{contender.name}, rate {rate:g}: TAR {found[rate]:.4f} on held-out people")
        rate = max(found, key=found.__getitem__)
        search[contender.name], chosen[contender.name] = found, rate
        measured[contender.name] = [first[rate]]
        for seed in seeds[1:]:
            net, _ = openset.train(contender, sets.train, scale, seed=seed, lr=rate)
            measured[contender.name].append(openset.measure(net, sets))
        say(f"{contender.name}: accuracies {[round(each.accuracy(), 4) for each in measured[contender.name]]}")
    say("bootstrap over people")
    against = compare_with_softmax(measured, PeopleBootstrap(scale.test_people, rounds=rounds))
    rows = {
        name: [
            {"accuracy": each.accuracy(), "tar": each.tar(), "fisher": each.fisher(), "rank_1": each.rank_1()}
            for each in runs
        ]
        for name, runs in measured.items()
    }
    return Study(scale, seeds, search, chosen, rows, against)


def compare_with_softmax(
    measured: dict[str, list[Measured]], bootstrap: PeopleBootstrap
) -> dict[str, dict[str, Paired]]:
    """Each contender's difference from softmax in every statistic, all on the same draws of people."""
    return {
        name: tables.paired_differences(runs, measured["softmax"], STATISTICS, bootstrap)
        for name, runs in measured.items()
        if name != "softmax"
    }


def as_markdown(study: Study) -> str:
    """The study as Markdown, as in results/demo.md."""
    scale = study.scale
    head = [
        "# A-Softmax against softmax on synthetic faces",
        "Command: `sphereface reproduce synthetic --out results`. "
        f"Synthetic faces version {VERSION}; network sphereface4, width {NET['width']}, batch norm, 128 features.",
        f"Every loss has the same network, the same {scale.people} people x {scale.photos} photos, the same batches "
        f"and {scale.steps} steps. Tested on {scale.test_people} other people: {scale.pairs:,} pairs in {FOLDS} "
        f"folds by person (accuracy), all pairs (TAR at FAR {FAR:g}), {scale.distractors:,} distractors (rank 1).",
    ]
    return "\n\n".join([*head, *_rates(study), *_test(study), *_differences(study)]) + "\n"


def _rates(study: Study) -> list[str]:
    return [
        "## Learning rate",
        f"TAR at FAR {FAR:g} on {study.scale.held_out_people} held-out people, neither of training nor of the "
        f"test, seed {study.seeds[0]}; the best of the same three is taken.",
        tables.rate_table(study.search, study.chosen, RATES, {name: name for name in study.search}),
    ]


def _test(study: Study) -> list[str]:
    forms = {"accuracy": "{:.2%}", "tar": "{:.2%}", "fisher": "{:.3f}", "rank_1": "{:.2%}"}
    return [
        f"## Test, mean over seeds {', '.join(str(seed) for seed in study.seeds)} (each seed)",
        tables.table(
            ["loss", "accuracy", f"TAR at FAR {FAR:g}", "angular Fisher score", "rank 1"],
            [
                [name, *(tables.mean_and_each([row[column] for row in rows], form) for column, form in forms.items())]
                for name, rows in study.runs.items()
            ],
        ),
    ]


def _differences(study: Study) -> list[str]:
    return [
        "## Difference from softmax",
        "Mean over seeds of the paired difference; standard error from a bootstrap over the test people, the same "
        "draws for both; in brackets the 95 % interval, then the difference in standard errors. Training seeds are "
        "averaged, not resampled.",
        tables.table(
            ["loss", "accuracy", f"TAR at FAR {FAR:g}", "angular Fisher score"],
            [
                [name, *(tables.difference_text(by[statistic], **_unit(statistic)) for statistic in STATISTICS)]
                for name, by in study.against_softmax.items()
            ],
        ),
    ]


def _unit(statistic: str) -> dict[str, Any]:
    return {"unit": 1, "form": "{:+.3f}"} if statistic == "fisher" else {}
