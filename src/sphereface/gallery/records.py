"""What a gallery stores, as records."""

import unicodedata
from typing import NamedTuple

from sphereface.arrays import Float32
from sphereface.errors import UserError

LONGEST_NAME, LONGEST_NOTE = 200, 2_000
LATEST = 1e11  # seconds since 1970: the year 5138


class Model(NamedTuple):
    """The model of a gallery's features."""

    identity: str  # `Embedder.identity`: features of another model are refused
    name: str  # on its card
    dimension: int  # of a feature


class Photo(NamedTuple):
    """The face of a person in a photo."""

    sha256: str  # of the photo's file
    box: tuple[float, float, float, float]  # of the face: x1 y1 x2 y2
    feature: Float32  # (D,), as the network gave it


class Person(NamedTuple):
    """An enrolled person."""

    id: int  # never used again for another person
    name: str
    photos: int
    note: str  # such as when and how the person consented
    added: float  # seconds since 1970
    expires: float | None  # from then on the person is not named


class Entry(NamedTuple):
    """A line of the log: who did what, when; without names and features."""

    id: int
    time: float
    actor: str
    action: str
    person: int | None
    photos: int


class Revision(NamedTuple):
    """A state of a store, as seen by one reader."""

    generation: str  # another one: the store was replaced as a whole
    entry: int  # the last line of the log
    seen: tuple[int, int]  # equal: certainly nothing changed


class Changes(NamedTuple):
    """What changed in a store since an earlier revision."""

    revision: Revision
    people: list[int] | None  # added, changed or removed; None: read all


def checked_name(name: str) -> str:
    """A person's name, trimmed and in Unicode's composed form; an empty or unprintable one is an error."""
    found = unicodedata.normalize("NFC", name).strip()
    if not found or not found.isprintable() or len(found) > LONGEST_NAME:
        raise UserError(f"a person's name is {name!r}; wanted 1 to {LONGEST_NAME} printable characters")
    return found


def checked_note(note: str) -> str:
    """A note of one printable line; another one is an error."""
    if not note.isprintable() or len(note) > LONGEST_NOTE:
        raise UserError(f"a note of {len(note):,} characters; wanted one printable line of at most {LONGEST_NOTE:,}")
    return note


def checked_expiry(expires: float | None) -> float | None:
    """A time in seconds since 1970, or None; one that no calendar has is an error."""
    if expires is not None and not 0 <= expires <= LATEST:
        raise UserError(f"an end date of {expires:g} seconds since 1970; wanted 0 to {LATEST:g}")
    return expires
