"""The tables of a gallery in SQLite, and opening a file of them: new, older, later, or something else.

A photo's value is its SHA-256 (32 bytes), the box of the face (4 float32), and the feature (D float32); a person's is
name and note as a JSON list. With a key, values are sealed. Templates are not stored: they follow from the features.
"""

import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sphereface.data.files.writing import PRIVATE, flush
from sphereface.errors import GalleryError, JobFailed, SphereFaceError

APPLICATION = 0x53664761  # "SfGa", at a fixed place of every file
PAGE = 32_768  # bytes; a row of 512 numbers takes 2 kB, and pages of 4 kB would be half empty
WAIT = 30.0  # seconds for another process's change to end
RETRY = 0.05  # seconds between tries where SQLite does not wait itself
HEADER = b"SQLite format 3\0"
PRAGMAS = (
    "secure_delete=ON", "foreign_keys=ON", "synchronous=FULL", "temp_store=MEMORY", "fullfsync=ON",
    "checkpoint_fullfsync=ON",
)  # fmt: skip

# The changes that make a file of each version from one of the version before; the number of them is the version.
MIGRATIONS = (
    """
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE people (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name_key TEXT NOT NULL UNIQUE,
        value BLOB NOT NULL,
        added REAL NOT NULL,
        expires REAL
    );
    CREATE TABLE aliases (
        name_key TEXT PRIMARY KEY,
        value BLOB NOT NULL,
        person INTEGER NOT NULL REFERENCES people(id) ON DELETE CASCADE
    );
    CREATE TABLE photos (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        person INTEGER NOT NULL REFERENCES people(id) ON DELETE CASCADE,
        photo_key BLOB NOT NULL,
        value BLOB NOT NULL,
        added REAL NOT NULL
    );
    CREATE UNIQUE INDEX photos_by_key ON photos(photo_key, person);
    CREATE INDEX photos_by_person ON photos(person);
    CREATE TABLE rejections (
        person INTEGER NOT NULL REFERENCES people(id) ON DELETE CASCADE,
        photo_key BLOB NOT NULL,
        PRIMARY KEY (person, photo_key)
    ) WITHOUT ROWID;
    CREATE TABLE log (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        time REAL NOT NULL,
        actor TEXT NOT NULL,
        action TEXT NOT NULL,
        person INTEGER,
        photos INTEGER NOT NULL
    );
    CREATE TRIGGER log_is_kept BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;
    CREATE TRIGGER log_is_final BEFORE UPDATE ON log BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;
    """,
)
VERSION = len(MIGRATIONS)


def connect(path: Path, *, create: bool, write: bool = True) -> sqlite3.Connection:
    """An open gallery file of the present version; a missing one is made, readable by its owner alone, or an error.

    Without `write`, nothing is changed in the file: for backups.
    """
    if not path.exists():
        if not create:
            raise GalleryError(f"{path}: no such gallery; sphereface enroll makes one")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE))
        except OSError as error:
            raise GalleryError(f"{path}: cannot be made ({error.strerror})") from error
        flush(path.parent)
    _require_database(path, may_be_empty=create)
    with clear_errors(path):
        mode = "rw" if write and os.access(path, os.W_OK) else "ro"
        database = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode={mode}", uri=True, timeout=WAIT, isolation_level=None,
            check_same_thread=False,
        )  # fmt: skip
        try:
            _prepare(database, path, writable=mode == "rw")
        except BaseException:
            database.close()
            raise
    return database


def _require_database(path: Path, *, may_be_empty: bool) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(len(HEADER))
    except OSError as error:
        raise GalleryError(f"{path}: cannot be read ({error.strerror})") from error
    if start != HEADER and not (may_be_empty and not start):
        raise GalleryError(f"{path}: not a gallery; wanted a file that sphereface enroll made, or a new name")


def _prepare(database: sqlite3.Connection, path: Path, *, writable: bool) -> None:
    """Set what holds for a connection, check whose file it is, and bring it to the present version."""
    for pragma in PRAGMAS:
        database.execute(f"PRAGMA {pragma}")
    if _is_empty(database):
        database.execute(f"PRAGMA page_size={PAGE}")
    elif _number(database, "application_id") != APPLICATION:
        raise GalleryError(f"{path}: a database of another program; wanted a gallery, or a new name")
    version = _number(database, "user_version")
    if version > VERSION:
        raise GalleryError(
            f"{path}: a gallery of version {version}; this sphereface reads up to {VERSION}: install a newer one"
        )
    if version < VERSION and not writable:
        raise GalleryError(f"{path}: a gallery of version {version}, to be brought to {VERSION}; make it writable")
    if writable:
        _write_ahead(database, path)
    if version < VERSION:
        _migrate(database)


def _write_ahead(database: sqlite3.Connection, path: Path) -> None:
    """Keep changes in a log beside the file, so that reading does not wait for them; a backup has no such log."""
    end = time.monotonic() + WAIT
    while True:
        try:
            if database.execute("PRAGMA journal_mode=WAL").fetchone()[0] == "wal":
                return
            raise GalleryError(f"{path}: its file system does not support galleries; wanted a local disk")
        except sqlite3.OperationalError as error:  # locked by a process that does the same: SQLite does not wait here
            busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not busy or time.monotonic() > end:
                raise
        time.sleep(RETRY)


def _migrate(database: sqlite3.Connection) -> None:
    with transaction(database):
        for number in range(_number(database, "user_version"), VERSION):  # another process may have been faster
            if number == 0:
                database.execute(f"PRAGMA application_id={APPLICATION}")
            for statement in _statements(MIGRATIONS[number]):
                database.execute(statement)
            if number == 0:
                set_meta(database, "id", secrets.token_hex(8))
                new_generation(database)
            database.execute(f"PRAGMA user_version={number + 1}")


def _statements(script: str) -> Iterator[str]:
    """The statements of a script; sqlite3's own `executescript` would commit first."""
    part = ""
    for piece in script.split(";"):
        part += piece + ";"
        if sqlite3.complete_statement(part):
            if part.strip(" \n;"):
                yield part
            part = ""


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """All of the block's changes, on the disk when it ends, or none of them."""
    try:
        database.execute("BEGIN IMMEDIATE")
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


@contextmanager
def snapshot(database: sqlite3.Connection) -> Iterator[None]:
    """All reading of the block sees one state."""
    database.execute("BEGIN")
    try:
        yield
    finally:
        database.execute("ROLLBACK")


def set_meta(database: sqlite3.Connection, name: str, value: str) -> None:
    """Write a setting of the gallery."""
    database.execute(
        "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", (name, value)
    )


def new_generation(database: sqlite3.Connection) -> None:
    """Mark a file as replaced as a whole, so that everybody who has it open reads all of it again."""
    set_meta(database, "generation", secrets.token_hex(8))


def get_meta(database: sqlite3.Connection, name: str) -> str | None:
    """A setting of the gallery, or None."""
    row = database.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def write_log(
    database: sqlite3.Connection, actor: str, action: str, person: int | None = None, photos: int = 0
) -> None:
    """Add a line to the log."""
    database.execute(
        "INSERT INTO log (time, actor, action, person, photos) VALUES (?, ?, ?, ?, ?)",
        (time.time(), actor, action, person, photos),
    )


@contextmanager
def clear_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of damaged values into one line that says what to do; failed changes are not stored."""
    try:
        yield
    except SphereFaceError:
        raise
    except (ValueError, TypeError, KeyError) as error:  # of a value that cannot be parsed
        raise GalleryError(f"{path}: damaged ({error}); restore a backup: sphereface gallery restore") from error
    except sqlite3.Error as error:
        match getattr(error, "sqlite_errorcode", 0) & 0xFF:
            case sqlite3.SQLITE_FULL:
                raise JobFailed(f"{path}: the disk is full; this change was not stored: make room, repeat") from error
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
                raise GalleryError(f"{path}: cannot be written; make file and folder writable") from error
            case sqlite3.SQLITE_CANTOPEN:
                raise GalleryError(f"{path}: cannot be opened; make its folder writable, or copy the file") from error
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                raise JobFailed(f"{path}: another process writes since {WAIT:.0f} s; repeat when it is done") from error
            case sqlite3.SQLITE_NOTADB:
                raise GalleryError(f"{path}: not a gallery; wanted a file that sphereface enroll made") from error
            case sqlite3.SQLITE_IOERR:
                raise JobFailed(f"{path}: the disk failed ({error}); this change was not stored") from error
        raise GalleryError(f"{path}: damaged ({error}); restore a backup: sphereface gallery restore") from error


def _is_empty(database: sqlite3.Connection) -> bool:
    return not _number(database, "application_id") and not database.execute("SELECT 1 FROM sqlite_master").fetchone()


def _number(database: sqlite3.Connection, pragma: str) -> int:
    return int(database.execute(f"PRAGMA {pragma}").fetchone()[0])
