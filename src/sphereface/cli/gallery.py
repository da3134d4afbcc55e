"""sphereface gallery: the enrolled people, and the file that holds them."""

import json
from pathlib import Path
from typing import Any

import typer

from sphereface.cli import options
from sphereface.cli.output import print_table, say
from sphereface.cli.recognizer import (
    DetectorName,
    GalleryFile,
    KeyFile,
    Model,
    find_photos,
    iso_date,
    open_gallery,
    parse_date,
    show_date,
)
from sphereface.errors import JobFailed, UserError

app = typer.Typer(no_args_is_help=True, help="List, correct, remove, copy and check enrolled people.")
NAME = "Name of a person, also an earlier one."


@app.command("list")
def list_people(gallery: GalleryFile = None, key_file: KeyFile = None, as_json: options.AsJson = False) -> None:
    """Show all people: name, photos, since when, until when, note.

    Example: sphereface gallery list
    """
    with open_gallery(gallery, key_file) as found:
        people, model = found.people(), found.store.model
    if as_json:
        known = [_person(person) for person in people]
        typer.echo(json.dumps({"gallery": found.where, "model": model.name if model else None, "people": known}))
        return
    rows = [
        [person.name, f"{person.photos}", show_date(person.added), show_date(person.expires), person.note]
        for person in people
    ]
    print_table(["name", "photos", "since", "until", "note"], rows)
    typer.echo(f"{len(people):,} people, {model.name if model else 'no model yet'}: {found.where}")


@app.command()
def show(
    name: str = typer.Argument(help=NAME),
    gallery: GalleryFile = None,
    key_file: KeyFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Show a person: photos with their numbers, earlier names, and what was done.

    Example: sphereface gallery show "Ada Lovelace"
    """
    with open_gallery(gallery, key_file) as found:
        person = found.find(name)
        photos, names = found.store.photos(person.id), found.store.names_of(person.id)
        entries = [entry for entry in found.store.log() if entry.person == person.id]
    if as_json:
        shown = [
            {"number": number, "added": iso_date(added), "sha256": photo.sha256, "box": list(photo.box)}
            for number, added, photo in photos
        ]
        log = [{"time": iso_date(each.time), "actor": each.actor, "action": each.action} for each in entries]
        typer.echo(json.dumps({**_person(person), "earlier_names": names, "photos": shown, "log": log}))
        return
    typer.echo(f"{person.name}" + (f" (earlier: {', '.join(names)})" if names else ""))
    for label, text in {"note": person.note, "until": show_date(person.expires)}.items():
        if text:
            typer.echo(f"{label}: {text}")
    print_table(
        ["photo", "added", "SHA-256 of the file"],
        [[f"{number}", show_date(added), photo.sha256] for number, added, photo in photos],
    )
    print_table(["time", "by", "what"], [[iso_date(each.time) or "", each.actor, each.action] for each in entries])


@app.command()
def rename(
    name: str = typer.Argument(help=NAME),
    to: str = typer.Argument(help="The new name."),
    gallery: GalleryFile = None,
    key_file: KeyFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Give a person another name; `enroll` and `group` know the earlier one.

    Example: sphereface gallery rename unknown-3 "Ada Lovelace"
    """
    with open_gallery(gallery, key_file) as found:
        found.rename(name, to)
    _tell({"name": to, "earlier": name}, f"{name} is {to} now", as_json=as_json)


@app.command()
def merge(
    name: str = typer.Argument(help=NAME),
    into: str = typer.Argument(help="The person who gets the photos, and whose name stays."),
    gallery: GalleryFile = None,
    key_file: KeyFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Make two people one.

    Example: sphereface gallery merge unknown-3 "Ada Lovelace"
    """
    with open_gallery(gallery, key_file) as found:
        erased = found.merge(name, into, say=say)
        person = found.find(into)
    _require_erased(erased, f"{name}: merged into {person.name}")
    _tell(_person(person), f"{person.name} has {person.photos} photos now", as_json=as_json)


@app.command()
def remove(
    name: str = typer.Argument(help=NAME),
    photo: list[int] | None = typer.Option(None, help="Only this photo, by its number in `show`; may be repeated."),
    gallery: GalleryFile = None,
    key_file: KeyFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Delete a person, or photos of a person; returns when their bytes are overwritten in the gallery's files.

    Earlier backups and exports still hold them. A removed photo is not added to the person again.

    Example: sphereface gallery remove "Ada Lovelace"
    """
    with open_gallery(gallery, key_file) as found:
        erased = found.remove_photos(name, photo, say=say) if photo else found.remove(name, say=say)
    what = f"{len(photo)} photos of {name}" if photo else name
    _require_erased(erased, f"{what}: removed")
    _tell({"removed": name, "photos": photo, "erased": erased}, f"{what}: removed and overwritten", as_json=as_json)


@app.command()
def expire(
    name: str | None = typer.Argument(None, help=f"{NAME} Without a name: delete all whose time is over."),
    on: str | None = typer.Option(None, metavar="DATE", help="Date from which the person is not named."),
    never: bool = typer.Option(False, "--never", help="The person has no end date."),
    gallery: GalleryFile = None,
    key_file: KeyFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Set until when a person is named, or delete all people whose time is over.

    Example: sphereface gallery expire "Ada Lovelace" --on 2027-01-31
    """
    if (name is not None) != ((on is not None) != never):
        raise UserError("wanted NAME with --on DATE or --never, or neither of them to delete all whose time is over")
    when = parse_date(on)
    with open_gallery(gallery, key_file) as found:
        if name is None:
            gone, erased = found.remove_expired(say=say)
            _require_erased(erased, f"{', '.join(gone)}: removed")
            _tell({"removed": gone}, f"{len(gone):,} people removed: {', '.join(gone) or '-'}", as_json=as_json)
            return
        found.expire(name, when)
    until = "has no end date" if when is None else f"is named until {show_date(when)}"
    _tell({"name": name, "expires": iso_date(when)}, f"{name} {until}", as_json=as_json)


@app.command("export")
def export_people(
    out: Path = typer.Argument(help="New file, .jsonl; readable by you alone, not encrypted."),
    names: list[str] | None = typer.Argument(None, help="People; default: all."),
    gallery: GalleryFile = None,
    key_file: KeyFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Write people with their features to a file, for another gallery of the same model.

    Example: sphereface gallery export people.jsonl
    """
    from sphereface.gallery import transfer

    with open_gallery(gallery, key_file) as found:
        count = transfer.export_people(found, out, names or ())
    _tell({"people": count, "file": str(out)}, f"{count:,} people: {out}", as_json=as_json)


@app.command("import")
def import_people(
    file: Path = typer.Argument(help="File that `gallery export` wrote."),
    gallery: GalleryFile = None,
    key_file: KeyFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Add the people of an export to a gallery; all of them, or none if the file is damaged.

    Example: sphereface gallery import people.jsonl --gallery other.gallery
    """
    from sphereface.gallery import transfer

    transfer.require_export(file)
    with open_gallery(gallery, key_file, create=True) as found:
        done = transfer.import_people(found, file)
    lines = [f"{done.people:,} people, {done.photos:,} new photos"]
    lines += [
        f"{name}: {new}, for {name} is here already; if that is one person: sphereface gallery merge"
        for name, new in done.renamed.items()
    ]
    _tell(done._asdict(), "\n".join(lines), as_json=as_json)


@app.command()
def backup(
    out: Path = typer.Argument(help="New file for the copy."),
    gallery: GalleryFile = None,
    key_file: KeyFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Write a consistent copy of a gallery, also while others use it.

    Example: sphereface gallery backup people-2026-11-19.gallery
    """
    from sphereface.gallery.copies import back_up

    with open_gallery(gallery, key_file) as found:
        back_up(found, out)
    _tell({"backup": str(out)}, f"{found.where}: copied to {out}", as_json=as_json)


@app.command()
def restore(
    copy: Path = typer.Argument(help="File that `gallery backup` wrote."),
    gallery: GalleryFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Make a gallery what it was at a backup; later changes are lost, also removals.

    Example: sphereface gallery restore people-2026-11-19.gallery
    """
    from sphereface.gallery import copies
    from sphereface.gallery.gallery import default_gallery, user_name

    place = gallery or default_gallery()
    kept = copies.restore(place, copy, actor=user_name())
    text = f"{place}: as at the backup {copy}" + (f"; the damaged file is {kept} now" if kept else "")
    result = {"gallery": str(place), "backup": str(copy), "damaged": str(kept) if kept else None}
    _tell(result, text, as_json=as_json)


@app.command()
def check(gallery: GalleryFile = None, key_file: KeyFile = None, as_json: options.AsJson = False) -> None:
    """Check a gallery: the file, every value, and the index made from it; exit code 1 if something is wrong.

    Example: sphereface gallery check
    """
    from sphereface.gallery import copies

    with open_gallery(gallery, key_file) as found:
        problems = copies.check(found)
        erased = found.store.erase()
        people = len(found.people())
    if not erased:
        problems.append(
            "another process reads an older state; removed people may still be in the file beside the gallery"
        )
    text = "\n".join(problems) or f"{found.where}: {people:,} people, no problem found"
    _tell({"gallery": found.where, "people": people, "problems": problems}, text, as_json=as_json)
    if problems:
        raise typer.Exit(1)


@app.command()
def reembed(
    photos: list[Path] = typer.Argument(help="The enrolled photos, or folders of them."),
    model: Model = "auto",
    gallery: GalleryFile = None,
    key_file: KeyFile = None,
    detector: DetectorName = "mtcnn",
    threads: options.Threads = None,
    as_json: options.AsJson = False,
) -> None:
    """Move a gallery to another model, from the photos; names and corrections stay. All photos are needed.

    Example: sphereface gallery reembed people --model sface
    """
    from sphereface.cli.progress import bars
    from sphereface.recognize.reembedding import reembed as move

    places = find_photos(photos)
    with open_gallery(gallery, key_file) as found, bars() as begin:
        count, erased = move(found, places, model, detector=detector, threads=threads, say=say, begin=begin)
        named = found.store.model
    assert named is not None
    _require_erased(erased, f"{count:,} photos, model {named.name} now")
    _tell({"photos": count, "model": named.name}, f"{count:,} photos, model {named.name} now", as_json=as_json)


def _require_erased(erased: bool, what: str) -> None:
    if not erased:
        raise JobFailed(
            f"{what}, but another process still reads the older state, which stays in the file beside the gallery "
            "until it ends; then run sphereface gallery check"
        )


def _person(person: Any) -> dict[str, Any]:
    return {
        "name": person.name, "photos": person.photos, "added": iso_date(person.added),
        "expires": iso_date(person.expires), "note": person.note,
    }  # fmt: skip


def _tell(result: dict[str, Any], text: str, *, as_json: bool) -> None:
    typer.echo(json.dumps(result) if as_json else text)
