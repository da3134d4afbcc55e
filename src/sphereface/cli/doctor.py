"""sphereface doctor: does it compute here what it should?"""

import json

import typer


def doctor(
    device: str = typer.Option("auto", help="auto, cpu, cuda, cuda:1."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on standard output."),
) -> None:
    """Check network, losses, training, resume and sharding on this machine; prints one block to paste into an issue.

    Exit code 1 if a check fails. Example: sphereface doctor --device cuda
    """
    from sphereface.doctor import examine

    found = examine(device, say=lambda line: typer.echo(line, err=True))
    typer.echo(json.dumps(found.as_dict(), indent=2) if as_json else found.block())
    if found.count("FAIL"):
        raise typer.Exit(1)
