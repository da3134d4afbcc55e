"""WebDataset: tar files in which the members `key.jpg`, `key.cls` (label) and `key.json` are a sample.

A key has no dots, so the JSON holds the names of the person and the photo: `{"person": ..., "path": ...}`. The JSON of
other programs may hold anything there, such as a photo's absolute path: unsafe names are ignored. Nothing is unpacked:
one pass over the headers finds the offset of each image, and images are read from there.
"""

import io
import json
import tarfile
from array import array
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sphereface.data.files.handles import ByteFile
from sphereface.data.files.lines import label_of
from sphereface.data.formats.tars import Member, members
from sphereface.data.names import LABELS, checked, checked_person, is_safe, known_people, numbers, placed, suffix_of
from sphereface.data.people import SUFFIXES, FaceSet
from sphereface.data.reading import read_image
from sphereface.errors import DataFormatError, UnreadableImage, UserError
from sphereface.faces.images import LIMITS
from sphereface.progress import Progress, silent

SAMPLES = 10_000  # in a tar file
KEPT_OPEN = 256  # files; systems allow about a thousand
LONGEST = 1 << 16  # bytes of a label or a sample's JSON


class Sample(NamedTuple):
    """An image in a tar file, with its label and names."""

    key: str
    image: Member
    label: int
    person: str | None
    path: str | None


class WebDataset:
    """The samples of one tar file, or of all in a folder, in sorted order.

    A sample without a path in its JSON is called `label/key.jpg`. Members without an image are in `ignored`. The first
    `kept_open` files stay open once they are read; the others are opened for each read.
    """

    def __init__(self, path: str | Path, *, kept_open: int = KEPT_OPEN) -> None:
        path = Path(path)
        tars = sorted(path.glob("*.tar")) if path.is_dir() else [path]
        self.files = [ByteFile(tar, keep=number < kept_open) for number, tar in enumerate(tars)]
        self.ignored: list[str] = []
        where, labels, keys = array("q"), array("q"), []
        names: dict[int, str] = {}
        labels_by_name: dict[str, int] = {}
        for number, file in enumerate(self.files):
            for sample in _samples(file, self.ignored):
                _add_person(sample, file, names, labels_by_name)
                keys.append(sample.path or f"{sample.key}{Path(sample.image.name).suffix}")
                labels.append(sample.label)
                where.extend((number, sample.image.offset, sample.image.size))
        if not keys:
            raise DataFormatError(f"{path}: no sample with an image; wanted tar files with key.jpg and key.cls")
        self._where = np.array(where, dtype=np.int64).reshape(-1, 3)  # file, offset and size of each image
        self.labels = np.array(labels, dtype=np.int64)
        count = max(labels) + 1
        self.people = known_people(names, count) if names else numbers(count)
        self.paths = [placed(self.people[label], key) for label, key in zip(labels, keys, strict=True)]

    def read(self, index: int) -> bytes:
        """The bytes of one image."""
        file, offset, size = map(int, self._where[index])
        if size > LIMITS.bytes:
            raise UnreadableImage(self.paths[index], f"{size:,} bytes; the limit is {LIMITS.bytes:,}")
        return self.files[file].read(offset, size)


def _add_person(sample: Sample, file: ByteFile, names: dict[int, str], labels: dict[str, int]) -> None:
    """Record a sample's person: one name for a label, one label for a name, over all tar files."""
    if sample.person is not None:
        name = names.setdefault(sample.label, sample.person)
        label = labels.setdefault(sample.person, sample.label)
        if (name, label) != (sample.person, sample.label):
            earlier = f"earlier, that label was of {name!r}, and that person had label {label}"
            raise file.wrong(f"sample {sample.key!r} calls {sample.person!r} label {sample.label}; {earlier}")


def _samples(file: ByteFile, ignored: list[str]) -> Iterator[Sample]:
    """The samples of a tar file: members in a row with the same name up to its first dot."""
    named = ((*_split(member.name), member) for member in members(file))
    for key, group in groupby(named, key=itemgetter(0)):
        parts = {ending: member for _, ending, member in group}
        images = [member for ending, member in parts.items() if _is_image(ending)]
        if not key or not images:
            ignored += [member.name for member in parts.values()]
            continue
        if len(images) > 1 or "cls" not in parts:
            raise file.wrong(f"sample {key!r} has {', '.join(parts)}; wanted one image and its cls")
        names = _read_json(file, parts["json"]) if "json" in parts else {}
        yield Sample(key, images[0], _read_label(file, parts["cls"]), names.get("person"), names.get("path"))


def _split(name: str) -> tuple[str, str]:
    """A member's key and ending; hidden files have no key."""
    folder, slash, base = name.rpartition("/")
    key, _, ending = base.partition(".")
    return f"{folder}{slash}{key}" if key else "", ending


def _is_image(ending: str) -> bool:
    return f".{ending.rpartition('.')[2].lower()}" in SUFFIXES


def _read_label(file: ByteFile, member: Member) -> int:
    text = _read_short(file, member).decode("latin-1").strip()
    label = label_of(text)
    if label is None:
        raise file.wrong(f"{member.name} holds {text[:40]!r}; wanted a label, 0 to {LABELS - 1:,}")
    return label


def _read_json(file: ByteFile, member: Member) -> dict[str, str]:
    """The person and the path in a sample's JSON, if they are safe names."""
    try:
        fields = json.loads(_read_short(file, member))
    except (ValueError, RecursionError):
        raise file.wrong(f"{member.name} is not JSON; write it again") from None
    if not isinstance(fields, dict):
        return {}
    named = {key: fields[key] for key in ("person", "path") if isinstance(fields.get(key), str)}
    return {key: name for key, name in named.items() if is_safe(name) and not (key == "person" and "/" in name)}


def _read_short(file: ByteFile, member: Member) -> bytes:
    if member.size > LONGEST:
        raise file.wrong(f"{member.name} has {member.size:,} bytes; the limit is {LONGEST:,}")
    return file.read(member.offset, member.size)


def write_webdataset(path: Path, faces: FaceSet, *, size: int = SAMPLES, progress: Progress = silent) -> None:
    """Write tar files of `size` samples each into a folder, or one new file if the path ends in `.tar`.

    The same set gives the same bytes at any time, for any user.
    """
    if size < 1:
        raise UserError(f"{size} samples in a tar file; wanted 1 or more")
    count = len(faces.labels)
    if path.suffix == ".tar":
        _write_tar(path, faces, range(count), progress)
        return
    path.mkdir(exist_ok=True)
    for number, start in enumerate(range(0, count, size)):
        _write_tar(path / f"{number:06d}.tar", faces, range(start, min(start + size, count)), progress)


def _write_tar(path: Path, faces: FaceSet, indices: range, progress: Progress) -> None:
    with path.open("xb") as file, tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for index in indices:
            label, image = int(faces.labels[index]), read_image(faces, index)
            person = checked_person(faces.people[label], path)
            name = checked(placed(person, faces.paths[index]), path)
            names = json.dumps({"person": person, "path": name}, ensure_ascii=False)
            ending = suffix_of(image, otherwise=_known_suffix(name))
            for part, data in ((".cls", str(label).encode()), (".json", names.encode()), (ending, image)):
                member = tarfile.TarInfo(f"{index:09d}{part}")  # owner, time and rights are always the same
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
            progress(index + 1, len(faces.paths))


def _known_suffix(name: str) -> str:
    suffix = Path(name).suffix.lower()
    return suffix if suffix in SUFFIXES else ".jpg"
