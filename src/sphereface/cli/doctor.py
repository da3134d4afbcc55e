"""sphereface doctor: checks of this machine."""

import json

import typer

from sphereface.cli.options import AsJson
from sphereface.cli.output import say


def doctor(
    device: str = typer.Option("auto", help="Device: auto, cpu, cuda, cuda:1."),
    as_json: AsJson = False,
) -> None:
    """Check network, losses, training, resume and sharding on this machine; prints one block to paste into an issue.

    Exit code 1 if a check fails. Example: sphereface doctor --device cuda
    """
    from sphereface.doctor import examine

    found = examine(device, say=say)
    typer.echo(json.dumps(found.as_dict(), indent=2) if as_json else found.block())
    if found.count("FAIL"):
        raise typer.Exit(1)
