"""Backup, restore and check of a gallery's file."""

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np

from sphereface.arrays import unit_rows
from sphereface.data.files.writing import PRIVATE, beside, flush, new_files
from sphereface.errors import GalleryError, JobFailed, SphereFaceError
from sphereface.gallery.gallery import Gallery
from sphereface.gallery.schema import WAIT, clear_errors, connect, get_meta, new_generation, snapshot, write_log
from sphereface.gallery.sqlite import SQLiteStore
from sphereface.metrics.templates import pool

COMPANIONS = ("", "-wal", "-shm")


def back_up(gallery: Gallery, path: Path) -> None:
    """Write a consistent copy to a new file, also while others write; an encrypted gallery stays encrypted."""
    store = require_file(gallery)
    with new_files(path) as room, store.reading() as database:
        _copy(database, room / path.name)
    store.record("backup", actor=gallery.actor)


def _copy(source: sqlite3.Connection, path: Path) -> None:
    """A new private file with the content of a gallery, and without companions."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE))
    with clear_errors(path), closing(sqlite3.connect(path)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode=DELETE")


def restore(path: Path, backup: Path, *, actor: str) -> Path | None:
    """Make a gallery's file what it was at a backup; processes that have it open see the change.

    The backup is checked first, and must be one of this gallery, or the file must be missing. A file that is damaged is
    kept under another name, which is returned.
    """
    with closing(connect(backup, create=False, write=False)) as source, clear_errors(backup), beside(path) as room:
        problems = _file_problems(source)
        if problems:
            raise GalleryError(f"{backup}: damaged ({problems[0]}); choose another backup")
        copy = room / path.name
        _copy(source, copy)
        database = _opened(path)
        kept = _set_aside(path) if database is None and path.exists() else None
        last = {} if database is None else _require_same(database, source, path, backup)
        with closing(sqlite3.connect(copy, isolation_level=None)) as prepared:
            prepared.execute("BEGIN")
            new_generation(prepared)
            write_log(prepared, actor, "restore")
            for table, number in last.items():  # ids that were given since the backup are not given again
                prepared.execute("UPDATE sqlite_sequence SET seq = MAX(seq, ?) WHERE name = ?", (number, table))
            prepared.execute("COMMIT")
            if database is None:
                prepared.close()
                copy.replace(path)
                flush(path.parent)
                return kept
            with closing(database), clear_errors(path):
                prepared.backup(database, progress=_deadline(path))
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return None


def _opened(path: Path) -> sqlite3.Connection | None:
    """The gallery at a path; None if there is none, or one that cannot be read."""
    if not path.exists():
        return None
    try:
        database = connect(path, create=False)
    except GalleryError:
        return None
    with clear_errors(path):
        if _file_problems(database):
            database.close()
            return None
    return database


def _set_aside(path: Path) -> Path:
    """Rename a damaged gallery with its companions; the new path."""
    number = 1
    while (kept := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    for suffix in COMPANIONS:
        companion = path.with_name(path.name + suffix)
        if companion.exists():
            companion.rename(kept.with_name(kept.name + suffix))
    return kept


def _require_same(database: sqlite3.Connection, source: sqlite3.Connection, path: Path, backup: Path) -> dict[str, int]:
    """The last ids of a gallery; raise if a backup is of another one."""
    with clear_errors(path):
        here, there = get_meta(database, "id"), get_meta(source, "id")
        if here != there and database.execute("SELECT 1 FROM log").fetchone():
            database.close()
            raise GalleryError(f"{backup}: a backup of another gallery than {path}; choose a new file to restore to")
        return dict(database.execute("SELECT name, seq FROM sqlite_sequence"))


def _deadline(path: Path) -> Callable[[int, int, int], None]:
    """Raises when a copy has waited too long for other processes: sqlite3 itself would wait forever."""
    end = time.monotonic() + WAIT

    def check_time(status: int, _remaining: int, _total: int) -> None:
        if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) and time.monotonic() > end:
            raise JobFailed(f"{path}: another process writes since {WAIT:.0f} s; repeat when it is done")

    return check_time


def check(gallery: Gallery) -> list[str]:
    """What is wrong with a gallery: its file, its values, its index; empty if nothing is."""
    store = gallery.store
    if not isinstance(store, SQLiteStore):
        return _value_problems(gallery)
    problems = []
    mode = store.path.stat().st_mode & 0o077
    if mode:
        problems.append(f"{store.path}: others may read or write it; chmod 600 {store.path}")
    try:
        with gallery.lock, store.reading() as database, snapshot(database):
            return problems + _file_problems(database) + _value_problems(gallery)
    except SphereFaceError as error:
        return [*problems, str(error)]


def _file_problems(database: sqlite3.Connection) -> list[str]:
    try:
        found = [str(row[0]) for row in database.execute("PRAGMA integrity_check(10)") if row[0] != "ok"]
        return found + [
            f"a row of {row[0]} without its {row[2]}" for row in database.execute("PRAGMA foreign_key_check")
        ]
    except sqlite3.DatabaseError as error:
        return [str(error)]


def _value_problems(gallery: Gallery) -> list[str]:
    """Values that do not open, features of a wrong length or without a direction, and templates unlike the index's."""
    store, model, problems = gallery.store, gallery.store.model, []
    gallery.refresh()
    now = time.time()
    for person in store.people():
        try:
            store.names_of(person.id)
            features = [photo.feature for *_, photo in store.photos(person.id)]
        except SphereFaceError as error:
            problems.append(f"{person.name}: {error}")
            continue
        lengths = sorted({len(feature) for feature in features})
        if model is not None and set(lengths) - {model.dimension}:
            problems.append(f"{person.name}: features of {lengths} numbers; wanted {model.dimension}")
        elif features and (person.expires is None or person.expires > now):
            template = pool(unit_rows(np.stack(features)), np.zeros(len(features), np.int64), 1)[0]
            known = gallery.index.template(person.id)
            if known is None or not np.array_equal(known, template):
                problems.append(f"{person.name}: another template in the index than in the store")
            elif not template.any():
                problems.append(f"{person.name}: features without a direction")
    searchable = sum(gallery.sizes.values())
    if len(gallery.index) != searchable:
        problems.append(f"{len(gallery.index):,} people in the index, {searchable:,} with photos")
    return problems


def require_file(gallery: Gallery) -> SQLiteStore:
    """The store of a gallery in a file."""
    if not isinstance(gallery.store, SQLiteStore):
        raise JobFailed(f"{gallery.where}: not a file; use the backup of its database")
    return gallery.store
