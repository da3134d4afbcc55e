"""How a gallery's values are written: plain or sealed, as decided when it was made, and the check of a key."""

import secrets
import sqlite3

from sphereface.errors import GalleryError
from sphereface.gallery.schema import get_meta, set_meta, transaction
from sphereface.gallery.sealing import CHECK, SALT_BYTES, Plain, Seal, Sealed, require_cryptography

PLAIN, SEALED = "plain", "sealed"


def unlock(database: sqlite3.Connection, key: bytes | None, *, source: str) -> Seal:
    """The seal of a gallery; a new one is sealed if a key is given. A missing, wrong or needless key is an error."""
    if get_meta(database, "seal") is None:
        with transaction(database):
            if get_meta(database, "seal") is None:  # another process may have been faster
                _decide(database, key)
    seal = get_meta(database, "seal")
    if seal not in (PLAIN, SEALED):
        raise GalleryError(f"{source}: damaged (its seal is {seal!r}); restore a backup: sphereface gallery restore")
    if seal == PLAIN:
        if key is not None:
            raise GalleryError(f"{source}: a gallery without encryption, but a key is given; leave it out")
        return Plain()
    if key is None:
        raise GalleryError(f"{source}: an encrypted gallery; give its key with --key-file FILE")
    require_cryptography()
    found = _sealed(database, key)
    try:
        found.open(bytes.fromhex(get_meta(database, "check") or ""), "check")
    except GalleryError as error:
        raise GalleryError(f"{source}: the key is not that of this gallery; give the right key file") from error
    return found


def _decide(database: sqlite3.Connection, key: bytes | None) -> None:
    set_meta(database, "salt", secrets.token_bytes(SALT_BYTES).hex())
    if key is not None:
        set_meta(database, "check", _sealed(database, key).seal(CHECK, "check").hex())
    set_meta(database, "seal", PLAIN if key is None else SEALED)


def _sealed(database: sqlite3.Connection, key: bytes) -> Sealed:
    salt, gallery = (get_meta(database, name) or "" for name in ("salt", "id"))
    return Sealed(key, salt=bytes.fromhex(salt), context=f"gallery {gallery} version 1")
