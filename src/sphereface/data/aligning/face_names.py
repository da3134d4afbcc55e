"""File names of aligned faces: unique, and a function of the photos' names alone.

The first face of `a/b.png` is `a/b.jpg`, the second `a/b-2.jpg`. A face gets another name where that one belongs to
another face or a folder, or is too long for a file system.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import PurePosixPath
from posixpath import dirname, splitext
from typing import NamedTuple
from unicodedata import normalize

from sphereface.hashes import sha256_of

LONGEST = 255  # bytes of a file's name on common file systems
FURTHER = len("-face123456")  # the longest addition for a further face

_NUMBERED = re.compile(r"(.+)-([1-9][0-9]{,5})(\.\w+)", re.DOTALL)


class FaceNames(NamedTuple):
    """The names of one photo's faces."""

    first: str
    base: str  # of further faces: `base-2.jpg`, `base-3.jpg`, ...
    exceptions: Mapping[int, str]  # by number, where that name is taken

    def of(self, number: int) -> str:
        """The name of a face, counted from 1."""
        if number == 1:
            return self.first
        return self.exceptions.get(number) or f"{self.base}-{number}{splitext(self.first)[1]}"


class Register:
    """Names in use, and the photos that own them.

    Names of two photos differ in more than case and the encoding of accents, which macOS ignores. The exception: photos
    with such names of their own, which their file system distinguishes.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.owners: dict[str, str] = {}

    def claim(self, name: str, path: str) -> bool:
        """Claim a name for a photo; False if another photo has it."""
        owner = _key(path)
        if name in self.names or self.owners.setdefault(_key(name), owner) != owner:
            return False
        self.names.add(name)
        return True

    def claim_first(self, names: Iterable[str], path: str) -> str:
        """Claim the first free name of an endless series."""
        return next(name for name in names if self.claim(name, path))


def face_names(photos: Sequence[str], suffix: str) -> dict[str, FaceNames]:
    """The file names of each photo's faces, with the given suffix."""
    ending = f".{suffix}"
    register = Register()
    folders = {PurePosixPath(folder) for folder in {dirname(path) for path in photos}}
    for folder in folders.union(*(folder.parents for folder in folders)):
        register.claim(str(folder), f"{folder}/")
    first = _first_names(photos, ending, register)
    bases = _bases(first, ending)
    exceptions = _exceptions(bases, ending, register)
    none: dict[int, str] = {}
    return {path: FaceNames(first[path], bases[path], exceptions.get(path, none)) for path in photos}


def _first_names(photos: Sequence[str], ending: str, register: Register) -> dict[str, str]:
    """The photo's name with the new suffix; where several would share it, the old suffix stays in it."""
    plain = {path: splitext(path)[0] + ending for path in photos}
    same = Counter(plain.values())
    alike = Counter(name for name, _ in {(_key(name), _key(path)) for path, name in plain.items()})
    names = {
        path: name
        for path, name in plain.items()
        if same[name] == 1 and alike[_key(name)] == 1 and register.claim(name, path)
    }
    for path in sorted(set(photos) - set(names)):
        marks = ("" if again == 1 else f"~{again}" for again in count(1))
        names[path] = register.claim_first((_fitting(path, f"{mark}{ending}") for mark in marks), path)
    return names


def _bases(first: dict[str, str], ending: str) -> dict[str, str]:
    """The beginning of further faces' names: the first face's name without its suffix, cut if too long."""
    register, room = Register(), FURTHER + len(ending)
    stems = {path: name.removesuffix(ending) for path, name in first.items()}
    short = {path: stem for path, stem in stems.items() if _fitting(stem, "", room) == stem}
    bases = {path: stem for path, stem in short.items() if register.claim(stem, path)}
    for path in sorted(set(stems) - set(bases)):
        bases[path] = register.claim_first((_fitting(stems[path], "~" * more, room) for more in count()), path)
    return bases


def _exceptions(bases: dict[str, str], ending: str, register: Register) -> dict[str, dict[int, str]]:
    """The names of further faces, by photo and number, where first faces or folders have the usual ones."""
    taken = [found for name in register.owners if (found := _NUMBERED.fullmatch(name)) and found[3] == ending]
    wanted = {found[1] for found in taken}
    owners: dict[str, list[str]] = defaultdict(list)
    for path, base in sorted(bases.items()):
        if (key := _key(base)) in wanted:
            owners[key].append(path)
    exceptions: dict[str, dict[int, str]] = defaultdict(dict)
    for base, number in sorted((found[1], int(found[2])) for found in taken):
        for path in owners[base] if number > 1 else ():
            names = (f"{bases[path]}-face{number}{'~' * more}{ending}" for more in count())
            exceptions[path][number] = register.claim_first(names, path)
    return exceptions


def _key(name: str) -> str:
    """One key for all names that some file systems treat as the same."""
    return normalize("NFC", name.casefold())


def _fitting(path: str, ending: str, room: int = 0) -> str:
    """The path with the ending; a name too long for a file system is cut and gets a hash."""
    folder, slash, name = path.rpartition("/")
    coded = name.encode("utf-8", "surrogateescape")
    most = LONGEST - len(ending) - room
    if len(coded) > most:
        mark = f"~{sha256_of(path.encode('utf-8', 'surrogateescape'))[:12]}"
        name = coded[: most - len(mark)].decode("utf-8", "ignore") + mark
    return f"{folder}{slash}{name}{ending}"
