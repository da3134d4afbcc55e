"""Your own people: any set of faces with names as a test, without a list of pairs.

- **Verification**: equal numbers of same and different pairs, drawn by seed in ten folds without common people, judged
  by one of the rules of `verification.py`, as LFW's are.
- **Identification**: some photos of each person are enrolled, the others are probes; closed set and open set, in
  `identification.py`.
- **Hardest pairs**: the least alike of one person and the most alike of two, among all pairs of the set, as pictures:
  wrong labels are likely to appear there.
- **Groups**: with a table, error rates of groups of people, in `groups.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np

from sphereface.arrays import UInt8, unit_rows
from sphereface.choices import Small
from sphereface.data.files.writing import whole_file
from sphereface.data.formats.sets import open_set
from sphereface.data.lists.attributes import read_attributes
from sphereface.data.reading import read_face
from sphereface.embed.store import FeatureStore
from sphereface.errors import DataFormatError, Setting, UserError
from sphereface.evaluation.groups.compare import FMR, groups_of_set
from sphereface.evaluation.groups.result import GroupReport
from sphereface.evaluation.rules.drawn_pairs import FOLDS, PAIRS, draw_pairs
from sphereface.evaluation.rules.identification import FPIRS, RANKS, SPLITS, Identification, identify
from sphereface.evaluation.rules.pairs import Asked, PairOptions, PairsResult, Problem
from sphereface.evaluation.sources import Embeds, WholeSet, embed_whole
from sphereface.metrics.impostors import highest_different, same_pairs, scores_of
from sphereface.metrics.rates import ROUNDS
from sphereface.progress import Progress, silent
from sphereface.reports.figures import Picture, contact_sheet

HARDEST = 12  # pairs of either kind
COLUMNS = 4  # pairs in a row of the picture
STRIP = 18  # pixels below a pair, for its score


class HardPair(NamedTuple):
    """Two images and the cosine of their features."""

    left: str
    right: str
    same: bool  # True for one person
    score: float


@dataclass(frozen=True)
class FolderResult:
    """Numbers of a model on your own people."""

    verification: PairsResult
    identification: Identification
    hardest: tuple[HardPair, ...]  # same pairs, the least alike first; then different ones, the most alike first
    groups: GroupReport | None = None
    faces: Path | None = None  # the set of faces; None if only features were given

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **self.verification.as_dict(),
            "identification": self.identification.as_dict(),
            "hardest": [pair._asdict() for pair in self.hardest],
            "groups": None if self.groups is None else self.groups.as_dict(),
        }

    def table(self) -> str:
        """The result as plain text."""
        hard = [
            f"{'same' if pair.same else 'different'}  {pair.score:+.4f}  {pair.left}  {pair.right}"
            for pair in self.hardest
        ]
        parts = [self.verification.table(), self.identification.table()]
        parts += ["\n".join(["hardest pairs (cosine)", *hard])] if hard else []
        parts += [] if self.groups is None else [self.groups.table()]
        return "\n\n".join(parts)


def evaluate_folder(
    source: Embeds | FeatureStore,
    faces: str | Path | None = None,
    *,
    pairs: int = PAIRS,
    folds: int = FOLDS,
    seed: int = 0,
    gallery_photos: int = 1,
    fpirs: Sequence[float] = FPIRS,
    ranks: int = RANKS,
    splits: int = SPLITS,
    hardest: int = HARDEST,
    groups: str | Path | None = None,
    far: float = FMR,
    threshold: float | None = None,
    aligned: str | Path | None = None,
    small: Small = "refuse",
    rounds: int = ROUNDS,
    progress: Progress = silent,
    **options: Unpack[PairOptions],
) -> FolderResult:
    """Test a model on a set of named people: aligned faces in any format, or the features that `embed` stored of them.

    At most `pairs` of either kind are drawn. `options` are those of `PairOptions`: `rule`, `all_rules`, `missing`,
    `fars`. With `groups`, a CSV for `evaluate_groups`, groups are compared; `far`, `threshold`, `aligned` and `small`
    are its options.

    >>> result = evaluate_folder(Embedder.load("model.onnx"), "my-people-112x96")
    >>> print(result.table())
    """
    asked = Asked(rounds=rounds, seed=seed, **options)
    table = None if groups is None else read_attributes(groups)
    whole = embed_whole(source, faces, missing=asked.missing, progress=progress)
    report = None
    if table is not None:  # first: an unsuitable table is refused before the long part
        report = groups_of_set(
            whole, table, far=far, threshold=threshold, aligned=aligned, small=small, missing=asked.missing,
            rounds=rounds, seed=seed,
        )  # fmt: skip
    return FolderResult(
        verification=_verify(whole, asked, pairs, folds),
        identification=identify(
            whole.features, whole.labels, gallery_photos=gallery_photos, fpirs=fpirs, ranks=ranks, splits=splits,
            rounds=rounds, seed=seed,
        ),
        hardest=hardest_pairs(whole, hardest),
        groups=report,
        faces=None if faces is None else Path(faces),
    )  # fmt: skip


def _verify(whole: WholeSet, asked: Asked, pairs: int, folds: int) -> PairsResult:
    left, right, same, fold = draw_pairs(whole.labels, pairs=pairs, folds=folds, seed=asked.seed)
    made = len(np.unique(fold))
    if made < 2 and asked.holds_out:
        raise UserError(
            f"{whole.data}: pairs of {len(np.unique(whole.labels))} people make {made} fold, so that none can be held "
            "out; wanted at least 4 people, or ",
            Setting("rule", "best"),
        )
    lacking = "pairs" if pairs < folds else "people"
    few = () if made == folds else (f"{made} folds instead of {folds}: there are too few {lacking}",)
    people = np.array(whole.people)[whole.labels]
    problem = Problem(
        data=f"{whole.data}, pairs drawn with seed {asked.seed}",
        left=left,
        right=right,
        same=same,
        fold=fold,
        held_out=None,
        people=(people[left].tolist(), people[right].tolist()),
        notes=(*whole.notes, *few),
    )
    return asked.judge(problem, whole.gathered, whole.unreadable, whole.card)


def hardest_pairs(whole: WholeSet, count: int = HARDEST) -> tuple[HardPair, ...]:
    """The least alike pairs of one person, then the most alike of two, among all pairs, by plain cosines."""
    left, right = same_pairs(whole.labels)
    scores = scores_of(unit_rows(whole.features, dtype=np.float32), left, right)
    least = np.lexsort((right, left, scores))[:count]
    most = highest_different(whole.features, whole.labels, most=count)
    rows = [(left[k], right[k], True, scores[k]) for k in least]
    rows += [(a, b, False, score) for score, a, b in zip(most.scores, most.left, most.right, strict=True)]
    return tuple(HardPair(whole.paths[a], whole.paths[b], same, float(score)) for a, b, same, score in rows)


def write_hardest(pairs: Sequence[HardPair], faces: str | Path, target: str | Path) -> Path:
    """Write hard pairs as one picture (PNG), as `draw_hardest` draws them."""
    picture = draw_hardest(pairs, faces)
    target = Path(target)
    with whole_file(target) as file:
        file.write(picture.light)
    return target


def draw_hardest(pairs: Sequence[HardPair], faces: str | Path, *, says: str = "the hardest pairs") -> Picture:
    """Hard pairs as one picture: two faces side by side, below them "same" or "different" and the cosine.

    `faces` is the set that holds the pairs' paths.
    """
    if not pairs:
        raise UserError("no pair to draw; wanted at least 1")
    found = open_set(faces)
    places = {path: place for place, path in enumerate(found.paths)}
    unknown = [path for pair in pairs for path in (pair.left, pair.right) if path not in places]
    if unknown:
        raise DataFormatError(f"{faces}: {unknown[0]} is not in it; name the set of the pairs")
    read = {path: read_face(found, places[path], None) for pair in pairs for path in pair[:2]}
    sizes = {face.shape for face in read.values()}
    if len(sizes) > 1:
        raise DataFormatError(f"{faces}: faces of sizes {sorted(sizes)}; wanted aligned ones, all of one size")
    tiles = np.stack([_tile(read[pair.left], read[pair.right], pair) for pair in pairs])
    return contact_sheet(tiles, COLUMNS, says=says)


def _tile(left: UInt8, right: UInt8, pair: HardPair) -> UInt8:
    """Two faces, framed, with a strip below: green for one person, red for two."""
    import cv2

    both = np.hstack([left, right])
    colour = (222, 240, 222) if pair.same else (250, 222, 222)
    strip = np.full((STRIP, both.shape[1], 3), colour, np.uint8)
    words = f"{'same' if pair.same else 'different'} {pair.score:+.3f}"
    cv2.putText(strip, words, (4, STRIP - 5), cv2.FONT_HERSHEY_SIMPLEX, 0.45, (20, 20, 20), 1, cv2.LINE_AA)
    return np.pad(np.vstack([both, strip]), ((2, 2), (2, 2), (0, 0)), constant_values=255)
