"""What the faces of photos are called: a function of the photos' names alone, and no two faces share a name.

The first face of `a/b.png` is `a/b.jpg`, the second `a/b-2.jpg`. Only where that is another face's name, or a folder's,
or too long for a file system, another one is taken.
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
FURTHER = len("-face123456")  # what a further face adds to it at most

_NUMBERED = re.compile(r"(.+)-([1-9][0-9]{,5})(\.\w+)", re.DOTALL)


class FaceNames(NamedTuple):
    """What the faces of one photo are called."""

    first: str
    base: str  # of the others: `base-2.jpg`, `base-3.jpg`, ...
    exceptions: Mapping[int, str]  # by number, where that name is another's

    def of(self, number: int) -> str:
        """The name of a face, counted from 1."""
        if number == 1:
            return self.first
        return self.exceptions.get(number) or f"{self.base}-{number}{splitext(self.first)[1]}"


class Register:
    """Names in use and whose they are.

    Names of two photos differ in more than case and accents' encoding, for macOS takes such names for one; unless the
    photos' own names do not, for then the file system tells them apart.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.owners: dict[str, str] = {}

    def claim(self, name: str, path: str) -> bool:
        """Take a name for a photo; False if it is another's."""
        owner = _key(path)
        if name in self.names or self.owners.setdefault(_key(name), owner) != owner:
            return False
        self.names.add(name)
        return True

    def claim_first(self, names: Iterable[str], path: str) -> str:
        """Take the first of endless names that is free."""
        return next(name for name in names if self.claim(name, path))


def face_names(photos: Sequence[str], suffix: str) -> dict[str, FaceNames]:
    """The names of each photo's faces, as files that end with the suffix."""
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
    """What the names of further faces begin with: the first face's name without its suffix, or less of it."""
    register, room = Register(), FURTHER + len(ending)
    stems = {path: name.removesuffix(ending) for path, name in first.items()}
    short = {path: stem for path, stem in stems.items() if _fitting(stem, "", room) == stem}
    bases = {path: stem for path, stem in short.items() if register.claim(stem, path)}
    for path in sorted(set(stems) - set(bases)):
        bases[path] = register.claim_first((_fitting(stems[path], "~" * more, room) for more in count()), path)
    return bases


def _exceptions(bases: dict[str, str], ending: str, register: Register) -> dict[str, dict[int, str]]:
    """The names of further faces, by photo and number, whose usual ones are taken by first faces or folders."""
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
    """What is equal for names that some file systems take for one."""
    return normalize("NFC", name.casefold())


def _fitting(path: str, ending: str, room: int = 0) -> str:
    """The path with the ending, and if its name leaves no room on a file system, the beginning of it with a hash."""
    folder, slash, name = path.rpartition("/")
    coded = name.encode("utf-8", "surrogateescape")
    most = LONGEST - len(ending) - room
    if len(coded) > most:
        mark = f"~{sha256_of(path.encode('utf-8', 'surrogateescape'))[:12]}"
        name = coded[: most - len(mark)].decode("utf-8", "ignore") + mark
    return f"{folder}{slash}{name}{ending}"
