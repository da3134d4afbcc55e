"""Teaching: a student network learns to give the features of a trained model, the teacher.

The target of a face is the teacher's feature of the image plus that of its mirror image, normalised. It is the same for
a face and its mirror image, so that the student needs the image alone. The loss is

    mean of 1 - cos(student, target)
    + similarity x mean over pairs of a batch of (cos(student_i, student_j) - cos(target_i, target_j))^2
    + labels x the classification loss of the faces that have a label.

The teacher sees the same views of the faces as the student: with targets of one view only, a student learns the faces
by heart (Beyer et al., arXiv 2106.05237). Each view of each face is embedded once, when the run first needs it.
"""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.format import open_memmap
from torch import Tensor
from torch.nn import functional as F

from sphereface import parallel
from sphereface.arrays import Float64, Int64, UInt8, unit_rows
from sphereface.embed.embedder import Embedder
from sphereface.errors import ContractMismatch, UserError
from sphereface.hashes import sha256_of
from sphereface.loading import ReadyFaces
from sphereface.loading.augment import Views
from sphereface.loading.scan import face_shape
from sphereface.loading.subset import fingerprint
from sphereface.losses import FaceLoss
from sphereface.progress import Begin, unseen
from sphereface.training.config import TeachingConfig, TrainConfig

WAY_OUT = "choose a teacher of the student's template and crop, or one of 112x112 for a student of 112x96"
PIECE = 8  # faces that a thread embeds at a time; more need more cache: 64 took 1.18 x the time


def taught_loss(
    loss: FaceLoss, features: Tensor, labels: Tensor, targets: Tensor, rule: TeachingConfig
) -> tuple[Tensor, Tensor]:
    """The loss of a student's features (B, D), and the mean cosine to the targets (B, D).

    Labels of `loss.classes` and above are those of faces without a label. With several processes each gives its share
    of the batch; pairs are those of the whole batch, and the classification loss is the mean over its labelled faces.
    """
    with torch.autocast(features.device.type, enabled=False):
        unit = F.normalize(features.float())
        agreement = (unit * targets).sum(1).mean()
        value = 1 - agreement
        if rule.similarity:
            value = value + rule.similarity * similarity_loss(*parallel.gather_batch(unit, targets))
        known = labels < loss.classes
        if rule.labels:
            mean = known.float().sum()
            own = int(mean)
            parallel.all_reduce_mean_([mean])
            if own:
                value = value + rule.labels * (own / mean) * loss(features[known], labels[known])
    return value, agreement.detach()


def similarity_loss(unit: Tensor, targets: Tensor) -> Tensor:
    """The mean squared difference of cosines over the pairs of a batch, of unit features and targets (B, D)."""
    count = len(unit)
    difference = unit @ unit.T - targets @ targets.T
    return (difference.square().sum() - difference.diagonal().square().sum()) / max(count * (count - 1), 1)


class Targets:
    """The teacher's unit features for each view of each face, in files of float16 that are filled when needed.

    A folder belongs to one teacher and one set of faces, a file in it to one view. Runs share it, also those that leave
    out different people: rows are places in the whole set, and a run fills those of its faces that are missing.
    """

    def __init__(
        self, folder: Path, teacher: str | Path, faces: ReadyFaces, views: Views, *, begin: Begin = unseen
    ) -> None:
        self.faces, self.views, self.begin = faces, views, begin
        self.teacher = Embedder.load(teacher, feature_rule="sum", threads=1)
        self.about = {
            "teacher": self.teacher.card.name,
            "sha256": self.teacher.model,
            "faces": fingerprint(faces.whole),
            "crop": faces.crop,
        }
        self.folder = folder / _key(self.about)
        self._filled: dict[int, Any] = {}

    def of(self, rows: Int64, views: Int64) -> Tensor:
        """The targets (B, D) float32 of faces of the set, each in one of its views."""
        parts = [(view, views == view) for view in np.unique(views).tolist()]
        filled = [(self.of_view(view)[self.faces.places[rows[here]]], here) for view, here in parts]
        targets = np.empty((len(rows), filled[0][0].shape[1]), np.float32)
        for values, here in filled:
            targets[here] = values
        return torch.from_numpy(unit_rows(targets).astype(np.float32))

    def of_view(self, view: int) -> Any:
        """The targets (N, D) float16 of one view, by place in the whole set; embeds missing ones of the faces."""
        if view not in self._filled:
            self._filled[view] = self._fill(view)
        return self._filled[view]

    def path(self, view: int) -> Path:
        """The file of a view."""
        return self.folder / f"view-{_key(self.views.about(view))}.npy"

    def class_means(self, classes: int) -> Tensor:
        """The unit mean target of each labelled person, (K, D), from the unchanged faces."""
        values, labels = np.asarray(self.of_view(0)[self.faces.places], np.float32), self.faces.labels
        sums = np.zeros((classes, values.shape[1]), np.float32)
        known = labels < classes
        np.add.at(sums, labels[known], unit_rows(values[known]))
        return torch.from_numpy(unit_rows(sums).astype(np.float32))

    def _fill(self, view: int) -> Any:
        """Embed the missing rows of a view, each process its share."""
        path = self.path(view)
        if parallel.rank() == 0 and not path.is_file():
            self._create(path)
        parallel.barrier()
        stored = open_memmap(path, mode="r+")
        if len(stored) != len(self.faces.whole.paths):
            raise UserError(f"{path}: {len(stored):,} rows for {len(self.faces.whole.paths):,} faces; remove it")
        places = self.faces.places
        rows = np.flatnonzero(np.isnan(stored[:, 0][places]))[parallel.rank() :: parallel.ranks()]
        progress = self.begin(f"teacher: view {view + 1} of {self.views.count}")
        pieces = [rows[start : start + PIECE] for start in range(0, len(rows), PIECE)]
        done = 0
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:  # faster than one face on all threads
            try:
                for piece, features in zip(pieces, pool.map(partial(self._embed, view=view), pieces), strict=True):
                    stored[places[piece]] = features
                    progress(done := done + len(piece), len(rows))
            finally:
                pool.shutdown(cancel_futures=True)
        stored.flush()
        parallel.barrier()
        return np.load(path, mmap_mode="r")

    def _embed(self, rows: Int64, view: int) -> Float64:
        return unit_rows(self.teacher.embed(self._view(rows, view)))

    def _view(self, rows: Int64, view: int) -> UInt8:
        faces = np.empty((len(rows), *face_shape(self.faces.crop)), np.uint8)
        for face, row in zip(faces, rows.tolist(), strict=True):
            self.faces.read_into(row, face)
            face[:] = self.views.view(face, int(self.faces.places[row]), view)
        return faces

    def _create(self, path: Path) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "about.json").write_text(json.dumps(self.about, indent=1))
        part = path.with_suffix(".part")
        empty = open_memmap(part, mode="w+", dtype=np.float16, shape=(len(self.faces.whole.paths), self._size()))
        empty[:] = np.nan
        empty.flush()
        part.replace(path)

    def _size(self) -> int:
        """The number of the teacher's features."""
        return int(self.teacher.embed(np.zeros((1, *face_shape(self.faces.crop)), np.uint8)).shape[1])


def _key(settings: dict[str, Any]) -> str:
    return sha256_of(json.dumps(settings, sort_keys=True))[:16]


def require_teachable(config: TrainConfig, teacher: str | Path) -> str:
    """The teacher's crop; raises if it cannot teach the network of a run."""
    card = Embedder.load(teacher).card
    crop: str = card.preprocessing.crop
    if card.preprocessing.template != config.template:
        raise ContractMismatch(f"{teacher}: its faces are aligned to {card.preprocessing.template}; {WAY_OUT}")
    if crop != config.crop and (crop, config.crop) != ("112x112", "112x96"):
        raise ContractMismatch(f"{teacher}: it takes faces of {crop}, the student {config.crop}; {WAY_OUT}")
    return crop


def require_sets(config: TrainConfig, unlabelled: Sequence[Path], teacher: str | Path | None) -> None:
    """Raise for settings of a run that do not fit together."""
    if unlabelled and teacher is None:
        raise UserError(
            f"unlabelled faces {unlabelled[0]}, but no teacher; they have no label to learn: give --teacher"
        )
    if config.teaching is not None and teacher is None:
        raise UserError("the recipe teaches, but there is no teacher; give --teacher")
