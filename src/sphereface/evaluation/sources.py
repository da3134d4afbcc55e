"""Where the features of a set come from: a model that makes them now, or the files that `sphereface embed` wrote."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from sphereface.contract import Card
from sphereface.data.formats import open_set
from sphereface.data.manifest import read_manifest, require_faces
from sphereface.data.people import FaceSet
from sphereface.embed.store import Features
from sphereface.errors import ContractMismatch, DataFormatError, UnreadableImage
from sphereface.evaluation.gather import Embeds, Gathered, Progress, gather, refuse_none, silent


class Source(Protocol):
    """Images that have features, or will have them once they are asked for."""

    @property
    def name(self) -> str:
        """What the set is called."""

    @property
    def card(self) -> Card:
        """What the features are of."""

    @property
    def paths(self) -> Sequence[str]:
        """All images of the set, those that cannot be read among them."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a result has to say about the set."""

    def gather(self, places: Iterable[int], /, *, skip: bool = False, progress: Progress = silent) -> Gathered:
        """Features of some images; `skip` notes those that cannot be read, else they are errors."""


@dataclass(frozen=True, eq=False)
class Fresh:
    """Faces that a model embeds now."""

    name: str
    embedder: Embeds
    faces: FaceSet
    notes: tuple[str, ...] = ()

    @property
    def card(self) -> Card:
        """The model's."""
        return self.embedder.card

    @property
    def paths(self) -> Sequence[str]:
        """All images of the set."""
        return self.faces.paths

    def gather(self, places: Iterable[int], /, *, skip: bool = False, progress: Progress = silent) -> Gathered:
        """Embed some images."""
        return gather(self.embedder, self.faces, places, skip=skip, progress=progress)


@dataclass(frozen=True, eq=False)
class Stored:
    """Features that were made before; what could not be read then stands behind the others, without a feature."""

    features: Features
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What the set was called that was embedded."""
        return Path(self.features.manifests[0].source).name if self.features.manifests else "features"

    @property
    def card(self) -> Card:
        """The one that the features were made with."""
        return self.features.card

    @cached_property
    def paths(self) -> list[str]:
        """All images of the set that was embedded."""
        return [*self.features.paths, *self.features.unreadable]

    def gather(self, places: Iterable[int], /, *, skip: bool = False, progress: Progress = silent) -> Gathered:
        """Read the features of some images."""
        wanted = list(dict.fromkeys(places))
        kept = [place for place in wanted if place < len(self.features)]
        unreadable = {
            self.paths[place]: self.features.unreadable[self.paths[place]]
            for place in wanted
            if place >= len(self.features)
        }
        if unreadable and not skip:
            path, why = next(iter(unreadable.items()))
            raise UnreadableImage(
                f'{path}: {why}; it was left out when the set was embedded: mend it and embed again, or missing="skip"'
            )
        rows = {place: row for row, place in enumerate(kept)}
        refuse_none(rows, unreadable)
        found = np.asarray(self.features.rows[np.array(kept)], np.float32)
        broken = np.flatnonzero(~np.isfinite(found).all(1))
        if len(broken):
            path = self.features.paths[kept[broken[0]]]
            raise DataFormatError(f"the feature of {path} is not finite; embed the set again")
        progress(len(wanted), len(wanted))
        return Gathered(found, rows, unreadable)


def open_source(given: Embeds | Features, root: Path | None) -> Source:
    """A model with the set of faces at `root`, which must be as its card wants them; or stored features.

    Features need no faces; those of a set at `root` with another alignment than theirs are refused.
    """
    if isinstance(given, Features):
        if root is not None:
            _require_kin(root, given.card)
        return Stored(given)
    if root is None:
        raise ValueError("a model without faces; name the set of aligned ones, or give stored features instead")
    faces = open_set(root)
    note = require_faces(root, faces, given.card.preprocessing.alignment)
    return Fresh(root.name, given, faces, (note,) if note else ())


def _require_kin(root: Path, card: Card) -> None:
    """Raise if faces, by their manifest, cannot be those, or one model's of those, that features were made of."""
    manifest = read_manifest(root)
    if manifest is None:
        return
    made, wanted = manifest.alignment, card.preprocessing
    crops = set(wanted.crop.split("+"))  # an ensemble of patches has several
    crops |= {"112x112"} if "112x96" in crops else set()
    if made.template != wanted.template or made.crop not in crops:
        raise ContractMismatch(
            f"{root}: faces aligned to template {made.template}, crop {made.crop}; the features are of template "
            f"{wanted.template}, crop {wanted.crop}: name the set that was embedded, or its lists alone"
        )
