"""sphereface evaluate ytf: pairs of videos."""

from pathlib import Path

import typer

from sphereface.choices import FramePolicy
from sphereface.cli import options
from sphereface.cli.evaluate.output import check_out, tell
from sphereface.cli.evaluate.sources import load_source, naming, require_faces


@options.flat
def ytf(
    context: typer.Context,
    *,
    faces: Path | None = typer.Argument(None, help="Aligned frames: Name/0/0.123.jpg; not needed with --features."),
    source: options.Source,
    splits: Path | None = typer.Option(
        None, help="splits.txt, the corrected one, or the folder of splits.txt; default: FACES."
    ),
    frames: int = typer.Option(100, min=1, help="Most frames of a video, evenly spaced."),
    policy: FramePolicy = typer.Option(
        "mean-feature", help="Score of two videos: of their mean features, or mean or highest score of two frames."
    ),
    rule: options.Rule = "authors",
    all_rules: options.AllRules = False,
    missing: options.Missing = "fail",
    fars: options.Fars = None,
    scratch: Path | None = typer.Option(None, help="Folder for the temporary file of max-score."),
    rounds: options.Rounds = 1000,
    seed: options.Seed = 0,
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
    require_faces(faces, source.models)
    loaded = load_source(source)
    with bars() as begin, naming(image=source.features):
        result = evaluate_ytf(
            loaded, faces, splits, frames=frames, policy=policy, rule=rule, all_rules=all_rules,
            missing=missing, fars=fars or FARS, rounds=rounds, seed=seed, scratch=scratch,
            progress=begin("reading features" if source.features else "embedding frames"),
        )  # fmt: skip
    title = f"Videos: {result.data}"
    tell(context, result, result.as_dict(), result.table(), title=title, out=out, as_json=as_json)
