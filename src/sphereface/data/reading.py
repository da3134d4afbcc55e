"""One way to read a face of any set, one error for an image that cannot be read, and one rule for what happens then.

A set's `read` raises what its format has: a missing file, a bad checksum, a record that is cut off. Here all of these
are an `UnreadableImage` with the image's path in the set. Opening a set is another matter: what is wrong there is a
`DataFormatError`, which no rule skips.
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
    """One face of a set, decoded and cut to a crop; with None it stays as it is stored.

    Raises `UnreadableImage` for whatever is wrong with this image, and `ContractMismatch` for one of another size.
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
        return _cut(data, crop, faces.paths[index])  # again, for the path: asking for every path may take long


def _cut(data: bytes, crop: str | None, source: str) -> Image:
    face = decode(data, source=source)
    return face if crop is None else as_crop(face, crop, source=source)


def _reason(error: Exception) -> str:
    if isinstance(error, UnreadableImage):
        return error.reason
    return f"cannot be read ({error.strerror or error})" if isinstance(error, OSError) else str(error)


def require_missing(missing: Missing) -> None:
    """Raise for a rule that there is not."""
    if missing not in get_args(Missing):
        raise UserError(f"missing is {missing!r}; choose 'fail' or 'skip'")


@dataclass(frozen=True)
class Skipping:
    """The rule at work, image by image: an unreadable one is noted (`skip`), or its error has the advice (`fail`)."""

    missing: Missing
    advice: tuple[object, ...] = ADVICE
    unreadable: dict[int, Unreadable] = field(default_factory=dict)  # by the caller's key, in the order they came

    def __post_init__(self) -> None:
        require_missing(self.missing)

    @contextmanager
    def reading(self, key: int) -> Iterator[None]:
        """Read one image within."""
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
    """The error where all `images`, such as "200 images", were looked at: the first unreadable one, and how many."""
    path, reason = unreadable[0]
    others = ", ".join(f"{other} ({why})" for other, why in unreadable[1:NAMED])
    also = f", also {others}" if others else ""
    return UnreadableImage(path, f"{reason}; {len(unreadable):,} of {images} cannot be read{also}: ", *advice)
