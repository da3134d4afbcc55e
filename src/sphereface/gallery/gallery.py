"""A gallery: enrolled people in a store, which is the truth, and an index derived from it."""

import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from getpass import getuser
from pathlib import Path
from threading import RLock

import numpy as np

from sphereface.arrays import Floating, unit_rows
from sphereface.errors import ContractMismatch, GalleryError, UserError
from sphereface.gallery.index import ExactIndex, Index, Matches
from sphereface.gallery.records import Model, Person, Photo, Revision, checked_name
from sphereface.gallery.sealing import require_key
from sphereface.gallery.sqlite import SQLiteStore
from sphereface.gallery.store import Store
from sphereface.progress import Say, mute

ERASE_SECONDS, ERASE_PAUSE = 30.0, 0.2  # how long to wait for readers, and between tries


class Gallery:
    """Enrolled people, and a search among them; safe to use from several threads and processes.

    Changes of other processes are seen before the next search. A person whose time is over is not found any more.

    >>> Gallery.open("people.gallery").people()[0].name
    'Ada Lovelace'
    """

    def __init__(self, store: Store, index: Index | None = None, *, actor: str | None = None) -> None:
        """`actor` is who makes changes, for the log; default: the user of this process."""
        self.store, self.index = store, ExactIndex() if index is None else index
        self.actor = actor or user_name()
        self.lock = RLock()
        self._revision: Revision | None = None
        self._photos: dict[int, int] = {}  # number of photos of each person in the index
        self._expiry: dict[int, float] = {}

    @classmethod
    def open(
        cls, where: str | Path | None = None, *, index: str = "exact", key: bytes | str | Path | None = None,
        create: bool = True, actor: str | None = None,
    ) -> "Gallery":  # fmt: skip
        """A gallery in a file; the default is in the user's data folder. `key` is a key, or the path of its file."""
        if index != "exact":
            raise UserError(f"index is {index!r}; wanted 'exact'")
        if "://" in str(where or ""):
            raise UserError(f"{where}: wanted the path of a file")
        secret = None if key is None else require_key(key)
        path = default_gallery() if where is None else Path(where)
        return cls(SQLiteStore(path, key=secret, create=create), actor=actor)

    def __enter__(self) -> "Gallery":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """The number of people who can be found."""
        with self.lock:
            self.refresh()
            return len(self.index)

    @property
    def where(self) -> str:
        """Its path or URL."""
        return self.store.where

    def people(self) -> list[Person]:
        """All enrolled people, by id."""
        return self.store.people()

    def find(self, name: str) -> Person:
        """The person of a name, also of an earlier one; an unknown name is an error that lists similar ones."""
        found = self.store.find(name)
        if found is None:
            near = get_close_matches(name, [person.name for person in self.people()])
            hint = f"; similar names: {', '.join(near)}" if near else "; sphereface gallery list shows all"
            raise GalleryError(f"{self.where}: nobody is called {name!r}{hint}")
        return found

    # Search.

    def search(self, features: Floating, count: int = 1, *, model: Model | None = None) -> Matches:
        """The best people of features (N, D) of any length: ids and cosines, best first.

        `model` is that of the features: a gallery of another one is an error.
        """
        units = unit_rows(features, what="probe")
        with self.lock:
            self.refresh()
            if model is not None:
                self.require_model(model)
            return self.index.search(units.astype(np.float32), count)

    def require_model(self, model: Model) -> None:
        """Raise if the features of this gallery are of another model."""
        known = self.store.model
        if known is not None and known.identity != model.identity:
            raise ContractMismatch(
                f"{self.where}: features of {known.name}, but the model is {model.name}; use that one, or move the "
                "gallery to this one: sphereface gallery reembed"
            )

    @property
    def sizes(self) -> Mapping[int, int]:
        """The number of people by their number of photos, of those who can be found."""
        with self.lock:
            self.refresh()
            return Counter(self._photos.values())

    def refresh(self) -> None:
        """Bring the index to the state of the store; after an error, the next call reads all of it again."""
        with self.lock:
            changes = self.store.changes(self._revision)
            if changes is not None:
                self._revision = None
                self._follow(changes.people)
                self._revision = changes.revision
            now = time.time()
            for number in [number for number, when in self._expiry.items() if when <= now]:
                self._forget(number)

    def _follow(self, people: list[int] | None) -> None:
        """Read the templates of some people, or of all, from the store."""
        if people is None:
            self.index.clear()
            self._photos, self._expiry = {}, {}
        for number in people or ():
            self._forget(number)
        known = self.store.people() if people is None else [self.store.person(number) for number in people]
        there = [person for person in known if person is not None and person.photos]
        for ids, units in self.store.templates(None if people is None else [person.id for person in there]):
            self.index.put(ids, units)
        for person in there:
            if self.index.template(person.id) is not None:  # not removed meanwhile
                self._photos[person.id] = person.photos
                if person.expires is not None:
                    self._expiry[person.id] = person.expires

    def _forget(self, number: int) -> None:
        self.index.discard(number)
        self._photos.pop(number, None)
        self._expiry.pop(number, None)

    # Changes.

    def enroll(
        self,
        who: str | int,
        photos: Sequence[Photo],
        *,
        model: Model,
        note: str = "",
        expires: float | None = None,
    ) -> tuple[Person, int]:
        """Add photos to a person, who is made if needed: the person, and the number of photos that are new.

        `who` is a name, or the id of a known person. A photo that was removed from the person stays out. A new gallery
        gets the model; features of another one are an error.
        """
        number, count = self.store.add(who, photos, model=model, note=note, expires=expires, actor=self.actor)
        person = self.store.person(number)
        if person is None:
            raise GalleryError(f"{self.where}: {who} was removed meanwhile")
        return person, count

    def rename(self, name: str, to: str) -> None:
        """Give a person another name; the earlier one still finds the person."""
        self.store.rename(self.find(name).id, to, actor=self.actor)

    def merge(self, name: str, into: str, *, say: Say = mute) -> bool:
        """Make two people one, who keeps the name `into`; the other name still finds the person.

        The photos of the first are written anew; True if their earlier bytes were overwritten.
        """
        self.store.merge(self.find(name).id, self.find(into).id, actor=self.actor)
        return self.erase(say=say)

    def remove(self, name: str, *, say: Say = mute) -> bool:
        """Delete a person by the present name; True if all bytes were overwritten, False if a reader prevents it."""
        person = self.find(name)
        if person.name != checked_name(name):
            raise GalleryError(f"{name} is an earlier name of {person.name}; to delete that person, give this name")
        self.store.remove(person.id, actor=self.actor)
        return self.erase(say=say)

    def remove_photos(self, name: str, photos: Iterable[int], *, say: Say = mute) -> bool:
        """Delete photos of a person by their numbers; `enroll` and `group` do not add them again."""
        person = self.find(name)
        numbers, known = list(photos), [number for number, _, _ in self.store.photos(person.id)]
        for number in numbers:
            if number not in known:
                raise GalleryError(f"{person.name} has no photo {number}; sphereface gallery show lists them")
        self.store.remove_photos(person.id, numbers, actor=self.actor)
        return self.erase(say=say)

    def expire(self, name: str, when: float | None) -> None:
        """Set the time, in seconds since 1970, from which a person is not named; None: never."""
        self.store.expire(self.find(name).id, when, actor=self.actor)

    def remove_expired(self, *, say: Say = mute) -> tuple[list[str], bool]:
        """Delete the people whose time is over: their names, and whether all bytes were overwritten."""
        with self.store.together():
            now = time.time()
            over = [person for person in self.people() if person.expires is not None and person.expires <= now]
            for person in over:
                self.store.remove(person.id, actor=self.actor)
        return [person.name for person in over], self.erase(say=say) if over else True

    def erase(self, *, say: Say = mute) -> bool:
        """Overwrite what was deleted in all files of the store; repeated while another reader prevents it."""
        end, said = time.monotonic() + ERASE_SECONDS, False
        while not self.store.erase():
            if not said:
                say(f"{self.where}: another process is reading; what was removed is overwritten when it has ended")
                said = True
            if time.monotonic() > end:
                return False
            time.sleep(ERASE_PAUSE)
        return True

    def close(self) -> None:
        """Close the store."""
        self.store.close()


def default_gallery() -> Path:
    """The gallery in the user's data folder: $SPHEREFACE_GALLERY, or `sphereface/people.gallery` there."""
    own = os.environ.get("SPHEREFACE_GALLERY")
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return Path(own) if own else data / "sphereface" / "people.gallery"


def user_name() -> str:
    """The user of this process, for the log."""
    try:
        return getuser()
    except (OSError, KeyError):  # a user id without a name, as in some containers
        return f"user {os.getuid()}" if hasattr(os, "getuid") else "unknown"
