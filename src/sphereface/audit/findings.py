"""The audit of a set of faces: its findings, and the list of images to leave out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sphereface.arrays import Float32, Image, Int64, UInt8
from sphereface.audit import names
from sphereface.audit.duplicates import Match, near_duplicates, thumbnail
from sphereface.audit.likeness import Doubt, calibrate, doubts, one_person
from sphereface.audit.people import People
from sphereface.choices import Missing
from sphereface.contract import Record
from sphereface.data.people import FaceSet
from sphereface.data.reading import Skipping, read_face
from sphereface.embed.embedder import BATCH, Embedder
from sphereface.errors import UnreadableImage
from sphereface.faces.warp import as_crop
from sphereface.progress import Begin, Progress, unseen

FEW = 5  # people with fewer photos add little to training


class Duplicate(Record):
    """Two files with nearly the same picture; the second one can be left out."""

    first: str
    second: str
    correlation: float
    mirrored: bool
    same_person: bool

    def row(self) -> tuple[str, ...]:
        """Cells of a table: the files, their correlation, `yes` if mirrored, `no` if the names differ."""
        mirrored, same = "yes" if self.mirrored else "", "" if self.same_person else "no"
        return self.first, self.second, f"{self.correlation:.3f}", mirrored, same


class WrongLabel(Record):
    """A photo that does not look like the person that it is labelled as."""

    path: str
    person: str
    looks_like: str | None  # None: like no person of the set
    own: float
    other: float

    def row(self) -> tuple[str, ...]:
        """Cells of a table: the file, its person, the person that it looks like, and both likenesses."""
        other = self.looks_like or "no person of the set"
        return self.path, self.person, other, f"{self.own:.2f}", f"{self.other:.2f}"


class SamePerson(Record):
    """Two names that are probably one person."""

    first: str
    second: str
    how: str  # "name", or "features" with their likeness as score
    score: float | None = None

    def row(self) -> tuple[str, ...]:
        """Cells of a table: both names, how they were found, and their likeness."""
        return self.first, self.second, self.how, "" if self.score is None else f"{self.score:.2f}"


class Audit(Record):
    """The findings of an audit."""

    faces: int
    people: int
    unreadable: dict[str, str]
    unreadable_in_test: dict[str, str]
    duplicates: tuple[Duplicate, ...]
    few: dict[str, int]
    wrong_labels: tuple[WrongLabel, ...]
    two_names: tuple[SamePerson, ...]
    in_test: tuple[SamePerson, ...]  # first: ours, second: the test set's
    copies_in_test: tuple[Duplicate, ...]
    chance: dict[int, float]  # by number of photos: probability that a person with two names is found
    notes: tuple[str, ...]

    def exclude(self) -> list[str]:
        """Lines of an exclude list: people and files to leave out, under their reasons."""
        lines = []
        for reason, entries in (
            ("people of the test set", [pair.first for pair in self.in_test]),
            ("one person under two names: the other name stays", [pair.second for pair in self.two_names]),
            ("copies of photos of the test set", [pair.first for pair in self.copies_in_test]),
            ("likely wrong labels", [doubt.path for doubt in self.wrong_labels]),
            ("near-duplicates: another copy stays", [pair.second for pair in self.duplicates]),
            ("unreadable", list(self.unreadable)),
        ):
            if entries:
                lines += [f"# {reason}", *sorted(set(entries))]
        return lines


@dataclass(frozen=True)
class Seen:
    """Thumbnails and features of a set of faces, read once."""

    faces: FaceSet
    rows: Int64  # indices of readable faces
    thumbnails: UInt8
    features: Float32 | None
    unreadable: dict[str, str]

    @property
    def labels(self) -> Int64:
        """The labels of the readable faces."""
        return self.faces.labels[self.rows]

    def path(self, place: int) -> str:
        """The path of a readable face."""
        return self.faces.paths[int(self.rows[place])]

    def person(self, place: int) -> str:
        """The person that a readable face is labelled as."""
        return self.faces.people[int(self.labels[place])]

    def grouped(self) -> People:
        """The features by person."""
        assert self.features is not None
        return People.of(self.features, self.labels, len(self.faces.people))


def audit_faces(
    faces: FaceSet,
    *,
    against: FaceSet | None = None,
    embedder: Embedder | None = None,
    few: int = FEW,
    missing: Missing = "skip",
    begin: Begin = unseen,
) -> Audit:
    """Audit aligned faces by names and pictures, and with an embedder also by features; `begin` starts a progress bar.

    An unreadable image is listed (`skip`) or raises an error (`fail`).
    """
    ours = see(faces, embedder, begin("reading faces"), missing)
    theirs = see(against, embedder, begin("reading the test set"), missing) if against else None
    copies = near_duplicates(ours.thumbnails, progress=begin("comparing pictures"))
    shared = near_duplicates(ours.thumbnails, theirs.thumbnails) if theirs else []
    found = _by_features(ours, theirs, begin) if embedder else FeatureFindings((), (), (), {})
    two_names, in_test = _by_names(ours, theirs)
    counts = np.bincount(ours.labels, minlength=len(faces.people))
    return Audit(
        faces=len(faces.paths),
        people=len(faces.people),
        unreadable=ours.unreadable,
        unreadable_in_test=theirs.unreadable if theirs else {},
        duplicates=_duplicates(copies, ours, ours),
        few={faces.people[person]: int(counts[person]) for person in np.flatnonzero(counts < few).tolist()},
        wrong_labels=found.wrong_labels,
        two_names=_new(two_names, found.two_names),
        in_test=_new(in_test, found.in_test),
        copies_in_test=_duplicates(shared, ours, theirs) if theirs else (),
        chance=found.chance,
        notes=tuple(_notes(faces, against, embedder)),
    )


class FeatureFindings(NamedTuple):
    """Findings by features."""

    wrong_labels: tuple[WrongLabel, ...]
    two_names: tuple[SamePerson, ...]
    in_test: tuple[SamePerson, ...]
    chance: dict[int, float]


def _by_features(ours: Seen, theirs: Seen | None, begin: Begin) -> FeatureFindings:
    progress = begin("comparing people")
    people = ours.grouped()
    scale = calibrate(people, comparisons=len(ours.labels) * len(people.counts))
    twins = [  # the name with more photos first: it stays
        (i, j, score) if people.counts[i] >= people.counts[j] else (j, i, score)
        for i, j, score in one_person(people, people, scale, within=True)
    ]
    # A photo of a person with two names looks like both, and is not labelled wrong.
    merged = people.merged((i, j) for i, j, _ in twins)
    wrong = [_wrong_label(doubt, ours) for doubt in doubts(merged, scale, progress=progress)]
    overlap: list[tuple[int, int, float]] = []
    if theirs is not None:
        others = theirs.grouped()
        scale = calibrate(people, comparisons=len(people.counts) * len(others.counts))
        overlap = one_person(people, others, scale, within=False)
    return FeatureFindings(
        tuple(wrong), _same_people(twins, ours, ours), _same_people(overlap, ours, theirs or ours), scale.chance
    )


def _by_names(ours: Seen, theirs: Seen | None) -> tuple[list[SamePerson], list[SamePerson]]:
    groups = names.spelled_twice(ours.faces.people)
    both = names.in_both(ours.faces.people, theirs.faces.people) if theirs else []
    return (
        [SamePerson(first=group[0], second=other, how="name") for group in groups for other in group[1:]],
        [SamePerson(first=mine, second=other, how="name") for mine, other in both],
    )


def _new(known: Sequence[SamePerson], more: Sequence[SamePerson]) -> tuple[SamePerson, ...]:
    """Both lists, each pair once; the first list has precedence."""
    pairs = {frozenset((pair.first, pair.second)) for pair in known}
    return (*known, *(pair for pair in more if frozenset((pair.first, pair.second)) not in pairs))


def see(faces: FaceSet, embedder: Embedder | None, progress: Progress, missing: Missing = "skip") -> Seen:
    """Read all faces: thumbnails of the readable ones, and with an embedder their features."""
    rows, thumbnails, features, skipping = [], [], [], Skipping(missing)
    waiting: list[Image] = []

    def embed() -> None:
        if waiting and embedder is not None:
            features.append(embedder.embed(np.stack(waiting)))
            waiting.clear()

    for row, path in enumerate(faces.paths):
        with skipping.reading(row):
            face = read_face(faces, row, None)
            rows.append(row)
            thumbnails.append(thumbnail(face[:, 8:104] if face.shape == (112, 112, 3) else face))
            if embedder is not None:
                waiting.append(as_crop(face, embedder.card.preprocessing.crop, source=path))
                if len(waiting) == BATCH:
                    embed()
        progress(row + 1, len(faces.paths))
    embed()
    if not rows:
        path, reason = next(iter(skipping.unreadable.values()))
        raise UnreadableImage(path, f"{reason}; none of {len(faces.paths):,} images can be read")
    return Seen(
        faces=faces,
        rows=np.array(rows, dtype=np.int64),
        thumbnails=np.stack(thumbnails),
        features=np.concatenate(features) if embedder is not None else None,
        unreadable=skipping.reasons,
    )


def _duplicates(matches: Sequence[Match], ours: Seen, others: Seen) -> tuple[Duplicate, ...]:
    return tuple(
        Duplicate(
            first=ours.path(match.first),
            second=others.path(match.second),
            correlation=round(match.correlation, 4),
            mirrored=match.mirrored,
            same_person=ours.person(match.first) == others.person(match.second),
        )
        for match in matches
    )


def _wrong_label(doubt: Doubt, seen: Seen) -> WrongLabel:
    return WrongLabel(
        path=seen.path(doubt.photo),
        person=seen.person(doubt.photo),
        looks_like=seen.faces.people[doubt.like] if doubt.like >= 0 else None,
        own=round(doubt.own, 3),
        other=round(doubt.other, 3),
    )


def _same_people(pairs: Sequence[tuple[int, int, float]], ours: Seen, others: Seen) -> tuple[SamePerson, ...]:
    return tuple(
        SamePerson(first=ours.faces.people[i], second=others.faces.people[j], how="features", score=round(score, 3))
        for i, j, score in pairs
    )


def _notes(faces: FaceSet, against: FaceSet | None, embedder: Embedder | None) -> list[str]:
    notes = []
    codes = sum(names.key(name) is None for name in faces.people)
    if codes:
        notes.append(
            f"{codes:,} of {len(faces.people):,} people have a code instead of a name, and cannot be compared by name"
        )
    if embedder is None:
        notes.append(
            "no model: wrong labels and people with two different names are not searched for; name one with --model"
        )
    if against is None:
        notes.append("no test set to compare with; name one with --against")
    return notes
