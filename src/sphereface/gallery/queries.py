"""Questions to the tables of a gallery that are asked in several places."""

import sqlite3

PEOPLE_ROWS = """
    SELECT people.id, people.name_key, people.value, people.added, people.expires, COUNT(photos.id)
    FROM people LEFT JOIN photos ON photos.person = people.id
"""
PHOTO_ROWS = "SELECT id, person, photo_key, value, added FROM photos"


def find_person(database: sqlite3.Connection, name_key: str) -> int | None:
    """The id of the person of a name or an earlier name."""
    row = database.execute(
        "SELECT id FROM people WHERE name_key = ? UNION ALL SELECT person FROM aliases WHERE name_key = ?",
        (name_key, name_key),
    ).fetchone()
    return None if row is None else int(row[0])


def is_rejected(database: sqlite3.Connection, person: int, photo_key: bytes) -> bool:
    """True if a photo was removed from a person."""
    found = "SELECT 1 FROM rejections WHERE person = ? AND photo_key = ?"
    return database.execute(found, (person, photo_key)).fetchone() is not None


def next_id(database: sqlite3.Connection, table: str) -> int:
    """The id of the next row, which was never used before; for sealing, it is needed before the row is written."""
    row = database.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    return 1 if row is None else int(row[0]) + 1
