"""sphereface demo: A-Softmax against its rivals on synthetic faces, with pictures."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from sphereface.cli.options import AsJson


def demo(
    out: Path = typer.Option(Path("demo"), help="Folder for report.html."),
    quick: bool = typer.Option(False, help="Fewer people and steps: two minutes instead of ten."),
    seed: int = typer.Option(0, help="Seed of training."),
    workers: int = typer.Option(os.cpu_count() or 1, min=1, help="Number of processes that draw faces."),
    as_json: AsJson = False,
) -> None:
    """Train five losses on synthetic faces, test them on people outside the training set, and recognise people.

    Needs no data and no GPU. Ctrl-C leaves a report of the results so far. Example: sphereface demo --quick
    """
    from sphereface.cli.progress import bars
    from sphereface.experiments.demo import run_demo
    from sphereface.experiments.demo_recognition import COMMANDS
    from sphereface.experiments.openset import FULL, QUICK

    with bars() as begin:
        found = run_demo(QUICK if quick else FULL, out, seed=seed, workers=workers, begin=begin)
    tell(found.as_json(), (out / "report.html").resolve(), as_json=as_json)
    if found.recognised is not None and not as_json:
        typer.echo(f"\n{found.recognised.text()}\n\nOn your own photos:")
        for command in COMMANDS:
            typer.echo(f"    {command}")
    if not found.finished:
        raise typer.Exit(130)


def tell(found: Mapping[str, Any], page: Path, *, as_json: bool) -> None:
    """Print the result of a demo as a table or as one JSON object, with the path of its report."""
    if as_json:
        typer.echo(json.dumps({**found, "report": str(page)}))
        return
    typer.echo(f"{'loss':<18} {'accuracy':>9} {'TAR@FAR 1e-2':>13} {'Fisher':>7} {'rank 1':>7}")
    for row in found["rows"]:
        typer.echo("{loss:<18} {accuracy:>9.2%} {tar:>13.2%} {fisher:>7.3f} {rank_1:>7.1%}".format_map(row))
    typer.echo(f"{'Report' if found['finished'] else 'Interrupted; partial report'}: {page}")
