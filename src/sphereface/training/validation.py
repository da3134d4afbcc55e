"""Open-set validation: how well a network tells people apart whom it has never seen."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from sphereface.arrays import Bools, Float32, Float64, Int64, UInt8, unit_rows
from sphereface.choices import Missing
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
PIECE = 128  # faces that are decoded and go through the network together
ADVICE = ("; it was readable when the run began: restore it and resume",)
NEVER_SEEN, TRAINED_ON = "people never seen", "people who were trained on"

Rule = Literal["authors", "best threshold"]


class HeldOut(NamedTuple):
    """The rows of a set that are trained on, and those of people who are set aside; both ascending."""

    train: Int64
    held: Int64


def hold_out(labels: Int64, names: Sequence[str], *, people: int, seed: int = 0) -> HeldOut:
    """Set some people aside with all their photos; only those with two or more, for others make no same pair.

    The lot falls by seed and name, so it does not change with the order of a set or with the version of a library.
    """
    counts = np.bincount(labels, minlength=len(names))
    able = np.flatnonzero(counts >= 2).tolist()
    if people < 2:
        raise UserError(f"{people} people to hold out; wanted at least 2, who can be told apart")
    if people > len(able):
        raise UserError(f"{people} people to hold out; only {len(able)} have two photos: hold out fewer")
    if np.count_nonzero(counts) - people < 2:
        raise UserError(f"{people} of {np.count_nonzero(counts)} people to hold out; wanted at least 2 to learn from")
    aside = np.isin(labels, sorted(able, key=lambda person: _lot(seed, names[person]))[:people])
    return HeldOut(np.flatnonzero(~aside), np.flatnonzero(aside))


def _lot(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed}\0{name}".encode(errors="surrogateescape")).digest()  # a file name may be no text


class _Listed:
    """The images that a list names, below a root; as people they have their folders."""

    def __init__(self, root: Path, paths: Sequence[str]) -> None:
        self.root, self.paths = root, paths
        folders = [path.rpartition("/")[0] for path in paths]
        self.people = sorted(set(folders))
        place = {folder: label for label, folder in enumerate(self.people)}
        self.labels = np.array([place[folder] for folder in folders])

    def read(self, index: int) -> bytes:
        """The bytes of one file; a list may say `.jpg` where a face is `.png`."""
        path = self.root / self.paths[index]
        if not path.is_file():
            others = [other for other in map(path.with_suffix, sorted(SUFFIXES)) if other.is_file()]
            path = others[0] if len(others) == 1 else path
        return read_bytes(path)


@dataclass(frozen=True, eq=False)
class Validation:
    """The faces and pairs that every validation of a run looks at; made by `of_people` or `of_pairs`."""

    faces: FaceSet  # those in a pair, and nobody else
    people: Int64 | None  # whose each of them is; None where a list of pairs does not tell
    pairs: Pairs
    crop: str
    skipped: tuple[Unreadable, ...] = ()
    whose: str = NEVER_SEEN  # for people to read: whose faces these are

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

        Their images are looked at now. One that cannot be read is an error (`fail`), or its pairs are left out
        (`skip`); the other pairs stay what they are. Where every process of several calls it, `together`, each looks at
        its share of the images.
        """
        rows = np.arange(len(faces.labels)) if rows is None else rows
        labels = faces.labels[rows]
        drawn = draw_pairs(labels, pairs=pairs, seed=seed)
        whole = cls(Subset(faces, rows, faces.people, labels), labels, drawn, crop)._with(np.ones_like(drawn.same))
        way_out = ("mend or remove them, or leave their pairs out with ", Setting("missing", "skip"))
        return whole._looked_at(missing, workers, together, way_out)

    @classmethod
    def of_pairs(
        cls,
        pairs: Sequence[Pair],
        root: str | Path,
        *,
        crop: str = "112x96",
        workers: int = 0,
        together: bool = False,
    ) -> "Validation":
        """The pairs of a list, whose aligned faces stand below `root`; all are looked at now, and bad ones named.

        Folders count as people where no pair contradicts that. `together` is as in `of_people`.

        >>> Validation.of_pairs(read_pairs("pairs.txt"), "lfw-112x96")
        """
        paths = sorted({path for pair in pairs for path in (pair.left, pair.right)})
        place = {path: row for row, path in enumerate(paths)}
        listed = _of_either_kind(
            Pairs(
                np.array([place[pair.left] for pair in pairs], np.int64),
                np.array([place[pair.right] for pair in pairs], np.int64),
                np.array([pair.same for pair in pairs], np.bool_),
                np.array([pair.fold for pair in pairs], np.int64),
            )
        )
        faces = _Listed(Path(root), paths)
        told = ((faces.labels[listed.left] == faces.labels[listed.right]) == listed.same).all()
        whole = cls(faces, faces.labels if told else None, listed, crop)
        way_out = (f"align what is missing below {root}, or check root and endings",)
        return whole._looked_at("fail", workers, together, way_out)

    def _looked_at(self, missing: Missing, workers: int, together: bool, way_out: tuple[object, ...]) -> "Validation":
        """Leave out the pairs whose images cannot be read; or raise an error that counts and names these."""
        require_missing(missing)
        unreadable = scan(self.faces, crop=self.crop, workers=workers, together=together).unreadable
        if unreadable and missing == "fail":
            raise refusal(unreadable, f"the {len(self.faces.labels):,} images to validate on", *way_out)
        bad = {image.path for image in unreadable}
        broken = np.array([path in bad for path in self.faces.paths])
        return replace(self._with(~(broken[self.pairs.left] | broken[self.pairs.right])), skipped=unreadable)

    def _with(self, kept: Bools) -> "Validation":
        """The pairs marked in `kept`, and the faces that are in one of them."""
        left, right, same, fold = self.pairs
        pairs = _of_either_kind(Pairs(left[kept], right[kept], same[kept], fold[kept]))
        used, places = np.unique([pairs.left, pairs.right], return_inverse=True)
        new_left, new_right = places.reshape(2, -1)
        faces = Subset(self.faces, used, self.faces.people, self.faces.labels[used])
        people = None if self.people is None else self.people[used]
        return replace(self, faces=faces, people=people, pairs=pairs._replace(left=new_left, right=new_right))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the images' names and the pairs: where it agrees, two validations can be compared."""
        digest = hashlib.sha256(self.crop.encode())
        digest.update("\0".join(self.faces.paths).encode(errors="surrogateescape"))
        for column in self.pairs:
            digest.update(column.astype("<i8").tobytes())
        return digest.hexdigest()

    @cached_property
    def has_folds(self) -> bool:
        """Whether any fold can be held out: those that remain must hold pairs of both kinds."""
        folds = np.unique(self.pairs.fold)
        rests = (self.pairs.same[self.pairs.fold != fold] for fold in folds)
        return len(folds) > 1 and all(rest.any() and not rest.all() for rest in rests)

    def read(self, places: Sequence[int] | Int64) -> UInt8:
        """Some of the faces, (N, H, W, 3)."""
        return np.stack([read_face(self.faces, int(place), self.crop) for place in places])


def _of_either_kind(pairs: Pairs) -> Pairs:
    if pairs.same.all() or not pairs.same.any():
        raise UserError(f"{pairs.same.sum()} of {len(pairs.same)} pairs are the same person; wanted some of either")
    return pairs


@dataclass(frozen=True, eq=False)
class ValidationScores:
    """What a network's features are worth on some people's photos; a score is the plain cosine of a pair."""

    accuracy: float
    rule: Rule  # "authors": mean and threshold from the other folds; "best threshold": fitted to these very pairs
    tar: dict[float, float]  # by false accept rate: true accept rate; only rates that so many pairs can show
    auc: float
    fisher: float | None  # angular Fisher score, lower is better; None where it is not known who is who
    threshold: float  # the best one for these pairs
    same_scores: Float64  # in the order of the pairs
    different_scores: Float64
    whose: str = NEVER_SEEN

    def as_dict(self) -> dict[str, Any]:
        """The numbers, as a line of the log takes them."""
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
    net: nn.Module, validation: Validation, *, fars: Sequence[float] = FARS, batch: int = PIECE, workers: int = 0
) -> ValidationScores:
    """Score a network, in training or not; its mode and all random numbers are left as they were.

    It runs where the network is, in float32 also inside autocast, and holds a few batches of faces at a time.
    """
    features = embed(net, validation, batch=batch, workers=workers)
    broken = int((~np.isfinite(features).all(1)).sum())
    if broken:
        raise JobFailed(
            f"{broken:,} of {len(features):,} features are not finite: the network has diverged; "
            "go back to an earlier checkpoint"
        )
    return score(features, validation, fars=fars)


def score(features: Float32, validation: Validation, *, fars: Sequence[float] = FARS) -> ValidationScores:
    """What features (N, D) of a validation's images say about its pairs."""
    left, right, same, fold = validation.pairs
    unit = unit_rows(features)
    scores = (unit[left] * unit[right]).sum(1)
    threshold = best_threshold(same, scores)
    rule: Rule = "authors" if validation.has_folds else "best threshold"
    if rule == "authors":
        accuracy = verify_folds(features[left], features[right], same, fold, rule=rule).accuracy
    else:
        accuracy = float(np.where(same, scores > threshold, scores < threshold).mean())
    different = int((~same).sum())
    return ValidationScores(
        accuracy,
        rule,
        {far: tar_at_far(same, scores, far=far) for far in fars if far * different >= 1},
        auc(same, scores),
        _fisher(features, validation.people),
        threshold,
        scores[same],
        scores[~same],
        validation.whose,
    )


def _fisher(features: Float32, people: Int64 | None) -> float | None:
    if people is None or len(np.unique(people)) < 2:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):  # where all features point one way, nothing is between people
        fisher = angular_fisher_score(features, people)
    return fisher if math.isfinite(fisher) else None


def embed(net: nn.Module, validation: Validation, *, batch: int = PIECE, workers: int = 0) -> Float32:
    """Features of a validation's images, each with that of its mirror image beside it, (N, 2 D), not normalised."""
    net = unwrapped(net)  # inside DistributedDataParallel a forward pass would wait for the other processes
    device = next(net.parameters()).device
    pieces = _Pieces(validation, batch)
    embedder = Embedder(partial(run_network, net), Card(preprocessing=Preprocessing(crop=validation.crop)))
    features = []
    helpers = Workers(workers, give_way=device.type == "cpu")
    with evaluating(net, device), closing(helpers.run(pieces, range(len(pieces)))) as loaded:
        for pixels in loaded:
            features.append(embedder.embed_batch(pixels.numpy()))
    return np.concatenate(features)


@contextmanager
def evaluating(net: nn.Module, device: torch.device) -> Iterator[None]:
    """No gradients, no autocast, evaluation mode; then every module has its own mode back: what was frozen stays so."""
    modes = [(module, module.training) for module in net.modules()]
    net.eval()
    try:
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        for module, training in modes:
            module.training = training


class _Pieces(Dataset[Tensor]):
    """A validation's faces, some at a time: (B, H, W, 3) uint8."""

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
    """The pairs that went most wrong, left and right face in turn, (2 n, H, W, 3)."""

    same: UInt8  # one person, least alike first
    different: UInt8  # two people, most alike first


def hardest(validation: Validation, scores: ValidationScores, *, count: int = 8) -> Hardest:
    """The same pairs that score lowest and the different ones that score highest, to look at."""
    same, different = np.flatnonzero(validation.pairs.same), np.flatnonzero(~validation.pairs.same)
    low = same[np.argsort(scores.same_scores, kind="stable")[:count]]
    high = different[np.argsort(-scores.different_scores, kind="stable")[:count]]
    left, right = validation.pairs.left, validation.pairs.right
    return Hardest(*(validation.read(np.stack([left[some], right[some]], 1).ravel()) for some in (low, high)))
