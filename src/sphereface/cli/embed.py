"""sphereface embed: features of faces, in files."""

import json
import time
from pathlib import Path

import typer

from sphereface.choices import Missing
from sphereface.cli import options
from sphereface.cli.model import load_embedder
from sphereface.cli.output import say


def embed(
    faces: Path = typer.Argument(help="Aligned faces, in any format that `data convert` reads."),
    out: Path = typer.Argument(help="Folder of the features: new, empty, or an unfinished run of the same command."),
    model: str = typer.Option("auto", help=options.MODEL, callback=options.fetched),
    feature_rule: options.FeatureRule = None,
    part: str = typer.Option("1/1", help="Part i of n, such as 2/8, for n machines; all write to OUT."),
    batch: options.Batch = 16,
    engine: options.Engine = "auto",
    device: options.Device = "cpu",
    threads: options.Threads = None,
    workers: int = typer.Option(min(4, options.CORES), min=0, help=options.READERS),
    missing: Missing = typer.Option("fail", help="Unreadable images: skip lists them in the manifest."),
    root: options.Root = None,
    as_json: options.AsJson = False,
) -> None:
    """Embed a set of faces; the same command continues an interrupted run.

    Example: sphereface embed lfw-112x96 lfw-features --model sface
    """
    from sphereface.cli.progress import bars
    from sphereface.embed.run import embed_set
    from sphereface.embed.store import Part

    share = Part.parse(part)
    embedder = load_embedder(model, engine, threads=threads, device=device, feature_rule=feature_rule)
    start = time.perf_counter()
    with bars() as begin:
        folder, made = embed_set(
            faces, out, embedder, root=root, part=share, batch=batch, workers=workers,
            missing=missing, say=say, progress=begin("embedding faces"),
        )  # fmt: skip
    if as_json:
        result = {
            "folder": str(folder), "faces": made.count, "dimension": made.dimension, "part": str(made.part),
            "feature_rule": made.card.feature_rule, "engine": made.engine, "model": made.model, "data": made.data,
            "unreadable": made.unreadable, "seconds": round(time.perf_counter() - start, 1),
        }  # fmt: skip
        typer.echo(json.dumps(result))
        return
    left_out = f"; {len(made.unreadable):,} images left out, listed in its manifest" if made.unreadable else ""
    named = f"part {made.part}, " if made.part.of > 1 else ""
    typer.echo(
        f"{made.count:,} features of {made.dimension:,} numbers ({named}{made.card.feature_rule}) in {folder}{left_out}"
    )
