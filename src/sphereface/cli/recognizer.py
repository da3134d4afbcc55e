"""Options of the verbs that recognise, and the recognizer and gallery that they name."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sphereface import choices
from sphereface.cli import options
from sphereface.cli.output import say
from sphereface.errors import UserError

if TYPE_CHECKING:
    from sphereface.gallery.gallery import Gallery
    from sphereface.recognize.recognizer import Recognizer

KEY_FILE = "File of the key of an encrypted gallery; a new gallery gets a new key in it. Needs the extra secure."
GalleryFile = Annotated[
    Path | None, typer.Option("--gallery", metavar="FILE", help="Gallery; default: people.gallery in your data folder.")
]
KeyFile = Annotated[Path | None, typer.Option(help=KEY_FILE)]
Model = Annotated[str, typer.Option(help=options.MODEL, callback=options.fetched)]
DetectorName = Annotated[choices.DetectorName, typer.Option("--detector", help="Detector; fast: yunet.")]
MinQuality = Annotated[float, typer.Option(min=0, max=1, help="Refuse faces of a lower quality, from 0 to 1.")]
Fpir = Annotated[
    float | None,
    typer.Option(metavar="RATE", help="Share of strangers who may be named; default: 0.01, in large galleries 0.1."),
]
Note = Annotated[str, typer.Option(help="Note about the consent of the person, kept with the name.")]
Expires = Annotated[str | None, typer.Option(metavar="DATE", help="Date from which the person is not named.")]
Force = Annotated[bool, typer.Option("--force", help="Add photos that do not look like the person, too.")]
Threads = options.Threads


@dataclass(frozen=True)
class Recognition:
    """Options of the model, the detector and the gallery."""

    gallery: GalleryFile = None
    key_file: KeyFile = None
    model: Model = "auto"
    detector: DetectorName = "mtcnn"
    min_quality: MinQuality = 0.0
    threads: Threads = None


def open_recognizer(
    given: Recognition, *, far: float | None = None, fpir: float | None = None, create: bool = False,
    without_gallery: bool = False,
) -> "Recognizer":  # fmt: skip
    """A recognizer with its gallery; the choice of the model `auto` is printed with its licences."""
    from sphereface.recognize.recognizer import Recognizer

    gallery = None if without_gallery else open_gallery(given.gallery, given.key_file, create=create)
    recognizer = Recognizer(
        given.model, gallery, detector=given.detector, far=far, fpir=fpir,
        min_quality=given.min_quality, threads=given.threads,
    )  # fmt: skip
    if given.model == "auto":
        card = recognizer.embedder.card
        licences = ", ".join(f"{what} {licence}" for what, licence in card.licences.items())
        say(f"model {card.called}: {licences or 'no licence on its card'}")
    return recognizer


def open_gallery(path: Path | None, key_file: Path | None, *, create: bool = False) -> "Gallery":
    """A gallery; a new encrypted one gets a new key file, if there is none."""
    from sphereface.gallery.gallery import Gallery, default_gallery
    from sphereface.gallery.sealing import require_cryptography, write_key

    place = path or default_gallery()
    if key_file is not None:
        require_cryptography()
        if create and not key_file.exists() and not place.exists():
            write_key(key_file)  # of two first runs at once, one ends here with an error
            say(f"{key_file}: a new key; without it the gallery cannot be read: keep a copy elsewhere")
    return Gallery.open(place, key=key_file, create=create)


def parse_date(text: str | None) -> float | None:
    """A date such as 2027-01-31, or date and time in ISO form, as seconds since 1970; local unless it names a zone."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        raise UserError(f"{text!r} is no date; wanted one such as 2027-01-31") from error


def show_date(seconds: float | None) -> str:
    """A date for people; empty for None."""
    return "" if seconds is None else f"{datetime.fromtimestamp(seconds):%Y-%m-%d}"


def iso_date(seconds: float | None) -> str | None:
    """A time for machines, in UTC."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def find_photos(given: list[Path]) -> list[Path]:
    """The photos at paths, each of them a photo or a folder; a folder without one, or nothing, is an error."""
    from sphereface.data.people import find_images

    found: list[Path] = []
    for path in given:
        inside = [path / name for name in find_images(path)[0]] if path.is_dir() else [path]
        if not inside:
            raise UserError(f"{path}: no photo in this folder; wanted images such as .jpg or .png")
        found += inside
    return found
