"""People and images to leave out, one a line."""

from pathlib import Path

from sphereface.data.files.lines import read_lines


def read_exclude(path: str | Path) -> frozenset[str]:
    """Paths or people to leave out, one a line; a line that begins with `#` is a comment."""
    names = (line.text.strip() for line in read_lines(Path(path)))
    return frozenset(name for name in names if not name.startswith("#"))
