"""Align a folder of photos to a folder of faces: in parallel, restartable, with every omission reported.

Photos are processed in fixed chunks of their sorted order. A chunk's faces are written first, each under a hidden name
and then renamed; its journal, with the outcome of each photo, is written last. A killed run thus leaves complete faces
and complete journals only, and the next run continues with the chunks without a journal. Photos without a face are
handled at the end, from the journals: another policy needs no new detection.
"""

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import Field

from sphereface import __version__
from sphereface.arrays import Float64, Image
from sphereface.choices import ImageFormat, Misses, WhichFace
from sphereface.contract import Alignment, Record
from sphereface.data.aligning.face_names import FaceNames, face_names
from sphereface.data.files.workers import mapping
from sphereface.data.files.writing import whole_file
from sphereface.data.lists.landmarks import read_landmarks, write_landmarks
from sphereface.data.manifest import SetManifest, read_manifest, require_photos, write_manifest
from sphereface.data.names import is_safe
from sphereface.data.people import find_images
from sphereface.errors import DataFormatError, JobFailed, UnreadableImage, UserError
from sphereface.faces.detections import Detections, choose
from sphereface.faces.detector import Detector
from sphereface.faces.images import JPEG_QUALITY, decode, encode_jpeg, encode_png, inspect, read_bytes
from sphereface.faces.warp import align, centre_crop, targets
from sphereface.hashes import sha256_of
from sphereface.progress import Progress, silent

CHUNK = 32  # photos; fixed, so that neither the number of workers nor a restart changes a bit
PIXELS = 64_000_000  # of the photos decoded at a time
JOURNAL = ".align"  # a folder in `out` while a run is unfinished
REPORT, LANDMARKS = "report.json", "landmarks.txt"

Points = Sequence[tuple[float, float]]  # of a face


@dataclass(frozen=True)
class Job:
    """The settings that determine the faces; only an equal job can continue a run."""

    photos: Path
    out: Path
    detector: str = "mtcnn"
    preset: str = "paper"
    model: Path | None = None
    landmarks: Path | None = None  # given points: no detector runs
    choice: WhichFace = "centre"
    template: str = "sphereface"
    crop: str = "112x96"
    antialias: bool = True
    format: ImageFormat = "jpg"
    quality: int = JPEG_QUALITY

    def settings(self) -> dict[str, str]:
        """The settings, as the manifest records them."""
        finder = "landmarks" if self.landmarks else self.detector
        shown: dict[str, object] = {"found by": finder, "choice": self.choice, "antialias": self.antialias}
        if finder == "mtcnn":
            shown["preset"] = self.preset
        shown["format"] = f"jpg, quality {self.quality}" if self.format == "jpg" else "png"
        return {name: str(value) for name, value in shown.items()}

    def encode(self, face: Image) -> bytes:
        """A face in its file format."""
        return encode_png(face) if self.format == "png" else encode_jpeg(face, quality=self.quality)

    def digest(self, photos: Sequence[str]) -> str:
        """A hash of the settings and of the photos' names, sizes and times."""
        files = [(path, *_state(self.photos / path)) for path in photos]
        given = [_state(path) for path in (self.model, self.landmarks) if path]
        known = {**asdict(self), "photos": str(self.photos.resolve()), "out": ""}
        return sha256_of(json.dumps([CHUNK, __version__, known, files, given], default=str))


@dataclass(frozen=True)
class Outcome:
    """The outcome of one photo; a dataclass, as pydantic wants Unicode text and file names need not be."""

    path: str
    found: int = 0  # faces
    landmarks: Sequence[Points] = ()  # of each face written, in the photo
    reason: str = ""  # why it could not be read


class AlignReport(Record):
    """The outcomes of all photos, with the name of each one without a face, with several, or unreadable."""

    photos: int
    found: int
    faces: int
    none: tuple[str, ...]
    several: dict[str, int]
    unreadable: dict[str, str]
    centre_crops: int = 0
    ignored: tuple[str, ...] = ()  # files without the suffix of an image
    unlisted: dict[str, list[Points]] = Field(default_factory=dict)  # points of photos that landmarks.txt cannot name


def align_folder(job: Job, *, misses: Misses = "skip", workers: int = 1, progress: Progress = silent) -> AlignReport:
    """Align the photos of a folder; `progress` gets the number of photos done, and of all photos.

    `out` holds the photos' tree, `landmarks.txt`, `report.json`, and, written last, `manifest.json`.
    """
    targets(job.template, job.crop)  # unknown names are errors before any work
    photos, ignored = _list(job)
    digest = job.digest(photos)
    if job.landmarks is None:
        _detector(job.detector, job.preset, job.model)  # an unavailable one is an error before the folder is claimed
    if _claim(job, digest):
        progress(len(photos), len(photos))
        return AlignReport.model_validate_json((job.out / REPORT).read_bytes())
    names = face_names(photos, job.format)
    chunks = [
        Chunk(job, number, {path: names[path] for path in photos[start : start + CHUNK]})
        for number, start in enumerate(range(0, len(photos), CHUNK))
    ]
    waiting = [chunk for chunk in chunks if not chunk.journal.is_file()]
    done = len(photos) - sum(len(chunk.names) for chunk in waiting)
    progress(done, len(photos))
    with mapping(min(workers, len(waiting))) as run:
        for chunk, _ in zip(waiting, run(align_chunk, waiting), strict=True):
            done += len(chunk.names)
            progress(done, len(photos))
    outcomes = [Outcome(**row) for chunk in chunks for row in json.loads(chunk.journal.read_text())]
    return _finish(job, digest, outcomes, names, ignored, misses)


def _list(job: Job) -> tuple[list[str], list[str]]:
    here, there = job.photos.resolve(), job.out.resolve()
    if here == there or here in there.parents or there in here.parents:
        raise UserError(f"photos {job.photos} and faces {job.out}: one contains the other; choose a folder beside it")
    require_photos(job.photos)
    photos, ignored = find_images(job.photos)
    if not photos:
        raise DataFormatError(f"{job.photos}: no photo below it; wanted .jpg, .png, .webp, .bmp or .tif files")
    strangers = sorted(set(_given(job.landmarks)) - set(photos)) if job.landmarks else []
    if strangers:
        found = f"{len(strangers):,} of its lines name no photo below {job.photos}, such as {strangers[0]}"
        raise DataFormatError(f"{job.landmarks}: {found}; wanted paths relative to that folder")
    return photos, ignored


def _claim(job: Job, digest: str) -> bool:
    """Claim the folder for this job, or refuse one with other contents; True if the job is done."""
    signature = job.out / JOURNAL / "job"
    if signature.is_file():
        if signature.read_text() != digest:
            found = "an unfinished run with other settings, other photos or another version"
            raise UserError(f"{job.out} holds {found}; finish that one, or choose a new folder")
        return False
    if job.out.exists() and any(path.name != JOURNAL for path in job.out.iterdir()):
        manifest = read_manifest(job.out)
        if manifest is not None and manifest.settings.get("job") == digest:
            return True
        raise UserError(f"{job.out} holds something else; choose a new or empty folder")
    signature.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(signature) as file:
        file.write(digest.encode())
    return False


class Chunk(NamedTuple):
    """Some photos of a job, with the names of their faces."""

    job: Job
    number: int
    names: dict[str, FaceNames]

    @property
    def journal(self) -> Path:
        """The file with the photos' outcomes."""
        return self.job.out / JOURNAL / f"{self.number:08d}.json"

    def write(self, path: Path, data: bytes) -> None:
        """Write a file atomically; the hidden name is the chunk's own, so that writers do not collide."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = self.job.out / JOURNAL / f"{self.number}.part"
        part.write_bytes(data)
        part.replace(path)


def align_chunk(chunk: Chunk) -> None:
    """Write the faces of a chunk, then its journal."""
    outcomes: list[Outcome] = []
    for photos in _decoded(chunk, outcomes):
        for path, found in zip(photos, _find(chunk.job, photos), strict=True):
            outcomes.append(_write_faces(chunk, path, photos[path], found))
    rows = [asdict(outcome) for outcome in sorted(outcomes, key=lambda outcome: outcome.path)]
    chunk.write(chunk.journal, json.dumps(rows).encode())


def _decoded(chunk: Chunk, outcomes: list[Outcome]) -> Iterator[dict[str, Image]]:
    """The photos of a chunk, in batches of about `PIXELS`; unreadable ones go to the outcomes."""
    photos: dict[str, Image] = {}
    pixels = 0
    for path in chunk.names:
        try:
            data = read_bytes(chunk.job.photos / path)
            header = inspect(data, source=path)
            if photos and pixels + header.width * header.height > PIXELS:
                yield photos
                photos, pixels = {}, 0
            photos[path] = decode(data, source=path)
            pixels += header.width * header.height
        except UnreadableImage as error:
            outcomes.append(Outcome(path, reason=error.reason))
    yield photos


def _find(job: Job, photos: dict[str, Image]) -> list[Detections]:
    if job.landmarks is None:
        return _detector(job.detector, job.preset, job.model).detect_many(list(photos.values()))
    given = _given(job.landmarks)
    return [_listed(given[path]) if path in given else Detections.none() for path in photos]


def _listed(points: Float64) -> Detections:
    """Given landmarks (N, 5, 2) as detections."""
    boxes = np.concatenate([points.min(axis=1), points.max(axis=1)], axis=1)
    return Detections(boxes.astype(np.float32), np.ones(len(points), np.float32), points.astype(np.float32))


def _write_faces(chunk: Chunk, path: str, photo: Image, found: Detections) -> Outcome:
    job, kept = chunk.job, choose(found, photo, chunk.job.choice).landmarks.astype(np.float64).round(3)  # as listed
    for number, points in enumerate(kept, start=1):
        try:
            face = align(photo, points, job.template, job.crop, antialias=job.antialias)
        except UserError as error:
            raise UserError(_shown(path), ": ", *error.parts) from error
        chunk.write(job.out / chunk.names[path].of(number), job.encode(face))
    return Outcome(path, len(found), kept.tolist())


def _finish(
    job: Job, digest: str, outcomes: list[Outcome], names: dict[str, FaceNames], ignored: list[str], misses: Misses
) -> AlignReport:
    """Write report, landmark list and manifest from the outcomes."""
    last = Chunk(job, -1, names)
    none = [outcome.path for outcome in outcomes if not outcome.found and not outcome.reason]
    unreadable = {_shown(outcome.path): outcome.reason for outcome in outcomes if outcome.reason}
    points = {outcome.path: outcome.landmarks for outcome in outcomes if outcome.found}
    centre = none if misses == "centre" else []
    for path in centre:
        face = centre_crop(decode(read_bytes(job.photos / path), source=path), job.crop)
        last.write(job.out / names[path].first, job.encode(face))
    report = AlignReport(
        photos=len(outcomes),
        found=sum(outcome.found > 0 for outcome in outcomes),
        faces=sum(len(outcome.landmarks) for outcome in outcomes),
        none=tuple(map(_shown, none)),
        several={_shown(outcome.path): outcome.found for outcome in outcomes if outcome.found > 1},
        unreadable=unreadable,
        centre_crops=len(centre),
        ignored=tuple(map(_shown, ignored)),
        unlisted={_shown(path): list(faces) for path, faces in points.items() if not _listable(path)},
    )
    last.write(job.out / REPORT, report.model_dump_json(indent=2).encode() + b"\n")
    if misses == "fail" and (none or unreadable):
        example = [*report.none, *unreadable][0]
        raise JobFailed(
            f"{len(none):,} photos without a face and {len(unreadable):,} unreadable, such as {example}; all are "
            f"listed in {job.out / REPORT}; --misses skip or --misses centre goes on from here"
        )
    listed = {path: np.array(faces) for path, faces in points.items() if _listable(path)}
    write_landmarks(job.out / LANDMARKS, listed)
    made = Alignment.model_validate({"template": job.template, "crop": job.crop})
    settings = {**job.settings(), "misses": misses, "job": digest}
    manifest = SetManifest(alignment=made, made_by=f"sphereface {__version__} data align", settings=settings)
    write_manifest(job.out, manifest)
    shutil.rmtree(job.out / JOURNAL)
    return report


def _listable(path: str) -> bool:
    """True if a list of lines can hold a photo's name."""
    return is_safe(path) and path == path.strip().removeprefix("\ufeff")


def _shown(path: str) -> str:
    r"""A photo's name as text; a byte that is not UTF-8, as in old archives, becomes `\udce9`."""
    return path.encode("utf-8", "backslashreplace").decode()


def _state(path: Path) -> tuple[int, int]:
    try:
        state = path.stat()
    except OSError:
        return -1, -1  # such as a broken link: reading it gives the reason
    return state.st_size, state.st_mtime_ns


@lru_cache(maxsize=2)
def _detector(name: str, preset: str, model: Path | None) -> Detector:
    return Detector(name, preset, model, threads=1)


_given = lru_cache(maxsize=2)(read_landmarks)
