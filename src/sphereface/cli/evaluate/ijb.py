"""sphereface evaluate ijb: templates of many images, one to one and one to many."""

from pathlib import Path

import typer

from sphereface.choices import IjbName, Repeats
from sphereface.cli.evaluate import options
from sphereface.cli.evaluate.sources import load_source, naming
from sphereface.cli.evaluate.telling import check_out, tell
from sphereface.errors import UserError


def ijb(
    context: typer.Context,
    meta: Path = typer.Argument(help="The folder of lists, as InsightFace gives it out, or the one above it."),
    features: options.Stored = None,
    models: options.Models = None,
    faces: Path | None = typer.Option(None, help="With --model: the folder of aligned faces."),
    name: IjbName = typer.Option("ijbc", "--set", help="Whose lists are read."),
    score_weights: bool = typer.Option(False, "--score-weights", help="Features times their detection scores."),
    unit_length: bool = typer.Option(False, "--unit-length", help="Features at length one before they are averaged."),
    missing: options.Missing = "fail",
    repeats: Repeats = typer.Option(
        "fail", help="Pairs that are listed twice: keep counts them twice, as published lists may have them."
    ),
    fars: options.Fars = None,
    fpirs: options.Fpirs = None,
    ranks: list[int] | None = typer.Option(None, "--at-rank", min=1, help="Report this rank; may be repeated."),
    rounds: options.Rounds = 1000,
    seed: options.Seed = 0,
    engine: options.Engine = "auto",
    feature_rule: options.FeatureRule = None,
    device: options.Device = "cpu",
    threads: options.Threads = None,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Templates of many images: IJB-B or IJB-C, 1:1 and 1:N.

    Stored features are read a few at a time; those of --model are all held in memory.

    Example: sphereface evaluate ijb IJBC/meta --features ijbc-features
    """
    from sphereface.cli.progress import bars
    from sphereface.evaluation.protocols.ijb import FPIRS, RANKS, evaluate_ijb
    from sphereface.evaluation.rules.template_pairs import FARS

    check_out(out)
    if models and faces is None:
        raise UserError("--model without --faces; wanted the folder of aligned faces, or --features that embed wrote")
    source = load_source(models, features, engine, feature_rule, device, threads)
    with bars() as begin, naming(image=features):
        result = evaluate_ijb(
            source, meta, name, faces=faces, missing=missing, repeats=repeats,
            score_weights=score_weights, unit_length=unit_length, fars=fars or FARS, fpirs=fpirs or FPIRS,
            ranks=ranks or RANKS, rounds=rounds, seed=seed,
            progress=begin("reading features" if features else "embedding faces"),
        )  # fmt: skip
    title = f"Templates: {result.name}"
    tell(context, result, result.as_dict(), result.table(), title=title, out=out, as_json=as_json)
