"""Options that several verbs share: each has one name and one help text.

Options that belong together are a record, which a verb takes as one parameter; `flat` lists its fields for typer.
"""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from sphereface import choices

Rates = list[float] | None
Files = list[Path] | None
Names = list[str] | None
CORES = os.cpu_count() or 1
MODEL = "A name of `models list`, auto, a .safetensors of ours, any .onnx with a card, or https://...#sha256=..."
STORED = "A folder that `embed` wrote, instead of --model."
FEATURE_RULE = "Image and mirror image concatenated (the paper) or summed, or image alone; default: the card's."
READERS = "Threads that read ahead; change speed only."


def fetched(context: typer.Context, param: typer.CallbackParam, given: Any) -> Any:
    """A model option as given; a URL in it is downloaded here, with a progress bar."""
    for each in given if isinstance(given, list) else [given]:
        if "://" in str(each) and not context.resilient_parsing:  # no download to complete a command in the shell
            from sphereface.cli.progress import bars
            from sphereface.zoo.finding import find_url

            with bars() as begin:
                find_url(str(each), begin=begin)
    return [] if given is None and param.multiple else given  # None is no list for typer 0.19


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Batch = Annotated[int, typer.Option(min=1, help="Number of faces in a batch.")]
Root = Annotated[Path | None, typer.Option(help="Folder that the paths of a list are relative to.")]

# Verification and identification.
Rule = Annotated[choices.PairRule, typer.Option(help="Rule for mean, threshold and ties.")]
AllRules = Annotated[bool, typer.Option("--all-rules", help="Report all rules side by side.")]
Missing = Annotated[choices.Missing, typer.Option(help="Missing or unreadable images: skip leaves out and lists them.")]
Fars = Annotated[Rates, typer.Option("--at-far", metavar="RATE", help="FAR at which to report TAR; may be repeated.")]
Fpirs = Annotated[Rates, typer.Option("--at-fpir", metavar="RATE", help="FPIR of open-set rates; may be repeated.")]
Rounds = Annotated[int, typer.Option(min=2, help="Rounds of the bootstrap over people, for 95 % intervals.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random draws.")]
Out = Annotated[Path | None, typer.Option(help="Folder for result.json and report.html.")]

# Features: of a model, or stored.
Models = Annotated[
    Names, typer.Option("--model", metavar="NAME|FILE", help=f"{MODEL} Repeated: an ensemble.", callback=fetched)
]
Stored = Annotated[Files, typer.Option("--features", metavar="FOLDER", help=f"{STORED} Repeated: an ensemble.")]
Engine = Annotated[choices.Engine, typer.Option(help="Engine; auto: onnxruntime on cpu, torch on other devices.")]
FeatureRule = Annotated[choices.FeatureRule | None, typer.Option(help=FEATURE_RULE)]
Device = Annotated[str, typer.Option(help="Device: cpu, cuda, cuda:1.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of the network; default: one a core.")]

# Groups of people.
Table = Annotated[Path | None, typer.Option(help="CSV with `person` or `path` and a column for each attribute.")]
GroupFar = Annotated[float, typer.Option("--far", help="False match rate at the common threshold of all --groups.")]
Threshold = Annotated[
    float | None, typer.Option(help="Threshold for --groups instead of --far, such as a calibrated one.")
]
Aligned = Annotated[Path | None, typer.Option(help="Folder that `data align` wrote, to report missed faces.")]
Small = Annotated[choices.Small, typer.Option(help="Too small groups: refuse is an error, leave-out lists them.")]


@dataclass(frozen=True)
class Source:
    """Options of the features to score: models, or folders of stored features."""

    models: Models = None
    features: Stored = None
    engine: Engine = "auto"
    feature_rule: FeatureRule = None
    device: Device = "cpu"
    threads: Threads = None


@dataclass(frozen=True)
class Groups:
    """Options of a comparison of groups of people."""

    groups: Table = None
    far: GroupFar = 1e-3
    threshold: Threshold = None
    aligned: Aligned = None
    small: Small = "refuse"


def flat(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb for typer: each parameter that is a record becomes the record's fields."""
    signature, kind = inspect.signature(verb), inspect.Parameter.KEYWORD_ONLY
    records: dict[str, Any] = {
        name: each.annotation for name, each in signature.parameters.items() if is_dataclass(each.annotation)
    }

    @wraps(verb)
    def run(**given: Any) -> None:
        for name, record in records.items():
            given[name] = record(**{field.name: given.pop(field.name) for field in fields(record)})
        verb(**given)

    parameters = []
    for name, parameter in signature.parameters.items():
        if name not in records:
            parameters.append(parameter.replace(kind=kind))
        else:
            parameters += [
                inspect.Parameter(field.name, kind, default=field.default, annotation=field.type)
                for field in fields(records[name])
            ]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run
