"""People from one gallery to another: one JSON object a line, the gallery's model first.

An export holds features and names in the clear, also that of an encrypted gallery; it is readable by its owner alone.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sphereface.contract import first_problem
from sphereface.data.files.writing import PRIVATE, new_files
from sphereface.errors import DataFormatError, GalleryError, UserError
from sphereface.gallery.gallery import Gallery
from sphereface.gallery.records import LATEST, Model, Person, Photo, checked_name, checked_note

KIND = "sphereface gallery export"
SUFFIX = ".jsonl"
LONGEST_LINE = 64 << 20  # bytes of a person

Finite = Annotated[float, Field(allow_inf_nan=False, ge=-1e6, le=1e6)]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Head(_Record):
    """The first line."""

    kind: str
    version: int
    identity: str
    model: str
    dimension: int = Field(ge=1, le=1 << 20)


class _Photo(_Record):
    """A photo of a person."""

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    box: tuple[Finite, Finite, Finite, Finite]
    feature: str  # float32 in base64


class _Person(_Record):
    """Each further line."""

    name: str
    earlier_names: tuple[str, ...] = ()
    note: str = ""
    expires: float | None = Field(default=None, ge=0, le=LATEST)
    photos: tuple[_Photo, ...]


class Imported(NamedTuple):
    """What became of an import."""

    people: int
    photos: int  # that are new
    renamed: dict[str, str]  # people of a name that is another person's here, and the names that they got


def export_people(gallery: Gallery, path: Path, names: Sequence[str] = ()) -> int:
    """Write people with their features to a new file, all of them by default; their number."""
    model = gallery.store.model
    if model is None:
        raise GalleryError(f"{gallery.where}: nobody is enrolled; there is nothing to export")
    if path.suffix != SUFFIX:
        raise UserError(f"{path}: wanted a name for the file that ends in {SUFFIX}")
    people = [gallery.find(name) for name in names] if names else gallery.people()
    with new_files(path) as room:
        part = room / path.name
        part.touch(PRIVATE)
        with part.open("wb") as file:
            head = _Head(kind=KIND, version=1, identity=model.identity, model=model.name, dimension=model.dimension)
            file.write(head.model_dump_json().encode() + b"\n")
            for person in people:
                file.write(_line(gallery, person).model_dump_json().encode() + b"\n")
    gallery.store.record(f"export of {len(people)} people", actor=gallery.actor)
    return len(people)


def _line(gallery: Gallery, person: Person) -> _Person:
    photos = tuple(
        _Photo(sha256=photo.sha256, box=photo.box, feature=base64.b64encode(photo.feature.tobytes()).decode())
        for *_, photo in gallery.store.photos(person.id)
    )
    names = tuple(gallery.store.names_of(person.id))
    return _Person(name=person.name, earlier_names=names, note=person.note, expires=person.expires, photos=photos)


def require_export(path: Path) -> None:
    """Raise unless a file begins like an export."""
    with _opened(path) as file:
        _head(file, path)


def import_people(gallery: Gallery, path: Path) -> Imported:
    """Add the people of an export; all of them, or none: a damaged file changes nothing.

    A person of a name that is in the gallery gets the photos only if one of them is there already. Otherwise the two
    may be different people: the imported one gets a free name, and `merge` makes them one.
    """
    people, photos, renamed = 0, 0, dict[str, str]()
    with _opened(path) as file:
        head = _head(file, path)
        model = Model(head.identity, head.model, head.dimension)
        with gallery.store.together():
            for place, person in _people(file, path):
                found = [_photo(each, head.dimension, place) for each in person.photos]
                name = _name(gallery, person.name, found)
                enrolled, count = gallery.enroll(name, found, model=model, note=person.note, expires=person.expires)
                if name == person.name:
                    for earlier in person.earlier_names:
                        gallery.store.add_name(enrolled.id, earlier)
                else:
                    renamed[person.name] = name
                people, photos = people + 1, photos + count
    return Imported(people, photos, renamed)


def _name(gallery: Gallery, name: str, photos: Sequence[Photo]) -> str:
    """The name itself, if it is free or that of a person with one of the photos; else the name with a number."""
    known = gallery.store.find(name)
    if known is None or any(known.id in gallery.store.owners(photo.sha256) for photo in photos):
        return name
    number = 2
    while (other := gallery.store.find(f"{name} ({number})")) is not None:
        if any(other.id in gallery.store.owners(photo.sha256) for photo in photos):
            break  # of an earlier import
        number += 1
    return f"{name} ({number})"


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise DataFormatError(f"{path}: cannot be read ({error.strerror})") from error


def _head(file: BinaryIO, path: Path) -> _Head:
    head: _Head = _parsed(_Head, file.readline(LONGEST_LINE), f"{path}, line 1")
    if head.kind != KIND or head.version != 1:
        raise DataFormatError(f"{path}: {head.kind}, version {head.version}; wanted {KIND}, version 1")
    return head


def _people(file: BinaryIO, path: Path) -> Iterator[tuple[str, _Person]]:
    number = 1
    while line := file.readline(LONGEST_LINE):
        number += 1
        place = f"{path}, line {number}"
        person: _Person = _parsed(_Person, line, place)
        try:
            for name in (person.name, *person.earlier_names):
                checked_name(name)
            checked_note(person.note)
        except UserError as error:
            raise DataFormatError(f"{place}: {error}") from error
        yield place, person


def _photo(record: _Photo, dimension: int, place: str) -> Photo:
    try:
        feature = np.frombuffer(base64.b64decode(record.feature, validate=True), "<f4")
    except ValueError as error:
        raise DataFormatError(f"{place}: a feature is no base64 of float32 numbers; export again") from error
    if len(feature) != dimension or not np.isfinite(feature).all() or not feature.any():
        raise DataFormatError(f"{place}: a feature of {len(feature)} numbers; wanted {dimension} finite ones, not zero")
    return Photo(record.sha256, record.box, feature)


def _parsed(kind: type[Any], line: bytes, place: str) -> Any:
    try:
        return kind.model_validate(json.loads(line))
    except ValidationError as error:
        field, reason = first_problem(error, "line")
        raise DataFormatError(f"{place}: bad {field}: {reason}; wanted a file of sphereface gallery export") from error
    except (ValueError, RecursionError) as error:
        raise DataFormatError(f"{place}: not JSON; wanted a file of sphereface gallery export") from error
