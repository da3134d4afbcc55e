"""The findings of an audit as a page to look at: who could judge a wrong label by a path?"""

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from sphereface.arrays import Image
from sphereface.audit.findings import Audit
from sphereface.data.people import FaceSet
from sphereface.data.reading import read_face
from sphereface.errors import UnreadableImage
from sphereface.faces.warp import CROPS
from sphereface.reports.figures import contact_sheet
from sphereface.reports.html import Report

SHOWN, COLUMNS = 48, 12  # findings of a kind shown as pictures; faces in a row
Row = tuple[str, ...]


def write_page(audit: Audit, faces: FaceSet, against: FaceSet | None, path: Path) -> None:
    """Write the page; of each kind of finding the first are shown, all are in tables."""
    page = Report("What is wrong with this set", f"{audit.faces:,} faces of {audit.people:,} people")
    for note in audit.notes:
        page.text(note, note=True)
    album = Album(faces, against, {*audit.unreadable, *audit.unreadable_in_test})
    _section(
        page,
        "Photos that do not look like their name",
        "Each with a photo of its name, and of whom it looks like.",
        ("photo", "name", "looks like", "likeness with its name", "with the other"),
        [
            (doubt.path, doubt.person, doubt.looks_like or "nobody here", f"{doubt.own:.2f}", f"{doubt.other:.2f}")
            for doubt in audit.wrong_labels
        ],
        [
            [album.photo(doubt.path), album.person(doubt.person, but=doubt.path), album.person(doubt.looks_like)]
            for doubt in audit.wrong_labels[:SHOWN]
        ],
    )
    for title, pairs, theirs in (
        ("One person under two names", audit.two_names, False),
        ("People of the test set", audit.in_test, True),
    ):
        _section(
            page,
            title,
            "A photo of each name.",
            ("first", "second", "by", "likeness"),
            [(p.first, p.second, p.how, "" if p.score is None else f"{p.score:.2f}") for p in pairs],
            [[album.person(p.first), album.person(p.second, in_test=theirs)] for p in pairs[:SHOWN]],
        )
    for title, copies, theirs in (
        ("Photos that are there twice", audit.duplicates, False),
        ("Photos of the test set", audit.copies_in_test, True),
    ):
        _section(
            page,
            title,
            "The two files of each pair.",
            ("first", "second", "correlation", "mirrored", "same name"),
            [
                (c.first, c.second, f"{c.correlation:.3f}", "yes" if c.mirrored else "", "" if c.same_person else "no")
                for c in copies
            ],
            [[album.photo(c.first), album.photo(c.second, in_test=theirs)] for c in copies[:SHOWN]],
        )
    few = [(name, str(count)) for name, count in audit.few.items()]
    _section(page, "People with few photos", "", ("name", "photos"), few, [])
    broken = [*audit.unreadable.items(), *audit.unreadable_in_test.items()]
    _section(page, "Photos that cannot be read", "", ("photo", "why"), broken, [])
    page.write(path)


def _section(
    page: Report, title: str, says: str, head: Sequence[str], rows: Sequence[Row], pictures: Sequence[Sequence[Image]]
) -> None:
    page.heading(f"{title}: {len(rows):,}")
    if not rows:
        return
    if pictures:
        together = [face for group in pictures for face in group]
        columns = COLUMNS // len(pictures[0]) * len(pictures[0])
        page.figure(contact_sheet(np.stack(together), columns, says=f"{title}: faces"), says)
    page.table(head, rows[:1000])
    if len(rows) > 1000:
        page.text(f"{len(rows) - 1000:,} more are in audit.json.")


class Album:
    """Faces by name, to be shown."""

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
        """Another face of a person, the first that can be read; grey for nobody."""
        faces = self._sets[in_test]
        if name is not None:
            for row in np.flatnonzero(faces.labels == list(faces.people).index(name)).tolist():
                if faces.paths[row] not in (but, *self._unreadable):
                    return self.photo(faces.paths[row], in_test=in_test)
        return _grey()


def _grey() -> Image:
    return np.full((CROPS["112x96"].height, CROPS["112x96"].width, 3), 128, np.uint8)
