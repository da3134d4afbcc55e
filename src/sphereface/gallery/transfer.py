"""People from one gallery to another: one JSON object a line, the gallery's model first.

An export holds features and names in the clear, also that of an encrypted gallery; it is readable by its owner alone.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sphereface.contract import first_problem
from sphereface.data.files.writing import whole_file
from sphereface.errors import DataFormatError, GalleryError
from sphereface.gallery.gallery import Gallery
from sphereface.gallery.records import Model, Person, Photo

KIND = "sphereface gallery export"
LONGEST_LINE = 64 << 20  # bytes of a person


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
    box: tuple[float, float, float, float]
    feature: str  # float32 in base64


class _Person(_Record):
    """Each further line."""

    name: str
    earlier_names: tuple[str, ...] = ()
    note: str = ""
    expires: float | None = None
    photos: tuple[_Photo, ...]


def export_people(gallery: Gallery, path: Path, names: Sequence[str] = ()) -> int:
    """Write people with their features to a file, all of them by default; their number."""
    model = gallery.store.model
    if model is None:
        raise GalleryError(f"{gallery.where}: nobody is enrolled; there is nothing to export")
    people = [gallery.find(name) for name in names] if names else gallery.people()
    with whole_file(path, private=True) as file:
        head = _Head(kind=KIND, version=1, identity=model.identity, model=model.name, dimension=model.dimension)
        file.write(head.model_dump_json().encode() + b"\n")
        for person in people:
            file.write(_line(gallery, person).model_dump_json().encode() + b"\n")
    return len(people)


def _line(gallery: Gallery, person: Person) -> _Person:
    photos = tuple(
        _Photo(sha256=photo.sha256, box=photo.box, feature=base64.b64encode(photo.feature.tobytes()).decode())
        for *_, photo in gallery.store.photos(person.id)
    )
    names = tuple(gallery.store.names_of(person.id))
    return _Person(name=person.name, earlier_names=names, note=person.note, expires=person.expires, photos=photos)


def import_people(gallery: Gallery, path: Path) -> tuple[int, int]:
    """Add the people of an export; those of the same name get the photos that they do not have: people and photos.

    All of them are added, or none: a damaged file changes nothing.
    """
    people = photos = 0
    try:
        with path.open("rb") as file:
            head = _parsed(_Head, file.readline(LONGEST_LINE), f"{path}, line 1")
            if head.kind != KIND or head.version != 1:
                raise DataFormatError(f"{path}: {head.kind}, version {head.version}; wanted {KIND}, version 1")
            gallery.bind(Model(head.identity, head.model, head.dimension))
            with gallery.store.together():
                for place, person in _people(file, path):
                    found = [_photo(each, head.dimension, place) for each in person.photos]
                    enrolled, count = gallery.enroll(person.name, found, note=person.note, expires=person.expires)
                    for name in person.earlier_names:
                        gallery.store.add_name(enrolled.id, name)
                    people, photos = people + 1, photos + count
    except OSError as error:
        raise DataFormatError(f"{path}: cannot be read ({error.strerror})") from error
    return people, photos


def _people(file: BinaryIO, path: Path) -> Iterator[tuple[str, _Person]]:
    number = 1
    while line := file.readline(LONGEST_LINE):
        number += 1
        yield f"{path}, line {number}", _parsed(_Person, line, f"{path}, line {number}")


def _photo(record: _Photo, dimension: int, place: str) -> Photo:
    try:
        feature = np.frombuffer(base64.b64decode(record.feature, validate=True), "<f4")
    except ValueError as error:
        raise DataFormatError(f"{place}: a feature is no base64 of float32 numbers; export again") from error
    if len(feature) != dimension or not np.isfinite(feature).all():
        raise DataFormatError(f"{place}: a feature of {len(feature)} numbers; wanted {dimension} finite ones")
    return Photo(record.sha256, record.box, feature)


def _parsed(kind: type[Any], line: bytes, place: str) -> Any:
    try:
        return kind.model_validate(json.loads(line))
    except ValidationError as error:
        field, reason = first_problem(error, "line")
        raise DataFormatError(f"{place}: bad {field}: {reason}; wanted a file of sphereface gallery export") from error
    except ValueError as error:
        raise DataFormatError(f"{place}: not JSON; wanted a file of sphereface gallery export") from error
