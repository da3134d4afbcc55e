"""Record files, `.rec` with `.idx`, as InsightFace and mxnet's im2rec write them; read and written without mxnet.

InsightFace: record 0 has the range of the people's records, the images are records 1, 2, ..., and a person's record has
the range of their images. im2rec: images only. Beside them, `property` holds `classes,height,width`, and a `.lst`
(`number<TAB>label<TAB>path`) holds the names of the images; both are optional, and so is the `.idx`.
"""

import re
from array import array
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from sphereface.arrays import Int64
from sphereface.data.files.handles import ByteFile
from sphereface.data.files.lines import Line, read_lines, whole_number
from sphereface.data.formats.recordio import Entry, pack_entry, pack_record, read_entry, read_head, scan
from sphereface.data.names import IMAGE_ENDINGS, LABELS, Names, checked, numbers, people_by_folder, placed, suffix_of
from sphereface.data.people import FaceSet
from sphereface.data.reading import read_image
from sphereface.errors import DataFormatError
from sphereface.faces.images import inspect
from sphereface.progress import Progress, silent

_ENDINGS = ("", *IMAGE_ENDINGS)
_LABEL = re.compile(r"([0-9]{1,8})(\.0*)?")  # im2rec writes 3.000000
_PROPERTY = re.compile(r"([0-9]{1,8}),[0-9]{1,8},[0-9]{1,8}")


class RecordSet:
    """The images of a record file; without a `.lst`, their names are `label/number.jpg`."""

    def __init__(self, path: str | Path) -> None:
        self.file = ByteFile(path)
        places = _read_index(self.file)
        listed = _read_list(self.file.path.with_suffix(".lst"))
        if listed is None:
            self._numbers, self.labels = _labels(self.file, places)
        else:
            self._numbers, self.labels, names = listed
            _check_list(self.file, places, self._numbers)
        if not len(self._numbers):
            raise self.file.wrong("no image in it")
        self._offsets = places.of(self._numbers)
        count = _count_people(self.file.path.with_name("property"), self.labels)
        self.people = numbers(count) if listed is None else people_by_folder(names, self.labels, count=count)
        self.paths: Sequence[str] = Names(len(self.labels), self._generated_path) if listed is None else names
        self._endings = np.zeros(len(self.labels), np.uint8)  # of generated names: places in _ENDINGS, 0 if unknown

    def read(self, index: int) -> bytes:
        """The bytes of one image, after a check of its label."""
        entry = read_entry(self.file, int(self._offsets[index]))
        self._endings[index] = _ENDINGS.index(suffix_of(entry.image))
        number = int(self._numbers[index])
        label = _label(entry, self.file, number)
        if label != self.labels[index]:
            raise self.file.wrong(f"image {number} has label {label}; its person or list says {self.labels[index]}")
        if not entry.image:
            raise self.file.wrong(f"record {number} holds no image")
        return entry.image

    def _generated_path(self, index: int) -> str:
        if not self._endings[index]:
            self._endings[index] = _ENDINGS.index(self._look_at_ending(index))
        width = len(str(self._numbers[-1]))
        person = self.people[int(self.labels[index])]
        return f"{person}/{self._numbers[index]:0{width}d}{_ENDINGS[self._endings[index]]}"

    def _look_at_ending(self, index: int) -> str:
        try:
            return suffix_of(read_head(self.file, int(self._offsets[index]), peek=12).image)
        except DataFormatError:
            return suffix_of(b"")  # a damaged record needs a name as well


class _Places(NamedTuple):
    """The records' numbers, in order, and their offsets."""

    file: ByteFile
    numbers: Int64
    offsets: Int64

    def of(self, wanted: Int64) -> Int64:
        """The offsets of some records; a missing record is an error."""
        found = np.searchsorted(self.numbers, wanted)
        missing = self.numbers[np.minimum(found, len(self.numbers) - 1)] != wanted
        if missing.any():
            advice = "delete the .idx file to do without it, or copy both files again"
            raise self.file.wrong(f"its index has no record {wanted[missing][0]}; {advice}")
        return self.offsets[found]

    def at(self, number: int) -> int:
        """The offset of one record."""
        return int(self.of(np.array([number]))[0])


def _read_index(file: ByteFile) -> _Places:
    path = file.path.with_suffix(".idx")
    if not path.exists():
        offsets = np.array(scan(file), dtype=np.int64)
        found = np.arange(len(offsets), dtype=np.int64)
    else:
        found, offsets = _parse_index(path)
    if not len(found):
        raise file.wrong("no record in it")
    order = np.argsort(found, kind="stable")
    found, offsets = found[order], offsets[order]
    repeated = np.flatnonzero(found[1:] == found[:-1])
    if len(repeated):
        raise DataFormatError(f"{path}: record {found[repeated[0]]} is listed twice; delete the file to do without it")
    return _Places(file, found, offsets)


def _parse_index(path: Path) -> tuple[Int64, Int64]:
    values = array("q")
    for line in read_lines(path):
        fields = [whole_number(field) for field in line.text.split("\t")]
        if len(fields) != 2 or fields[0] is None or fields[1] is None:
            raise line.wrong("number<TAB>offset")
        values.extend((fields[0], fields[1]))
    table = np.array(values, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _read_list(path: Path) -> tuple[Int64, Int64, list[str]] | None:
    """Numbers, labels and paths; None without a list, or with InsightFace's own, which has other columns."""
    if not path.exists():
        return None
    found, labels = array("q"), array("q")
    names: list[str] = []
    for line in read_lines(path):
        row = _parse_row(line)
        if row is None and not names:
            return None
        if row is None:
            raise line.wrong(f"number<TAB>label<TAB>path, the label below {LABELS:,}")
        found.append(row[0])
        labels.append(row[1])
        names.append(row[2])
    return np.array(found, dtype=np.int64), np.array(labels, dtype=np.int64), names


def _parse_row(line: Line) -> tuple[int, int, str] | None:
    fields = line.text.split("\t")
    number = whole_number(fields[0])
    label = _LABEL.fullmatch(fields[1]) if len(fields) > 2 else None
    if number is None or label is None or int(label[1]) >= LABELS:
        return None
    return number, int(label[1]), checked(fields[-1], line)


def _check_list(file: ByteFile, places: _Places, listed: Int64) -> None:
    images = _image_numbers(file, places)
    if not np.array_equal(np.sort(listed), images):
        advice = "correct the list, or move it away to read the images without their names"
        raise file.wrong(f"{len(images):,} images, its .lst lists {len(listed):,} or others; {advice}")


def _labels(file: ByteFile, places: _Places) -> tuple[Int64, Int64]:
    """The numbers and labels of the images, from the records alone."""
    people, images = _people_records(file, places), _image_numbers(file, places)
    if people and people[1] <= LABELS:
        return images, _labels_by_person(file, places, people)
    labels = [
        _label(read_head(file, offset), file, number)
        for number, offset in zip(images.tolist(), places.of(images).tolist(), strict=True)
    ]
    return images, np.array(labels, dtype=np.int64)


def _people_records(file: ByteFile, places: _Places) -> tuple[int, int] | None:
    """The range of the people's records; None in a file of images only."""
    if places.numbers[0] != 0:
        return None
    head = read_head(file, int(places.offsets[0]))
    return _range(head, file, 0) if head.is_about_the_set else None


def _image_numbers(file: ByteFile, places: _Places) -> Int64:
    people = _people_records(file, places)
    if people is None:
        return places.numbers
    if people[1] > LABELS:  # float32 has rounded the numbers in record 0: every record is checked instead
        heads = (read_head(file, offset) for offset in places.offsets.tolist())
        return places.numbers[[not head.is_about_the_set for head in heads]]
    if people[0] < 1 or people[0] > len(places.numbers):
        wanted = f"wanted fewer than its {len(places.numbers):,} records"
        raise file.wrong(f"record 0 counts {people[0] - 1:,} images before the people's records; {wanted}")
    return np.arange(1, people[0], dtype=np.int64)


def _labels_by_person(file: ByteFile, places: _Places, people: tuple[int, int]) -> Int64:
    """Each image's label, read from the first image of each person's range: a small part of a large file."""
    first, end = people
    labels = np.full(first - 1, -1, dtype=np.int64)
    for number in range(first, end):
        start, stop = _range(read_head(file, places.at(number)), file, number)
        if start == stop:
            continue
        mine = labels[start - 1 : stop - 1]
        if not 1 <= start < stop <= first or (mine >= 0).any():
            wanted = f"wanted images from 1 to {first - 1} that no other record has"
            raise file.wrong(f"record {number} claims images {start} to {stop - 1}; {wanted}")
        mine[:] = _label(read_head(file, places.at(start)), file, start)
    if (labels < 0).any():
        raise file.wrong(f"image {np.argmin(labels) + 1} is in no person's record")
    return labels


def _range(head: Entry, file: ByteFile, number: int) -> tuple[int, int]:
    start, stop = head.labels[0], head.labels[-1]
    if not head.is_about_the_set or not start.is_integer() or not stop.is_integer() or not 0 <= start <= stop:
        raise file.wrong(f"record {number} holds {head.labels}; wanted a range of records")
    return int(start), int(stop)


def _label(entry: Entry, file: ByteFile, number: int) -> int:
    label = entry.labels[0]
    if not label.is_integer() or not 0 <= label < LABELS:
        raise file.wrong(f"image {number} has label {label:g}; wanted 0, 1, ... below {LABELS:,}")
    return int(label)


def _count_people(path: Path, labels: Int64) -> int:
    """The number of people in the file `property`, or the largest label plus one."""
    needed = int(labels.max()) + 1
    if not path.exists():
        return needed
    line = next(read_lines(path), Line(path, 1, ""))
    match = _PROPERTY.fullmatch(line.text.strip())
    if match is None or int(match[1]) > LABELS:
        raise line.wrong("classes,height,width")
    if int(match[1]) < needed:
        raise DataFormatError(f"{line}: {match[1]} people; the labels go up to {needed - 1}: wanted {needed} or more")
    return int(match[1])


def write_records(path: Path, faces: FaceSet, *, progress: Progress = silent) -> None:
    """Write a new `.rec` with its `.idx`, `.lst` and `property`, as InsightFace reads them.

    People's records need each person's images in a row, and numbers exact in float32; else the file has images only, as
    from im2rec.
    """
    labels, count = faces.labels, len(faces.labels)
    if labels.min() < 0 or labels.max() >= LABELS:
        found = f"labels {labels.min()} to {labels.max()}"
        raise DataFormatError(f"{path}: {found}; a record file holds 0 to {LABELS - 1:,}")
    size = inspect(read_image(faces, 0), source=faces.paths[0])
    path.with_name("property").write_text(f"{len(faces.people)},{size.height},{size.width}\n")
    edges = np.flatnonzero(np.diff(labels, prepend=-1, append=-1)).tolist()  # where each person's images begin, and N
    in_rows = len(edges) - 1 == len(np.unique(labels)) and count + len(edges) <= LABELS
    with (
        path.open("xb") as records,
        path.with_suffix(".idx").open("xb") as index,
        path.with_suffix(".lst").open("xb") as names,
    ):
        writer = _Writer(records, index)
        if in_rows:
            writer.add((count + 1, count + len(edges)), b"")
        for at, label in enumerate(labels.tolist()):
            name = checked(placed(faces.people[label], faces.paths[at]), path)
            names.write(f"{writer.number}\t{label}\t{name}\n".encode())
            writer.add(label, read_image(faces, at))
            progress(at + 1, len(faces.paths))
        for start, stop in pairwise(edges) if in_rows else ():
            writer.add((start + 1, stop + 1), b"")


class _Writer:
    """Writes records one after the other, and their offsets to the index."""

    def __init__(self, records: BinaryIO, index: BinaryIO) -> None:
        self.records, self.index, self.number = records, index, 0

    def add(self, labels: float | tuple[int, int], image: bytes) -> None:
        self.index.write(f"{self.number}\t{self.records.tell()}\n".encode())
        self.records.write(pack_record(pack_entry(labels, self.number, image)))
        self.number += 1
