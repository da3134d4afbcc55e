"""The metadata of IJB-B and IJB-C in InsightFace's format: faces of templates, pairs of templates, subjects.

    loose_crop/N.jpg                      a face with a wide margin
    meta/ijbc_face_tid_mid.txt            N.jpg TEMPLATE MEDIA: one image, or all frames of one video, are a media
    meta/ijbc_name_5pts_score.txt         N.jpg x1 y1 ... x5 y5 SCORE: landmarks, and a detector's score
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
from sphereface.data.files.lines import Line, finite_number, open_list, read_lines, whole_number
from sphereface.data.files.writing import whole_file, write_lines
from sphereface.data.lists.landmarks import write_landmarks
from sphereface.data.names import checked, checked_line
from sphereface.data.people import ImageFiles, find_images
from sphereface.errors import DataFormatError, Setting, UserError

GALLERIES: Mapping[str, tuple[str, str]] = {"ijbb": ("S1", "S2"), "ijbc": ("G1", "G2")}
NUMBERS = 1 << 31  # upper limit of templates, media and subjects
FOLDER = "loose_crop"
BLOCK = 1 << 23  # bytes of a list of pairs parsed at once; IJB-C's has fifteen million lines

TEMPLATE, SUBJECT = "TEMPLATE_ID", "SUBJECT_ID"


class Member(NamedTuple):
    """One face of a template, and the media that it is from: an image, or a video."""

    image: str
    template: int
    media: int


class FoundFace(NamedTuple):
    """The landmarks of a face in its image, (5, 2), and the detector's score."""

    landmarks: Float64
    score: float


@dataclass(frozen=True, eq=False)
class TemplatePairs:
    """Pairs of templates, (N,) each, in the order of their list."""

    first: Int32
    second: Int32
    same: Bools
    repeats: int = 0  # pairs listed earlier, in either order

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True)
class IjbFiles:
    """The paths of a set's lists; missing ones are None, or left out of the galleries."""

    members: Path
    faces: Path | None
    pairs: Path | None
    galleries: Mapping[str, Path]
    probes: Path | None


def find_lists(meta: str | Path, name: IjbName = "ijbc") -> IjbFiles:
    """The lists of IJB-B or IJB-C in a folder, or in its folder `meta`; templates and one task are required."""
    if name not in get_args(IjbName):
        raise UserError(f"unknown set {name!r}; choose one of {', '.join(get_args(IjbName))}")
    folder = Path(meta)
    if not folder.is_dir():
        raise DataFormatError(f"{folder}: no such folder; wanted the one with {_called(folder, name).members.name}")
    called, below = _called(folder, name), _called(folder / "meta", name)
    if not called.members.is_file() and below.members.is_file():
        called = below
    if not called.members.is_file():
        raise DataFormatError(f"{called.members}: no such list; wanted the metadata of {name}, as InsightFace has it")
    galleries = {gallery: path for gallery, path in called.galleries.items() if path.is_file()}
    found = IjbFiles(called.members, _there(called.faces), _there(called.pairs), galleries, _there(called.probes))
    if bool(galleries) != bool(found.probes):
        absent = called.probes if galleries else next(iter(called.galleries.values()))
        raise DataFormatError(f"{absent}: no such list; identification wants a gallery and the probes")
    if not found.pairs and not galleries:
        raise DataFormatError(f"{called.pairs}: no such list, nor a gallery; nothing to score")
    return found


def _called(folder: Path, name: str) -> IjbFiles:
    """The paths of all lists of a set."""
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
        numbers = _numbers(rest)
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
    write_lines(path, (f"{checked_line(image, path)} {template} {media}" for image, template, media in members))


def read_found_faces(path: str | Path) -> dict[str, FoundFace]:
    """Landmarks and detection scores by image: `N.jpg x1 y1 ... x5 y5 score` on each line."""
    path = Path(path)
    found: dict[str, FoundFace] = {}
    for line in read_lines(path):
        name, *rest = line.text.strip().rsplit(maxsplit=11)
        values = [value for value in map(finite_number, rest) if value is not None]
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
            file.write(f"{checked_line(image, path)} {' '.join(map(repr, numbers))}\n".encode())


def convert_landmarks(source: str | Path, target: str | Path, *, folder: str = FOLDER) -> int:
    """Convert `name_5pts_score.txt` to the list of `sphereface data align --landmarks`; returns the number of faces.

    The images become `loose_crop/N.jpg`, relative to the folder above; `folder=""` is for images in the aligned folder
    itself.
    """
    faces = read_found_faces(source)
    write_landmarks(target, {str(PurePosixPath(folder, name)): face.landmarks for name, face in faces.items()})
    return len(faces)


def read_template_pairs(path: str | Path, *, repeats: Repeats = "fail", block: int = BLOCK) -> TemplatePairs:
    """Pairs of templates: `template template label` on each line, 1 for the same person.

    A pair that is listed twice, in either order, is an error; `repeats="keep"` keeps and counts it. About `block` bytes
    of the list are parsed at once.
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
            f"each pair once; it is on line {above.number}, too ({again:,} such pairs in all); leave it out, or "
            "count them again with ",
            Setting("repeats", "keep"),
        )
    return TemplatePairs(first, second, same.astype(bool), again)


def write_template_pairs(path: str | Path, pairs: TemplatePairs) -> None:
    """Write what `read_template_pairs` reads."""
    rows = zip(pairs.first.tolist(), pairs.second.tolist(), pairs.same.tolist(), strict=True)
    write_lines(path, (f"{first} {second} {same:d}" for first, second, same in rows))


def entry_line(path: Path, entry: int) -> Line:
    """The line of a list's entry, counted from 0 without blank lines: for errors."""
    return next(islice(read_lines(path), entry, None))


def _triples(path: Path, block: int) -> Iterator[Int32]:
    """The numbers of a list of pairs in blocks (3, M): plain digits all at once, anything else line by line."""
    number = 1
    with open_list(path) as file:
        while lines := file.readlines(block):
            found = _plain_triples(b"".join(lines))
            yield _careful_triples(path, number, lines) if found is None else found
            number += len(lines)


def _plain_triples(block: bytes) -> Int32 | None:
    """The numbers of complete lines, (3, M), or None unless each has three short numbers, the last 0 or 1."""
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
    """The numbers of any lines, (3, M); the first wrong line is an error."""
    rows = []
    for place, raw in enumerate(lines, start=number):
        line = Line.decoded(path, place, raw)
        fields = line.text.split()
        if not fields:
            continue
        numbers = _numbers(fields)
        if not len(fields) == len(numbers) == 3 or numbers[2] > 1:
            raise line.wrong(f"`template template label` with numbers below {NUMBERS:,} and a label of 0 or 1")
        if numbers[0] == numbers[1]:
            raise line.wrong("two different templates")
        rows.append(numbers)
    return np.array(rows, dtype=np.int32).reshape(-1, 3).T


def _repeats(first: Int32, second: Int32) -> tuple[int, tuple[int, int]]:
    """The number of pairs listed earlier, in either order; and the places of two equal ones."""
    keys = np.minimum(first, second).astype(np.int64) * NUMBERS + np.maximum(first, second)
    ordered = np.sort(keys)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(repeated):
        return 0, (0, 0)
    above, again = np.flatnonzero(keys == repeated[0])[:2].tolist()
    return len(repeated), (above, again)


def read_subjects(path: str | Path) -> dict[int, int]:
    """The subject of each template of a gallery or of the probes: a CSV with TEMPLATE_ID and SUBJECT_ID in its header.

    A template has a line for each of its faces, all with the same subject.
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
        numbers = _numbers(cells[place].strip() for place in places if place < len(cells))
        if len(numbers) != 2:
            raise line.wrong(f"numbers below {NUMBERS:,} for {TEMPLATE} and {SUBJECT}")
        template, subject = numbers
        if subjects.setdefault(template, subject) != subject:
            raise line.wrong(f"template {template} to be of subject {subjects[template]}, as above")
    if not subjects:
        raise DataFormatError(f"{path}: no template below the header; wanted at least one")
    return subjects


def write_subjects(path: str | Path, subjects: Mapping[int, int]) -> None:
    """Write what `read_subjects` reads: a line for each template."""
    write_lines(path, [f"{TEMPLATE},{SUBJECT}", *(f"{template},{subject}" for template, subject in subjects.items())])


def subject_line(path: Path, template: int) -> Line:
    """The first line of a template in a gallery or in the probes: for errors."""
    lines = read_lines(path)
    place = [column.strip().upper() for column in _cells(next(lines))].index(TEMPLATE)
    return next(line for line in lines if whole_number(_cells(line)[place].strip()) == template)


class AlignedFaces(ImageFiles):
    """All images below a folder, in sorted order; people are unknown, as only templates have subjects."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self.paths, self.ignored = find_images(self.root)
        self.people = ("unknown",)
        self.labels = np.zeros(len(self.paths), dtype=np.int64)
        if not self.paths:
            raise DataFormatError(f"{self.root}: no image below it; wanted the aligned faces of a set")


def _cells(line: Line) -> list[str]:
    try:
        return next(csv.reader([line.text], strict=True))
    except csv.Error as error:
        raise line.wrong(f"a line of a CSV ({error})") from None


def _numbers(texts: Iterable[str]) -> list[int]:
    """The numbers below `NUMBERS` among some texts."""
    return [number for number in map(whole_number, texts) if number is not None and number < NUMBERS]
