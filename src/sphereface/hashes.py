"""SHA-256 of bytes, texts and files, as hexadecimal digits."""

import hashlib
import re
from pathlib import Path

from sphereface.errors import UserError


def sha256_of(content: bytes | str | Path) -> str:
    """SHA-256 of bytes, of a text in UTF-8, or of the file at a path."""
    if isinstance(content, Path):
        with content.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def require_sha256(given: str) -> str:
    """A SHA-256 that a user gave, in lower case; raises unless it is 64 hexadecimal digits."""
    if not re.fullmatch("[0-9a-f]{64}", given.lower()):
        raise UserError(f"{given!r} is not a SHA-256; give 64 hexadecimal digits")
    return given.lower()
