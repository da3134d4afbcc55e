"""sphereface identify: who is in these photos?"""

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from sphereface.cli import options
from sphereface.cli.recognizer import Fpir, Recognition, find_photos, open_recognizer
from sphereface.errors import JobFailed, UserError

if TYPE_CHECKING:
    from sphereface.recognize.answers import IdentifiedPhoto

COLUMNS = "photo", "x1", "y1", "x2", "y2", "name", "score", "threshold", "fpir", "quality", "error"


@options.flat
def identify(
    *,
    photos: list[Path] = typer.Argument(help="Photos, or folders of them."),
    recognition: Recognition,
    fpir: Fpir = None,
    draw: Path | None = typer.Option(None, metavar="FOLDER", help="Folder for the photos with boxes and names."),
    as_csv: Path | None = typer.Option(None, "--csv", metavar="FILE", help="File for a line for each face."),
    as_json: options.AsJson = False,
) -> None:
    """Name the people in photos; a face is unknown unless its score reaches the threshold.

    The threshold follows the size of the gallery, so that the promised share of strangers is named. There is no
    liveness check.

    Example: sphereface identify party.jpg --draw named
    """
    from sphereface.cli.progress import bars

    places = find_photos(photos)
    drawings = _drawings(places, draw) if draw is not None else {}
    if as_csv is not None and not as_csv.absolute().parent.is_dir():
        raise UserError(f"--csv {as_csv}: there is no folder {as_csv.parent}; make it, or choose another")
    recognizer = open_recognizer(recognition, fpir=fpir)
    threshold = recognizer.threshold()
    with bars() as begin:
        found = recognizer.identify_many(places, progress=begin("identifying"))
    if as_json:
        result = {
            "gallery": recognizer.gallery.where, "model": recognizer.embedder.card.called, **threshold.as_dict(),
            "photos": [each.as_dict() for each in found],
        }  # fmt: skip
        typer.echo(json.dumps(result))
    else:
        for each in found:
            typer.echo(_line(each))
        typer.echo(threshold.text())
    for photo in found:
        if photo.source in drawings and not photo.error:
            _draw(photo, drawings[photo.source])
    if as_csv is not None:
        _write(found, as_csv)
    if all(each.error for each in found):
        raise JobFailed("no photo could be read; the reasons are above")


def _line(photo: "IdentifiedPhoto") -> str:
    """The names in a photo."""
    if photo.error:
        return f"{photo.source}: {photo.error}"
    faces = [
        f"{'unknown' if each.name is None else each.name}"
        + (f" ({each.score:.3f})" if each.score is not None else "")
        + (f" [{'; '.join(each.face.quality.reasons)}]" if each.face.quality.reasons else "")
        for each in photo.faces
    ]
    return f"{photo.source}: {', '.join(faces) or 'no face was found'}"


def _write(found: list["IdentifiedPhoto"], path: Path) -> None:
    from sphereface.data.files.writing import whole_file

    lines: list[list[object]] = [list(COLUMNS)]
    for photo in found:
        for each in photo.faces:
            about = each.as_dict()
            box = [*about["box"], each.name or "", each.score, about["threshold"], about["fpir"], about["quality"], ""]
            lines.append([photo.source, *box])
        if not photo.faces:
            lines.append([photo.source, *[""] * (len(COLUMNS) - 2), photo.error or "no face was found"])
    text = io.StringIO()
    csv.writer(text).writerows(lines)
    with whole_file(path) as file:
        file.write(text.getvalue().encode())


def _drawings(photos: list[Path], folder: Path) -> dict[str, Path]:
    """The file to draw each photo into; one of the photos themselves is an error."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--draw {folder} is a file; wanted a folder")
    given, used, drawings = {photo.resolve() for photo in photos}, set[str](), {}
    for photo in photos:
        name, number = photo.stem, 1
        while name in used:  # photos of the same name in two folders
            number += 1
            name = f"{photo.stem}-{number}"
        used.add(name)
        place = folder / f"{name}.jpg"
        if place.resolve() in given:
            raise UserError(f"--draw {folder} would replace the photo {place}; choose another folder")
        drawings[str(photo)] = place
    return drawings


def _draw(photo: "IdentifiedPhoto", path: Path) -> None:
    from sphereface.data.files.writing import whole_file
    from sphereface.faces.images import encode_jpeg, read_photo
    from sphereface.recognize.drawing import draw_names

    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write(encode_jpeg(draw_names(read_photo(photo.source), photo.faces)))
