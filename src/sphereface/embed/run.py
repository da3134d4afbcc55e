"""Embeds a set into a feature store: restartable, in parts, with a list of the unreadable images.

The batches are cut from the whole set by position. So restarts and the numbers of workers and parts do not change the
faces in a batch, and the features are the same to the last bit. A chunk of batches is written, flushed to the disk, and
then noted in the journal; after a killed run, the next one continues after the last noted chunk.
"""

import errno
import hashlib
import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from sphereface import __version__
from sphereface.arrays import Float32, UInt8
from sphereface.choices import Missing
from sphereface.data.files.writing import flush, open_private, sync, whole_file
from sphereface.data.formats.sets import open_set
from sphereface.data.manifest import require_faces
from sphereface.data.people import FaceSet
from sphereface.data.reading import ADVICE, Skipping, decode_face, read_image, require_missing
from sphereface.embed import store
from sphereface.embed.embedder import BATCH, Embedder
from sphereface.embed.journal import Job, Journal, Noted, open_journal
from sphereface.embed.store import FeatureManifest, Part
from sphereface.errors import DataFormatError, JobFailed, Setting, UnreadableImage, UserError
from sphereface.faces.warp import CROPS
from sphereface.hashes import sha256_of
from sphereface.progress import Progress, Say, mute, silent

CHUNK = 16  # batches per line of the journal
AHEAD = 4  # batches per worker that are read ahead of the network
LOOKS = 8  # chunks of earlier runs that are compared with their images
PART = f"{store.FEATURES}.part"


class Embedded(NamedTuple):
    """The folder of features, and its manifest."""

    folder: Path
    manifest: FeatureManifest


def embed_set(
    faces: str | Path,
    out: str | Path,
    embedder: Embedder,
    *,
    root: str | Path | None = None,
    part: Part = Part(),  # noqa: B008 - a frozen record
    batch: int = BATCH,
    workers: int = 2,
    missing: Missing = "fail",
    say: Say = mute,
    progress: Progress = silent,
) -> Embedded:
    """Embed the faces of a set, in any format, into a folder that `open_features` opens; continues an unfinished run.

    A part is written to a folder of its own in `out`. `workers` threads read and decode ahead of the network. `say` is
    called with notes, `progress` with the numbers of images done and in total.
    """
    folder, out = Path(faces), Path(out)
    if batch < 1 or workers < 0:
        raise UserError(f"batch is {batch}, workers is {workers}; wanted at least 1, and at least 0")
    require_missing(missing)
    found = open_set(folder, root=root)
    if note := require_faces(folder, found, embedder.card.preprocessing.alignment):
        say(note)
    work = _Work(folder, found, out, embedder, part, batch)
    with work.journal() as journal:
        if missing == "fail" and journal.unreadable:
            position, why = next(iter(journal.unreadable.items()))
            reason = f"{why}; {len(journal.unreadable):,} images were left out of {work.folder} so far: continue with "
            raise UnreadableImage(found.paths[position], reason, Setting("missing", "skip"), ", or choose a new folder")
        if (work.folder / store.MANIFEST).is_file():
            say(f"{work.folder} is finished already")
            return Embedded(work.folder, store.read_manifest(work.folder))
        work.run(journal, workers, missing, progress)
        return Embedded(work.folder, work.finish(journal))


def fingerprint(faces: FaceSet) -> str:
    """SHA-256 of paths, people and labels; the pixels are not read."""
    digest = hashlib.sha256(np.asarray(faces.labels, "<i8").tobytes())
    for names in (faces.paths, faces.people):
        digest.update(hashlib.sha256(store.lines(names)).digest())
    return digest.hexdigest()


class _Batch(NamedTuple):
    """A batch of images."""

    positions: list[int]  # of the readable images
    faces: UInt8
    hashes: list[bytes]
    unreadable: dict[int, str]


class _Work:
    """The embedding of one part of a set into a folder."""

    def __init__(self, source: Path, faces: FaceSet, out: Path, embedder: Embedder, part: Part, batch: int) -> None:
        self.source, self.faces, self.embedder, self.part, self.batch = source, faces, embedder, part, batch
        self.folder = out if part.of == 1 else out / f"part-{part.number}-of-{part.of}"
        if part.of > 1 and (out / store.JOURNAL).is_file():
            raise UserError(f"{out} holds features that are not in parts; choose another folder for parts")
        self.positions = part.positions(len(faces.paths), batch)
        self.fingerprint = fingerprint(faces)

    @property
    def job(self) -> Job:
        """The inputs that determine the features; only an equal job may continue a run."""
        card = self.embedder.card
        return {
            "format": 1, "model": self.embedder.model, "card": store.card_hash(card), "rule": card.feature_rule,
            "engine": self.embedder.engine, "data": self.fingerprint, "part": str(self.part), "batch": self.batch,
            "chunk": CHUNK,
        }  # fmt: skip

    @contextmanager
    def journal(self) -> Iterator[Journal]:
        """The folder's journal, locked and checked against the job and its images."""
        with open_journal(self.folder, self.job) as journal:
            self._require_sum(journal)
            self._look_back(journal)
            yield journal

    def run(self, journal: Journal, workers: int, missing: Missing, progress: Progress) -> None:
        """Embed the images that are not noted yet."""
        done = min(len(journal.chunks) * self.batch * CHUNK, len(self.positions))
        progress(done, len(self.positions))
        if done == len(self.positions):
            return
        starts = range(self.positions.start + done, self.positions.stop, self.batch)
        parts = (range(start, min(start + self.batch, self.positions.stop)) for start in starts)
        ahead = _ahead(partial(self._read, missing=missing), parts, workers)
        with self._open_rows(journal) as file, closing(ahead) as batches:
            while chunk := list(self._embedded(islice(batches, CHUNK))):
                for rows, _ in chunk:
                    file.write(rows.tobytes())
                file.flush()
                sync(file.fileno())
                read = [batch for _, batch in chunk]
                done += sum(len(batch.positions) + len(batch.unreadable) for batch in read)
                seen = sha256_of(b"".join(each for batch in read for each in batch.hashes))
                unreadable = {position: why for batch in read for position, why in batch.unreadable.items()}
                journal.note(Noted(rows=sum(len(rows) for rows, _ in chunk), seen=seen, unreadable=unreadable))
                progress(done, len(self.positions))

    def finish(self, journal: Journal) -> FeatureManifest:
        """Write the index, complete the file of features, and then write the manifest."""
        lost = journal.unreadable
        kept = [position for position in self.positions if position not in lost]
        paths, people = store.lines([self.faces.paths[place] for place in kept]), store.lines(self.faces.people)
        labels = store.label_bytes(np.asarray(self.faces.labels, np.int64)[kept])
        for name, content in ((store.PATHS, paths), (store.PEOPLE, people), (store.LABELS, labels)):
            with whole_file(self.folder / name, private=True) as file:
                file.write(content)
        card, dimension = self.embedder.card, self.embedder.dimension
        self._complete_rows(journal.rows, dimension)
        manifest = FeatureManifest(
            made_by=f"sphereface {__version__} embed", card=card, card_hash=store.card_hash(card),
            model=self.embedder.model, engine=self.embedder.engine, source=str(self.source.resolve()),
            data=self.fingerprint, total=len(self.faces.paths), part=self.part, batch=self.batch, count=len(kept),
            dimension=dimension, index=store.index_hash(paths, people, labels),
            unreadable={self.faces.paths[position]: why for position, why in lost.items()},
        )  # fmt: skip
        with whole_file(self.folder / store.MANIFEST, private=True) as file:
            file.write(manifest.model_dump_json(indent=2).encode() + b"\n")
        return manifest

    def _embedded(self, batches: Iterator[_Batch]) -> Iterator[tuple[Float32, _Batch]]:
        for batch in batches:
            rows = np.ascontiguousarray(self.embedder.embed_batch(batch.faces), "<f4")
            wrong = np.flatnonzero(~np.isfinite(rows).all(axis=1))
            if len(wrong):
                path = self.faces.paths[batch.positions[wrong[0]]]
                raise JobFailed(f"the feature of {path} is not finite; check the model, and its card's mean and scale")
            yield rows, batch

    def _read(self, positions: range, missing: Missing) -> _Batch:
        crop = self.embedder.card.preprocessing.crop
        found, faces, hashes = [], [], []
        skipping = Skipping(missing, (*ADVICE, ": either way the run continues from here"))
        for position in positions:
            with skipping.reading(position):
                content = read_image(self.faces, position)
                faces.append(decode_face(self.faces, position, content, crop))
                hashes.append(hashlib.sha256(content).digest())
                found.append(position)
        pixels = np.stack(faces) if faces else np.zeros((0, CROPS[crop].height, CROPS[crop].width, 3), np.uint8)
        return _Batch(found, pixels, hashes, {place: why for place, (_, why) in skipping.unreadable.items()})

    def _require_sum(self, journal: Journal) -> None:
        """Raise unless each chunk has a row or a reason for each of its images."""
        for number, noted in enumerate(journal.chunks):
            chunk = self._chunk(number)
            if not noted.unreadable.keys() <= set(chunk) or noted.rows + len(noted.unreadable) != len(chunk):
                raise DataFormatError(f"{self.folder / store.JOURNAL}: changed or damaged; remove {self.folder}")

    def _look_back(self, journal: Journal) -> None:
        """Raise if images of some earlier chunks have changed: files of the same names may hold other faces."""
        for number in np.unique(np.linspace(0, len(journal.chunks) - 1, LOOKS).astype(int)) if journal.chunks else ():
            noted, chunk = journal.chunks[number], self._chunk(int(number))
            positions = [position for position in chunk if position not in noted.unreadable]
            try:
                hashes = [hashlib.sha256(read_image(self.faces, position)).digest() for position in positions]
            except UnreadableImage:
                hashes = []
            if sha256_of(b"".join(hashes)) != noted.seen:
                raise UserError(
                    f"{self.folder} holds features of other images: some of the {len(chunk):,} from "
                    f"{self.faces.paths[chunk[0]]} on have changed since; choose a new folder, or remove this one"
                )

    def _chunk(self, number: int) -> range:
        """The positions of the images of a chunk, readable or not."""
        size = self.batch * CHUNK
        return self.positions[number * size : (number + 1) * size]

    @contextmanager
    def _open_rows(self, journal: Journal) -> Iterator[BinaryIO]:
        """The file of features, positioned after the last noted row, with disk space for all rows."""
        path, dimension = self.folder / PART, self.embedder.dimension
        begin = len(store.header(0, dimension)) + 4 * dimension * journal.rows
        if begin > (path.stat().st_size if path.is_file() else 0) and journal.chunks:
            raise DataFormatError(f"{path}: {journal.rows:,} rows were in it and are missing now; remove {self.folder}")
        with open_private(path) as file:
            _reserve(file, len(store.header(0, dimension)) + 4 * dimension * len(self.positions))
            file.seek(begin)
            yield file

    def _complete_rows(self, count: int, dimension: int) -> None:
        part = self.folder / PART
        if not part.is_file() and (self.folder / store.FEATURES).is_file():
            return  # an earlier run ended right after this step
        with open_private(part) as file:
            file.write(store.header(count, dimension))
            file.truncate(len(store.header(count, dimension)) + 4 * count * dimension)
        flush(part)
        part.replace(self.folder / store.FEATURES)
        flush(self.folder)


def _ahead(read: Callable[[range], _Batch], parts: Iterator[range], workers: int) -> Generator[_Batch, None, None]:
    """Batches in order, read ahead of the consumer by `workers` threads, or by the consumer itself."""
    if not workers:
        yield from map(read, parts)
        return
    pool = ThreadPoolExecutor(workers)  # decoding releases Python's lock
    waiting: deque[Future[_Batch]] = deque()
    try:
        for part in parts:
            waiting.append(pool.submit(read, part))
            if len(waiting) > workers * AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _reserve(file: BinaryIO, size: int) -> None:
    """Allocate the disk space at once, so that a full disk is an error now and not hours later."""
    if size <= os.fstat(file.fileno()).st_size:
        return
    if sys.platform == "linux":
        try:
            os.posix_fallocate(file.fileno(), 0, size)
            return
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # the file system cannot allocate
                raise
    file.truncate(size)
