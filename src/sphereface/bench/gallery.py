"""A large gallery: its search against the bare matrix product, its file against the vectors in it, and its answers.

The bare product is what a search cannot do without: probes times templates in blocks of the same size, and the place of
the highest score in each.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sphereface.arrays import Float32, Int64, unit_rows
from sphereface.bench.timing import interleaved, numpy_machine
from sphereface.gallery.gallery import Gallery
from sphereface.gallery.index import BLOCK, ExactIndex
from sphereface.gallery.records import Model, Photo
from sphereface.hashes import sha256_of
from sphereface.progress import Say, mute

NEAR = 0.8  # noise of a probe that shows an enrolled person, over the length of the feature
CHECKED = 1_000  # probes that are compared with a float64 product


def bench_gallery(
    *, people: int = 100_000, features: int = 512, probes: int = 256, rounds: int = 9, say: Say = mute
) -> dict[str, Any]:
    """Make a gallery of random people with one photo each, and measure it."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(people, features)).astype(np.float32)
    model = Model("random", "random features", features)
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "people.gallery"
        say(f"enrolling {people:,} people")
        with Gallery.open(path) as gallery:
            with gallery.store.together():
                for person, vector in enumerate(vectors):
                    gallery.enroll(f"person {person}", [_photo(person, vector)], model=model)
            gallery.erase()
        size = path.stat().st_size
        with Gallery.open(path) as gallery:
            say("searching")
            loading = _seconds(gallery.refresh)
            units = _probes(vectors, probes, rng)
            seconds = interleaved(
                {"search": partial(gallery.search, units), "product": partial(bare_product, units, _blocks(vectors))},
                repeats=rounds, device="cpu",
            )  # fmt: skip
            say(f"comparing {CHECKED:,} probes with a float64 product")
            wrong = _wrong(gallery, _probes(vectors, CHECKED, rng))
            index = gallery.index
            assert isinstance(index, ExactIndex)
            before = [block.ctypes.data for block in index.blocks]
            enrolling = _seconds(lambda: gallery.enroll("one more", [_photo(people, vectors[0])], model=model))
            following = _seconds(gallery.refresh)
            kept = [block.ctypes.data for block in index.blocks][: len(before)] == before
    return {
        "what": f"a gallery of random people, one photo each; {probes} probes at a time, medians of rounds in turns",
        **numpy_machine(),
        "people": people,
        "features": features,
        "probes": probes,
        "rounds": rounds,
        "search_milliseconds": 1e3 * seconds["search"],
        "product_milliseconds": 1e3 * seconds["product"],
        "ratio_to_product": seconds["search"] / seconds["product"],
        "file_bytes": size,
        "ratio_to_vectors": size / vectors.nbytes,
        "load_seconds": loading,
        "enroll_milliseconds": 1e3 * (enrolling + following),
        "blocks_kept": kept,
        "checked": CHECKED,
        "wrong_names": wrong,
    }


def bare_product(probes: Float32, blocks: list[Float32]) -> Int64:
    """The place of the highest score of each probe in each block, by the matrix product alone."""
    out = np.empty((len(probes), BLOCK), np.float32)
    return np.stack([np.matmul(probes, block.T, out=out[:, : len(block)]).argmax(axis=1) for block in blocks])


def _blocks(vectors: Float32) -> list[Float32]:
    units = unit_rows(vectors).astype(np.float32)
    return [np.ascontiguousarray(units[start : start + BLOCK]) for start in range(0, len(units), BLOCK)]


def _probes(vectors: Float32, count: int, rng: np.random.Generator) -> Float32:
    """Unit features: half of them near an enrolled person, half of strangers."""
    near = vectors[rng.integers(len(vectors), size=count)] + NEAR * rng.normal(size=(count, vectors.shape[1]))
    near[::2] = rng.normal(size=near[::2].shape)
    return unit_rows(near).astype(np.float32)


def _wrong(gallery: Gallery, probes: Float32) -> int:
    """The number of probes whose best person is another one than by float64 scores of the stored templates."""
    ids, templates = (np.concatenate(parts) for parts in zip(*gallery.store.templates(), strict=True))
    best, scores = np.zeros(len(probes), np.int64), np.full(len(probes), -np.inf)
    for start in range(0, len(templates), BLOCK):
        found = probes.astype(np.float64) @ templates[start : start + BLOCK].astype(np.float64).T
        place = found.argmax(axis=1)  # of equal ones the first, whose id is the lowest
        better = found[np.arange(len(probes)), place] > scores
        best[better], scores[better] = ids[start + place[better]], found[np.arange(len(probes)), place][better]
    return int((gallery.search(probes).people[:, 0] != best).sum())


def _photo(person: int, vector: Float32) -> Photo:
    return Photo(sha256_of(f"photo {person}"), (0.0, 0.0, 1.0, 1.0), vector)


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
