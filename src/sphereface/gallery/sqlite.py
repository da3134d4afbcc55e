"""A gallery's store in one SQLite file: WAL, synchronous FULL, secure_delete, readable by its owner alone."""

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from sphereface.arrays import Float32, Int64, unit_rows
from sphereface.errors import ContractMismatch, GalleryError
from sphereface.gallery.records import Changes, Entry, Model, Person, Photo, checked_name
from sphereface.gallery.schema import (
    WAIT,
    clear_errors,
    connect,
    get_meta,
    new_generation,
    set_meta,
    transaction,
    write_ahead,
)
from sphereface.gallery.sealing import Sealed, require_cryptography
from sphereface.gallery.unlocking import unlock
from sphereface.metrics.templates import pool

HASH_BYTES, BOX_BYTES = 32, 16
PEOPLE = 4_096  # templates in a part
ERASE_MILLISECONDS = 1_000  # to wait for readers


class SQLiteStore:
    """The truth of a gallery, in a file.

    One connection, which threads use in turns. With a key, values and names are sealed.
    """

    def __init__(self, path: str | Path, *, key: bytes | None = None, create: bool = True) -> None:
        self.path, self.where, self._lock = Path(path), str(path), RLock()
        if key is not None:
            require_cryptography()
        self._database = connect(self.path, create=create)
        try:
            write_ahead(self._database, self.path)
            with clear_errors(self.path):
                self._seal = unlock(self._database, key, source=self.where)
        except BaseException:
            self._database.close()
            raise
        self._version: tuple[int, int] | None = (
            None  # `data_version` when changes were last asked for: others' changes raise it
        )

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, clear_errors(self.path):
            yield self._database

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, clear_errors(self.path):
            if self._database.in_transaction:  # of `together`
                yield self._database
            else:
                with transaction(self._database):
                    yield self._database

    @contextmanager
    def together(self) -> Iterator[None]:
        """All changes of the block at once, on the disk when it ends, or none of them."""
        with self._writing():
            yield

    @property
    def is_sealed(self) -> bool:
        """True if values are encrypted."""
        return isinstance(self._seal, Sealed)

    @property
    def model(self) -> Model | None:
        """The model of the features; None until the first person is enrolled."""
        with self._reading() as database:
            text = get_meta(database, "model")
        return None if text is None else Model(**json.loads(text))

    def bind(self, model: Model) -> None:
        """Make the model that of this gallery; an error if it has another one."""
        known = self.model
        if known is None:
            with self._writing() as database:
                if get_meta(database, "model") is None:
                    set_meta(database, "model", json.dumps(model._asdict()))
            known = self.model
        assert known is not None
        if known.identity != model.identity:
            raise ContractMismatch(
                f"{self.path}: features of {known.name}, but the model is {model.name}; use that one, or move the "
                "gallery to this one: sphereface gallery reembed"
            )

    # People.

    def people(self) -> list[Person]:
        """All people, by id."""
        with self._reading() as database:
            return [
                self._as_person(row) for row in database.execute(f"{_PEOPLE} GROUP BY people.id ORDER BY people.id")
            ]

    def person(self, number: int) -> Person | None:
        """A person by id."""
        with self._reading() as database:
            row = database.execute(f"{_PEOPLE} WHERE people.id = ? GROUP BY people.id", (number,)).fetchone()
        return None if row is None else self._as_person(row)

    def find(self, name: str) -> Person | None:
        """The person of a name, also of an earlier one."""
        key = self._seal.name_key(checked_name(name))
        with self._reading() as database:
            number = _found(database, key)
        return None if number is None else self.person(number)

    def _required(self, number: int) -> Person:
        found = self.person(number)
        if found is None:
            raise GalleryError(f"{self.path}: person {number} was removed meanwhile")
        return found

    def names_of(self, number: int) -> list[str]:
        """The earlier names of a person."""
        with self._reading() as database:
            rows = database.execute("SELECT name_key, value FROM aliases WHERE person = ?", (number,)).fetchall()
        return sorted(self._seal.open(value, "alias", key).decode() for key, value in rows)

    def _as_person(self, row: Sequence[Any]) -> Person:
        number, value, added, expires, photos = row
        name, note = json.loads(self._seal.open(value, "person", number))
        return Person(number, name, photos, note, added, expires)

    def _person_value(self, number: int, name: str, note: str) -> bytes:
        text = json.dumps([name, note], ensure_ascii=False)
        return self._seal.seal(text.encode(), "person", number)

    # Photos.

    def photos(self, number: int) -> list[tuple[int, float, Photo]]:
        """The photos of a person: number, time, photo."""
        with self._reading() as database:
            rows = database.execute(
                "SELECT id, added, value FROM photos WHERE person = ? ORDER BY id", (number,)
            ).fetchall()
        return [(photo, added, self._as_photo(value, number, photo)) for photo, added, value in rows]

    def owners(self, sha256: str) -> list[int]:
        """The people to whom a photo belongs."""
        with self._reading() as database:
            rows = database.execute(
                "SELECT person FROM photos WHERE photo_key = ? ORDER BY person", (self._seal.photo_key(sha256),)
            ).fetchall()
        return [number for (number,) in rows]

    def is_rejected(self, number: int, sha256: str) -> bool:
        """True if a photo was removed from a person."""
        with self._reading() as database:
            row = database.execute(
                "SELECT 1 FROM rejections WHERE person = ? AND photo_key = ?", (number, self._seal.photo_key(sha256))
            ).fetchone()
        return row is not None

    def _as_photo(self, value: bytes, person: int, number: int) -> Photo:
        plain = self._seal.open(value, "photo", person, number, self._identity)
        x1, y1, x2, y2 = np.frombuffer(plain, "<f4", 4, HASH_BYTES).tolist()
        feature = np.frombuffer(plain, "<f4", offset=HASH_BYTES + BOX_BYTES)
        return Photo(plain[:HASH_BYTES].hex(), (x1, y1, x2, y2), feature)

    def _photo_value(self, photo: Photo, person: int, number: int) -> bytes:
        box = np.asarray(photo.box, "<f4").tobytes()
        plain = bytes.fromhex(photo.sha256) + box + np.ascontiguousarray(photo.feature, "<f4").tobytes()
        return self._seal.seal(plain, "photo", person, number, self._identity)

    @property
    def _identity(self) -> str:
        model = self.model
        assert model is not None, "a gallery with photos has a model"
        return model.identity

    # Changes.

    def add(
        self, name: str, photos: Sequence[Photo], *, note: str = "", expires: float | None = None, actor: str
    ) -> tuple[int, int]:
        """Add photos to a person, who is made if needed: id, and the number of photos that are new."""
        name, now = checked_name(name), time.time()
        key = self._seal.name_key(name)
        with self._writing() as database:
            number = _found(database, key)
            is_new = number is None
            if number is None:
                number = _next(database, "people")
                database.execute(
                    "INSERT INTO people VALUES (?, ?, ?, ?, ?)",
                    (number, key, self._person_value(number, name, note), now, expires),
                )
            count = sum(self._insert(database, number, photo, now) for photo in photos)
            if is_new or count:
                _log(database, now, actor, "enroll" if is_new else "add photos", number, count)
        return number, count

    def _insert(self, database: sqlite3.Connection, person: int, photo: Photo, now: float) -> bool:
        """Insert a photo, unless the person has it; True if it is new."""
        photo_key = self._seal.photo_key(photo.sha256)
        known = "SELECT 1 FROM photos WHERE photo_key = ? AND person = ?"
        if database.execute(known, (photo_key, person)).fetchone():
            return False
        number = _next(database, "photos")
        database.execute(
            "INSERT INTO photos VALUES (?, ?, ?, ?, ?)",
            (number, person, photo_key, self._photo_value(photo, person, number), now),
        )
        return True

    def rename(self, number: int, name: str, *, actor: str) -> None:
        """Give a person another name; the earlier one still finds the person."""
        name = checked_name(name)
        key = self._seal.name_key(name)
        with self._writing() as database:
            person, other = self._required(number), _found(database, key)
            if other not in (None, number):
                raise GalleryError(f"{name} is a name of another person; to make the two one: sphereface gallery merge")
            database.execute("DELETE FROM aliases WHERE name_key = ?", (key,))
            database.execute(
                "UPDATE people SET name_key = ?, value = ? WHERE id = ?",
                (key, self._person_value(number, name, person.note), number),
            )
            if person.name != name:
                self._add_alias(database, person.name, number)
            _log(database, time.time(), actor, "rename", number, 0)

    def add_name(self, number: int, name: str) -> None:
        """Let a person also be found by another name, unless that is somebody's already."""
        name = checked_name(name)
        with self._writing() as database:
            if _found(database, self._seal.name_key(name)) is None:
                self._add_alias(database, name, number)

    def _add_alias(self, database: sqlite3.Connection, name: str, number: int) -> None:
        key = self._seal.name_key(name)
        database.execute(
            "INSERT INTO aliases VALUES (?, ?, ?)", (key, self._seal.seal(name.encode(), "alias", key), number)
        )

    def merge(self, number: int, into: int, *, actor: str) -> None:
        """Make two people one: photos, names and rejections of the first go to the second."""
        now = time.time()
        with self._writing() as database:
            person, _ = self._required(number), self._required(into)
            if number == into:
                raise GalleryError(f"{person.name} is the same person already; wanted two people")
            count = sum(self._insert(database, into, photo, now) for _, _, photo in self.photos(number))
            database.execute("UPDATE aliases SET person = ? WHERE person = ?", (into, number))
            database.execute("UPDATE OR IGNORE rejections SET person = ? WHERE person = ?", (into, number))
            database.execute("DELETE FROM people WHERE id = ?", (number,))
            self._add_alias(database, person.name, into)
            _log(database, now, actor, "merge", into, count)
            _log(database, now, actor, "merge away", number, 0)

    def remove(self, number: int, *, actor: str) -> None:
        """Delete a person and all that belongs to them."""
        with self._writing() as database:
            self._required(number)
            (count,) = database.execute("SELECT COUNT(*) FROM photos WHERE person = ?", (number,)).fetchone()
            database.execute("DELETE FROM people WHERE id = ?", (number,))
            _log(database, time.time(), actor, "remove", number, count)

    def remove_photos(self, number: int, photos: Sequence[int], *, actor: str) -> None:
        """Delete photos of a person, who does not get them again."""
        with self._writing() as database:
            for photo in photos:
                database.execute(
                    "INSERT OR IGNORE INTO rejections SELECT person, photo_key FROM photos WHERE id = ?", (photo,)
                )
                database.execute("DELETE FROM photos WHERE id = ? AND person = ?", (photo, number))
            _log(database, time.time(), actor, "remove photos", number, len(photos))

    def expire(self, number: int, when: float | None, *, actor: str) -> None:
        """Set the time from which a person is not named; None: never."""
        with self._writing() as database:
            self._required(number)
            database.execute("UPDATE people SET expires = ? WHERE id = ?", (when, number))
            _log(database, time.time(), actor, "set expiry", number, 0)

    def replace(self, model: Model, photos: Iterable[tuple[int, Photo]], *, actor: str) -> None:
        """Replace the features of all photos by those of another model; (number of the photo, photo)."""
        with self._writing() as database:
            owners = dict(database.execute("SELECT id, person FROM photos"))
            set_meta(database, "model", json.dumps(model._asdict()))
            for number, photo in photos:
                value = self._photo_value(photo, owners.pop(number), number)
                database.execute("UPDATE photos SET value = ? WHERE id = ?", (value, number))
            if owners:
                raise GalleryError(f"{len(owners):,} photos have no features of {model.name}; nothing was changed")
            new_generation(database)
            _log(database, time.time(), actor, "reembed", None, 0)

    # What an index needs.

    def templates(self, people: Sequence[int] | None = None) -> Iterator[tuple[Int64, Float32]]:
        """The templates of some people, or all: ids (N,) and unit rows (N, D), in parts."""
        if self.model is None:
            return
        with self._reading() as database:
            numbers = [number for (number,) in database.execute("SELECT DISTINCT person FROM photos ORDER BY person")]
        wanted = numbers if people is None else sorted(set(numbers) & set(people))
        for start in range(0, len(wanted), PEOPLE):
            some = wanted[start : start + PEOPLE]
            query = f"SELECT person, id, value FROM photos WHERE person IN ({','.join('?' * len(some))}) ORDER BY id"  # noqa: S608
            with self._reading() as database:
                rows = database.execute(query, some).fetchall()
            if rows:
                there = np.unique([person for person, _, _ in rows])
                features = np.stack([self._as_photo(value, person, number).feature for person, number, value in rows])
                owner = np.searchsorted(there, [person for person, _, _ in rows])
                yield there, pool(unit_rows(features), owner, len(there))

    def changes(self, since: tuple[str, int] | None) -> Changes | None:
        """What changed since a revision; None: nothing."""
        with self._reading() as database:
            version, own = database.execute("PRAGMA data_version").fetchone()[0], database.total_changes
            if since is not None and self._version == (version, own):
                return None
            self._version = version, own
            generation = get_meta(database, "generation") or ""
            last = database.execute("SELECT COALESCE(MAX(id), 0) FROM log").fetchone()[0]
            if since is None or since[0] != generation:
                return Changes((generation, last), None)
            rows = database.execute("SELECT DISTINCT person FROM log WHERE id > ? AND person > 0", (since[1],))
            return Changes((generation, last), [number for (number,) in rows])

    def log(self, since: int = 0) -> list[Entry]:
        """The lines of the log after one of them."""
        with self._reading() as database:
            return [Entry(*row) for row in database.execute("SELECT * FROM log WHERE id > ? ORDER BY id", (since,))]

    def erase(self) -> bool:
        """Overwrite what was deleted in every file of the store; False if another reader still prevents it."""
        with self._reading() as database:
            database.execute(f"PRAGMA busy_timeout={ERASE_MILLISECONDS}")
            try:
                return not database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            finally:
                database.execute(f"PRAGMA busy_timeout={int(1000 * WAIT)}")

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """The connection, for whole-file work: backup, restore, check."""
        return self._reading()

    def close(self) -> None:
        """Close the file; the last one to do so moves all changes into it."""
        with self._lock:
            self._database.close()


_PEOPLE = """
    SELECT people.id, people.value, people.added, people.expires, COUNT(photos.id)
    FROM people LEFT JOIN photos ON photos.person = people.id
"""


def _found(database: sqlite3.Connection, name_key: str) -> int | None:
    """The id of the person of a name or an earlier name."""
    row = database.execute(
        "SELECT id FROM people WHERE name_key = ? UNION ALL SELECT person FROM aliases WHERE name_key = ?",
        (name_key, name_key),
    ).fetchone()
    return None if row is None else int(row[0])


def _next(database: sqlite3.Connection, table: str) -> int:
    """The id of the next row, which was never used before; for sealing, it is needed before the row is written."""
    row = database.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    return 1 if row is None else int(row[0]) + 1


def _log(database: sqlite3.Connection, now: float, actor: str, action: str, person: int | None, photos: int) -> None:
    database.execute(
        "INSERT INTO log (time, actor, action, person, photos) VALUES (?, ?, ?, ?, ?)",
        (now, actor, action, person, photos),
    )
