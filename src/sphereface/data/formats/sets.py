"""One way to open and convert sets of every format, recognised by their paths.

| format | files |
|---|---|
| folder | `NAME/photo.jpg` |
| rec | InsightFace's `.rec` with `.idx`, or a folder with one |
| tar | WebDataset: a `.tar`, or a folder of them |
| zip | a `.zip` of `NAME/photo.jpg` |
| list | a Caffe list, `.txt` or `.lst`, of images below a root |
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from sphereface.choices import SetFormat
from sphereface.data.files.writing import flush, new_files, new_folder
from sphereface.data.formats.lists import ListSet, write_list
from sphereface.data.formats.mnist import IMAGES, MnistSet, find_images
from sphereface.data.formats.records import RecordSet, write_records
from sphereface.data.formats.webdataset import SAMPLES, WebDataset, write_webdataset
from sphereface.data.formats.zips import ZipSet, write_zip
from sphereface.data.manifest import NAME as MANIFEST
from sphereface.data.manifest import manifest_path
from sphereface.data.names import checked, placed
from sphereface.data.people import FaceSet, PeopleFolder
from sphereface.data.reading import read_image
from sphereface.errors import DataFormatError, UserError
from sphereface.progress import Progress, silent

ENDINGS: dict[SetFormat, tuple[str, ...]] = {"zip": (".zip",), "list": (".txt", ".lst")}  # always one file
READERS: dict[str, Callable[[Path], FaceSet]] = {".rec": RecordSet, ".tar": WebDataset, ".zip": ZipSet}
KNOWN = (
    "a folder with a folder for each person, a .rec, a .tar or a folder of them, a .zip, a Caffe list (.txt, .lst), "
    "MNIST's idx files"
)


@dataclass(frozen=True)
class Converted:
    """The result of a conversion: counts of images and people, and the files of the source that are not images."""

    images: int
    people: int
    ignored: tuple[str, ...]


def open_set(path: str | Path, *, root: str | Path | None = None) -> FaceSet:
    """The set of faces at a path, of any format; `root` is where a list's paths begin.

    >>> len(open_set("faces_emore/train.rec").people)
    85742
    """
    path = Path(path)
    if root is not None and path.suffix.lower() not in ENDINGS["list"]:
        raise UserError(f"{path} is not a list; a root belongs to lists of images (.txt, .lst)")
    if path.is_dir():
        return _open_folder(path)
    if not path.exists():
        raise DataFormatError(f"{path}: no such file or folder")
    if IMAGES in path.name:
        return MnistSet(path)
    if path.suffix.lower() in ENDINGS["list"]:
        return ListSet(path, root)
    if path.suffix.lower() in READERS:
        return READERS[path.suffix.lower()](path)
    raise DataFormatError(f"{path}: no set of faces that is known here; wanted {KNOWN}")


def _open_folder(path: Path) -> FaceSet:
    records = sorted(path.glob("*.rec"))
    if len(records) > 1:
        raise DataFormatError(f"{path}: {', '.join(file.name for file in records)} in one folder; name one of them")
    if records:
        return RecordSet(records[0])
    if any(path.glob("*.tar")):
        return WebDataset(path)
    if find_images(path):
        return MnistSet(path)
    try:
        return PeopleFolder(path)
    except DataFormatError as error:
        raise DataFormatError(f"{path}: no set of faces that is known here; wanted {KNOWN}") from error


def convert(
    faces: str | Path,
    out: str | Path,
    *,
    to: SetFormat,
    root: str | Path | None = None,
    size: int = SAMPLES,
    progress: Progress = silent,
) -> Converted:
    """Write a set in another format; images keep their bytes, their order and their names.

    `out` appears complete or not at all, and nothing is overwritten. `rec` and `tar` make a folder, or a file if `out`
    ends in `.rec` or `.tar`; `size` is the number of samples in a tar file. A list holds paths, so it is made of a
    folder or another list only, and read with that root. A manifest is copied to its place in the new format.
    """
    faces, out = Path(faces), Path(out)
    if to in ENDINGS and out.suffix not in ENDINGS[to]:
        raise UserError(f"{out}: the name of a {to} ends in {' or '.join(ENDINGS[to])}")
    found = open_set(faces, root=root)
    if to == "list" and not isinstance(found, PeopleFolder | ListSet):
        raise UserError(f"{faces}: its images are not files that a list could name; convert it to a folder first")
    if to == "list" or out.suffix == f".{to}":
        with new_files(out, *_companions(out, to)) as room:
            _copy_manifest(faces, manifest_path(room / out.name, is_folder=False))
            _write(room / out.name, found, to, size, progress)
    else:
        with new_folder(out) as folder:
            _copy_manifest(faces, manifest_path(folder))
            _write(folder / "train.rec" if to == "rec" else folder, found, to, size, progress)
            for file in folder.iterdir() if to != "folder" else ():  # a folder's many files would take too long
                flush(file)
    ignored = tuple(name for name in getattr(found, "ignored", ()) if name != MANIFEST)
    return Converted(len(found.labels), len(np.unique(found.labels)), ignored)


def _write(path: Path, faces: FaceSet, to: SetFormat, size: int, progress: Progress) -> None:
    writers: dict[SetFormat, Callable[..., None]] = {
        "folder": _write_folder,
        "rec": write_records,
        "tar": partial(write_webdataset, size=size),
        "zip": write_zip,
        "list": write_list,
    }
    if to not in writers:
        raise UserError(f"unknown format {to!r}; choose one of {', '.join(writers)}")
    writers[to](path, faces, progress=progress)


def _write_folder(folder: Path, faces: FaceSet, *, progress: Progress) -> None:
    for index, label in enumerate(faces.labels.tolist()):
        name = checked(placed(faces.people[label], faces.paths[index]), folder.name)
        try:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with (folder / name).open("xb") as file:
                file.write(read_image(faces, index))
        except (FileExistsError, NotADirectoryError):
            raise DataFormatError(f"two images of the source are called {name!r}; a folder holds a name once") from None
        progress(index + 1, len(faces.paths))


def _companions(target: Path, to: SetFormat) -> tuple[Path, ...]:
    """The other files of a target."""
    records = (target.with_suffix(".idx"), target.with_suffix(".lst"), target.with_name("property"))
    return (*(records if to == "rec" else ()), manifest_path(target, is_folder=False))


def _copy_manifest(source: Path, place: Path) -> None:
    manifest = manifest_path(source)
    if manifest.is_file():
        shutil.copyfile(manifest, place)
