"""SHA-256 of bytes, texts and files, as hexadecimal digits."""

import hashlib
from pathlib import Path


def sha256_of(content: bytes | str | Path) -> str:
    """SHA-256 of bytes, of a text in UTF-8, or of the file at a path."""
    if isinstance(content, Path):
        with content.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()
