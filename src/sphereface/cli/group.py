"""sphereface group: photos of people whom nobody has named become groups."""

import json
from pathlib import Path

import typer

from sphereface.cli import options
from sphereface.cli.recognizer import (
    DetectorName,
    Fpir,
    KeyFile,
    MinQuality,
    Model,
    Recognition,
    find_photos,
    open_recognizer,
)


def group(
    photos: list[Path] = typer.Argument(help="Photos, or folders of them."),
    into: Path | None = typer.Option(
        None, metavar="GALLERY", help="Gallery that gets the groups as unknown-1, ...; its people are named instead."
    ),
    page: Path = typer.Option(Path("groups.html"), help="File for the page with the faces of every group."),
    fpir: Fpir = None,
    key_file: KeyFile = None,
    model: Model = "auto",
    detector: DetectorName = "mtcnn",
    min_quality: MinQuality = 0.0,
    threads: options.Threads = None,
    as_json: options.AsJson = False,
) -> None:
    """Group the faces in photos by person; a second run keeps names and corrections of the gallery.

    Example: sphereface group holiday --into people.gallery
    """
    from sphereface.cli.progress import bars
    from sphereface.recognize.groups import enroll_groups, require_page

    require_page(page)
    places = find_photos(photos)
    given = Recognition(into, key_file, model, detector, min_quality, threads)
    recognizer = open_recognizer(given, fpir=fpir, create=True, without_gallery=into is None)
    with bars() as begin:
        found = recognizer.group(places, progress=begin("finding faces"))
    found.page().write(page)
    names = [] if into is None else enroll_groups(found, recognizer.gallery)
    if as_json:
        typer.echo(json.dumps({**found.as_dict(), "enrolled": names, "page": str(page)}))
        return
    typer.echo(found.text())
    if names:
        typer.echo(f"enrolled in {into}: {', '.join(names)}; name them: sphereface gallery rename {names[0]} NAME")
    typer.echo(f"Page: {page}")
