"""MegaFace's lists of images, in JSON."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sphereface.data.files.lines import open_list
from sphereface.data.files.writing import whole_file
from sphereface.data.names import checked
from sphereface.errors import DataFormatError


@dataclass(frozen=True)
class MegaFaceImage:
    """One entry of a MegaFace list; `id` is the person, None for a distractor of an unknown person."""

    path: str
    id: str | None


def read_megaface(path: str | Path) -> tuple[MegaFaceImage, ...]:
    """A list of probes or distractors: JSON with lists `path` and, usually, `id`, of one length."""
    path = Path(path)
    with open_list(path) as file:
        try:
            lists = json.load(file)
        except (ValueError, RecursionError) as error:
            raise DataFormatError(f"{path}: not JSON ({error}); wanted a MegaFace list") from None
    if not isinstance(lists, dict) or not isinstance(lists.get("path"), list):
        raise DataFormatError(f'{path}: wanted a MegaFace list, {{"path": [...], "id": [...]}}')
    paths, ids = lists["path"], lists.get("id", [None] * len(lists["path"]))
    if not isinstance(ids, list) or len(ids) != len(paths):
        raise DataFormatError(f"{path}: {len(paths):,} paths and ids that do not match; wanted lists of one length")
    return tuple(
        MegaFaceImage(_megaface_path(name, path, number), _megaface_id(person, path, number))
        for number, (name, person) in enumerate(zip(paths, ids, strict=True))
    )


def _megaface_path(name: object, path: Path, number: int) -> str:
    if not isinstance(name, str):
        raise DataFormatError(f"{path}: path {number} is a {type(name).__name__}; wanted text")
    return checked(name, f"{path}: path {number}")


def _megaface_id(person: object, path: Path, number: int) -> str | None:
    if person is not None and (isinstance(person, bool) or not isinstance(person, str | int)):
        raise DataFormatError(f"{path}: id {number} is a {type(person).__name__}; wanted a name or a number")
    return None if person is None else str(person)


def write_megaface(path: str | Path, images: Iterable[MegaFaceImage]) -> None:
    """Write what `read_megaface` reads."""
    listed = list(images)
    lists = {"path": [image.path for image in listed], "id": [image.id for image in listed]}
    with whole_file(path) as file:
        file.write(json.dumps(lists, ensure_ascii=False, indent=1).encode())
