"""Open-set validation: how well a network tells people apart that are not in its training set."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from sphereface.arrays import Bools, Float32, Float64, Int64, UInt8, unit_rows
from sphereface.choices import FeatureRule, Missing, PairRule
from sphereface.contract import Card, Preprocessing
from sphereface.data.lists.pairs import Pair
from sphereface.data.people import SUFFIXES, FaceSet
from sphereface.data.reading import Skipping, Unreadable, read_face, refusal, require_missing
from sphereface.embed.embedder import Embedder
from sphereface.engines.torch import run_network
from sphereface.errors import JobFailed, Setting, UserError
from sphereface.evaluation import verify_folds
from sphereface.evaluation.rules.drawn_pairs import PAIRS, Pairs, draw_pairs
from sphereface.faces.images import read_bytes
from sphereface.loading.scan import face_shape, scan
from sphereface.loading.subset import Subset
from sphereface.loading.workers import Workers
from sphereface.metrics import angular_fisher_score, auc, best_threshold, tar_at_far
from sphereface.models.files import unwrapped

FARS = (1e-1, 1e-2, 1e-3)
PIECE = 128  # faces of one batch through the network
ADVICE = ("; it was readable at the start of the run: restore it and resume",)
NEVER_SEEN, TRAINED_ON = "people never seen", "people who were trained on"


class HeldOut(NamedTuple):
    """The rows of a set to train on, and those of held-out people; both ascending."""

    train: Int64
    held: Int64


def hold_out(labels: Int64, names: Sequence[str], *, people: int, seed: int = 0) -> HeldOut:
    """Hold out some people with all their photos; only people with two or more, because a same pair needs two.

    People are ordered by a hash of seed and name, so the choice is independent of the set's order and of libraries.
    """
    counts = np.bincount(labels, minlength=len(names))
    eligible = np.flatnonzero(counts >= 2).tolist()
    if people < 2:
        raise UserError(f"{people} people to hold out; wanted at least 2, for pairs of different people")
    if people > len(eligible):
        raise UserError(f"{people} people to hold out; only {len(eligible)} have two photos: hold out fewer")
    if np.count_nonzero(counts) - people < 2:
        raise UserError(f"{people} of {np.count_nonzero(counts)} people to hold out; wanted at least 2 to learn from")
    held = np.isin(labels, sorted(eligible, key=lambda person: _hash(seed, names[person]))[:people])
    return HeldOut(np.flatnonzero(~held), np.flatnonzero(held))


def _hash(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed}\0{name}".encode(errors="surrogateescape")).digest()  # names may be invalid UTF-8


class _Listed:
    """The images that a list names, below the folder `faces`; a person is a folder of them."""

    def __init__(self, faces: Path, paths: Sequence[str]) -> None:
        self.faces, self.paths = faces, paths
        folders = [path.rpartition("/")[0] for path in paths]
        self.people = sorted(set(folders))
        place = {folder: label for label, folder in enumerate(self.people)}
        self.labels = np.array([place[folder] for folder in folders])

    def read(self, index: int) -> bytes:
        """The bytes of one file; a list may name `.jpg` where the face is `.png`."""
        path = self.faces / self.paths[index]
        if not path.is_file():
            others = [other for other in map(path.with_suffix, sorted(SUFFIXES)) if other.is_file()]
            path = others[0] if len(others) == 1 else path
        return read_bytes(path)


@dataclass(frozen=True, eq=False)
class Validation:
    """The faces and pairs of every validation of a run; made by `of_people` or `of_pairs`."""

    faces: FaceSet  # exactly those that are in a pair
    people: Int64 | None  # the label of each face; None where a list of pairs does not define people
    pairs: Pairs
    crop: str
    skipped: tuple[Unreadable, ...] = ()
    whose: str = NEVER_SEEN  # a description of the people, for reports

    @classmethod
    def of_people(
        cls,
        faces: FaceSet,
        rows: Int64 | None = None,
        *,
        pairs: int = PAIRS,
        seed: int = 0,
        crop: str = "112x96",
        missing: Missing = "fail",
        workers: int = 0,
        together: bool = False,
    ) -> "Validation":
        """Balanced pairs, at most `pairs` of either kind, from the images at some rows of a set, or from all of it.

        All images are read now. One that cannot be read is an error (`fail`), or its pairs are left out (`skip`); the
        other pairs stay the same. With `together` every process calls this, and each reads its share of the images.
        """
        rows = np.arange(len(faces.labels)) if rows is None else rows
        labels = faces.labels[rows]
        drawn = draw_pairs(labels, pairs=pairs, seed=seed)
        whole = cls(Subset(faces, rows, faces.people, labels), labels, drawn, crop)._with(np.ones_like(drawn.same))
        way_out = ("repair or remove them, or leave their pairs out with ", Setting("missing", "skip"))
        return whole._checked(missing, workers, together, way_out)

    @classmethod
    def of_pairs(
        cls, pairs: Sequence[Pair], faces: str | Path, *, crop: str = "112x96", workers: int = 0, together: bool = False
    ) -> "Validation":
        """The pairs of a list with their aligned faces below `faces`; all are read now, and an error names bad ones.

        Folders count as people unless a pair contradicts that. `together` is as in `of_people`.

        >>> Validation.of_pairs(read_pairs("pairs.txt"), "lfw-112x96")
        """
        paths = sorted({path for pair in pairs for path in (pair.left, pair.right)})
        place = {path: row for row, path in enumerate(paths)}
        rows = [(place[pair.left], place[pair.right], pair.same, pair.fold) for pair in pairs]
        left, right, same, fold = np.array(rows, np.int64).reshape(-1, 4).T
        listed = _of_either_kind(Pairs(left, right, same.astype(np.bool_), fold))
        images = _Listed(Path(faces), paths)
        consistent = ((images.labels[listed.left] == images.labels[listed.right]) == listed.same).all()
        whole = cls(images, images.labels if consistent else None, listed, crop)
        way_out = (f"align the missing images into {faces}, or check that folder and the file endings",)
        return whole._checked("fail", workers, together, way_out)

    def _checked(self, missing: Missing, workers: int, together: bool, way_out: tuple[object, ...]) -> "Validation":
        """Leave out pairs with an unreadable image, or raise an error that counts and names these images."""
        require_missing(missing)
        unreadable = scan(self.faces, crop=self.crop, workers=workers, together=together).unreadable
        if unreadable and missing == "fail":
            raise refusal(unreadable, f"the {len(self.faces.labels):,} images to validate on", *way_out)
        bad = {image.path for image in unreadable}
        broken = np.array([path in bad for path in self.faces.paths])
        return replace(self._with(~(broken[self.pairs.left] | broken[self.pairs.right])), skipped=unreadable)

    def _with(self, kept: Bools) -> "Validation":
        """The pairs marked in `kept`, with their faces."""
        left, right, same, fold = self.pairs
        pairs = _of_either_kind(Pairs(left[kept], right[kept], same[kept], fold[kept]))
        used, places = np.unique([pairs.left, pairs.right], return_inverse=True)
        new_left, new_right = places.reshape(2, -1)
        faces = Subset(self.faces, used, self.faces.people, self.faces.labels[used])
        people = None if self.people is None else self.people[used]
        return replace(self, faces=faces, people=people, pairs=pairs._replace(left=new_left, right=new_right))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the images' names and the pairs: validations with the same one can be compared."""
        digest = hashlib.sha256(self.crop.encode())
        digest.update("\0".join(self.faces.paths).encode(errors="surrogateescape"))
        for column in self.pairs:
            digest.update(column.astype("<i8").tobytes())
        return digest.hexdigest()

    @cached_property
    def has_folds(self) -> bool:
        """True if every fold can be held out: the others must have pairs of both kinds."""
        folds = np.unique(self.pairs.fold)
        rests = (self.pairs.same[self.pairs.fold != fold] for fold in folds)
        return len(folds) > 1 and all(rest.any() and not rest.all() for rest in rests)

    def read(self, places: Sequence[int] | Int64) -> UInt8:
        """The faces at some places, (N, H, W, 3)."""
        return np.stack([read_face(self.faces, int(place), self.crop) for place in places])


def _of_either_kind(pairs: Pairs) -> Pairs:
    if pairs.same.all() or not pairs.same.any():
        raise UserError(f"{pairs.same.sum()} of {len(pairs.same)} pairs are the same person; wanted both kinds")
    return pairs


@dataclass(frozen=True, eq=False)
class ValidationScores:
    """Measures of a network's features on the pairs of a validation; a score is the plain cosine of a pair."""

    accuracy: float
    rule: PairRule  # "authors": mean and threshold from the other folds; "best": fitted to these very pairs
    tar: dict[float, float]  # false accept rate -> true accept rate; only rates of at least one pair
    auc: float
    fisher: float | None  # angular Fisher score, lower is better; None where people are unknown
    threshold: float  # the best one for these pairs
    same_scores: Float64  # in the order of the pairs
    different_scores: Float64
    whose: str = NEVER_SEEN

    def as_dict(self) -> dict[str, Any]:
        """The measures for a line of the log."""
        return {
            "accuracy": self.accuracy,
            "rule": self.rule,
            "tar": {f"{far:g}": tar for far, tar in self.tar.items()},
            "auc": self.auc,
            "fisher": self.fisher,
            "threshold": self.threshold,
            "same": len(self.same_scores),
            "different": len(self.different_scores),
            "whose": self.whose,
        }


def validate(
    net: nn.Module,
    validation: Validation,
    *,
    fars: Sequence[float] = FARS,
    batch: int = PIECE,
    workers: int = 0,
    feature_rule: FeatureRule = "concatenate",
) -> ValidationScores:
    """Score a network; its training mode and all random numbers stay as they were.

    It runs on the network's device, in float32 also inside autocast, with a few batches of faces in memory.
    """
    features = embed(net, validation, batch=batch, workers=workers, feature_rule=feature_rule)
    broken = int((~np.isfinite(features).all(1)).sum())
    if broken:
        raise JobFailed(
            f"{broken:,} of {len(features):,} features are not finite: the network has diverged; "
            "go back to an earlier checkpoint"
        )
    return score(features, validation, fars=fars)


def score(features: Float32, validation: Validation, *, fars: Sequence[float] = FARS) -> ValidationScores:
    """Score a validation's pairs by the features (N, D) of its images."""
    left, right, same, fold = validation.pairs
    unit = unit_rows(features)
    scores = (unit[left] * unit[right]).sum(1)
    threshold = best_threshold(same, scores)
    rule: PairRule = "authors" if validation.has_folds else "best"
    if rule == "authors":
        accuracy = verify_folds(features[left], features[right], same, fold, rule=rule).accuracy
    else:
        accuracy = float(np.where(same, scores > threshold, scores < threshold).mean())
    different = int((~same).sum())
    tar = {far: tar_at_far(same, scores, far=far) for far in fars if far * different >= 1}
    area, fisher = auc(same, scores), _fisher(features, validation.people)
    return ValidationScores(accuracy, rule, tar, area, fisher, threshold, scores[same], scores[~same], validation.whose)


def _fisher(features: Float32, people: Int64 | None) -> float | None:
    if people is None or len(np.unique(people)) < 2:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):  # without scatter between people
        fisher = angular_fisher_score(features, people)
    return fisher if math.isfinite(fisher) else None


def embed(
    net: nn.Module,
    validation: Validation,
    *,
    batch: int = PIECE,
    workers: int = 0,
    feature_rule: FeatureRule = "concatenate",
) -> Float32:
    """Features of a validation's images, not normalised: by default with those of their mirror images, (N, 2 D)."""
    net = unwrapped(net)  # inside DistributedDataParallel a forward pass would wait for the other processes
    device = next(net.parameters()).device
    pieces = _Pieces(validation, batch)
    embedder = Embedder(
        partial(run_network, net), Card(preprocessing=Preprocessing(crop=validation.crop), feature_rule=feature_rule)
    )
    helpers = Workers(workers, give_way=device.type == "cpu")
    with evaluating(net, device), closing(helpers.run(pieces, range(len(pieces)))) as loaded:
        return np.concatenate([embedder.embed_batch(pixels.numpy()) for pixels in loaded])


@contextmanager
def evaluating(net: nn.Module, device: torch.device) -> Iterator[None]:
    """No gradients, no autocast, evaluation mode; afterwards every module has its own mode back, frozen ones too."""
    modes = [(module, module.training) for module in net.modules()]
    net.eval()
    try:
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        for module, training in modes:
            module.training = training


class _Pieces(Dataset[Tensor]):
    """A validation's faces in batches: (B, H, W, 3) uint8."""

    def __init__(self, validation: Validation, size: int) -> None:
        if size < 1:
            raise UserError(f"batch is {size}; wanted at least 1")
        self.validation, self.size = validation, size

    def __len__(self) -> int:
        return -(-len(self.validation.faces.labels) // self.size)

    def __getitem__(self, number: int) -> Tensor:
        faces, crop = self.validation.faces, self.validation.crop
        places = range(number * self.size, min((number + 1) * self.size, len(faces.labels)))
        pixels = torch.empty((len(places), *face_shape(crop)), dtype=torch.uint8)
        skipping = Skipping("fail", ADVICE)
        for row, place in enumerate(places):
            with skipping.reading(row):
                pixels.numpy()[row] = read_face(faces, place, crop)
        return pixels


class Hardest(NamedTuple):
    """The pairs with the largest errors, left and right face in turn, (2 n, H, W, 3)."""

    same: UInt8  # one person, least alike first
    different: UInt8  # two people, most alike first


def hardest(validation: Validation, scores: ValidationScores, *, count: int = 8) -> Hardest:
    """The faces of the same pairs with the lowest scores and of the different pairs with the highest."""
    same, different = np.flatnonzero(validation.pairs.same), np.flatnonzero(~validation.pairs.same)
    low = same[np.argsort(scores.same_scores, kind="stable")[:count]]
    high = different[np.argsort(-scores.different_scores, kind="stable")[:count]]
    left, right = validation.pairs.left, validation.pairs.right
    return Hardest(*(validation.read(np.stack([left[some], right[some]], 1).ravel()) for some in (low, high)))
