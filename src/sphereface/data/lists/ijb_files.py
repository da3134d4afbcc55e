"""All lists of IJB-B or IJB-C, checked against each other."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sphereface.arrays import Integers
from sphereface.choices import Repeats
from sphereface.data.lists.ijb import (
    IjbFiles,
    Member,
    TemplatePairs,
    entry_line,
    read_members,
    read_subjects,
    read_template_pairs,
    subject_line,
)


@dataclass(frozen=True, eq=False)
class IjbLists:
    """The lists of the metadata, checked against each other."""

    files: IjbFiles
    members: tuple[Member, ...]
    known: Integers  # templates, in ascending order
    pairs: TemplatePairs | None
    galleries: Mapping[str, Mapping[int, int]]  # name -> template -> subject
    probes: Mapping[int, int]
    subjects: Mapping[int, int]  # of all templates that galleries or probes list

    @property
    def images(self) -> list[str]:
        """All listed images, each once."""
        return list(dict.fromkeys(member.image for member in self.members))


def read_ijb(files: IjbFiles, *, repeats: Repeats = "fail") -> IjbLists:
    """Read all existing lists; with `repeats="keep"`, a pair listed twice counts twice."""
    members = read_members(files.members)
    known = np.unique([member.template for member in members])
    pairs = None
    if files.pairs:
        pairs = read_template_pairs(files.pairs, repeats=repeats)
        _require_known(files, files.pairs, pairs, known)
    subjects: dict[int, int] = {}
    galleries = {name: _read_subjects(files, path, known, subjects) for name, path in files.galleries.items()}
    probes = _read_subjects(files, files.probes, known, subjects) if files.probes else {}
    return IjbLists(files, members, known, pairs, galleries, probes, subjects)


def _require_known(files: IjbFiles, path: Path, pairs: TemplatePairs, known: Integers) -> None:
    """Raise if a pair names a template without images."""
    for side in (pairs.first, pairs.second):
        unknown = np.flatnonzero(~np.isin(side, known))
        if len(unknown):
            line = entry_line(path, int(unknown[0]))
            raise line.wrong(f"templates of {files.members.name}, which does not have {side[unknown[0]]}")


def _read_subjects(files: IjbFiles, path: Path, known: Integers, subjects: dict[int, int]) -> dict[int, int]:
    """A gallery or the probes; raises for templates without images, or of another subject in an earlier list."""
    listed = read_subjects(path)
    for template, subject in listed.items():
        if subjects.setdefault(template, subject) != subject:
            raise subject_line(path, template).wrong(f"subject {subjects[template]}, as in another list")
    strange = np.setdiff1d(list(listed), known)
    if len(strange):
        line = subject_line(path, int(strange[0]))
        raise line.wrong(f"templates of {files.members.name}, which does not have {strange[0]}")
    return listed
