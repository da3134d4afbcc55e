"""Moving a gallery to another model: the features of every enrolled photo are made again from the photo."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sphereface.embed.embedder import Embedder
from sphereface.errors import JobFailed, UnreadableImage
from sphereface.faces.detections import iou
from sphereface.faces.detector import Detector
from sphereface.gallery.gallery import Gallery
from sphereface.gallery.records import Model, Photo
from sphereface.hashes import sha256_of
from sphereface.progress import Begin, Say, mute, unseen
from sphereface.recognize.photos import FaceReader, open_photo

OVERLAP = 0.5  # of the enrolled face's box and the one found again: intersection over union


def reembed(
    gallery: Gallery,
    photos: Sequence[Path],
    model: str | Path = "auto",
    *,
    detector: str = "mtcnn",
    threads: int | None = None,
    say: Say = mute,
    begin: Begin = unseen,
) -> tuple[int, bool]:
    """Replace the features of all photos of a gallery by those of another model.

    Returns the number of photos, and whether the earlier features were overwritten.

    Photos are found by their SHA-256, faces by their boxes. If one is missing, nothing is changed.
    """
    embedder = Embedder.load(model, threads=threads)
    reader = FaceReader(embedder, Detector(detector, threads=threads))
    wanted: dict[str, list[tuple[int, Photo]]] = {}
    for person in gallery.people():
        for number, _, photo in gallery.store.photos(person.id):
            wanted.setdefault(photo.sha256, []).append((number, photo))
    found: list[tuple[int, Photo]] = []
    progress = begin("embedding photos again")
    for done, path in enumerate(photos, 1):
        records = wanted.pop(sha256_of(path), None)
        if records is not None:
            found += _again(path, records, reader)
        progress(done, len(photos))
    if wanted:
        raise JobFailed(
            f"{len(wanted):,} of the enrolled photos are not among the {len(photos):,} given; nothing was changed: "
            "give their folders, too, or remove the photos from the gallery"
        )
    named = Model(embedder.identity, embedder.card.called, embedder.dimension)
    gallery.store.replace(named, found, actor=gallery.actor)
    return len(found), gallery.erase(say=say)


def _again(path: Path, records: Sequence[tuple[int, Photo]], reader: FaceReader) -> list[tuple[int, Photo]]:
    """The records of a photo with features of the reader's model."""
    try:
        faces = reader.faces(open_photo(path))
    except UnreadableImage as error:
        raise JobFailed(f"{path}: {error.reason}; nothing was changed") from error
    boxes, again = np.array([face.box for face in faces]), []
    for number, photo in records:
        overlaps = iou(np.array(photo.box), boxes) if faces else np.zeros(1)
        if overlaps.max() < OVERLAP:
            raise JobFailed(f"{path}: the enrolled face was not found again; nothing was changed: use another detector")
        best = faces[int(overlaps.argmax())]
        again.append((number, Photo(photo.sha256, best.box, best.feature)))
    return again
