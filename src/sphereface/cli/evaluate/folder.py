"""sphereface evaluate folder: your own people as a test set."""

from dataclasses import asdict
from pathlib import Path

import typer

from sphereface.cli import options
from sphereface.cli.evaluate.output import check_out, tell
from sphereface.cli.evaluate.sources import load_source, naming, require_faces
from sphereface.errors import UserError

PICTURE = "hardest.png"


@options.flat
def folder(
    context: typer.Context,
    *,
    faces: Path | None = typer.Argument(
        None, help="Aligned faces with names, in any format that `data convert` reads; not needed with --features."
    ),
    source: options.Source,
    pairs: int = typer.Option(3000, min=1, help="Most same pairs, and as many different pairs."),
    folds: int = typer.Option(10, min=1, help="Folds; no person is in two of them."),
    rule: options.Rule = "authors",
    all_rules: options.AllRules = False,
    missing: options.Missing = "fail",
    fars: options.Fars = None,
    gallery_photos: int = typer.Option(1, min=1, help="Enrolled photos of each person; the others are probes."),
    fpirs: options.Fpirs = None,
    ranks: int = typer.Option(20, min=1, help="Highest rank of the CMC."),
    splits: int = typer.Option(10, min=1, help="Random choices of enrolled people and photos, averaged."),
    hardest: Path | None = typer.Option(None, help=f"Folder for {PICTURE}: the hardest pairs as a picture."),
    hardest_pairs: int = typer.Option(12, min=0, help="Listed hardest pairs of each kind, same and different."),
    compared: options.Groups,
    rounds: options.Rounds = 1000,
    seed: options.Seed = 0,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Your own people: verification, identification, the hardest pairs, and groups.

    Example: sphereface evaluate folder my-people-112x96 --model model.safetensors --hardest look --groups groups.csv
    """
    from sphereface.cli.progress import bars
    from sphereface.evaluation.protocols.folder import evaluate_folder, write_hardest
    from sphereface.evaluation.rules.identification import FPIRS
    from sphereface.metrics.rates import FARS

    check_out(out)
    require_faces(faces, source.models)
    if hardest is not None and faces is None:
        raise UserError("--hardest without faces to draw; wanted the set that was embedded as FACES")
    if hardest is not None and not hardest_pairs:
        raise UserError("--hardest with --hardest-pairs 0; wanted at least 1 pair to draw")
    loaded = load_source(source)
    with bars() as begin, naming(image=source.features):
        result = evaluate_folder(
            loaded, faces, pairs=pairs, folds=folds, seed=seed, rule=rule, all_rules=all_rules,
            fars=fars or FARS, gallery_photos=gallery_photos, fpirs=fpirs or FPIRS, ranks=ranks, splits=splits,
            hardest=hardest_pairs, missing=missing, rounds=rounds, **asdict(compared),
            progress=begin("reading features" if source.features else "embedding faces"),
        )  # fmt: skip
    text = result.table()
    if hardest is not None and faces is not None:
        hardest.mkdir(parents=True, exist_ok=True)
        text += f"\n\nHardest pairs: {write_hardest(result.hardest, faces, hardest / PICTURE)}"
    title = f"Own people: {result.verification.data}"
    tell(context, result, result.as_dict(), text, title=title, out=out, as_json=as_json, groups=result.groups)
