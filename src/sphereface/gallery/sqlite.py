"""A gallery's store in one SQLite file: WAL, synchronous FULL, secure_delete, readable by its owner alone."""

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from sphereface.arrays import Float32, Int64, unit_rows
from sphereface.errors import ContractMismatch, GalleryError, UserError
from sphereface.gallery.queries import PEOPLE_ROWS, PHOTO_ROWS, find_person, is_rejected, next_id
from sphereface.gallery.records import (
    Changes,
    Entry,
    Model,
    Person,
    Photo,
    Revision,
    checked_expiry,
    checked_name,
    checked_note,
)
from sphereface.gallery.schema import (
    WAIT,
    clear_errors,
    connect,
    get_meta,
    new_generation,
    set_meta,
    transaction,
    write_log,
)
from sphereface.gallery.sealing import Sealed, require_cryptography
from sphereface.gallery.unlocking import unlock
from sphereface.gallery.values import PersonRow, PhotoRow, Values
from sphereface.metrics.templates import pool

PEOPLE = 4_096  # templates in a part
ERASE_MILLISECONDS = 1_000  # to wait for readers


class SQLiteStore:
    """The truth of a gallery, in a file.

    One connection, which threads use in turns. With a key, values and names are sealed.
    """

    def __init__(self, path: str | Path, *, key: bytes | None = None, create: bool = True) -> None:
        self.path, self.where, self._lock = Path(path), str(path), RLock()
        self._depth = 0  # of `together`
        if key is not None:
            require_cryptography()
        self._database = connect(self.path, create=create)
        try:
            with clear_errors(self.path):
                self._seal = unlock(self._database, key, source=self.where)
        except BaseException:
            self._database.close()
            raise
        self._values = Values(self._seal)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, to read from; also for whole-file work."""
        with self._lock, clear_errors(self.path):
            yield self._database

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, clear_errors(self.path):
            if self._depth:
                yield self._database
            else:
                with transaction(self._database):
                    yield self._database

    @contextmanager
    def together(self) -> Iterator[None]:
        """All changes of the block at once, on the disk when it ends, or none of them."""
        with self._writing():
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1

    @property
    def is_sealed(self) -> bool:
        """True if values are encrypted."""
        return isinstance(self._seal, Sealed)

    @property
    def model(self) -> Model | None:
        """The model of the features; None until the first person is enrolled."""
        with self.reading() as database:
            text = get_meta(database, "model")
            return None if text is None else Model(**json.loads(text))

    def _require_model(self, database: sqlite3.Connection, model: Model) -> None:
        """Make a model that of the gallery, if it has none; raise if it has another one."""
        known = self.model
        if known is None:
            set_meta(database, "model", json.dumps(model._asdict()))
        elif (known.identity, known.dimension) != (model.identity, model.dimension):
            raise ContractMismatch(
                f"{self.path}: features of {known.name}, but the model is {model.name}; use that one, or move the "
                "gallery to this one: sphereface gallery reembed"
            )

    # People.

    def people(self) -> list[Person]:
        """All people, by id."""
        with self.reading() as database:
            rows = database.execute(f"{PEOPLE_ROWS} GROUP BY people.id ORDER BY people.id").fetchall()
            return [self._as_person(row) for row in rows]

    def person(self, number: int) -> Person | None:
        """A person by id."""
        with self.reading() as database:
            row = database.execute(f"{PEOPLE_ROWS} WHERE people.id = ? GROUP BY people.id", (number,)).fetchone()
            return None if row is None else self._as_person(row)

    def _as_person(self, row: Sequence[Any]) -> Person:
        number, name_key, value, added, expires, photos = row
        name, note = self._values.read_person(PersonRow(number, name_key, added, expires), value)
        return Person(number, name, photos, note, added, expires)

    def _required(self, number: int) -> Person:
        found = self.person(number)
        if found is None:
            raise GalleryError(f"{self.path}: person {number} was removed meanwhile")
        return found

    def find(self, name: str) -> Person | None:
        """The person of a name, also of an earlier one."""
        key = self._seal.name_key(checked_name(name))
        with self.reading() as database:
            number = find_person(database, key)
            return None if number is None else self.person(number)

    def names_of(self, number: int) -> list[str]:
        """The earlier names of a person."""
        with self.reading() as database:
            rows = database.execute("SELECT name_key, value FROM aliases WHERE person = ?", (number,)).fetchall()
            return sorted(self._values.read_alias(key, number, value) for key, value in rows)

    def _write_person(self, database: sqlite3.Connection, person: Person, *, is_new: bool = False) -> None:
        row = PersonRow(person.id, self._seal.name_key(person.name), person.added, person.expires)
        value = self._values.write_person(row, person.name, person.note)
        if is_new:
            database.execute("INSERT INTO people VALUES (?, ?, ?, ?, ?)", (*row[:2], value, *row[2:]))
        else:
            database.execute(
                "UPDATE people SET name_key = ?, value = ?, expires = ? WHERE id = ?",
                (row.name_key, value, row.expires, row.id),
            )

    # Photos.

    def photos(self, number: int) -> list[tuple[int, float, Photo]]:
        """The photos of a person: number, time, photo."""
        with self.reading() as database:
            rows = database.execute(f"{PHOTO_ROWS} WHERE person = ? ORDER BY id", (number,)).fetchall()
            identity = self._identity if rows else ""
            return [(row[0], row[4], self._as_photo(row, identity)) for row in rows]

    def _as_photo(self, row: Sequence[Any], identity: str) -> Photo:
        number, person, photo_key, value, _ = row
        return self._values.read_photo(PhotoRow(number, person, photo_key, identity), value)

    def owners(self, sha256: str) -> list[int]:
        """The people to whom a photo belongs."""
        with self.reading() as database:
            rows = database.execute(
                "SELECT person FROM photos WHERE photo_key = ? ORDER BY person", (self._seal.photo_key(sha256),)
            )
            return [number for (number,) in rows]

    def is_rejected(self, number: int, sha256: str) -> bool:
        """True if a photo was removed from a person."""
        with self.reading() as database:
            return is_rejected(database, number, self._seal.photo_key(sha256))

    @property
    def _identity(self) -> str:
        model = self.model
        assert model is not None, "a gallery with photos has a model"
        return model.identity

    # Changes.

    def add(
        self,
        who: str | int,
        photos: Sequence[Photo],
        *,
        model: Model,
        note: str = "",
        expires: float | None = None,
        actor: str,
    ) -> tuple[int, int]:
        """Add photos to a person: id, and the number of photos that are new; one of a new name is made.

        Photos that the person has, or that were removed from the person, are passed over. A note and an end date
        replace those of a known person. A store without a model gets this one; another one's features are an error.
        """
        checked_note(note)
        checked_expiry(expires)
        for photo in photos:
            feature = np.asarray(photo.feature)
            if feature.shape != (model.dimension,) or not np.isfinite(feature).all() or not feature.any():
                raise UserError(f"a feature {feature.shape}; wanted {model.dimension} finite numbers, not all zero")
        with self._writing() as database:
            self._require_model(database, model)
            known = who if isinstance(who, int) else find_person(database, self._seal.name_key(checked_name(who)))
            if known is None:
                name = checked_name(str(who))
                person = Person(next_id(database, "people"), name, 0, note, time.time(), expires)
                self._write_person(database, person, is_new=True)
            else:
                person = self._required(known)
                if note or expires is not None:
                    changed = person._replace(note=note or person.note, expires=expires or person.expires)
                    self._write_person(database, changed)
            count = sum(self._insert(database, person.id, photo, model.identity) for photo in photos)
            if known is None or count or note or expires is not None:
                write_log(database, actor, "enroll" if known is None else "add photos", person.id, count)
        return person.id, count

    def _insert(self, database: sqlite3.Connection, person: int, photo: Photo, identity: str) -> bool:
        """Insert a photo, unless the person has it or had it; True if it is new."""
        photo_key = self._seal.photo_key(photo.sha256)
        known = "SELECT 1 FROM photos WHERE photo_key = ? AND person = ?"
        if database.execute(known, (photo_key, person)).fetchone() or is_rejected(database, person, photo_key):
            return False
        row = PhotoRow(next_id(database, "photos"), person, photo_key, identity)
        value = self._values.write_photo(row, photo)
        database.execute("INSERT INTO photos VALUES (?, ?, ?, ?, ?)", (*row[:3], value, time.time()))
        return True

    def rename(self, number: int, name: str, *, actor: str) -> None:
        """Give a person another name; the earlier one still finds the person."""
        name = checked_name(name)
        key = self._seal.name_key(name)
        with self._writing() as database:
            person, other = self._required(number), find_person(database, key)
            if other not in (None, number):
                raise GalleryError(f"{name} is a name of another person; to make the two one: sphereface gallery merge")
            database.execute("DELETE FROM aliases WHERE name_key = ?", (key,))
            self._write_person(database, person._replace(name=name))
            if person.name != name:
                self._write_alias(database, person.name, number)
            write_log(database, actor, "rename", number)

    def add_name(self, number: int, name: str) -> None:
        """Let a person also be found by another name, unless that is somebody's already."""
        name = checked_name(name)
        with self._writing() as database:
            if find_person(database, self._seal.name_key(name)) is None:
                self._write_alias(database, name, number)

    def _write_alias(self, database: sqlite3.Connection, name: str, number: int) -> None:
        key = self._seal.name_key(name)
        value = self._values.write_alias(key, number, name)
        database.execute("INSERT OR REPLACE INTO aliases VALUES (?, ?, ?)", (key, value, number))

    def merge(self, number: int, into: int, *, actor: str) -> None:
        """Make two people one: photos, names, rejections and note go to the second; the earlier end date holds."""
        with self._writing() as database:
            person, target = self._required(number), self._required(into)
            if number == into:
                raise GalleryError(f"{person.name} is the same person already; wanted two people")
            count = sum(self._insert(database, into, photo, self._identity) for *_, photo in self.photos(number))
            names = [person.name, *self.names_of(number)]
            database.execute("UPDATE OR IGNORE rejections SET person = ? WHERE person = ?", (into, number))
            database.execute("DELETE FROM people WHERE id = ?", (number,))
            for name in names:
                self._write_alias(database, name, into)
            ends = [each.expires for each in (person, target) if each.expires is not None]
            note = "; ".join(dict.fromkeys(each.note for each in (target, person) if each.note))
            self._write_person(database, target._replace(note=note, expires=min(ends, default=None)))
            write_log(database, actor, "merge", into, count)
            write_log(database, actor, "merge away", number)

    def remove(self, number: int, *, actor: str) -> None:
        """Delete a person and all that belongs to them."""
        with self._writing() as database:
            person = self._required(number)
            database.execute("DELETE FROM people WHERE id = ?", (number,))
            write_log(database, actor, "remove", number, person.photos)

    def remove_photos(self, number: int, photos: Sequence[int], *, actor: str) -> int:
        """Delete photos of a person, who does not get them again; the number of photos."""
        count = 0
        with self._writing() as database:
            for photo in photos:
                of = (photo, number)
                some = "SELECT person, photo_key FROM photos WHERE id = ? AND person = ?"
                database.execute(f"INSERT OR IGNORE INTO rejections {some}", of)
                count += database.execute("DELETE FROM photos WHERE id = ? AND person = ?", of).rowcount
            write_log(database, actor, "remove photos", number, count)
        return count

    def expire(self, number: int, when: float | None, *, actor: str) -> None:
        """Set the time from which a person is not named; None: never."""
        checked_expiry(when)
        with self._writing() as database:
            self._write_person(database, self._required(number)._replace(expires=when))
            write_log(database, actor, "set end date", number)

    def replace(self, model: Model, photos: Iterable[tuple[int, Photo]], *, actor: str) -> None:
        """Replace the features of all photos by those of another model; (number of the photo, photo)."""
        with self._writing() as database:
            rows = {
                number: PhotoRow(number, person, photo_key, model.identity)
                for number, person, photo_key in database.execute("SELECT id, person, photo_key FROM photos")
            }
            set_meta(database, "model", json.dumps(model._asdict()))
            for number, photo in photos:
                if number in rows:  # not removed meanwhile
                    value = self._values.write_photo(rows.pop(number), photo)
                    database.execute("UPDATE photos SET value = ? WHERE id = ?", (value, number))
            if rows:
                raise GalleryError(f"{len(rows):,} photos have no features of {model.name}; nothing was changed")
            new_generation(database)
            write_log(database, actor, "reembed")

    def record(self, action: str, *, actor: str) -> None:
        """Add a line to the log, of something that changed nothing here."""
        with self._writing() as database:
            write_log(database, actor, action)

    # What an index needs.

    def templates(self, people: Sequence[int] | None = None) -> Iterator[tuple[Int64, Float32]]:
        """The templates of some people, or all: ids (N,) and unit rows (N, D), in parts."""
        with self.reading() as database:
            wanted = (
                [number for (number,) in database.execute("SELECT id FROM people ORDER BY id")]
                if people is None
                else sorted(people)
            )
        for start in range(0, len(wanted), PEOPLE):
            some = wanted[start : start + PEOPLE]
            with self.reading() as database:
                query = f"{PHOTO_ROWS} WHERE person IN ({','.join('?' * len(some))}) ORDER BY id"
                rows = database.execute(query, some).fetchall()
                if rows:
                    identity = self._identity
                    features = np.stack([self._as_photo(row, identity).feature for row in rows])
                    there, owner = np.unique([row[1] for row in rows], return_inverse=True)
                    yield there, pool(unit_rows(features), owner, len(there))

    def changes(self, since: Revision | None) -> Changes | None:
        """What changed since a revision; None: nothing, or within `together`."""
        with self.reading() as database:
            seen = (int(database.execute("PRAGMA data_version").fetchone()[0]), database.total_changes)
            if self._depth or (since is not None and since.seen == seen):
                return None
            last = int(database.execute("SELECT COALESCE(MAX(id), 0) FROM log").fetchone()[0])
            now = Revision(get_meta(database, "generation") or "", last, seen)
            if since is None or since.generation != now.generation:
                return Changes(now, None)
            rows = database.execute("SELECT DISTINCT person FROM log WHERE id > ? AND person > 0", (since.entry,))
            return Changes(now, [number for (number,) in rows])

    def log(self, since: int = 0) -> list[Entry]:
        """The lines of the log after one of them."""
        with self.reading() as database:
            return [Entry(*row) for row in database.execute("SELECT * FROM log WHERE id > ? ORDER BY id", (since,))]

    def erase(self) -> bool:
        """Overwrite what was deleted in every file of the store; False if another reader still prevents it."""
        with self.reading() as database:
            database.execute(f"PRAGMA busy_timeout={ERASE_MILLISECONDS}")
            try:
                return not database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            finally:
                database.execute(f"PRAGMA busy_timeout={int(1000 * WAIT)}")

    def close(self) -> None:
        """Close the file; the last one to do so moves all changes into it."""
        with self._lock:
            self._database.close()
