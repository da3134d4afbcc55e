"""Lists of noise, matched with the listed images; a list without a match is an error."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from sphereface.arrays import Bools
from sphereface.data.lists.devkit import find_noise, read_noise
from sphereface.data.lists.megaface import MegaFaceImage
from sphereface.errors import DataFormatError

Kind = Literal["probe", "distractor"]


@dataclass(frozen=True)
class UnmatchedNoise:
    """Count of names in a list of noise without a listed image; published lists cover all images of a data set."""

    file: str
    of: Kind
    names: int
    unmatched: int
    example: str

    def __str__(self) -> str:
        what = f"{self.unmatched:,} of {self.names:,} names in {self.file}"
        return f"{what} are of no listed {self.of}, such as {self.example}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def match_noise(
    path: str | Path | None, images: Sequence[MegaFaceImage], listing: str | Path, of: Kind
) -> tuple[Bools | None, UnmatchedNoise | None]:
    """True for the images (N,) of a listing in a list of noise, and its unmatched names; no match is an error."""
    if path is None:
        return None, None
    names = read_noise(path)
    if not names:
        raise DataFormatError(f"{path}: no name in it; wanted the noise among the {of}s, or no list if there is none")
    found, unmatched = find_noise(images, names)
    if len(unmatched) == len(names):
        raise DataFormatError(
            f"{path}: none of its {len(names):,} names, such as {unmatched[0]!r}, is of a {of} of {listing}, such as "
            f"{images[0].path!r}; wanted a list of some of these images, by their paths or the ends of these"
        )
    if not unmatched:
        return found, None
    return found, UnmatchedNoise(Path(path).name, of, len(names), len(unmatched), unmatched[0])
