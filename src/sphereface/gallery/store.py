"""What a gallery asks of its store, the truth: people, photos with features, corrections, and the log."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from sphereface.arrays import Float32, Int64
from sphereface.gallery.records import Changes, Entry, Model, Person, Photo, Revision


class Store(Protocol):
    """A store; every method that changes something returns when the change is on the disk, as a whole."""

    where: str  # path or URL

    @property
    def model(self) -> Model | None:
        """The model of the features; None until the first person is enrolled."""

    def together(self) -> AbstractContextManager[None]:
        """All changes of the block at once, on the disk when it ends, or none of them."""

    def people(self) -> list[Person]:
        """All people, by id."""

    def person(self, number: int) -> Person | None:
        """A person by id."""

    def find(self, name: str) -> Person | None:
        """The person of a name, also of an earlier one."""

    def names_of(self, number: int) -> list[str]:
        """The earlier names of a person."""

    def photos(self, number: int) -> list[tuple[int, float, Photo]]:
        """The photos of a person: number, time, photo."""

    def owners(self, sha256: str) -> list[int]:
        """The people to whom a photo belongs."""

    def is_rejected(self, number: int, sha256: str) -> bool:
        """True if a photo was removed from a person."""

    def add(
        self,
        who: str | int,
        photos: Sequence[Photo],
        *,
        model: Model,
        note: str = "",
        expires: float | None = None,
        actor: str,
    ) -> tuple[int, int]:
        """Add photos to a person: id, and the number of photos that are new; one of a new name is made.

        Photos that the person has, or that were removed from the person, are passed over. A note and an end date
        replace those of a known person. A store without a model gets this one; another one's features are an error.
        """

    def rename(self, number: int, name: str, *, actor: str) -> None:
        """Give a person another name; the earlier one still finds the person."""

    def add_name(self, number: int, name: str) -> None:
        """Let a person also be found by another name, unless that is somebody's already."""

    def merge(self, number: int, into: int, *, actor: str) -> None:
        """Make two people one: photos, names, rejections and note go to the second; the earlier end date holds."""

    def remove(self, number: int, *, actor: str) -> None:
        """Delete a person and all that belongs to them."""

    def remove_photos(self, number: int, photos: Sequence[int], *, actor: str) -> int:
        """Delete photos of a person, who does not get them again; the number of photos."""

    def expire(self, number: int, when: float | None, *, actor: str) -> None:
        """Set the time from which a person is not named; None: never."""

    def replace(self, model: Model, photos: Iterable[tuple[int, Photo]], *, actor: str) -> None:
        """Replace the features of all photos by those of another model; (number of the photo, photo)."""

    def record(self, action: str, *, actor: str) -> None:
        """Add a line to the log, of something that changed nothing here."""

    def templates(self, people: Sequence[int] | None = None) -> Iterator[tuple[Int64, Float32]]:
        """The templates of some people, or all: ids (N,) and unit rows (N, D), in parts."""

    def changes(self, since: Revision | None) -> Changes | None:
        """What changed since a revision; None: nothing, or within `together`."""

    def log(self, since: int = 0) -> list[Entry]:
        """The lines of the log after one of them."""

    def erase(self) -> bool:
        """Overwrite what was deleted in every file of the store; False if another reader still prevents it."""

    def close(self) -> None:
        """Close the store."""
