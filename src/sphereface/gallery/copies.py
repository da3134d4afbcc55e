"""Backup, restore and check of a gallery's file."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np

from sphereface.arrays import unit_rows
from sphereface.data.files.writing import PRIVATE, new_files
from sphereface.errors import GalleryError, JobFailed, SphereFaceError
from sphereface.gallery.gallery import Gallery
from sphereface.gallery.schema import clear_errors, connect, get_meta, new_generation
from sphereface.gallery.sqlite import SQLiteStore
from sphereface.metrics.templates import pool


def back_up(store: SQLiteStore, path: Path) -> None:
    """Write a consistent copy to a new file, also while others write; an encrypted gallery stays encrypted."""
    with new_files(path) as room:
        part = room / path.name
        os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE))
        with store.reading() as database, clear_errors(part), closing(sqlite3.connect(part)) as copy:
            database.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, without companions


def restore(path: Path, backup: Path) -> None:
    """Make a gallery's file what it was at a backup; processes that have it open see the change.

    The backup is checked first. It must be one of the same gallery, or the file must not exist.
    """
    with closing(connect(backup, create=False)) as copy, clear_errors(backup):
        problems = _file_problems(copy)
        if problems:
            raise GalleryError(f"{backup}: damaged ({problems[0]}); choose another backup")
        with closing(connect(path, create=True)) as database, clear_errors(path):
            here, there = get_meta(database, "id"), get_meta(copy, "id")
            if here != there and database.execute("SELECT 1 FROM log").fetchone():
                raise GalleryError(
                    f"{backup}: a backup of another gallery than {path}; choose a new file to restore to"
                )
            copy.backup(database)
            new_generation(database)
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def check(gallery: Gallery) -> list[str]:
    """What is wrong with a gallery: its file, its values, its index; empty if nothing is."""
    store = gallery.store
    problems = []
    if isinstance(store, SQLiteStore):
        mode = store.path.stat().st_mode & 0o077
        if mode:
            problems.append(f"{store.path}: others may read or write it; chmod 600 {store.path}")
        with store.reading() as database:
            problems += _file_problems(database)
    problems += _value_problems(gallery)
    try:
        gallery.refresh()
    except SphereFaceError as error:
        return [*problems, str(error)]
    stored = [person.id for person in gallery.people() if person.photos]
    searchable = sum(gallery.sizes.values())
    expired = len(stored) - searchable
    if len(gallery.index) != searchable or expired < 0:
        problems.append(f"{len(gallery.index):,} people in the index, {searchable:,} in the store")
    return problems


def _file_problems(database: sqlite3.Connection) -> list[str]:
    found = [str(row[0]) for row in database.execute("PRAGMA integrity_check(10)") if row[0] != "ok"]
    return found + [f"a row of {row[0]} without its {row[2]}" for row in database.execute("PRAGMA foreign_key_check")]


def _value_problems(gallery: Gallery) -> list[str]:
    """Values that do not open, and features of a wrong length or without a direction."""
    store, model, problems = gallery.store, gallery.store.model, []
    try:
        people = store.people()
    except (SphereFaceError, ValueError) as error:
        return [str(error)]
    for person in people:
        try:
            store.names_of(person.id)
            photos = [photo for *_, photo in store.photos(person.id)]
        except (SphereFaceError, ValueError) as error:
            problems.append(f"{person.name}: {error}")
            continue
        lengths = {len(photo.feature) for photo in photos}
        if model is not None and lengths - {model.dimension}:
            problems.append(f"{person.name}: features of {sorted(lengths)} numbers; wanted {model.dimension}")
        elif photos:
            features = np.stack([photo.feature for photo in photos])
            if not np.isfinite(features).all() or not pool(unit_rows(features), np.zeros(len(photos), int), 1).any():
                problems.append(f"{person.name}: features without a direction")
    return problems


def require_file(gallery: Gallery) -> SQLiteStore:
    """The store of a gallery in a file."""
    if not isinstance(gallery.store, SQLiteStore):
        raise JobFailed(f"{gallery.where}: not a file; use the backup of its database")
    return gallery.store
