"""sphereface embed: faces to features on disk."""

import json
import os
import time
from pathlib import Path

import typer

from sphereface.choices import Engine, FeatureRule, Missing


def embed(
    faces: Path = typer.Argument(help="Aligned faces, in any format that `data convert` reads."),
    out: Path = typer.Argument(help="Folder of features: new, empty, or an unfinished run of the same command."),
    model: Path = typer.Option(..., help="A .safetensors of ours, or any .onnx with a card."),
    feature_rule: FeatureRule | None = typer.Option(
        None, help="Image and mirror image concatenated (the paper) or summed, or the image alone; else the card's."
    ),
    part: str = typer.Option("1/1", help="Only part i of n, such as 2/8: for n machines. All go to OUT."),
    batch: int = typer.Option(16, min=1, help="Faces that go through the network together."),
    engine: Engine = typer.Option("auto", help="auto: onnxruntime, or torch for another --device."),
    device: str = typer.Option("cpu", help="cpu, cuda, cuda:1."),
    threads: int | None = typer.Option(None, min=1, help="Of the network; else one a core."),
    workers: int = typer.Option(
        min(4, os.cpu_count() or 1), min=0, help="Threads that read ahead; features do not depend on it."
    ),
    missing: Missing = typer.Option("fail", help="Images that cannot be read: skip lists them in the manifest."),
    root: Path | None = typer.Option(None, help="Where the paths of a list begin."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """Embed a set of faces; run it again after an interruption, and it goes on.

    Example: sphereface embed lfw-112x96 lfw-features --model model.safetensors
    """
    from sphereface.cli.progress import bars
    from sphereface.embed.embedder import Embedder
    from sphereface.embed.run import embed_set
    from sphereface.embed.store import Part

    share = Part.parse(part)
    embedder = Embedder.load(model, engine, threads=threads, device=device, feature_rule=feature_rule)
    start = time.perf_counter()
    with bars() as begin:
        folder, made = embed_set(
            faces, out, embedder, root=root, part=share, batch=batch, workers=workers,
            missing=missing, say=lambda note: typer.echo(note, err=True),
            progress=begin("embedding faces"),
        )  # fmt: skip
    if as_json:
        result = {"folder": str(folder), "faces": made.count, "dimension": made.dimension, "part": str(made.part)}
        result |= {
            "feature_rule": made.card.feature_rule,
            "engine": made.engine,
            "model": made.model,
            "data": made.data,
        }
        result |= {"unreadable": made.unreadable, "seconds": round(time.perf_counter() - start, 1)}
        typer.echo(json.dumps(result))
        return
    left_out = f"; {len(made.unreadable):,} images left out, listed in its manifest" if made.unreadable else ""
    named = f"part {made.part}, " if made.part.of > 1 else ""
    typer.echo(
        f"{made.count:,} features of {made.dimension:,} numbers ({named}{made.card.feature_rule}) in {folder}{left_out}"
    )
