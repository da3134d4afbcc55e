"""Verify two photos, enroll people, identify faces: photo -> faces -> features -> answer."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from sphereface.arrays import Float32, unit_rows
from sphereface.data.people import find_images
from sphereface.embed.embedder import Embedder
from sphereface.errors import ContractMismatch, NoFaceFound, UnreadableImage, UserError
from sphereface.faces.detector import Detector
from sphereface.gallery.gallery import Gallery
from sphereface.gallery.records import Model, Person, Photo, checked_name
from sphereface.metrics.templates import pool
from sphereface.progress import Progress, Say, mute, silent
from sphereface.recognize.answers import Alike, Enrolment, Identified, IdentifiedPhoto, Verification
from sphereface.recognize.groups import Groups, group_photos
from sphereface.recognize.photos import (
    Face,
    FaceReader,
    LoadedPhoto,
    OpenedPhoto,
    PhotoLike,
    as_photos,
    load_photo,
    open_photo,
)
from sphereface.recognize.thresholds import SearchThreshold, match_threshold, pair_threshold, search_threshold
from sphereface.zoo import ModelFile, list_models, model_file


class Recognizer:
    """Answers who is in a photo, with the threshold and the rate that it promises.

    >>> Recognizer("mini").verify("a.jpg", "b.jpg").same
    True
    """

    def __init__(
        self,
        model: str | Path | Embedder = "auto",
        gallery: Gallery | str | Path | None = None,
        *,
        detector: Detector | str = "mtcnn",
        far: float | None = None,
        fpir: float | None = None,
        min_quality: float = 0.0,
        threads: int | None = None,
    ) -> None:
        """`far` is the rate of two photos, `fpir` that of a search; default: 1e-3, and 1 % or in large galleries 10 %.

        Photos whose faces have less than `min_quality`, from 0 to 1, are not enrolled or verified. The gallery is
        opened when it is first needed; the default is one in the user's data folder.
        """
        if not 0 <= min_quality <= 1:
            raise UserError(f"min_quality is {min_quality}; wanted a number from 0 to 1")
        self._given, self._gallery, self._detector, self._threads = model, gallery, detector, threads
        self.far, self.fpir, self.min_quality = far, fpir, min_quality

    @cached_property
    def gallery(self) -> Gallery:
        """The enrolled people."""
        return self._gallery if isinstance(self._gallery, Gallery) else Gallery.open(self._gallery)

    @cached_property
    def embedder(self) -> Embedder:
        """The model; `auto` is that of the gallery, if it has one, else the most accurate one."""
        given = self._given
        return given if isinstance(given, Embedder) else Embedder.load(self._model_file(given), threads=self._threads)

    @cached_property
    def reader(self) -> FaceReader:
        """Detector and embedder."""
        given = self._detector
        return FaceReader(
            self.embedder, given if isinstance(given, Detector) else Detector(given, threads=self._threads)
        )

    @cached_property
    def model(self) -> Model:
        """The model, as a gallery knows it."""
        return self.reader.model

    def _model_file(self, given: str | Path) -> ModelFile:
        has_gallery = self._gallery is not None or "gallery" in self.__dict__  # a default one that is in use
        bound = self.gallery.store.model if given == "auto" and has_gallery else None
        if bound is not None:
            for each in list_models():
                if each.found is not None and each.entry.features is not None and not each.fault:
                    file = ModelFile(each.found)
                    if file.identity == bound.identity:
                        return file
        return model_file(given)

    # Two photos.

    def verify(self, a: PhotoLike, b: PhotoLike) -> Verification:
        """Whether two photos show one person; of several faces, those nearest the centres, with a warning."""
        photos = open_photo(a, source="the first photo"), open_photo(b, source="the second photo")
        threshold, warnings, faces = pair_threshold(self.embedder.card, self.far), list[str](), list[Face]()
        for photo in photos:
            face, count = self.reader.face(photo)
            self.require_quality(face, photo.source)
            if count > 1:
                warnings.append(f"{photo.source}: {count} faces; the one nearest the centre was taken")
            warnings += [f"{photo.source}: {reason}" for reason in face.quality.reasons]
            faces.append(face)
        left, right = unit_rows([face.feature for face in faces])
        score = float(left @ right)
        return Verification(
            score, threshold, self.embedder.card.far_of(score), (faces[0], faces[1]),
            (photos[0].source, photos[1].source), self.embedder.card.called, tuple(warnings),
        )  # fmt: skip

    # A gallery.

    def threshold(self) -> SearchThreshold:
        """The threshold of a search in the gallery as it is now."""
        return search_threshold(self.embedder.card, self.gallery.sizes, self.fpir)

    def identify(self, photo: PhotoLike) -> IdentifiedPhoto:
        """Every face of a photo, with the name of the person or None: unknown."""
        return self.identify_many([photo])[0]

    def identify_many(self, photos: Sequence[PhotoLike], *, progress: Progress = silent) -> list[IdentifiedPhoto]:
        """The faces of photos; a photo that cannot be read has an error instead of faces."""
        self.gallery.require_model(self.model)
        answers = []
        for done, given in enumerate(photos, 1):
            try:
                answers.append(self._identify(open_photo(given, source=f"photo {done}")))
            except UnreadableImage as error:
                answers.append(IdentifiedPhoto(error.path, (), error.reason))
            progress(done, len(photos))
        return answers

    def _identify(self, photo: OpenedPhoto) -> IdentifiedPhoto:
        faces = self.reader.faces(photo)
        threshold = self.threshold()
        good = [row for row, face in enumerate(faces) if face.quality.value >= self.min_quality]
        answers = [Identified(face, None, None, threshold) for face in faces]
        if good:
            found = self.gallery.search(_stack([faces[row] for row in good]), model=self.model)
            for row, number, score in zip(good, found.people[:, 0], found.scores[:, 0], strict=True):
                person = self.gallery.store.person(int(number)) if score >= threshold.score else None
                name = None if person is None else person.name
                answers[row] = Identified(faces[row], name, float(score) if number > 0 else None, threshold)
        return IdentifiedPhoto(photo.source, tuple(answers))

    def enroll(
        self,
        name: str,
        photos: PhotoLike | Sequence[PhotoLike],
        *,
        note: str = "",
        expires: float | None = None,
        force: bool = False,
    ) -> Enrolment:
        """Add photos to a person, who is made if needed; what was added is on the disk when this returns.

        Photos of a known person must look like them, unless `force`: they reach the threshold of two photos. A new
        person is first looked for under other names; see `Enrolment.alike`.
        """
        self.gallery.require_model(self.model)
        name = checked_name(name)
        person = self.gallery.store.find(name)
        seen = _Sorted(self, person)
        for number, given in enumerate(as_photos(photos), 1):
            seen.add(given, f"photo {number}")
        match = self._match(person.photos if person else 1)
        refused = {} if person is None or force else self._strangers(person, seen.faces, match)
        wanted = {source: found for source, found in seen.faces.items() if source not in refused}
        alike, notes = self._alike([face for _, face in wanted.values()], person) if wanted else ((), ())
        warnings = [*seen.warnings, *notes]
        if person is None:
            warnings += self._unlike([face for _, face in wanted.values()], list(wanted), match)
        if wanted or (person is not None and (note or expires is not None)):
            records = [Photo(sha256, face.box, face.feature) for sha256, face in wanted.values()]
            person, _ = self.gallery.enroll(name, records, model=self.model, note=note, expires=expires)
        if person is not None and person.name != name:
            warnings.append(f"{name} is an earlier name of {person.name}")
        return Enrolment(
            person.name if person is not None else name,
            person.photos if person is not None else 0,
            tuple(wanted), tuple(seen.known), tuple(seen.removed), seen.failed, refused, match, alike,
            tuple(warnings),
        )  # fmt: skip

    def group(self, photos: PhotoLike | Sequence[PhotoLike], *, progress: Progress = silent) -> Groups:
        """The faces of photos by person; people of the gallery are named, if this recognizer was given one."""
        gallery = None if self._gallery is None else self.gallery
        return group_photos(
            self.reader, as_photos(photos), gallery=gallery, fpir=self.fpir, min_quality=self.min_quality,
            progress=progress,
        )  # fmt: skip

    def _match(self, photos: int) -> float:
        """The score from which a photo looks like a person with a number of photos, at the rate of two photos."""
        far = pair_threshold(self.embedder.card, self.far).far
        return match_threshold(self.embedder.card, photos, far)

    def _strangers(self, person: Person, faces: Mapping[str, tuple[str, Face]], match: float) -> dict[str, float]:
        """The photos that do not look like a person, with their scores with the person's template."""
        photos = [photo for *_, photo in self.gallery.store.photos(person.id)]
        if not photos or not faces:
            return {}
        scores = unit_rows(_stack([face for _, face in faces.values()])) @ _template([each.feature for each in photos])
        return {source: float(score) for source, score in zip(faces, scores, strict=True) if score < match}

    def _unlike(self, faces: Sequence[Face], sources: Sequence[str], match: float) -> list[str]:
        """Warnings about photos of a new person that do not look like the others together."""
        warnings = []
        for row, source in enumerate(sources if len(faces) > 1 else ()):
            others = [face.feature for place, face in enumerate(faces) if place != row]
            score = float(unit_rows(faces[row].feature[None])[0] @ _template(others))
            if score < match:
                warnings.append(f"{source}: does not look like the other photos (score {score:.3f})")
        return warnings

    def _alike(self, faces: Sequence[Face], person: Person | None) -> tuple[tuple[Alike, ...], tuple[str, ...]]:
        """Other people in the gallery whom the photos together look like; and why they could not be looked for."""
        if not len(self.gallery):
            return (), ()
        try:
            threshold = self.threshold()
        except UserError as error:
            return (), (f"not looked for under other names: {error}",)
        found = self.gallery.search(_template([face.feature for face in faces])[None], 2, model=self.model)
        people = [
            (self.gallery.store.person(int(number)), float(score))
            for number, score in zip(found.people[0], found.scores[0], strict=True)
            if score >= threshold.score
        ]
        alike = (Alike(one.name, score) for one, score in people if one and (not person or one.id != person.id))
        return tuple(alike), ()

    def require_quality(self, face: Face, source: str) -> None:
        """Raise, with the reasons, if a face has less than the wanted quality."""
        if face.quality.value < self.min_quality:
            reasons = ", ".join(face.quality.reasons) or "hardly recognisable"
            raise UserError(
                f"{source}: {reasons}; its quality is {face.quality.value:.2f}, wanted {self.min_quality:.2f}"
            )


class _Sorted:
    """The photos of a person, looked at one by one: faces to enroll, and why others are not."""

    def __init__(self, recognizer: Recognizer, person: Person | None) -> None:
        self._recognizer, self._person = recognizer, person
        self.faces: dict[str, tuple[str, Face]] = {}  # by source: SHA-256 of the photo, and the face
        self.known, self.removed = list[str](), list[str]()
        self.failed: dict[str, str] = {}
        self.warnings: list[str] = []

    def add(self, given: PhotoLike, source: str) -> None:
        """Look at a photo; only its face is kept."""
        try:
            content = load_photo(given, source=source)
        except UnreadableImage as error:
            self.failed[error.path] = error.reason
            return
        store, person = self._recognizer.gallery.store, self._person
        is_here = any(content.sha256 == sha256 for sha256, _ in self.faces.values())
        if is_here or (person and person.id in store.owners(content.sha256)):
            self.known.append(content.source)
        elif person and store.is_rejected(person.id, content.sha256):
            self.removed.append(content.source)
        else:
            self._read(content)

    def _read(self, content: LoadedPhoto) -> None:
        try:
            face, count = self._recognizer.reader.face(content.decoded())
            self._recognizer.require_quality(face, content.source)
        except NoFaceFound:
            self.failed[content.source] = "no face was found"
        except UserError as error:
            self.failed[content.source] = str(error).removeprefix(f"{content.source}: ")
        else:
            if count > 1:
                self.warnings.append(f"{content.source}: {count} faces; the one nearest the centre was taken")
            self.warnings += [f"{content.source}: {reason}" for reason in face.quality.reasons]
            self.faces[content.source] = content.sha256, face


def enroll_folder(
    recognizer: Recognizer, folder: Path, *, force: bool = False, note: str = "", expires: float | None = None,
    say: Say = mute, progress: Progress = silent,
) -> list[Enrolment]:  # fmt: skip
    """Enroll every person of a folder of folders, named by them; a second call continues, and keeps corrections."""
    inside = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    people = [each for each in inside if each.is_dir()]
    if not people:
        raise UserError(f"{folder}: no folder in it; wanted a folder of photos for each person")
    loose = [each.name for each in inside if not each.is_dir()]
    if loose:
        say(f"{folder}: {len(loose):,} files beside the folders of people are left out, such as {loose[0]}")
    found = []
    for done, place in enumerate(people, 1):
        images, others = find_images(place)
        if others:
            say(f"{place}: {len(others):,} files that are no photos are left out, such as {others[0]}")
        if images:
            try:
                photos = [place / path for path in images]
                found.append(recognizer.enroll(place.name, photos, force=force, note=note, expires=expires))
            except ContractMismatch:
                raise
            except UserError as error:  # such as a name that cannot be one
                found.append(Enrolment(place.name, 0, failed={str(place): str(error)}))
        elif not others:
            say(f"{place}: without photos")
        progress(done, len(people))
    return found


def _stack(faces: Sequence[Face]) -> Float32:
    return np.stack([face.feature for face in faces])


def _template(features: Sequence[Float32]) -> Float32:
    """The template of some features (D,)."""
    template: Float32 = pool(unit_rows(np.stack(features)), np.zeros(len(features), np.int64), 1)[0]
    return template
