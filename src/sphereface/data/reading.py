"""Reading the faces of any set: one function, one error for unreadable images, and one rule for skipping them.

The errors of a set's `read` depend on its format: a missing file, a bad checksum, a truncated record. Here all of these
become an `UnreadableImage` with the image's path in the set. Errors on opening a set are a `DataFormatError`, which no
rule skips.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, get_args

from sphereface.arrays import Image
from sphereface.choices import Missing
from sphereface.data.people import FaceSet
from sphereface.errors import ContractMismatch, DataFormatError, Setting, UnreadableImage, UserError
from sphereface.faces.images import decode
from sphereface.faces.warp import as_crop

NAMED = 3  # unreadable images that an error lists
ADVICE = ("; mend it, or leave such images out with ", Setting("missing", "skip"))


class Unreadable(NamedTuple):
    """An image that cannot be read, and why."""

    path: str
    reason: str


def read_face(faces: FaceSet, index: int, crop: str | None) -> Image:
    """One face of a set, decoded and cut to a crop; None keeps its stored size.

    Raises `UnreadableImage` for a missing or damaged image, and `ContractMismatch` for one of another size.
    """
    return decode_face(faces, index, read_image(faces, index), crop)


def read_image(faces: FaceSet, index: int) -> bytes:
    """The encoded bytes of one image of a set, or an `UnreadableImage`."""
    try:
        return faces.read(index)
    except (UnreadableImage, DataFormatError, OSError) as error:
        raise UnreadableImage(faces.paths[index], _reason(error)) from error


def decode_face(faces: FaceSet, index: int, data: bytes, crop: str | None) -> Image:
    """The face in the bytes that `read_image` gave."""
    try:
        return _cut(data, crop, "image")
    except (UnreadableImage, ContractMismatch):
        return _cut(data, crop, faces.paths[index])  # again, with the path: looking up every path may take long


def _cut(data: bytes, crop: str | None, source: str) -> Image:
    face = decode(data, source=source)
    return face if crop is None else as_crop(face, crop, source=source)


def _reason(error: Exception) -> str:
    if isinstance(error, UnreadableImage):
        return error.reason
    return f"cannot be read ({error.strerror or error})" if isinstance(error, OSError) else str(error)


def require_missing(missing: Missing) -> None:
    """Raise for an unknown rule."""
    if missing not in get_args(Missing):
        raise UserError(f"missing is {missing!r}; choose 'fail' or 'skip'")


@dataclass(frozen=True)
class Skipping:
    """The rule, applied image by image: `skip` records an unreadable image, `fail` raises its error with the advice."""

    missing: Missing
    advice: tuple[object, ...] = ADVICE
    unreadable: dict[int, Unreadable] = field(default_factory=dict)  # by the caller's key, in the order of reading

    def __post_init__(self) -> None:
        require_missing(self.missing)

    @contextmanager
    def reading(self, key: int) -> Iterator[None]:
        """A context that reads one image."""
        try:
            yield
        except UnreadableImage as error:
            if self.missing == "fail":
                raise UnreadableImage(error.path, error.reason, *self.advice) from error
            self.unreadable[key] = Unreadable(error.path, error.reason)

    @property
    def reasons(self) -> dict[str, str]:
        """Why each image was left out, by its path."""
        return dict(self.unreadable.values())


def refusal(unreadable: Sequence[Unreadable], images: str, *advice: object) -> UnreadableImage:
    """The error after reading all `images`, such as "200 images": the first unreadable one, and their count."""
    path, reason = unreadable[0]
    others = ", ".join(f"{other} ({why})" for other, why in unreadable[1:NAMED])
    also = f", also {others}" if others else ""
    return UnreadableImage(path, f"{reason}; {len(unreadable):,} of {images} cannot be read{also}: ", *advice)
