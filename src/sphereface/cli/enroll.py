"""sphereface enroll: add people to a gallery."""

import json
from pathlib import Path

import typer

from sphereface.cli import options
from sphereface.cli.output import say
from sphereface.cli.recognizer import Expires, Force, Note, Recognition, find_photos, open_recognizer, parse_date
from sphereface.errors import JobFailed, UserError


@options.flat
def enroll(
    *,
    given: list[str] = typer.Argument(metavar="NAME PHOTOS... | FOLDER", help="Name and photos, or people's folders."),
    recognition: Recognition,
    note: Note = "",
    expires: Expires = None,
    force: Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Add the photos of a person to a gallery, or those of everybody in a folder with a folder for each person.

    Photos that are there already are passed over: after an interruption, run the same command again. Only features are
    stored, no photos.

    Example: sphereface enroll "Ada Lovelace" ada-1.jpg ada-2.jpg
    """
    from sphereface.cli.progress import bars
    from sphereface.recognize.recognizer import enroll_folder

    first, *more = given
    if not more and not Path(first).is_dir():
        raise UserError(
            f"{first}: no photos given; wanted a name and photos, or a folder with a folder for each person"
        )
    if more and Path(first).exists():
        raise UserError(f"{first} is a file or folder; wanted the person's name first, or one folder of people alone")
    when = parse_date(expires)
    recognizer = open_recognizer(recognition, create=True)
    if more:
        photos = find_photos([Path(each) for each in more])
        found = [recognizer.enroll(first, photos, note=note, expires=when, force=force)]
    else:
        with bars() as begin:
            found = enroll_folder(
                recognizer, Path(first), note=note, expires=when, force=force, say=say,
                progress=begin("enrolling people"),
            )  # fmt: skip
    added, failed = (sum(len(getattr(each, of)) for each in found) for of in ("added", "failed"))
    people = len(recognizer.gallery.people())
    if as_json:
        result = {
            "gallery": recognizer.gallery.where, "people": people, "added": added, "failed": failed,
            "enrolled": [each.as_dict() for each in found],
        }  # fmt: skip
        typer.echo(json.dumps(result))
    else:
        shown = found if len(found) == 1 else [each for each in found if not _is_plain(each)]
        for each in shown:
            typer.echo(each.text())
        typer.echo(
            f"{added:,} photos added, {failed:,} failed to enroll; {people:,} people in {recognizer.gallery.where}"
        )
    if not any(each.added or each.known for each in found):
        raise JobFailed("no photo was enrolled; the reasons are above")


def _is_plain(enrolment: object) -> bool:
    """True if there is nothing to say about an enrolment but its numbers."""
    return not any(getattr(enrolment, of) for of in ("failed", "refused", "removed", "alike", "warnings"))
