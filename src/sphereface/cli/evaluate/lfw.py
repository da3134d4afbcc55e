"""sphereface evaluate lfw: pairs of faces, from a folder with lists or a .bin."""

from dataclasses import asdict
from pathlib import Path

import typer

from sphereface.cli import options
from sphereface.cli.evaluate.output import check_out, tell
from sphereface.cli.evaluate.sources import load_source, naming, require_faces
from sphereface.errors import UserError


@options.flat
def lfw(
    context: typer.Context,
    *,
    faces: Path | None = typer.Argument(None, help="Aligned faces, or a .bin file; not needed with --features."),
    source: options.Source,
    pairs: list[Path] | None = typer.Option(
        None, help="pairs.txt, or the folder of LFW's lists; default: FACES. For view 1 repeated: DevTrain, DevTest."
    ),
    view: int = typer.Option(2, min=1, max=2, help="2: ten folds, to report; 1: DevTrain to DevTest, to develop."),
    compared: options.Groups,
    rule: options.Rule = "authors",
    all_rules: options.AllRules = False,
    missing: options.Missing = "fail",
    fars: options.Fars = None,
    rounds: options.Rounds = 1000,
    seed: options.Seed = 0,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Pairs of faces: LFW, and CFP-FP, AgeDB-30, CALFW, CPLFW or RFW as .bin files.

    --groups compares groups among all faces of the folder, listed in pairs or not.

    Example: sphereface evaluate lfw lfw-112x96 --pairs pairs.txt --model model.safetensors --all-rules
    """
    from sphereface.cli.progress import bars
    from sphereface.evaluation.groups.compare import evaluate_groups
    from sphereface.evaluation.protocols.lfw import evaluate_lfw
    from sphereface.metrics.rates import FARS

    check_out(out)
    require_faces(faces, source.models)
    if compared.groups is not None and faces is not None and faces.suffix.lower() == ".bin":
        raise UserError(f"--groups with {faces}, which has no names of people; wanted a folder with a name for each")
    if pairs is not None and len(pairs) > 2:
        raise UserError(f"{len(pairs)} lists in --pairs; wanted one for view 2, DevTrain and DevTest for view 1")
    loaded = load_source(source)
    report, verb = None, "reading features" if source.features else "embedding faces"
    with bars() as begin, naming(image=source.features):
        if compared.groups is not None:  # first, so that errors of the table come before the long part
            report = evaluate_groups(
                loaded, faces, **asdict(compared), missing=missing, rounds=rounds, seed=seed,
                progress=begin(f"{verb} for groups"),
            )  # fmt: skip
        result = evaluate_lfw(
            loaded, faces, None if not pairs else pairs[0] if len(pairs) == 1 else (pairs[0], pairs[1]),
            view=1 if view == 1 else 2, rule=rule, all_rules=all_rules, missing=missing,
            fars=fars or FARS, rounds=rounds, seed=seed, progress=begin(verb),
        )  # fmt: skip
    payload = {**result.as_dict(), "groups": None if report is None else report.as_dict()}
    text = result.table() + ("" if report is None else f"\n\n{report.table()}")
    tell(context, result, payload, text, title=f"Pairs: {result.data}", out=out, as_json=as_json, groups=report)
