"""sphereface evaluate lfw: pairs of faces, from a folder with lists or a .bin."""

from pathlib import Path

import typer

from sphereface.cli.evaluate import options
from sphereface.cli.evaluate.sources import load_source, naming, require_faces
from sphereface.cli.evaluate.telling import check_out, tell
from sphereface.errors import UserError


def lfw(
    context: typer.Context,
    faces: Path | None = typer.Argument(
        None, help="Aligned faces in any format that `data convert` reads, or a .bin; not needed with --features."
    ),
    models: options.Models = None,
    features: options.Stored = None,
    pairs: list[Path] | None = typer.Option(
        None, help="pairs.txt, or the folder of LFW's lists, else FACES; for view 1 repeated: DevTrain, DevTest."
    ),
    view: int = typer.Option(2, min=1, max=2, help="2: ten folds, to report; 1: DevTrain to DevTest, to develop."),
    rule: options.Rule = "authors",
    all_rules: options.AllRules = False,
    missing: options.Missing = "fail",
    fars: options.Fars = None,
    groups: options.Groups = None,
    far: options.GroupFar = 1e-3,
    threshold: options.Threshold = None,
    aligned: options.Aligned = None,
    small: options.Small = "refuse",
    rounds: options.Rounds = 1000,
    seed: options.Seed = 0,
    engine: options.Engine = "auto",
    feature_rule: options.FeatureRule = None,
    device: options.Device = "cpu",
    threads: options.Threads = None,
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
    require_faces(faces, models)
    if groups is not None and faces is not None and faces.suffix.lower() == ".bin":
        raise UserError(f"{faces} names nobody, so --groups has nobody to sort; wanted a folder with a name for each")
    if pairs is not None and len(pairs) > 2:
        raise UserError(f"{len(pairs)} lists in --pairs; wanted one for view 2, DevTrain and DevTest for view 1")
    source = load_source(models, features, engine, feature_rule, device, threads)
    report, verb = None, "reading features" if features else "embedding faces"
    with bars() as begin, naming(image=features):
        if groups is not None:  # first: whatever does not fit the table is said before the long part
            report = evaluate_groups(
                source, faces, groups, far=far, threshold=threshold, aligned=aligned, small=small,
                missing=missing, rounds=rounds, seed=seed, progress=begin(f"{verb} for groups"),
            )  # fmt: skip
        result = evaluate_lfw(
            source, faces, None if not pairs else pairs[0] if len(pairs) == 1 else (pairs[0], pairs[1]),
            view=1 if view == 1 else 2, rule=rule, all_rules=all_rules, missing=missing,
            fars=fars or FARS, rounds=rounds, seed=seed, progress=begin(verb),
        )  # fmt: skip
    told = {**result.as_dict(), "groups": None if report is None else report.as_dict()}
    text = result.table() + ("" if report is None else f"\n\n{report.table()}")
    tell(context, result, told, text, title=f"Pairs: {result.data}", out=out, as_json=as_json, groups=report)
