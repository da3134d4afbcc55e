"""All features of a set with whose they are: embedded now, or read from where `sphereface embed` wrote them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sphereface.contract import Card
from sphereface.data.formats import open_set
from sphereface.data.manifest import require_faces
from sphereface.embed.store import Features, require_finite
from sphereface.evaluation.gather import Embeds, Gathered, Progress, gather, silent

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class WholeSet:
    """Features (N, D) of a set's images, not normalised, with their paths and people."""

    data: str  # its name
    features: NDArray[np.float32]
    labels: Ints  # (N,): places in `people`
    people: list[str]
    paths: list[str]
    card: Card
    unreadable: dict[str, str]
    notes: tuple[str, ...] = ()

    @property
    def gathered(self) -> Gathered:
        """The features as the judge of pairs takes them."""
        return Gathered(self.features, {place: place for place in range(len(self.paths))}, self.unreadable)


def embed_whole(
    source: Embeds | Features, data: str | Path | None = None, *, skip: bool = False, progress: Progress = silent
) -> WholeSet:
    """The features of a set of aligned faces; with stored `Features`, `data` is not needed and nothing is embedded.

    `skip` notes images that cannot be read, else they are errors.
    """
    if isinstance(source, Features):
        require_finite(source)
        name = Path(source.manifests[0].source).name if source.manifests else "features"
        rows = np.asarray(source.rows[0 : len(source)])
        return WholeSet(
            name, rows, source.labels, list(source.people), list(source.paths), source.card, source.unreadable
        )
    if data is None:
        raise ValueError("no set of faces is named; wanted a folder with a folder for each person, or stored Features")
    root = Path(data)
    faces = open_set(root)
    note = require_faces(root, faces, source.card.preprocessing.alignment)
    gathered = gather(source, faces, range(len(faces.paths)), skip=skip, progress=progress)
    places = np.array(list(gathered.rows), dtype=np.int64)
    return WholeSet(
        data=root.name,
        features=gathered.features,
        labels=np.asarray(faces.labels)[places],
        people=list(faces.people),
        paths=[faces.paths[place] for place in places.tolist()],
        card=source.card,
        unreadable=gathered.unreadable,
        notes=(note,) if note else (),
    )
