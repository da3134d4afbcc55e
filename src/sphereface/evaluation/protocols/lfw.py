"""LFW, and every other test on pairs of faces: a folder with `pairs.txt`, or one of InsightFace's `.bin` sets.

View 2 is for reporting: ten folds. View 1 is for development: mean and threshold from DevTrain, applied to DevTest.
CFP-FP, AgeDB-30, CALFW, CPLFW and RFW come as `.bin`. Each distinct image is embedded once, and every pair that is left
out is counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Unpack

import numpy as np

from sphereface.arrays import Int64
from sphereface.data.formats.bins import read_bin
from sphereface.data.lists.pairs import folds_in_a_row, read_pairs
from sphereface.data.manifest import require_faces
from sphereface.embed.store import FeatureStore
from sphereface.errors import DataFormatError, UserError
from sphereface.evaluation.protocols.pair_lists import PLAIN, names_of, people_of, refuse_absent, refuse_repeats
from sphereface.evaluation.rules.pairs import Asked, PairOptions, PairsResult, Problem
from sphereface.evaluation.sources import Embeds, find_images, gather, open_source
from sphereface.metrics.rates import ROUNDS
from sphereface.progress import Progress, silent

PAIRS, DEV_TRAIN, DEV_TEST = "pairs.txt", "pairsDevTrain.txt", "pairsDevTest.txt"  # LFW's names for its lists

View = Literal[1, 2]
PathLike = str | Path


def evaluate_lfw(
    embedder: Embeds | FeatureStore,
    faces: PathLike | None = None,
    pairs: PathLike | tuple[PathLike, PathLike] | None = None,
    *,
    view: View = 2,
    rounds: int = ROUNDS,
    seed: int = 0,
    progress: Progress = silent,
    **options: Unpack[PairOptions],
) -> PairsResult:
    """Score a model on LFW's pairs, or on any list of pairs with folds; `faces` holds aligned faces, or is a `.bin`.

    `pairs` is a list, for view 1 two of them (DevTrain, DevTest), or the folder that holds them under LFW's names; by
    default the folder `faces`. A list may have `.jpg` where an image is `.png`. `options` are those of `PairOptions`:
    `rule`, `all_rules`, `missing`, `fars`. An absent or unreadable image is an error, or with `missing="skip"` its
    pairs are left out, counted and named. Instead of an embedder, stored features of the images, of one model or
    joined, may be given; then `faces` is needed for lists only.

    >>> print(evaluate_lfw(Embedder.load("model.onnx"), "lfw-112x96", "pairs.txt", all_rules=True).table())
    """
    folder = None if faces is None else Path(faces)
    asked = Asked(rounds=rounds, seed=seed, **options)
    if folder is not None and folder.suffix.lower() == ".bin":
        if pairs is not None or view != 2:
            raise UserError(f"{folder} holds its own pairs, without views; leave out `pairs` and `view`")
        return _evaluate_bin(embedder, folder, asked, progress)
    lists = _lists(folder, pairs, view)
    read = [read_pairs(path) for path in lists]
    everything = [pair for each in read for pair in each]
    refuse_repeats(everything, " and ".join(str(path) for path in lists), "images", PLAIN)
    if view == 2 and len({pair.fold for pair in everything}) < 2 and asked.holds_out:
        raise UserError(f"{lists[0]}: one fold, so that none can be held out; wanted ten, or two lists with view=1")
    source = open_source(embedder, folder)
    places = find_images(names_of(everything), source.paths)
    if asked.missing == "fail":
        refuse_absent(everything, places, str(folder or source.name), "images", "align again with --misses centre")
    gathered = source.gather(places.values(), missing=asked.missing, progress=progress)
    rows = {name: gathered.rows.get(place, -1) for name, place in places.items()}
    problem = Problem(
        data=f"{source.name}, view {view} ({', '.join(path.name for path in lists)})",
        left=np.array([rows.get(pair.left, -1) for pair in everything]),
        right=np.array([rows.get(pair.right, -1) for pair in everything]),
        same=np.array([pair.same for pair in everything]),
        fold=np.array([pair.fold for pair in everything]),
        held_out=np.arange(len(everything)) >= len(read[0]) if view == 1 else None,
        people=people_of(everything),
        notes=source.notes,
    )
    absent = dict.fromkeys((name for name in names_of(everything) if name not in places), "not in the set")
    return asked.judge(problem, gathered, {**absent, **gathered.unreadable}, source.card)


def _evaluate_bin(embedder: Embeds | FeatureStore, path: Path, asked: Asked, progress: Progress) -> PairsResult:
    """Score one of InsightFace's pair sets: LFW, CFP-FP, AgeDB-30, CALFW, CPLFW, RFW as `.bin` files.

    Such a file has neither folds nor people: ten consecutive folds are taken, as InsightFace does, and intervals are
    Wilson's.
    """
    if isinstance(embedder, FeatureStore):
        raise UserError(f"{path} has no image names to find features by; give a model instead of features")
    found = read_bin(path)
    if not len(found):
        raise DataFormatError(f"{path}: no pair in it; wanted at least 1")
    first: dict[bytes, int] = {}
    places = np.array([first.setdefault(image, index) for index, image in enumerate(found.images)])
    faces = BinFaces(found.images, [f"{path.name}: image {index}" for index in range(len(found.images))])
    note = require_faces(path, faces, embedder.card.preprocessing.alignment)
    gathered = gather(embedder, faces, first.values(), missing=asked.missing, progress=progress)
    rows = np.array([gathered.rows.get(place, -1) for place in places.tolist()])
    return asked.judge(
        Problem(
            data=path.name,
            left=rows[0::2],
            right=rows[1::2],
            same=np.array(found.same),
            fold=np.array(folds_in_a_row(len(found))),
            held_out=None,
            people=None,
            notes=(note,) if note else (),
        ),
        gathered,
        gathered.unreadable,
        embedder.card,
    )


@dataclass(frozen=True)
class BinFaces:
    """The images of a `.bin` as a set of one unknown person."""

    images: Sequence[bytes]
    paths: Sequence[str]
    people: Sequence[str] = ("unknown",)

    @property
    def labels(self) -> Int64:
        """Zeros (N,)."""
        return np.zeros(len(self.images), dtype=np.int64)

    def read(self, index: int) -> bytes:
        """The image's encoded bytes."""
        return self.images[index]


def _lists(faces: Path | None, pairs: PathLike | tuple[PathLike, PathLike] | None, view: View) -> list[Path]:
    """The files that list the pairs: one for view 2, DevTrain and DevTest for view 1."""
    if view not in (1, 2):
        raise UserError(f"view is {view!r}; wanted 1 (development) or 2 (reporting)")
    names = (DEV_TRAIN, DEV_TEST) if view == 1 else (PAIRS,)
    if isinstance(pairs, tuple):
        found = [Path(path) for path in pairs]
    else:
        given = faces if pairs is None else pairs
        if given is None:
            raise UserError(f"neither a set nor a list is named; wanted {' and '.join(names)}, or their folder")
        place = Path(given)
        found = [place / name for name in names] if place.is_dir() else [place]
    if len(found) != len(names):
        raise UserError(
            f"view {view} takes {' and '.join(names)}, got {', '.join(map(str, found))}; "
            "name the lists, or their folder"
        )
    absent = [str(path) for path in found if not path.is_file()]
    if absent:
        raise DataFormatError(f"{' and '.join(absent)}: no such list; name the lists, or their folder")
    return found
