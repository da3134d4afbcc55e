"""Scores of a few faces against very many: approximate in blocks, exact for the pairs that matter.

A score is the cosine of two features: their rows, scaled to length one in float32, multiplied in float64 and summed in
a fixed order. The same two rows have the same score to the last bit at any place, and copies tie. A matrix product in
float32 sums in an order that depends on the place of a row, but its error is bounded: it finds the few pairs that can
matter, and only those are scored exactly.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from tokenize import TokenError

import numpy as np

from sphereface.arrays import Float32, Float64, Floating, Integers, require_directions, unit_rows
from sphereface.data.lists.devkit import map_matrix
from sphereface.errors import DataFormatError, UserError

Exact = Callable[[Integers, Integers], Float64]  # (rows, columns) -> scores of these pairs

SCORES = 1 << 25  # of a matrix product: 128 MB
NUMBERS = 1 << 24  # of a block of features: 64 MB
VIEW = 1 << 22  # scores in one piece, which bounds the memory for their analysis
PRODUCTS = 1 << 21  # of exact scores at a time: 16 MB


def map_features(path: str | Path) -> Floating:
    """Features (N, D) of a file as a memory map: `.npy`, or a matrix of the MegaFace devkit in a `.bin`."""
    path = Path(path)
    if path.suffix == ".bin":
        return map_matrix(path)
    try:
        features = np.load(path, mmap_mode="r")
    except OSError as error:
        raise DataFormatError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (ValueError, EOFError, SyntaxError, TokenError) as error:  # a header is parsed as Python
        raise DataFormatError(f"{path}: no whole .npy file ({error}); write or copy it again") from error
    if not isinstance(features, np.ndarray) or features.ndim != 2 or not np.issubdtype(features.dtype, np.floating):
        content = f"{features.dtype} {features.shape}" if isinstance(features, np.ndarray) else "an archive"
        raise DataFormatError(f"{path}: {content}; wanted features (N, D) of floating-point numbers")
    return features


def dots(a: Float32, b: Float32) -> Float64:
    """Sums of products of matching rows (M, D), in float64; each depends on its two rows only, in either order."""
    return np.asarray(np.multiply(a, b, dtype=np.float64).sum(axis=1))


class StreamedScores:
    """Cosines between probes (P, D), held in memory, and distractors (N, D), in memory or in a file.

    `block` is the number of distractors in a matrix product, `view` of scores in a piece, `products` of multiplications
    in a chunk of exact scores: they affect the memory only.
    """

    def __init__(
        self,
        probes: Floating,
        distractors: Floating,
        *,
        block: int | None = None,
        view: int = VIEW,
        products: int = PRODUCTS,
    ) -> None:
        if probes.ndim != 2 or distractors.ndim != 2 or probes.shape[1] != distractors.shape[1] or 0 in probes.shape:
            shapes = f"{probes.shape} and {distractors.shape}"
            raise UserError(f"probes and distractors have shapes {shapes}; wanted (P, D) and (N, D)")
        if block is not None and block < 1:
            raise UserError(f"block is {block}; wanted at least 1")
        numbers, width = probes.shape
        self.probes = unit_rows(probes, dtype=np.float32, what="probe")
        require_directions(self.probes, what="probe")
        self.distractors, self._products = distractors, products
        self._widest = max(1, view // numbers)
        self.block = block or max(1, min(SCORES // numbers, NUMBERS // width, len(distractors)))
        # A float32 sum of D products, in any order, is off by at most D 2^-24 sum |x_i y_i| to first order, and that
        # sum is at most the product of both lengths, which are one. The rest covers all other rounding.
        self.error = 1.1 * (width + 8) * 2.0**-24

    def blocks(self, stops: Sequence[int]) -> Iterator[tuple[int, Float32]]:
        """Pieces of approximate scores (P, w) with the place of their first distractor, in order, up to the last stop.

        Each stop ends a piece. The next piece overwrites it.
        """
        held = np.empty((len(self.probes), self.block), dtype=np.float32)
        room = np.empty((self.block, self.probes.shape[1]), dtype=np.float32)  # new memory costs more than the work
        for start in range(0, max(stops), self.block):
            end = min(start + self.block, max(stops))
            unit = self._unit(start, end, room)
            scores = held[:, : end - start]
            np.matmul(self.probes, unit.T, out=scores)
            borders = {*range(start, end, self._widest), *(stop for stop in stops if start < stop < end), end}
            for left, right in pairwise(sorted(borders)):
                yield left, scores[:, left - start : right - start]

    def _unit(self, start: int, end: int, room: Float32) -> Float32:
        """Distractors from `start` to `end` as unit rows."""
        places = range(start, end)
        rows = self.distractors[start:end]
        unit = unit_rows(rows, dtype=np.float32, what="distractor", places=places, out=room[: end - start])
        require_directions(unit, what="distractor", places=places)
        return unit

    def exact(self, rows: Integers, columns: Integers) -> Float64:
        """The scores of probes `rows` with distractors `columns`, pair by pair."""

        def some(chunk: Integers) -> Float64:
            needed, place = np.unique(columns[chunk], return_inverse=True)
            unit = unit_rows(self.distractors[needed], dtype=np.float32, what="distractor", places=needed)
            return dots(self.probes[rows[chunk]], unit[place])

        order = np.argsort(columns, kind="stable")  # reads the file once, from start to end
        return self._in_chunks(some, order)

    def among_probes(self, rows: Integers, columns: Integers) -> Float64:
        """The scores of probes with probes, pair by pair."""

        def some(chunk: Integers) -> Float64:
            return dots(self.probes[rows[chunk]], self.probes[columns[chunk]])

        return self._in_chunks(some, np.arange(len(rows)))

    def _in_chunks(self, score: Callable[[Integers], Float64], order: Integers) -> Float64:
        """Scores of all pairs, in chunks that threads compute."""
        scores = np.empty(len(order))
        length = max(1, self._products // self.probes.shape[1])
        chunks = [order[start : start + length] for start in range(0, len(order), length)]
        if len(chunks) <= 1:
            for chunk in chunks:
                scores[chunk] = score(chunk)
            return scores
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            for chunk, found in zip(chunks, pool.map(score, chunks), strict=True):
                scores[chunk] = found
        return scores
