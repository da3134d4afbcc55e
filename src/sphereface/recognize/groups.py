"""Photos of people whom nobody has named: the faces of one person become a group."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np

from sphereface.arrays import unit_rows
from sphereface.errors import UnreadableImage, UserError
from sphereface.faces.images import encode_jpeg
from sphereface.faces.warp import align
from sphereface.gallery.gallery import Gallery
from sphereface.gallery.records import Model, Person, Photo
from sphereface.progress import Progress, silent
from sphereface.recognize.grouping import group_faces
from sphereface.recognize.photos import Face, FaceReader, PhotoLike, open_photo
from sphereface.recognize.thresholds import SearchThreshold, search_threshold
from sphereface.reports.html import Report

UNKNOWN = "unknown-"  # names of groups in a gallery: unknown-1, ...
SHOWN = 24  # faces of a group on the page
THUMBNAIL = 80  # pixels, the height of a face on the page


class GroupedFace(NamedTuple):
    """A face of a photo."""

    source: str
    sha256: str  # of the photo
    face: Face
    thumbnail: bytes  # JPEG

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"path": self.source, **self.face.as_dict()}


@dataclass(frozen=True)
class Groups:
    """The faces of photos, by person."""

    model: Model
    known: dict[Person, list[GroupedFace]]  # people of the gallery
    groups: list[list[GroupedFace]]  # of two faces or more, the largest first
    singles: list[GroupedFace]
    failed: dict[str, str]  # photo -> reason
    threshold: SearchThreshold

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **self.threshold.as_dict(),
            "known": {person.name: [each.as_dict() for each in faces] for person, faces in self.known.items()},
            "groups": [[each.as_dict() for each in faces] for faces in self.groups],
            "singles": [each.as_dict() for each in self.singles],
            "failed": self.failed,
        }

    def text(self) -> str:
        """For people."""
        lines = [
            f"{person.name}: {', '.join(sorted({each.source for each in faces}))}"
            for person, faces in self.known.items()
        ]
        lines += [
            f"group {number}: {', '.join(each.source for each in faces)}" for number, faces in enumerate(self.groups, 1)
        ]
        lines += [f"{photo}: {reason}" for photo, reason in self.failed.items()]
        faces = sum(map(len, self.groups))
        lines.append(
            f"{len(self.groups):,} groups of {faces:,} faces, {len(self.singles):,} faces alone, "
            f"{len(self.known):,} known people"
        )
        return "\n".join([*lines, self.threshold.of("faces without another one of their person would join a group")])

    def page(self) -> Report:
        """A page with the faces of every group."""
        page = Report("Groups of faces", f"{self.model.name}, threshold {self.threshold.score:.3f}")
        page.text("Faces in a group show one person as far as the model can tell; there is no liveness check.")
        for person, faces in self.known.items():
            _section(page, person.name, faces)
        for number, faces in enumerate(self.groups, 1):
            _section(page, f"Group {number}", faces)
        if self.singles:
            _section(page, "Alone", self.singles)
        if self.failed:
            page.heading("Photos without a face")
            page.table(["photo", "reason"], [[photo, reason] for photo, reason in self.failed.items()])
        return page


def group_photos(
    reader: FaceReader,
    photos: Sequence[PhotoLike],
    *,
    gallery: Gallery | None = None,
    fpir: float | None = None,
    min_quality: float = 0.0,
    progress: Progress = silent,
) -> Groups:
    """Group the faces of photos; faces of people in the gallery are named instead.

    The threshold is that of a search among as many faces: a face without another one of its person joins a group with
    at most the promised rate.
    """
    card, model = reader.embedder.card, reader.model
    if gallery is not None:
        gallery.require_model(model)
    faces, failed = _faces(reader, photos, min_quality, progress)
    known, open_faces = _known(reader, gallery, fpir, faces) if gallery is not None else ({}, faces)
    threshold = search_threshold(card, {1: max(len(open_faces), 1)}, fpir)
    if not open_faces:
        return Groups(model, known, [], [], failed, threshold)
    units = unit_rows(np.stack([each.face.feature for each in open_faces])).astype(np.float32)
    labels = group_faces(units, threshold.score)
    by_label = [[open_faces[row] for row in np.flatnonzero(labels == label)] for label in range(labels.max() + 1)]
    groups = sorted((each for each in by_label if len(each) > 1), key=len, reverse=True)
    return Groups(model, known, groups, [each[0] for each in by_label if len(each) == 1], failed, threshold)


def enroll_groups(groups: Groups, gallery: Gallery) -> list[str]:
    """Enroll every group as unknown-1, ..., and add new photos to known people: the names of new people.

    A photo that was removed from a person stays out. All of it is stored together.
    """
    names, number = list[str](), 0
    with gallery.store.together():
        for person, faces in groups.known.items():
            if gallery.store.person(person.id) is not None:  # not removed meanwhile
                gallery.enroll(person.id, [_record(each) for each in faces], model=groups.model)
        for faces in groups.groups:
            number += 1
            while gallery.store.find(f"{UNKNOWN}{number}") is not None:
                number += 1
            names.append(f"{UNKNOWN}{number}")
            gallery.enroll(names[-1], [_record(each) for each in faces], model=groups.model)
    return names


def _faces(
    reader: FaceReader, photos: Sequence[PhotoLike], min_quality: float, progress: Progress
) -> tuple[list[GroupedFace], dict[str, str]]:
    """All faces of the photos, copies of a photo once; and the photos without any, with the reason."""
    found, failed, seen = list[GroupedFace](), dict[str, str](), set[str]()
    how = reader.embedder.card.preprocessing
    for done, given in enumerate(photos, 1):
        try:
            photo = open_photo(given, source=f"photo {done}")
        except UnreadableImage as error:
            failed[error.path] = error.reason
            continue
        if photo.sha256 not in seen:
            faces = reader.faces(photo)
            for each in faces:
                if each.quality.value < min_quality:
                    failed[photo.source] = ", ".join(each.quality.reasons) or f"quality {each.quality.value:.2f}"
                    continue
                aligned = align(photo.pixels, each.landmarks, how.template, how.crop)
                width = round(THUMBNAIL * aligned.shape[1] / aligned.shape[0])
                small = cv2.resize(aligned, (width, THUMBNAIL), interpolation=cv2.INTER_AREA)
                found.append(GroupedFace(photo.source, photo.sha256, each, encode_jpeg(np.asarray(small, np.uint8))))
            if not faces:
                failed[photo.source] = "no face was found"
        seen.add(photo.sha256)
        progress(done, len(photos))
    return found, failed


def _known(
    reader: FaceReader, gallery: Gallery, fpir: float | None, faces: list[GroupedFace]
) -> tuple[dict[Person, list[GroupedFace]], list[GroupedFace]]:
    """Faces of people in the gallery: enrolled before, or recognised; and all other faces."""
    if not faces or not len(gallery):
        return {}, faces
    threshold = search_threshold(reader.embedder.card, gallery.sizes, fpir).score
    found = gallery.search(np.stack([each.face.feature for each in faces]), model=reader.model)
    known: dict[Person, list[GroupedFace]] = {}
    others = []
    for each, number, score in zip(faces, found.people[:, 0].tolist(), found.scores[:, 0].tolist(), strict=True):
        owner = _owner(gallery, each)
        if owner is None and score >= threshold and not gallery.store.is_rejected(number, each.sha256):
            owner = number
        person = None if owner is None else gallery.store.person(owner)
        if person is None:
            others.append(each)
        else:
            known.setdefault(person, []).append(each)
    return known, others


def _owner(gallery: Gallery, each: GroupedFace) -> int | None:
    """The person for whom this face was enrolled."""
    for number in gallery.store.owners(each.sha256):
        for *_, photo in gallery.store.photos(number):
            if photo.sha256 == each.sha256 and np.allclose(photo.box, each.face.box, atol=1):
                return number
    return None


def _record(each: GroupedFace) -> Photo:
    return Photo(each.sha256, each.face.box, each.face.feature)


def _section(page: Report, title: str, faces: Sequence[GroupedFace]) -> None:
    page.heading(f"{title}: {len(faces):,} faces")
    page.thumbnails([(each.thumbnail, Path(each.source).name) for each in faces[:SHOWN]])
    if len(faces) > SHOWN:
        page.text(f"{len(faces) - SHOWN:,} more are not shown.")


def require_page(path: Path) -> None:
    """Raise before the work if a page cannot be written to a path."""
    if path.is_dir():
        raise UserError(f"{path} is a folder; wanted a file for the page, such as {path / 'groups.html'}")
    if not path.absolute().parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}; make it, or choose another")
