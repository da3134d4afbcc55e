"""LFW, and every other test on pairs of faces: a folder with `pairs.txt`, or one of InsightFace's `.bin` sets.

View 2 is for reporting: ten folds. View 1 is for development: mean and threshold from DevTrain, applied to DevTest.
CFP-FP, AgeDB-30, CALFW, CPLFW and RFW come as `.bin`. Each distinct image is embedded once, and no pair is left out in
silence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sphereface.data.bins import read_bin
from sphereface.data.formats import open_set
from sphereface.data.manifest import require_faces
from sphereface.data.pairs import FOLDS, Pair, read_pairs
from sphereface.data.people import FaceSet
from sphereface.errors import DataFormatError
from sphereface.evaluation.gather import Embeds, Progress, gather, silent
from sphereface.evaluation.pairs import Asked, Missing, PairsResult, Problem
from sphereface.evaluation.verification import RULES, RuleName
from sphereface.metrics.rates import FARS, ROUNDS

PAIRS, DEV_TRAIN, DEV_TEST = "pairs.txt", "pairsDevTrain.txt", "pairsDevTest.txt"  # as LFW calls its lists

View = Literal[1, 2]
PathLike = str | Path


def evaluate_lfw(
    embedder: Embeds,
    root: PathLike,
    pairs: PathLike | tuple[PathLike, PathLike] | None = None,
    *,
    view: View = 2,
    rule: RuleName = "authors",
    all_rules: bool = False,
    missing: Missing = "fail",
    fars: Sequence[float] = FARS,
    rounds: int = ROUNDS,
    seed: int = 0,
    progress: Progress = silent,
) -> PairsResult:
    """Score a model on LFW's pairs, or on any list of pairs with folds; `root` holds aligned faces, or is a `.bin`.

    `pairs` is a list, for view 1 two of them (DevTrain, DevTest), or the folder where they lie under LFW's names; where
    it is not given, that is `root`. A list may say `.jpg` where the faces are `.png`. A listed image that is not there
    or cannot be read is an error, or with `missing="skip"` its pairs are left out, counted and named.

    >>> print(evaluate_lfw(Embedder.load("model.onnx"), "lfw-112x96", "pairs.txt", all_rules=True).table())
    """
    root = Path(root)
    asked = Asked(rule, all_rules, missing, tuple(fars), rounds, seed)
    if root.suffix.lower() == ".bin":
        if pairs is not None or view != 2:
            raise ValueError(f"{root} holds its own pairs, without views; leave out `pairs` and `view`")
        return _evaluate_bin(embedder, root, asked, progress)
    lists = _lists(root, pairs, view)
    read = [read_pairs(path) for path in lists]
    everything = [pair for each in read for pair in each]
    _refuse_repeats(everything, " and ".join(str(path) for path in lists))
    if view == 2 and len({pair.fold for pair in everything}) < 2 and any(RULES[name].holds_out for name in asked.rules):
        raise ValueError(f"{lists[0]}: one fold, so that none can be held out; wanted ten, or two lists with view=1")
    faces = open_set(root)
    note = require_faces(root, faces, embedder.card.preprocessing.alignment)
    names = list(dict.fromkeys(name for pair in everything for name in (pair.left, pair.right)))
    places = _find(names, faces, root)
    absent = [name for name in names if name not in places]
    if absent and missing == "fail":
        lost = sum(not {pair.left, pair.right} <= places.keys() for pair in everything)
        raise DataFormatError(
            f"{root}: {len(absent):,} of {len(names):,} listed images are not there, such as {absent[0]}, which "
            f"{lost:,} of {len(everything):,} pairs need: align again with --misses centre, or leave these pairs "
            'out with missing="skip"'
        )
    gathered = gather(embedder, faces, places.values(), skip=missing == "skip", progress=progress)
    return asked.judge(
        Problem(
            data=f"{root.name}, view {view} ({', '.join(path.name for path in lists)})",
            left=np.array([gathered.rows.get(places.get(pair.left, -1), -1) for pair in everything]),
            right=np.array([gathered.rows.get(places.get(pair.right, -1), -1) for pair in everything]),
            same=np.array([pair.same for pair in everything]),
            fold=np.array([pair.fold for pair in everything]),
            held_out=np.arange(len(everything)) >= len(read[0]) if view == 1 else None,
            people=people_of(everything),
            notes=(note,) if note else (),
        ),
        gathered,
        {**dict.fromkeys(absent, "not in the set"), **gathered.unreadable},
        embedder.card,
    )


def evaluate_bin(
    embedder: Embeds,
    path: PathLike,
    *,
    rule: RuleName = "authors",
    all_rules: bool = False,
    missing: Missing = "fail",
    fars: Sequence[float] = FARS,
    rounds: int = ROUNDS,
    seed: int = 0,
    progress: Progress = silent,
) -> PairsResult:
    """Score a model on one of InsightFace's pair sets: LFW, CFP-FP, AgeDB-30, CALFW, CPLFW, RFW as `.bin` files.

    Such a file names neither folds nor people: ten folds are taken in a row, as InsightFace does, and intervals are
    Wilson's. `missing` is for images that cannot be read.
    """
    asked = Asked(rule, all_rules, missing, tuple(fars), rounds, seed)
    return _evaluate_bin(embedder, Path(path), asked, progress)


def _evaluate_bin(embedder: Embeds, path: Path, asked: Asked, progress: Progress) -> PairsResult:
    found = read_bin(path)
    if not len(found):
        raise DataFormatError(f"{path}: no pair in it")
    first: dict[bytes, int] = {}
    places = np.array([first.setdefault(image, index) for index, image in enumerate(found.images)])
    faces = BinFaces(found.images, [f"{path.name}: image {index}" for index in range(len(found.images))])
    note = require_faces(path, faces, embedder.card.preprocessing.alignment)
    gathered = gather(embedder, faces, first.values(), skip=asked.missing == "skip", progress=progress)
    rows = np.array([gathered.rows.get(place, -1) for place in places.tolist()])
    return asked.judge(
        Problem(
            data=path.name,
            left=rows[0::2],
            right=rows[1::2],
            same=np.array(found.same),
            fold=np.concatenate(
                [np.full(len(part), number) for number, part in enumerate(np.array_split(found.same, FOLDS))]
            ),
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
    """The images of a `.bin` as a set; whose they are it does not say."""

    images: Sequence[bytes]
    paths: Sequence[str]
    people: Sequence[str] = ("unknown",)

    @property
    def labels(self) -> NDArray[np.int64]:
        """One nameless person's."""
        return np.zeros(len(self.images), dtype=np.int64)

    def read(self, index: int) -> bytes:
        """The image's encoded bytes."""
        return self.images[index]


def _lists(root: Path, pairs: PathLike | tuple[PathLike, PathLike] | None, view: View) -> list[Path]:
    """The files that list the pairs: one for view 2, DevTrain and DevTest for view 1."""
    if view not in (1, 2):
        raise ValueError(f"view is {view!r}; wanted 1 (development) or 2 (reporting)")
    names = (DEV_TRAIN, DEV_TEST) if view == 1 else (PAIRS,)
    if isinstance(pairs, tuple):
        found = [Path(path) for path in pairs]
    else:
        place = Path(root if pairs is None else pairs)
        found = [place / name for name in names] if place.is_dir() else [place]
    if len(found) != len(names):
        raise ValueError(
            f"view {view} wants {' and '.join(names)}, came {', '.join(map(str, found))}; "
            "name the lists, or the folder where they lie"
        )
    absent = [str(path) for path in found if not path.is_file()]
    if absent:
        raise DataFormatError(f"{' and '.join(absent)}: no such list; name the lists, or the folder where they lie")
    return found


def _refuse_repeats(pairs: Sequence[Pair], source: str) -> None:
    """A pair that counts twice, or as same and as different, is a slip in a list."""
    seen: set[frozenset[str]] = set()
    for pair in pairs:
        both = frozenset((pair.left, pair.right))
        if both in seen:
            raise DataFormatError(f"{source}: {pair.left} and {pair.right} are listed twice; leave one out")
        seen.add(both)


def _find(names: Sequence[str], faces: FaceSet, root: Path) -> dict[str, int]:
    """The places of listed images in a set, by their names or else by those without the suffix."""
    exact = {path: place for place, path in enumerate(faces.paths)}
    stems: dict[str, list[int]] = {}
    for path, place in exact.items():
        stems.setdefault(_stem(path), []).append(place)
    found = {}
    for name in names:
        places = [exact[name]] if name in exact else stems.get(_stem(name), [])
        if len(places) > 1:
            which = " and ".join(faces.paths[place] for place in places)
            raise DataFormatError(f"{root}: {name} may be {which}; keep one of them")
        if places:
            found[name] = places[0]
    return found


def _stem(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/{name.rpartition('.')[0] or name}"


def people_of(pairs: Sequence[Pair]) -> tuple[list[str], list[str]] | None:
    """Who is left and right in each pair, by their folders; None if the folders are no people's.

    They are if same pairs, and only these, have one folder.
    """
    left, right = ([getattr(pair, side).split("/", 1)[0] for pair in pairs] for side in ("left", "right"))
    agree = all((a == b) == pair.same for a, b, pair in zip(left, right, pairs, strict=True))
    return (left, right) if agree else None
