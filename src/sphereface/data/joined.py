"""Several sets as one: sets of named people, and sets of faces without names."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from sphereface.arrays import Int64
from sphereface.data.people import FaceSet
from sphereface.errors import UserError


class JoinedSets:
    """The images of several sets, one set after the other.

    Named people keep their names, which must differ between the sets. All images of an `unlabelled` set get one label,
    whatever folders they are in. These labels are the last ones, so that labels below `classes` are those of named
    people.

    >>> JoinedSets([open_set("faces/train"), open_set("faces/more")], unlabelled=[open_set("unlabelled.zip")]).classes
    """

    def __init__(self, named: Sequence[FaceSet], unlabelled: Sequence[FaceSet] = ()) -> None:
        self.sets = [*named, *unlabelled]
        people = [name for faces in named for name in faces.people]
        twice = sorted({name for name in people if people.count(name) > 1}) if len(set(people)) < len(people) else []
        if twice:
            came = f"{len(twice):,} names of people, such as {twice[0]}, are in two of the sets"
            raise UserError(f"{came}; rename the folders of one, or join those of the same person")
        self.classes = len(people)
        self.people = [*people, *(f"unlabelled {number}" for number in range(1, len(unlabelled) + 1))]
        starts = list(accumulate((len(faces.people) for faces in named), initial=0))
        labels = [np.asarray(faces.labels, np.int64) + start for faces, start in zip(named, starts, strict=False)]
        labels += [
            np.full(len(faces.labels), self.classes + number, np.int64) for number, faces in enumerate(unlabelled)
        ]
        self.labels: Int64 = np.concatenate(labels)
        self.paths = [path for faces in self.sets for path in faces.paths]
        self._ends = list(accumulate(len(faces.labels) for faces in self.sets))

    def read(self, index: int) -> bytes:
        """The image's encoded bytes."""
        number = bisect_right(self._ends, index)
        return self.sets[number].read(index - (self._ends[number - 1] if number else 0))
