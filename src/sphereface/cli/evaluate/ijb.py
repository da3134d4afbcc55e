"""sphereface evaluate ijb: templates of many images, one to one and one to many."""

from pathlib import Path

import typer

from sphereface.choices import IjbName, Repeats
from sphereface.cli import options
from sphereface.cli.evaluate.output import check_out, tell
from sphereface.cli.evaluate.sources import load_source, naming
from sphereface.errors import UserError


@options.flat
def ijb(
    context: typer.Context,
    *,
    meta: Path = typer.Argument(help="Folder of the lists, as published by InsightFace, or its parent folder."),
    source: options.Source,
    faces: Path | None = typer.Option(None, help="Folder of aligned faces, for --model."),
    name: IjbName = typer.Option("ijbc", "--set", help="Set of the lists."),
    score_weights: bool = typer.Option(False, "--score-weights", help="Multiply features by their detection scores."),
    unit_length: bool = typer.Option(False, "--unit-length", help="Normalise features before they are averaged."),
    missing: options.Missing = "fail",
    repeats: Repeats = typer.Option(
        "fail", help="Pairs that are listed twice: keep counts them twice, as in some published lists."
    ),
    fars: options.Fars = None,
    fpirs: options.Fpirs = None,
    ranks: list[int] | None = typer.Option(None, "--at-rank", min=1, help="Rank to report; may be repeated."),
    rounds: options.Rounds = 1000,
    seed: options.Seed = 0,
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
    if source.models and faces is None:
        raise UserError("--model without --faces; wanted the folder of aligned faces, or --features that embed wrote")
    loaded = load_source(source)
    with bars() as begin, naming(image=source.features):
        result = evaluate_ijb(
            loaded, meta, name, faces=faces, missing=missing, repeats=repeats,
            score_weights=score_weights, unit_length=unit_length, fars=fars or FARS, fpirs=fpirs or FPIRS,
            ranks=ranks or RANKS, rounds=rounds, seed=seed,
            progress=begin("reading features" if source.features else "embedding faces"),
        )  # fmt: skip
    title = f"Templates: {result.name}"
    tell(context, result, result.as_dict(), result.table(), title=title, out=out, as_json=as_json)
