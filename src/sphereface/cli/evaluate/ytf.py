"""sphereface evaluate ytf: pairs of videos."""

from pathlib import Path

import typer

from sphereface.choices import FramePolicy
from sphereface.cli.evaluate import options
from sphereface.cli.evaluate.sources import load_source, naming, require_faces
from sphereface.cli.evaluate.telling import check_out, tell


def ytf(
    context: typer.Context,
    faces: Path | None = typer.Argument(None, help="Aligned frames: Name/0/0.123.jpg; not needed with --features."),
    models: options.Models = None,
    features: options.Stored = None,
    splits: Path | None = typer.Option(
        None, help="splits.txt, or the corrected one, or the folder with splits.txt. Else FACES."
    ),
    frames: int = typer.Option(100, min=1, help="Of a video at most, evenly spaced."),
    policy: FramePolicy = typer.Option(
        "mean-feature", help="A video as its mean feature; or the mean or highest score of two frames."
    ),
    rule: options.Rule = "authors",
    all_rules: options.AllRules = False,
    missing: options.Missing = "fail",
    fars: options.Fars = None,
    scratch: Path | None = typer.Option(None, help="Folder for the temporary file of max-score."),
    rounds: options.Rounds = 1000,
    seed: options.Seed = 0,
    engine: options.Engine = "auto",
    feature_rule: options.FeatureRule = None,
    device: options.Device = "cpu",
    threads: options.Threads = None,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Pairs of videos: YouTube Faces.

    Example: sphereface evaluate ytf ytf-112x96 --splits splits_corrected.txt --model model.safetensors
    """
    from sphereface.cli.progress import bars
    from sphereface.evaluation.protocols.ytf import evaluate_ytf
    from sphereface.metrics.rates import FARS

    check_out(out)
    require_faces(faces, models)
    source = load_source(models, features, engine, feature_rule, device, threads)
    with bars() as begin, naming(image=features):
        result = evaluate_ytf(
            source, faces, splits, frames=frames, policy=policy, rule=rule, all_rules=all_rules,
            missing=missing, fars=fars or FARS, rounds=rounds, seed=seed, scratch=scratch,
            progress=begin("reading features" if features else "embedding frames"),
        )  # fmt: skip
    title = f"Videos: {result.data}"
    tell(context, result, result.as_dict(), result.table(), title=title, out=out, as_json=as_json)
