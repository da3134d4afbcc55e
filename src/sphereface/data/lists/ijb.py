"""The metadata of IJB-B and IJB-C as InsightFace gives it out: which face is of which template, which pairs, who is it.

    loose_crop/N.jpg                      a face with much around it
    meta/ijbc_face_tid_mid.txt            N.jpg TEMPLATE MEDIA: one image, or all frames of one video, are a media
    meta/ijbc_name_5pts_score.txt         N.jpg x1 y1 ... x5 y5 SCORE: where the face is, and how sure a detector was
    meta/ijbc_template_pair_label.txt     TEMPLATE TEMPLATE 0 or 1
    meta/ijbc_1N_gallery_G1.csv, ..._G2.csv, ijbc_1N_probe_mixed.csv    TEMPLATE_ID, SUBJECT_ID and more, below a header

IJB-B's begin with `ijbb_`, and its galleries are S1 and S2.
"""

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NamedTuple, get_args

import numpy as np

from sphereface.arrays import Bools, Float64, Int32
from sphereface.choices import IjbName, Repeats
from sphereface.data.files.lines import Line, open_list, read_lines, whole_number
from sphereface.data.files.writing import whole_file
from sphereface.data.lists.landmarks import write_landmarks
from sphereface.data.names import checked
from sphereface.data.people import find_images
from sphereface.errors import DataFormatError, Setting, UserError
from sphereface.faces.images import read_bytes

GALLERIES: Mapping[str, tuple[str, str]] = {"ijbb": ("S1", "S2"), "ijbc": ("G1", "G2")}
NUMBERS = 1 << 31  # templates, media and subjects are numbered below this
FOLDER = "loose_crop"
BLOCK = 1 << 23  # bytes of a list of pairs that are looked at in one go; IJB-C's has fifteen million lines

TEMPLATE, SUBJECT = "TEMPLATE_ID", "SUBJECT_ID"


class Member(NamedTuple):
    """One face of a template, and the media that it is from: an image, or a video."""

    image: str
    template: int
    media: int


class FoundFace(NamedTuple):
    """Where a face is in its image, (5, 2), and how sure the detector was."""

    landmarks: Float64
    score: float


@dataclass(frozen=True, eq=False)
class TemplatePairs:
    """Pairs of templates, (N,) each, in the order of their list."""

    first: Int32
    second: Int32
    same: Bools
    repeats: int = 0  # how many of them stand above already, in either order

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True)
class IjbFiles:
    """Where the lists of a set are; those that are not there are None, or left out of the galleries."""

    members: Path
    faces: Path | None
    pairs: Path | None
    galleries: Mapping[str, Path]
    probes: Path | None


def find_lists(meta: str | Path, name: IjbName = "ijbc") -> IjbFiles:
    """The lists of IJB-B or IJB-C in a folder, or in its folder `meta`; templates and some task must be there."""
    if name not in get_args(IjbName):
        raise UserError(f"unknown set {name!r}; choose one of {', '.join(get_args(IjbName))}")
    folder = Path(meta)
    if not folder.is_dir():
        raise DataFormatError(f"{folder}: no such folder; wanted the one with {_called(folder, name).members.name}")
    if not _called(folder, name).members.is_file() and _called(folder / "meta", name).members.is_file():
        folder = folder / "meta"
    called = _called(folder, name)
    if not called.members.is_file():
        raise DataFormatError(f"{called.members}: no such list; wanted the metadata of {name}, as InsightFace has it")
    galleries = {gallery: path for gallery, path in called.galleries.items() if path.is_file()}
    found = IjbFiles(called.members, _there(called.faces), _there(called.pairs), galleries, _there(called.probes))
    if bool(galleries) != bool(found.probes):
        absent = called.probes if galleries else next(iter(called.galleries.values()))
        raise DataFormatError(f"{absent}: no such list; identification wants a gallery and the probes")
    if not found.pairs and not galleries:
        raise DataFormatError(f"{folder}: neither {called.pairs} nor a gallery is there; nothing to score")
    return found


def _called(folder: Path, name: str) -> IjbFiles:
    """What the lists of a set are called."""
    return IjbFiles(
        members=folder / f"{name}_face_tid_mid.txt",
        faces=folder / f"{name}_name_5pts_score.txt",
        pairs=folder / f"{name}_template_pair_label.txt",
        galleries={gallery: folder / f"{name}_1N_gallery_{gallery}.csv" for gallery in GALLERIES[name]},
        probes=folder / f"{name}_1N_probe_mixed.csv",
    )


def _there(path: Path | None) -> Path | None:
    return path if path is not None and path.is_file() else None


def read_members(path: str | Path) -> tuple[Member, ...]:
    """The faces of templates: `N.jpg TEMPLATE MEDIA` on each line; a face is listed once for a template."""
    path = Path(path)
    found: dict[tuple[str, int], Member] = {}
    for line in read_lines(path):
        name, *rest = line.text.strip().rsplit(maxsplit=2)
        numbers = [number for number in map(_number, rest) if number is not None]
        if len(numbers) != 2:
            raise line.wrong(f"`image.jpg template media` with numbers below {NUMBERS:,}")
        member = Member(checked(name, line), *numbers)
        if (member.image, member.template) in found:
            raise line.wrong("each image once for a template; it is listed above; leave one out")
        found[member.image, member.template] = member
    if not found:
        raise DataFormatError(f"{path}: no face in it; wanted `image.jpg template media` on each line")
    return tuple(found.values())


def write_members(path: str | Path, members: Iterable[Member]) -> None:
    """Write what `read_members` reads."""
    with whole_file(path) as file:
        for image, template, media in members:
            file.write(f"{_plain(image, path)} {template} {media}\n".encode())


def read_found_faces(path: str | Path) -> dict[str, FoundFace]:
    """Landmarks and detection scores by image: `N.jpg x1 y1 ... x5 y5 score` on each line."""
    path = Path(path)
    found: dict[str, FoundFace] = {}
    for line in read_lines(path):
        name, *rest = line.text.strip().rsplit(maxsplit=11)
        values = [value for value in map(_finite, rest) if value is not None]
        if len(values) != 11:
            raise line.wrong("`image.jpg x1 y1 x2 y2 x3 y3 x4 y4 x5 y5 score`")
        if checked(name, line) in found:
            raise line.wrong("each image once; it is listed above; leave one out")
        found[name] = FoundFace(np.array(values[:10]).reshape(5, 2), values[10])
    if not found:
        raise DataFormatError(f"{path}: no face in it; wanted `image.jpg x1 y1 ... x5 y5 score` on each line")
    return found


def write_found_faces(path: str | Path, faces: Mapping[str, FoundFace]) -> None:
    """Write what `read_found_faces` reads, each number in full."""
    with whole_file(path) as file:
        for image, (landmarks, score) in faces.items():
            if landmarks.shape != (5, 2) or not np.isfinite(landmarks).all() or not math.isfinite(score):
                raise UserError(f"{image!r} with landmarks {landmarks.shape}, score {score}; wanted finite (5, 2)")
            numbers = [*landmarks.astype(np.float64).ravel().tolist(), float(score)]
            file.write(f"{_plain(image, path)} {' '.join(map(repr, numbers))}\n".encode())


def convert_landmarks(source: str | Path, target: str | Path, *, folder: str = FOLDER) -> int:
    """Turn `name_5pts_score.txt` into what `sphereface data align --landmarks` takes; how many faces it has.

    The images are then called `loose_crop/N.jpg`, as seen from the folder above; `folder=""` if they lie in the source
    of the alignment itself.
    """
    faces = read_found_faces(source)
    write_landmarks(target, {str(PurePosixPath(folder, name)): face.landmarks for name, face in faces.items()})
    return len(faces)


def read_template_pairs(path: str | Path, *, repeats: Repeats = "fail", block: int = BLOCK) -> TemplatePairs:
    """Pairs of templates: `template template label` on each line, 1 for the same person.

    A pair that is listed again, in either order, is an error, or with `repeats="keep"` it stays and is counted. About
    `block` bytes of the list are looked at in one go.
    """
    path = Path(path)
    blocks = list(_triples(path, block))
    first, second, same = (np.concatenate([np.zeros(0, np.int32), *(block[k] for block in blocks)]) for k in range(3))
    del blocks
    if not len(first):
        raise DataFormatError(f"{path}: no pair in it; wanted `template template label` on each line")
    again, example = _repeats(first, second)
    if again and repeats == "fail":
        line, above = entry_line(path, example[1]), entry_line(path, example[0])
        raise line.wrong(
            f"each pair once; it stands on line {above.number}, too (so do {again:,} in all); leave such lines out, or "
            "count them again with ",
            Setting("repeats", "keep"),
        )
    return TemplatePairs(first, second, same.astype(bool), again)


def write_template_pairs(path: str | Path, pairs: TemplatePairs) -> None:
    """Write what `read_template_pairs` reads."""
    with whole_file(path) as file:
        for first, second, same in zip(pairs.first.tolist(), pairs.second.tolist(), pairs.same.tolist(), strict=True):
            file.write(f"{first} {second} {same:d}\n".encode())


def entry_line(path: Path, entry: int) -> Line:
    """The line of an entry of a list, counted from 0 without the empty lines: for errors."""
    return next(islice(read_lines(path), entry, None))


def _triples(path: Path, block: int) -> Iterator[Int32]:
    """The numbers of a list of pairs, (3, M) at a time: plain digits all at once, anything else line by line."""
    number = 1
    with open_list(path) as file:
        while lines := file.readlines(block):
            found = _plain_triples(b"".join(lines))
            yield _careful_triples(path, number, lines) if found is None else found
            number += len(lines)


def _plain_triples(block: bytes) -> Int32 | None:
    """The numbers of whole lines, (3, M), or None unless all of it is three short numbers on each line, labels 0, 1."""
    text = np.frombuffer(block, dtype=np.uint8)
    digit = (text >= ord("0")) & (text <= ord("9"))
    if not (digit | np.isin(text, np.frombuffer(b" \t\r\n", dtype=np.uint8))).all():
        return None
    edges = np.diff(np.concatenate([[0], digit.view(np.int8), [0]]))
    begins, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    if not len(begins):
        return np.zeros((3, 0), dtype=np.int32)
    line = np.searchsorted(np.flatnonzero(text == ord("\n")), begins)
    fields = np.bincount(line)
    if not np.isin(fields, (0, 3)).all() or (ends - begins).max() > 9:  # nine digits are below the limit
        return None
    numbers = np.fromstring(block.decode("ascii"), dtype=np.int64, sep=" ").reshape(-1, 3).T
    if numbers[2].max() > 1 or (numbers[0] == numbers[1]).any():
        return None
    return numbers.astype(np.int32)


def _careful_triples(path: Path, number: int, lines: Sequence[bytes]) -> Int32:
    """The same for any lines; the first that is wrong is an error that names it."""
    rows = []
    for place, raw in enumerate(lines, start=number):
        try:
            text = raw.decode("utf-8-sig" if place == 1 else "utf-8").strip()
        except UnicodeDecodeError:
            raise DataFormatError(f"{path}:{place}: no UTF-8 text; save the list as UTF-8") from None
        if not text:
            continue
        line, numbers = Line(path, place, text), [_number(field) for field in text.split()]
        known = [each for each in numbers if each is not None]
        if len(numbers) != 3 or len(known) != 3 or known[2] > 1:
            raise line.wrong(f"`template template label` with numbers below {NUMBERS:,} and a label of 0 or 1")
        if known[0] == known[1]:
            raise line.wrong("two different templates")
        rows.append(known)
    return np.array(rows, dtype=np.int32).reshape(-1, 3).T


def _repeats(first: Int32, second: Int32) -> tuple[int, tuple[int, int]]:
    """How many pairs stand above already, in either order; and the places of two that are one pair."""
    keys = np.minimum(first, second).astype(np.int64) * NUMBERS + np.maximum(first, second)
    ordered = np.sort(keys)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(repeated):
        return 0, (0, 0)
    above, again = np.flatnonzero(keys == repeated[0])[:2].tolist()
    return len(repeated), (above, again)


def read_subjects(path: str | Path) -> dict[int, int]:
    """Who each template of a gallery or of the probes is, from a CSV with TEMPLATE_ID and SUBJECT_ID in its header.

    A template has a line for each of its faces; these agree on the subject.
    """
    path = Path(path)
    lines = read_lines(path)
    header = next(lines, None)
    if header is None:
        raise DataFormatError(f"{path}: empty; wanted a CSV with {TEMPLATE} and {SUBJECT} in its header")
    columns = [column.strip().upper() for column in _cells(header)]
    if columns.count(TEMPLATE) != 1 or columns.count(SUBJECT) != 1:
        raise header.wrong(f"a header with {TEMPLATE} and {SUBJECT}, each once")
    places = columns.index(TEMPLATE), columns.index(SUBJECT)
    subjects: dict[int, int] = {}
    for line in lines:
        cells = _cells(line)
        numbers = [_number(cells[place].strip()) for place in places if place < len(cells)]
        known = [number for number in numbers if number is not None]
        if len(known) != 2:
            raise line.wrong(f"numbers below {NUMBERS:,} for {TEMPLATE} and {SUBJECT}")
        template, subject = known
        if subjects.setdefault(template, subject) != subject:
            raise line.wrong(f"template {template} to be of subject {subjects[template]}, as above")
    if not subjects:
        raise DataFormatError(f"{path}: no template below the header; wanted at least one")
    return subjects


def write_subjects(path: str | Path, subjects: Mapping[int, int]) -> None:
    """Write what `read_subjects` reads: a line for each template."""
    with whole_file(path) as file:
        file.write(f"{TEMPLATE},{SUBJECT}\n".encode())
        for template, subject in subjects.items():
            file.write(f"{template},{subject}\n".encode())


def subject_line(path: Path, template: int) -> Line:
    """The first line of a template in a gallery or in the probes: for errors."""
    lines = read_lines(path)
    place = [column.strip().upper() for column in _cells(next(lines))].index(TEMPLATE)
    return next(line for line in lines if _number(_cells(line)[place].strip()) == template)


class AlignedFaces:
    """All images below a folder, in sorted order; whose they are, only templates say."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self.paths, self.ignored = find_images(self.root)
        self.people = ("unknown",)
        self.labels = np.zeros(len(self.paths), dtype=np.int64)
        if not self.paths:
            raise DataFormatError(f"{self.root}: no image below it; wanted the aligned faces of a set")

    def read(self, index: int) -> bytes:
        """The bytes of one file."""
        return read_bytes(self.root / self.paths[index])


def _cells(line: Line) -> list[str]:
    try:
        return next(csv.reader([line.text], strict=True))
    except csv.Error as error:
        raise line.wrong(f"a line of a CSV ({error})") from None


def _number(text: str) -> int | None:
    number = whole_number(text)
    return number if number is not None and number < NUMBERS else None


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and text.isascii() and "_" not in text else None


def _plain(image: str, path: object) -> str:
    """An image's name, if a line can hold it."""
    if image != image.strip():
        raise DataFormatError(f"{path}: the name {image!r}; a list of lines cannot hold a space at its ends")
    return checked(image, path)
