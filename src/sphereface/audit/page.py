"""The findings of an audit as a page with the faces, so that people can judge them."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np

from sphereface.arrays import Image
from sphereface.audit.findings import Audit, Duplicate, SamePerson
from sphereface.data.people import FaceSet
from sphereface.data.reading import read_face
from sphereface.errors import UnreadableImage
from sphereface.faces.warp import CROPS
from sphereface.reports.figures import contact_sheet
from sphereface.reports.html import Report

SHOWN, COLUMNS = 48, 12  # findings of a kind shown as pictures; faces in a row
ROWS = 1000  # of a table; audit.json has the rest
WRONG_LABELS = ("photo", "label", "looks like", "likeness with its label", "with the other")
NAMES = ("first", "second", "by", "likeness")
COPIES = ("first", "second", "correlation", "mirrored", "same name")
Row = tuple[str, ...]


def write_page(audit: Audit, faces: FaceSet, against: FaceSet | None, path: Path) -> None:
    """Write the page: of each kind of finding the first as pictures, and a table."""
    page = Report("Audit of a set of faces", f"{audit.faces:,} faces of {audit.people:,} people")
    for note in audit.notes:
        page.text(note, note=True)
    album = Album(faces, against, {*audit.unreadable, *audit.unreadable_in_test})
    looks = [
        [album.photo(doubt.path), album.person(doubt.person, but=doubt.path), album.person(doubt.looks_like)]
        for doubt in audit.wrong_labels[:SHOWN]
    ]
    rows = [doubt.row() for doubt in audit.wrong_labels]
    caption = "Each photo, another one with the same label, and one of the person that it looks like."
    _section(page, "Photos that do not look like their label", caption, WRONG_LABELS, rows, looks)
    _pairs(page, "One person under two names", NAMES, audit.two_names, album.person)
    _pairs(page, "People of the test set", NAMES, audit.in_test, album.person, in_test=True)
    _pairs(page, "Near-duplicate photos", COPIES, audit.duplicates, album.photo)
    _pairs(page, "Near-duplicates of the test set's photos", COPIES, audit.copies_in_test, album.photo, in_test=True)
    few = [(name, str(count)) for name, count in audit.few.items()]
    _section(page, "People with few photos", "", ("name", "photos"), few, [])
    broken = [*audit.unreadable.items(), *audit.unreadable_in_test.items()]
    _section(page, "Unreadable photos", "", ("photo", "reason"), broken, [])
    page.write(path)


def _pairs(
    page: Report,
    title: str,
    head: Row,
    pairs: Sequence[SamePerson | Duplicate],
    face: Callable[..., Image],
    *,
    in_test: bool = False,
) -> None:
    """A section about pairs of names or of files; the second is of the test set if `in_test`."""
    pictures = [[face(pair.first), face(pair.second, in_test=in_test)] for pair in pairs[:SHOWN]]
    _section(page, title, "The first and the second of each pair.", head, [pair.row() for pair in pairs], pictures)


def _section(
    page: Report, title: str, caption: str, head: Row, rows: Sequence[Row], pictures: Sequence[Sequence[Image]]
) -> None:
    page.heading(f"{title}: {len(rows):,}")
    if not rows:
        return
    if pictures:
        together = [face for group in pictures for face in group]
        columns = COLUMNS // len(pictures[0]) * len(pictures[0])
        page.figure(contact_sheet(np.stack(together), columns, says=f"{title}: faces"), caption)
    page.table(head, rows[:ROWS])
    if len(rows) > ROWS:
        page.text(f"{len(rows) - ROWS:,} more are in audit.json.")


class Album:
    """Faces by path or by person."""

    def __init__(self, faces: FaceSet, against: FaceSet | None, unreadable: Collection[str] = ()) -> None:
        self._unreadable = frozenset(unreadable)
        self._sets = {False: faces, True: against or faces}
        self._places = {kind: {path: row for row, path in enumerate(s.paths)} for kind, s in self._sets.items()}

    def photo(self, path: str, *, in_test: bool = False) -> Image:
        """The face of a file; grey if it cannot be read."""
        try:
            return read_face(self._sets[in_test], self._places[in_test][path], "112x96")
        except UnreadableImage:
            return _grey()

    def person(self, name: str | None, *, but: str | None = None, in_test: bool = False) -> Image:
        """The first readable face of a person other than the file `but`; grey without one."""
        faces = self._sets[in_test]
        if name is not None:
            for row in np.flatnonzero(faces.labels == list(faces.people).index(name)).tolist():
                if faces.paths[row] not in (but, *self._unreadable):
                    return self.photo(faces.paths[row], in_test=in_test)
        return _grey()


def _grey() -> Image:
    return np.full((CROPS["112x96"].height, CROPS["112x96"].width, 3), 128, np.uint8)
