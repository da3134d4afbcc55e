"""Memory and time of an audit at the size of a large training set: synthetic people with planted faults."""

import time
from collections.abc import Mapping
from typing import Any

import cv2
import numpy as np

from sphereface.arrays import Float32
from sphereface.audit import Audit, audit_faces
from sphereface.bench.timing import in_own_process, numpy_machine, peak_bytes
from sphereface.contract import Card
from sphereface.embed.embedder import Embedder
from sphereface.errors import UserError
from sphereface.progress import Progress, Say, mute, silent

PEOPLE, PHOTOS, FEATURES = 85_742, 5, 512  # people of MS1MV2, the common version of MS-Celeb-1M
LIMIT = 3_000.0  # megabytes
FAULTS = 10  # planted faults of each kind
CELLS, PIXELS = (28, 24), 4  # a picture of 112 x 96 pixels is a grid of grey squares
OWN = 0.8  # weight of the person in a picture: photos of one person correlate by its square, 0.64
GREY, SPREAD = 128, 30


class MadeUpPeople:
    """A set of faces that are drawn on reading: the sum of a pattern of the person and one of the photo.

    In the first `faults` groups of six people, the second person is the first under another name, the third has a photo
    that shows the fourth, and the second photo of the fifth is a copy of the first.
    """

    def __init__(self, people: int, photos: int, faults: int = FAULTS) -> None:
        self.people = [f"p{person:06d}" for person in range(people)]
        self.labels = np.repeat(np.arange(people), photos)
        self.paths = [f"{self.people[label]}/{row % photos:04d}.bmp" for row, label in enumerate(self.labels.tolist())]
        self.pattern = np.arange(people)  # by person
        self.drawn = np.arange(len(self.labels))  # by photo: the photo that it is a copy of, or itself
        firsts = np.arange(0, people - 5, 6)[:faults]
        self.pattern[firsts + 1] = firsts
        self.owner = np.repeat(self.pattern, photos)  # by photo: the person on it
        third, fifth = (firsts + 2) * photos, (firsts + 4) * photos
        self.owner[third] = firsts + 3
        self.drawn[fifth + 1] = fifth
        self.two_names = {(self.people[first], self.people[first + 1]) for first in firsts.tolist()}
        self.wrong_labels = {self.paths[row] for row in third.tolist()}
        self.duplicates = {(self.paths[row], self.paths[row + 1]) for row in fifth.tolist()}

    def read(self, index: int) -> bytes:
        """A photo as a grey BMP, the fastest format to write, as writing is not part of an audit."""
        own, other = (
            np.random.default_rng([kind, seed]).standard_normal(CELLS)
            for kind, seed in enumerate((int(self.owner[index]), int(self.drawn[index])))
        )
        grey = np.clip(GREY + SPREAD * (OWN * own + np.sqrt(1 - OWN**2) * other), 0, 255).astype(np.uint8)
        return cv2.imencode(".bmp", grey.repeat(PIXELS, 0).repeat(PIXELS, 1))[1].tobytes()


def made_up_embedder(features: int) -> Embedder:
    """An embedder of one linear layer: the grey squares of a picture times random weights."""
    weights = np.random.default_rng(0).standard_normal((CELLS[0] * CELLS[1], features)).astype(np.float32)

    def run(inputs: Float32) -> Float32:
        return inputs[:, 0, ::PIXELS, ::PIXELS].reshape(len(inputs), -1) @ weights

    return Embedder(run, Card(feature_rule="image"))


def audit_made_up(people: int, photos: int, features: int) -> dict[str, Any]:
    """Audit made-up people in this process: peak memory, seconds by step, and the planted faults that were found."""
    faces, started = MadeUpPeople(people, photos), {}

    def begin(step: str) -> Progress:
        started[step] = time.perf_counter()
        return silent

    before = peak_bytes()
    found = audit_faces(faces, embedder=made_up_embedder(features), begin=begin)
    peak, ends = peak_bytes(), [*started.values(), time.perf_counter()]
    return {
        "peak_megabytes": peak / 1e6,
        "before_megabytes": before / 1e6,
        "seconds": {step: ends[place + 1] - start for place, (step, start) in enumerate(started.items())},
        "planted": compare(found, faces),
    }


def compare(found: Audit, faces: MadeUpPeople) -> dict[str, dict[str, int]]:
    """Counts by kind of fault: planted faults, planted faults that were found, and other findings."""
    kinds: dict[str, tuple[set[Any], set[Any]]] = {
        "two_names": (faces.two_names, {(pair.first, pair.second) for pair in found.two_names}),
        "wrong_labels": (faces.wrong_labels, {doubt.path for doubt in found.wrong_labels}),
        "duplicates": (faces.duplicates, {(pair.first, pair.second) for pair in found.duplicates}),
    }
    return {
        kind: {"planted": len(planted), "found": len(planted & named), "others": len(named - planted)}
        for kind, (planted, named) in kinds.items()
    }


def bench_audit(
    *, people: int = PEOPLE, photos: int = PHOTOS, features: int = FEATURES, limit: float = LIMIT, say: Say = mute
) -> dict[str, Any]:
    """Peak memory of an audit in its own process, against a limit in megabytes, and the planted faults it found."""
    if people < 6 or photos < 3:
        raise UserError(f"{people} people with {photos} photos each; wanted at least 6 people with 3")
    say(f"auditing {people * photos:,} photos of {people:,} people, with {features} features each")
    measured = in_own_process(audit_made_up, people, photos, features)
    return {
        "what": "audit of made-up people: photos read, embedded by one layer, compared as pictures and by features; "
        "peak resident memory of the whole process, libraries included",
        **numpy_machine(),
        "people": people,
        "photos_each": photos,
        "features": features,
        "features_megabytes": 4 * people * photos * features / 1e6,
        "limit_megabytes": limit,
        **measured,
        "goals": goals(measured, limit),
    }


def goals(measured: Mapping[str, Any], limit: float) -> dict[str, bool]:
    """`memory`: the peak is below the limit; `faults`: the findings are exactly the planted faults."""
    planted = measured["planted"].values()
    return {
        "memory": measured["peak_megabytes"] < limit,
        "faults": all(kind["found"] == kind["planted"] and not kind["others"] for kind in planted),
    }


def table(result: Mapping[str, Any]) -> str:
    """The result as text."""
    lines = [
        f"{result['people']:,} people, {result['photos_each']} photos each, {result['features']} features",
        f"peak memory {result['peak_megabytes']:,.0f} MB (limit {result['limit_megabytes']:,.0f} MB; "
        f"features alone {result['features_megabytes']:,.0f} MB)",
    ]
    lines += [f"{step}: {seconds:,.0f} s" for step, seconds in result["seconds"].items()]
    lines += [
        f"{kind}: {count['found']} of {count['planted']} planted faults found, {count['others']} others"
        for kind, count in result["planted"].items()
    ]
    return "\n".join(lines)
