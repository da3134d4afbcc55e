"""The manifest of a set of faces: how they were made, so that photos are not taken for faces or faces aligned twice.

It lies in a folder as `manifest.json`, and beside a file `set.rec` as `set.rec.manifest.json`.
"""

import re
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, ValidationError, model_validator

from sphereface.contract import Alignment, Record
from sphereface.data.files.writing import whole_file
from sphereface.data.people import FaceSet
from sphereface.data.reading import read_image
from sphereface.errors import ContractMismatch, DataFormatError, UnreadableImage, UserError
from sphereface.faces.images import inspect
from sphereface.faces.warp import CROPS

NAME = "manifest.json"
LOOKS = 32  # faces to check for their size where there is no manifest


class SetManifest(Record):
    """How the faces of a set were made."""

    format: Literal[1] = 1
    alignment: Alignment = Alignment()
    fingerprint: str = ""
    made_by: str
    settings: dict[str, str] = Field(default_factory=dict)  # detector, preset, ...: for people to read

    @model_validator(mode="before")
    @classmethod
    def _sign(cls, values: dict[str, object]) -> dict[str, object]:
        if isinstance(values, dict) and not values.get("fingerprint"):
            alignment = Alignment.model_validate(values.get("alignment", {}))
            return {**values, "fingerprint": alignment.fingerprint()}
        return values

    @model_validator(mode="after")
    def _agree(self) -> "SetManifest":
        if self.fingerprint != self.alignment.fingerprint():
            raise UserError(f"fingerprint is {self.fingerprint}, its alignment's is {self.alignment.fingerprint()}")
        return self


def manifest_path(data: Path, *, is_folder: bool | None = None) -> Path:
    """The path of a set's manifest; `is_folder` states the kind of a set that does not exist yet."""
    return data / NAME if (data.is_dir() if is_folder is None else is_folder) else data.with_name(f"{data.name}.{NAME}")


def read_manifest(data: Path) -> SetManifest | None:
    """The manifest of a set, or None."""
    path = manifest_path(data)
    if not path.is_file():
        return None
    try:
        return SetManifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        reason = re.sub(r"\s+", " ", error.errors(include_url=False)[0]["msg"])
        raise DataFormatError(f"{path}: {reason}; it was changed by hand or comes from a newer sphereface") from error


def write_manifest(data: Path, manifest: SetManifest) -> None:
    """Write a manifest into a folder, or beside a file, atomically."""
    with whole_file(manifest_path(data)) as file:
        file.write(manifest.model_dump_json(indent=2).encode() + b"\n")


def require_faces(data: Path, faces: FaceSet, wanted: Alignment) -> str | None:
    """Raise unless a set holds faces of the wanted alignment; returns a note where only their size was checked.

    Faces of crop 112x112 serve where 112x96 is wanted: their columns 8:104 are that crop.
    """
    manifest = read_manifest(data)
    if manifest is None:
        return _judge_by_size(data, faces, wanted)
    made = manifest.alignment
    crops = {wanted.crop, "112x112"} if wanted.crop == "112x96" else {wanted.crop}
    if made.template != wanted.template or made.crop not in crops:
        raise ContractMismatch(
            f"{data}: faces aligned to template {made.template}, crop {made.crop}; wanted {wanted.template}, "
            f"{wanted.crop}: align the photos again with --template {wanted.template} --crop {wanted.crop}"
        )
    return None


def require_photos(data: Path) -> None:
    """Raise if a set already holds aligned faces: a second alignment would spoil them."""
    manifest = read_manifest(data)
    if manifest is not None:
        found = f"faces already, template {manifest.alignment.template}, crop {manifest.alignment.crop}"
        advice = "use them as they are, or start from the photos"
        raise ContractMismatch(f"{data}: {found}; aligning them again would spoil them: {advice}")


def _judge_by_size(data: Path, faces: FaceSet, wanted: Alignment) -> str:
    crop = CROPS[wanted.crop]
    accepted = {(crop.height, crop.width)} | ({(112, 112)} if wanted.crop == "112x96" else set())
    for index in np.unique(np.linspace(0, len(faces.paths) - 1, LOOKS).astype(int)).tolist():
        try:
            header = inspect(read_image(faces, index), source=faces.paths[index])
        except UnreadableImage:
            continue  # reading it raises the error
        if (header.height, header.width) not in accepted:
            raise ContractMismatch(
                f"{data}: {faces.paths[index]} is {header.height} pixels high and {header.width} wide, "
                f"wanted {' or '.join(f'{h} and {w}' for h, w in sorted(accepted))}; "
                "make faces of photos first: sphereface data align SRC DST"
            )
    return (
        f"{data} has no manifest: taken for faces of template {wanted.template} by their size alone "
        "(sphereface data align writes a manifest)"
    )
