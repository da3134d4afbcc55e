"""sphereface verify: do two photos show the same person?"""

import json
from pathlib import Path

import typer

from sphereface.cli import options
from sphereface.cli.recognizer import DetectorName, MinQuality, Model, Recognition, open_recognizer


def verify(
    a: Path = typer.Argument(help="A photo."),
    b: Path = typer.Argument(help="Another photo."),
    far: float | None = typer.Option(
        None, metavar="RATE", help="Share of pairs of different people that may pass for one person; default: 0.001."
    ),
    model: Model = "auto",
    detector: DetectorName = "mtcnn",
    min_quality: MinQuality = 0.0,
    threads: options.Threads = None,
    as_json: options.AsJson = False,
) -> None:
    """Compare the faces of two photos; exit code 0 for the same person and for different people.

    Of several faces, the one nearest the centre counts. There is no liveness check.

    Example: sphereface verify passport.jpg selfie.jpg
    """
    given = Recognition(model=model, detector=detector, min_quality=min_quality, threads=threads)
    found = open_recognizer(given, far=far, without_gallery=True).verify(a, b)
    typer.echo(json.dumps(found.as_dict()) if as_json else found.text())
