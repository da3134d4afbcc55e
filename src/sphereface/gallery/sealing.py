"""Encryption of what a gallery stores, under keys derived from one key file.

AES-256-GCM with a random nonce for each value. Its associated data name the value's kind, its rows, the gallery, the
model and the version, so that a value that was moved to another row, gallery or model does not open. Keys for values
and for names come from the key file by HKDF-SHA256 with the gallery's random salt. Names and photos are found by their
HMAC.

Out of scope: an older copy of the whole file in place of a newer one (rollback), backups from before a removal, and a
reader of this process's memory.
"""

import hmac
import json
import os
import secrets
from pathlib import Path
from typing import Protocol

from sphereface.data.files.writing import PRIVATE, new_files
from sphereface.errors import GalleryError, UserError

KEY_BYTES, NONCE_BYTES, SALT_BYTES = 32, 12, 16
LOOKUP_BYTES = 16  # of a hash that photos and names are found by: enough against chance
CHECK = b"sphereface gallery"


class Seal(Protocol):
    """How values, names and photo hashes are written."""

    def seal(self, value: bytes, *about: object) -> bytes:
        """The bytes to store for a value; `about` names its kind and rows."""

    def open(self, stored: bytes, *about: object) -> bytes:
        """The value again; an error if it was changed or moved."""

    def name_key(self, name: str) -> str:
        """The text under which a name is found."""

    def photo_key(self, sha256: str) -> bytes:
        """The bytes under which a photo is found by its SHA-256."""


class Plain:
    """No encryption."""

    def seal(self, value: bytes, *about: object) -> bytes:  # noqa: ARG002
        """The value itself."""
        return value

    def open(self, stored: bytes, *about: object) -> bytes:  # noqa: ARG002
        """The value itself."""
        return stored

    def name_key(self, name: str) -> str:
        """The name itself."""
        return name

    def photo_key(self, sha256: str) -> bytes:
        """The first half of the SHA-256."""
        return bytes.fromhex(sha256)[:LOOKUP_BYTES]


class Sealed:
    """Encryption under a key, for one gallery."""

    def __init__(self, key: bytes, *, salt: bytes, context: str) -> None:
        """`context` is the same for all values: the gallery, its model and version."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._context = context
        self._cipher = AESGCM(_derived(key, salt, b"values"))
        self._lookup = _derived(key, salt, b"lookup")

    def seal(self, value: bytes, *about: object) -> bytes:
        """Nonce, ciphertext and tag."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, value, self._about(about))

    def open(self, stored: bytes, *about: object) -> bytes:
        """The value; an error if a bit of it, its place or the key is another one."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(stored[:NONCE_BYTES], stored[NONCE_BYTES:], self._about(about))
        except (InvalidTag, ValueError) as error:
            what = " ".join(map(str, about))
            raise GalleryError(f"{what}: its bytes were changed or moved; restore a backup of the gallery") from error

    def name_key(self, name: str) -> str:
        """The HMAC of the name, cut."""
        return hmac.digest(self._lookup, b"name" + name.encode(), "sha256")[:LOOKUP_BYTES].hex()

    def photo_key(self, sha256: str) -> bytes:
        """The HMAC of the photo's SHA-256, cut."""
        return hmac.digest(self._lookup, b"photo" + bytes.fromhex(sha256), "sha256")[:LOOKUP_BYTES]

    def _about(self, about: tuple[object, ...]) -> bytes:
        return json.dumps([self._context, *about]).encode()


def _derived(key: bytes, salt: bytes, purpose: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), KEY_BYTES, salt, b"sphereface gallery: " + purpose).derive(key)


def require_cryptography() -> None:
    """Raise with the way out if the extra `secure` is not installed."""
    try:
        import cryptography  # noqa: F401
    except ModuleNotFoundError as error:
        raise UserError("a gallery with a key needs cryptography: pip install 'sphereface[secure]'") from error


def read_key(path: Path) -> bytes:
    """The key in a file: 64 hexadecimal digits, as `write_key` writes them."""
    try:
        text = path.read_text("ascii").strip()
        key = bytes.fromhex(text)
    except OSError as error:
        raise GalleryError(f"{path}: the key file cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise GalleryError(f"{path}: not a key file; wanted {2 * KEY_BYTES} hexadecimal digits") from error
    if len(key) != KEY_BYTES:
        raise GalleryError(f"{path}: a key of {len(key)} bytes; wanted {2 * KEY_BYTES} hexadecimal digits")
    return key


def write_key(path: Path) -> bytes:
    """Write a new random key to a new file that only its owner can read; another file there is an error."""
    key = secrets.token_bytes(KEY_BYTES)
    with new_files(path) as room:
        part = room / path.name
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "w") as file:
            file.write(key.hex() + "\n")
    return key


def require_key(key: object) -> bytes:
    """A key as bytes: given as such, or as the path of a key file."""
    found = read_key(Path(key)) if isinstance(key, str | Path) else key
    if not isinstance(found, bytes) or len(found) != KEY_BYTES:
        raise GalleryError(f"a key of type {type(found).__name__}; wanted {KEY_BYTES} bytes, or the path of a key file")
    return found
