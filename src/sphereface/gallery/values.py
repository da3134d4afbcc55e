"""The values in a gallery's rows, as bytes that are sealed together with the columns beside them.

So a value opens only in its own row, and only if the row's other columns are those that it was written with.
"""

import json
from typing import NamedTuple

import numpy as np

from sphereface.gallery.records import Photo
from sphereface.gallery.sealing import Seal

HASH_BYTES, BOX_BYTES = 32, 16


class PersonRow(NamedTuple):
    """The columns of a person beside the value."""

    id: int
    name_key: str
    added: float
    expires: float | None


class PhotoRow(NamedTuple):
    """The columns of a photo beside the value, and the model of its feature."""

    id: int
    person: int
    photo_key: bytes
    identity: str


class Values:
    """Writes and reads the values of rows, with a seal."""

    def __init__(self, seal: Seal) -> None:
        self.seal = seal

    def write_person(self, row: PersonRow, name: str, note: str) -> bytes:
        """The value of a person."""
        return self.seal.seal(json.dumps([name, note], ensure_ascii=False).encode(), "person", *row)

    def read_person(self, row: PersonRow, value: bytes) -> tuple[str, str]:
        """Name and note."""
        name, note = json.loads(self.seal.open(value, "person", *row))
        return str(name), str(note)

    def write_photo(self, row: PhotoRow, photo: Photo) -> bytes:
        """The value of a photo."""
        box = np.asarray(photo.box, "<f4").tobytes()
        plain = bytes.fromhex(photo.sha256) + box + np.ascontiguousarray(photo.feature, "<f4").tobytes()
        return self.seal.seal(plain, *_about(row))

    def read_photo(self, row: PhotoRow, value: bytes) -> Photo:
        """The photo."""
        plain = self.seal.open(value, *_about(row))
        x1, y1, x2, y2 = np.frombuffer(plain, "<f4", 4, HASH_BYTES).tolist()
        feature = np.frombuffer(plain, "<f4", offset=HASH_BYTES + BOX_BYTES)
        return Photo(plain[:HASH_BYTES].hex(), (x1, y1, x2, y2), feature)

    def write_alias(self, name_key: str, person: int, name: str) -> bytes:
        """The value of an earlier name."""
        return self.seal.seal(name.encode(), "alias", name_key, person)

    def read_alias(self, name_key: str, person: int, value: bytes) -> str:
        """The name."""
        return self.seal.open(value, "alias", name_key, person).decode()


def _about(row: PhotoRow) -> tuple[object, ...]:
    return "photo", row.person, row.id, row.photo_key.hex(), row.identity
