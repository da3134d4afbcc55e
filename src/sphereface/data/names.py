"""Names of people and their images in every format: safe names, generated names, and names taken from folders."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from operator import eq
from typing import overload

from sphereface.arrays import Int64
from sphereface.errors import DataFormatError

LABELS = 1 << 24  # the limit of record files: their labels are float32, exact up to here

# Control characters break lists of lines, backslashes and drives are folders on Windows, lone surrogates have no UTF-8.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]|^[A-Za-z]:")

_SIGNATURES = (
    (re.compile(rb"\xff\xd8\xff"), ".jpg"),
    (re.compile(rb"\x89PNG\r\n\x1a\n"), ".png"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), ".webp"),
    (re.compile(rb"BM"), ".bmp"),
    (re.compile(rb"II\*\0|MM\0\*"), ".tif"),
)
IMAGE_ENDINGS = tuple(ending for _, ending in _SIGNATURES)


class Names(Sequence[str]):
    """Names made on access, so that millions of them, or one huge label, take no memory."""

    def __init__(self, count: int, make: Callable[[int], str]) -> None:
        self._count = count
        self._make = make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        places = range(self._count)[index]
        return self._make(places) if isinstance(places, int) else [self._make(place) for place in places]

    def at(self, places: Int64) -> "Names":
        """The names at some places, also made on access."""
        return Names(len(places), partial(_placed, self, places))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have none

    def __repr__(self) -> str:
        shown = ", ".join(repr(name) for name in self[:3])
        return f"[{shown}{', ...' if self._count > 3 else ''}]"


def is_safe(name: str) -> bool:
    """True if a path within a set stays below its folder on every system."""
    return not _UNSAFE.search(name) and not any(part in ("", ".", "..") for part in name.split("/"))


def checked(name: str, source: object) -> str:
    """A path within a set, if it is safe; `source` names its list or file in the error."""
    if not is_safe(name):
        wanted = "a relative path such as person/photo.jpg, without '..', backslashes or control characters"
        raise DataFormatError(f"{source}: the name {name[:200]!r}; wanted {wanted}")
    return name


def checked_person(name: str, source: object) -> str:
    """A person's name, if it can be the name of a folder."""
    if "/" in name:
        raise DataFormatError(f"{source}: the person {name[:200]!r}; wanted a name without slashes")
    return checked(name, source)


def checked_line(name: str, source: object) -> str:
    """A path within a set, if it is safe and a line of a list can hold it."""
    if name != name.strip():
        raise DataFormatError(f"{source}: the name {name!r}; a list of lines cannot hold a space at its ends")
    return checked(name, source)


def placed(person: str, path: str) -> str:
    """The path of an image in a folder per person: its own path, if that begins with the person."""
    return path if path.startswith(f"{person}/") else f"{person}/{path}"


def suffix_of(image: bytes, *, otherwise: str = ".jpg") -> str:
    """The file ending for the first bytes of an image, or `otherwise` for an unknown image format."""
    return next((suffix for signature, suffix in _SIGNATURES if signature.match(image)), otherwise)


def numbers(count: int) -> Sequence[str]:
    """Labels as names, padded with zeros so that their sorted order is the labels' order."""
    return Names(count, partial(_padded, len(str(max(count - 1, 0)))))


def known_people(names: dict[int, str], count: int) -> Sequence[str]:
    """People by label; a label without images, and so without a name, is called `label-7`."""
    if len(names) == count:
        return [names[label] for label in range(count)]
    return Names(count, partial(_known, names))


def people_by_folder(paths: Sequence[str], labels: Int64, *, count: int | None = None) -> Sequence[str]:
    """Each label's name: its images' folder if every person has one of their own, else the label's number.

    `count` is the number of people; by default the largest label plus one.
    """
    count = int(labels.max(initial=-1)) + 1 if count is None else count
    names: dict[int, str] = {}
    for path, label in zip(paths, labels.tolist(), strict=True):
        folder, slash, _ = path.partition("/")
        if not slash or names.setdefault(label, folder) != folder:
            return numbers(count)
    return known_people(names, count) if len(set(names.values())) == len(names) else numbers(count)


def _placed(names: Names, places: Int64, index: int) -> str:
    return names[int(places[index])]


def _padded(width: int, number: int) -> str:
    return f"{number:0{width}d}"


def _known(names: dict[int, str], label: int) -> str:
    return names.get(label, f"label-{label}")
