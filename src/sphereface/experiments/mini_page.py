"""The page results/mini.md, from the parts that are done."""

from collections.abc import Mapping, Sequence
from typing import Any

from sphereface.experiments.lfw_dev import IN_LFW
from sphereface.experiments.tables import mean_and_each, table
from sphereface.experiments.view1 import FAR

COMMAND = "sphereface reproduce mini --faces FACES --out results"
RULE = ("weight of labels", "class weights", "weight of similarities", "batch norm")
HEAD = ("accuracy on DevTest", f"TAR at FAR {FAR:g}")
TESTED = (
    "Tested on view 1 of LFW, aligned by `data align`; accuracy is on DevTest, mean and threshold from DevTrain; "
    f"TAR at FAR {FAR:g} is over all pairs of these faces."
)
INTERVALS = (
    "Differences are in points, with their 95 % interval from a bootstrap over the test people (the same draws for "
    "both). Training seeds are averaged, not resampled."
)


def as_markdown(parts: Mapping[str, Any]) -> str:
    """The parts as Markdown: students, model, labels."""
    pages = {"model": _model, "students": _students, "labels": _labels}
    lines = [
        "# The model in the box",
        f"Command: `{COMMAND}`; a part alone with `--part {'|'.join(pages)}`. {', '.join(IN_LFW)} of `train` are left "
        "out: `data audit` found them in LFW (results/audit.md). No image of LFW is in training.",
        *(line for name, page in pages.items() if name in parts for line in page(parts[name])),
    ]
    return "\n\n".join(lines) + "\n"


def _model(found: Mapping[str, Any]) -> list[str]:
    config, time, trainings = found["config"], found["time"], found["trainings"]
    steps, hours, sittings = (sum(each[of] for each in trainings) for of in ("steps", "hours", "sittings"))
    rows = [[name, *(f"{by[of]:.2%}" for of in ("accuracy", "tar"))] for name, by in found["statistics"].items()]
    return [
        "## The model against its teacher",
        f"{config['model']} at width {config['width']:g}, {config['features']} features, batch norm; recipe `mini`: "
        f"{steps:,} steps of {config['batch']} of {found['faces']:,} faces, {config['teaching']['views']} views of "
        f"each {_in_each(trainings)}, {hours:.1f} hours in {_times(sittings, 'sitting')}. "
        f"A face takes {time:.2f} x the teacher's time on one core. The file has {found['size'] / 1e6:.1f} MB. "
        f"Mean cosine to the teacher's features of the test faces: {found['agreement']:.3f}.",
        TESTED,
        table(["model", *HEAD], [*rows, ["difference", *_differences(found["difference"])]]),
        INTERVALS,
    ]


def _students(found: Mapping[str, Any]) -> list[str]:
    plan = found["plan"]
    first = plan["networks"][0]
    networks = [
        [each["model"], f"{each['width']:g}", f"{each['tar']:.2%}", f"{each['time']:.2f}"] for each in found["networks"]
    ]
    again = {_rule(each): each["tar"] for each in found["long_rules"]}
    rates = [[each["optimizer"], f"{each['lr']:g}", f"{each['tar']:.2%}"] for each in found["rates"]]
    rules = [
        [f"{each['labels']:g}", each["class_weights"], f"{each['similarity']:g}", each["norm"], f"{each['tar']:.2%}",
         f"{long:.2%}" if (long := again.get(_rule(each))) else ""] for each in found["rules"]
    ]  # fmt: skip
    return [
        "## Choice of the student",
        f"Runs of {plan['steps']:,} steps with the unchanged view alone; TAR at FAR {FAR:g} over all pairs of "
        f"{plan['people']} people held out of training. The teacher has {found['teacher']:.2%}. Learning rate and rule "
        f"of teaching are searched with {first[0]} at width {first[1]:g}; the best rules without and with labels run "
        f"again for {plan['long_steps']:,} steps. The networks are compared at the recipe's own learning rate, "
        f"{found['lr']:g}, and rule; no other rate was tried with the deeper ones.",
        table(["optimizer", "learning rate", "TAR"], rates),
        table([*RULE, "TAR", f"TAR after {plan['long_steps']:,} steps"], rules),
        table(["network", "width", "TAR", "time of a face, x teacher's"], networks),
    ]


def _rule(each: Mapping[str, Any]) -> tuple[Any, ...]:
    return each["labels"], each["class_weights"], each["similarity"], each["norm"]


def _labels(found: Mapping[str, Any]) -> list[str]:
    plan, people, faces = found["plan"], found["people"], found["faces"]
    searched = [
        [arm, *(f"{tar:.2%}" for tar in by.values()), f"{max(by, key=by.__getitem__)}"]
        for arm, by in found["search"].items()
    ]
    rows = [
        [arm, *(mean_and_each([run[of] for run in runs]) for of in ("accuracy", "tar"))]
        for arm, runs in found["runs"].items()
    ]
    return [
        "## Labels alone",
        f"Recipe `small` at width {plan['width']:g}, without a teacher, {plan['steps']:,} steps: few are "
        f"{people['few']:,} people ({faces['few']:,} faces), many {people['many']:,} ({faces['many']:,}). {TESTED}",
        f"Learning rate: TAR at FAR 0.01 on {plan['held_out']} people held out, {plan['search_steps']:,} steps.",
        table(["loss", *(f"{rate:g}" for rate in plan["rates"]), "taken"], searched),
        f"Test, mean over seeds {', '.join(map(str, plan['seeds']))} (each seed):",
        table(
            ["loss", *HEAD],
            [
                *rows,
                ["A-Softmax, many - few", *_differences(found["more_people"])],
                ["many, A-Softmax - softmax", *_differences(found["margin"])],
            ],
        ),
        INTERVALS,
    ]


def _differences(by: Mapping[str, Any]) -> list[str]:
    return [
        "{:+.2f} [{:+.2f}, {:+.2f}]".format(*(100 * value for value in (each["difference"], *each["interval"])))
        for each in (by["accuracy"], by["tar"])
    ]


def _in_each(trainings: Sequence[Mapping[str, Any]]) -> str:
    """The seeds of the runs, each of which has other views."""
    seeds = ", ".join(str(each["seed"]) for each in trainings)
    return f"(seed {seeds})" if len(trainings) == 1 else f"in each of {len(trainings)} runs (seeds {seeds})"


def _times(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
