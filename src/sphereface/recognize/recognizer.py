"""Verify two photos, enroll people, identify faces: photo -> faces -> features -> answer."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from sphereface.arrays import Float32, unit_rows
from sphereface.embed.embedder import Embedder
from sphereface.errors import NoFaceFound, UnreadableImage, UserError
from sphereface.faces.detector import Detector
from sphereface.gallery.gallery import Gallery
from sphereface.gallery.records import Model, Person, Photo, checked_name
from sphereface.metrics.templates import pool
from sphereface.progress import Progress, Say, mute, silent
from sphereface.recognize.answers import Alike, Enrolment, Identified, IdentifiedPhoto, Verification
from sphereface.recognize.photos import Face, FaceReader, OpenedPhoto, PhotoLike, as_photos, open_photo
from sphereface.recognize.thresholds import SearchThreshold, pair_threshold, search_threshold
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

    def _model_file(self, given: str | Path) -> ModelFile:
        bound = self.gallery.store.model if given == "auto" and self._gallery is not None else None
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
            self._require_quality(face, photo)
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
        self.bind()
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
        found = self.gallery.search(_stack(faces)) if faces else None
        answers = []
        for row, face in enumerate(faces):
            assert found is not None
            number, score = int(found.people[row, 0]), float(found.scores[row, 0])
            person = self.gallery.store.person(number) if score >= threshold.score else None
            answers.append(
                Identified(face, None if person is None else person.name, score if number > 0 else None, threshold)
            )
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
        self.bind()
        name = checked_name(name)
        person = self.gallery.store.find(name)
        opened, known, removed, failed = self._sort(as_photos(photos), person)
        faces, warnings = {}, list[str]()
        for photo in opened:
            try:
                face, count = self.reader.face(photo)
                self._require_quality(face, photo)
            except UserError as error:
                failed[photo.source] = _reason(error, photo)
                continue
            if count > 1:
                warnings.append(f"{photo.source}: {count} faces; the one nearest the centre was taken")
            warnings += [f"{photo.source}: {reason}" for reason in face.quality.reasons]
            faces[photo] = face
        refused = {} if person is None or force else self._strangers(person, faces)
        wanted = {photo: face for photo, face in faces.items() if photo.source not in refused}
        alike = self._alike(wanted, person) if wanted else ()
        count = 0
        if wanted:
            records = [Photo(photo.sha256, face.box, face.feature) for photo, face in wanted.items()]
            person, count = self.gallery.enroll(name, records, note=note, expires=expires)
        if person is not None and person.name != name:
            warnings.append(f"{name} is an earlier name of {person.name}")
        return Enrolment(
            person.name if person is not None else name,
            person.photos if person is not None else 0,
            tuple(photo.source for photo in wanted)[:count], tuple(known), tuple(removed), failed, refused, alike,
            tuple(warnings),
        )  # fmt: skip

    def _sort(
        self, photos: Sequence[PhotoLike], person: Person | None
    ) -> tuple[list[OpenedPhoto], list[str], list[str], dict[str, str]]:
        """Photos to look at; those that the person has, or had; and those that cannot be read."""
        opened: dict[str, OpenedPhoto] = {}
        known, removed, failed = list[str](), list[str](), dict[str, str]()
        for number, given in enumerate(photos, 1):
            try:
                photo = open_photo(given, source=f"photo {number}")
            except UnreadableImage as error:
                failed[error.path] = error.reason
                continue
            if photo.sha256 in opened or (person and person.id in self.gallery.store.owners(photo.sha256)):
                known.append(photo.source)
            elif person and self.gallery.store.is_rejected(person.id, photo.sha256):
                removed.append(photo.source)
            else:
                opened[photo.sha256] = photo
        return list(opened.values()), known, removed, failed

    def _strangers(self, person: Person, faces: dict[OpenedPhoto, Face]) -> dict[str, float]:
        """The photos that do not look like a person, with their scores with the person's template."""
        photos = [photo for *_, photo in self.gallery.store.photos(person.id)]
        if not photos or not faces:
            return {}
        units = unit_rows([photo.feature for photo in photos])
        template = pool(units, np.zeros(len(units), np.int64), 1)[0]
        scores = unit_rows(_stack(list(faces.values()))) @ template
        far = pair_threshold(self.embedder.card, self.far).far
        threshold = search_threshold(self.embedder.card, {person.photos: 1}, far).score
        return {photo.source: float(score) for photo, score in zip(faces, scores, strict=True) if score < threshold}

    def _alike(self, faces: dict[OpenedPhoto, Face], person: Person | None) -> tuple[Alike, ...]:
        """Other people in the gallery whom the photos together look like."""
        if not len(self.gallery):
            return ()
        units = unit_rows(_stack(list(faces.values())))
        template = pool(units, np.zeros(len(units), np.int64), 1)
        found, threshold = self.gallery.search(template, 2), self.threshold()
        people = [
            (self.gallery.store.person(int(number)), float(score))
            for number, score in zip(found.people[0], found.scores[0], strict=True) if score >= threshold.score
        ]  # fmt: skip
        return tuple(Alike(one.name, score) for one, score in people if one and (not person or one.id != person.id))

    def bind(self) -> None:
        """Bind a new gallery to the model; another model than the gallery's is an error."""
        self.gallery.bind(Model(self.embedder.identity, self.embedder.card.called, self.embedder.dimension))

    def _require_quality(self, face: Face, photo: OpenedPhoto) -> None:
        if face.quality.value < self.min_quality:
            reasons = ", ".join(face.quality.reasons) or "hardly recognisable"
            raise UserError(
                f"{photo.source}: {reasons}; its quality is {face.quality.value:.2f}, wanted {self.min_quality:.2f}"
            )


def enroll_folder(
    recognizer: Recognizer, folder: Path, *, force: bool = False, note: str = "", expires: float | None = None,
    say: Say = mute, progress: Progress = silent,
) -> list[Enrolment]:  # fmt: skip
    """Enroll every person of a folder of folders, named by them; a second call continues, and keeps corrections."""
    from sphereface.data.people import find_images

    people = sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
    if not people:
        raise UserError(f"{folder}: no folder in it; wanted a folder of photos for each person")
    found = []
    for done, place in enumerate(people, 1):
        photos = [place / path for path in find_images(place)[0]]
        if photos:
            found.append(recognizer.enroll(place.name, photos, force=force, note=note, expires=expires))
        else:
            say(f"{place}: without photos")
        progress(done, len(people))
    return found


def _reason(error: UserError, photo: OpenedPhoto) -> str:
    if isinstance(error, NoFaceFound):
        return "no face was found"
    return str(error).removeprefix(f"{photo.source}: ")


def _stack(faces: Sequence[Face]) -> Float32:
    return np.stack([face.feature for face in faces])
