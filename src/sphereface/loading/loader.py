"""Batches of faces for training: the same for a seed and a step, for any number of workers and any resumption."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import islice, starmap
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from sphereface import parallel
from sphereface.arrays import Int64, UInt8
from sphereface.data.reading import NAMED, Skipping, Unreadable
from sphereface.errors import Setting, UnreadableImage, UserError
from sphereface.faces.warp import as_crop
from sphereface.loading.augment import Views
from sphereface.loading.ready import ReadyFaces
from sphereface.loading.samplers import Sampler, mirrored, shard
from sphereface.loading.scan import face_shape
from sphereface.loading.subset import fingerprint
from sphereface.loading.workers import START_METHOD, StartMethod, Workers

EMPTY: Int64 = np.zeros(0, np.int64)
ADVICE = "; it was readable when the run began: restore it and resume, or continue with ", Setting("missing", "skip")


class Batch(NamedTuple):
    """The input of one training step."""

    step: int  # the first is 0
    images: Tensor  # (B, 3, H, W) uint8, channels last
    labels: Tensor  # (B,) int64
    rows: Int64 = EMPTY  # (B,) places of the faces in the set
    views: Int64 = EMPTY  # (B,) numbers of their views, if the faces are augmented


class Replaced(NamedTuple):
    """The number of unreadable faces in batches that others replaced, and some of their files."""

    places: int = 0
    files: tuple[Unreadable, ...] = ()

    def __str__(self) -> str:
        named = ", ".join(f"{path} ({reason})" for path, reason in self.files)
        return f"{self.places:,} faces of batches were replaced by others: files broke since the start, such as {named}"

    def as_dict(self) -> dict[str, Any]:
        """The fields for the log; empty if no face was replaced."""
        return {"replaced": self.places, "broken_later": dict(self.files)} if self.places else {}


class FaceLoader:
    """Batches from one step to the end of a run; iterating again continues with the next undelivered batch.

    With several `ranks`, each gets its share of the same global batch. `views` changes faces at random, before they are
    cut to `crop`, which may be narrower than that of the faces. If a file becomes unreadable after `prepare`, the run
    ends with an error that names it (`fail`), or the next readable face of the batch replaces it (`skip`):
    `broken_later` lists such files, `replaced` counts the replaced faces.

    >>> faces = prepare(PeopleFolder("faces/train"))
    >>> for batch in FaceLoader(faces, Shuffled(len(faces), batch=64, seed=1), steps=1000, workers=2): ...
    """

    def __init__(
        self,
        faces: ReadyFaces,
        sampler: Sampler,
        *,
        steps: int,
        start: int = 0,
        mirror: bool = True,
        views: Views | None = None,
        crop: str | None = None,
        workers: int = 0,
        start_method: StartMethod = START_METHOD,
        prefetch: int = 4,
        rank: int = 0,
        ranks: int = 1,
        device: str | torch.device = "cpu",
    ) -> None:
        if sampler.count != len(faces):
            raise UserError(f"the sampler draws from {sampler.count:,} faces; wanted the {len(faces):,} that are ready")
        if start < 0 or steps < 0:
            raise UserError(f"start is {start}, steps is {steps}; wanted at least 0")
        self.device = torch.device(device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise UserError(f"device is {device}; torch finds no CUDA device: use cpu")
        self.faces, self.steps, self.step = faces, steps, start
        self.broken_later: dict[str, str] = {}  # path: reason
        self.replaced = 0
        self._batches = _Batches(faces, sampler, mirror=mirror, views=views, crop=crop, rank=rank, ranks=ranks)
        self._workers = Workers(workers, start_method, prefetch, give_way=self.device.type == "cpu")

    def __iter__(self) -> Iterator[Batch]:
        if self._workers.count and self._workers.start_method == "spawn":
            self.faces.share()
        pin = self.device.type == "cuda"
        with closing(self._workers.run(self._batches, range(self.step, self.steps), pin=pin)) as loaded:
            for step, pixels, labels, rows, views, broken in loaded:
                self._note(step, broken, len(labels))
                self.step = step + 1
                images = pixels.to(self.device, non_blocking=True).permute(0, 3, 1, 2)
                yield Batch(step, images, labels.to(self.device, non_blocking=True), rows.numpy(), views.numpy())

    def state_dict(self) -> dict[str, int | str]:
        """The next undelivered step, and the settings that a resumed run must share."""
        return {"step": self.step, **self._batches.settings()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a saved run stopped; data or settings that give other batches are an error."""
        settings = self._batches.settings().items()
        changed = [f"{name} was {state.get(name)!r}, is {now!r}" for name, now in settings if state.get(name) != now]
        if changed:
            raise UserError(
                f"the batches would not be those of the saved run: {'; '.join(changed)}; restore what changed "
                "(an image that broke since stays in the order if `prepare` gets the saved scan as `known`)"
            )
        self.step = int(state["step"])

    def replaced_in_all(self) -> Replaced:
        """The replacements so far in all processes; each of them must call this."""
        parts = parallel.gather_json([self.replaced, list(islice(self.broken_later.items(), NAMED))])
        files = {path: reason for _, broken in parts for path, reason in broken}
        return Replaced(sum(places for places, _ in parts), tuple(islice(starmap(Unreadable, files.items()), NAMED)))

    def _note(self, step: int, broken: tuple[Unreadable, ...], size: int) -> None:
        if broken and len(broken) == size:
            path, reason = broken[0]
            advice = f"all {size} faces of step {step} are unreadable: restore their disk and resume"
            raise UnreadableImage(path, f"{reason}; {advice}")
        self.replaced += len(broken)
        self.broken_later.update(broken)


class _Loaded(NamedTuple):
    """A batch as a worker sends it."""

    step: int
    pixels: Tensor  # (B, H, W, 3)
    labels: Tensor
    rows: Tensor
    views: Tensor
    broken: tuple[Unreadable, ...]


class _Batches(Dataset[_Loaded]):
    """One rank's batches by step."""

    def __init__(
        self,
        faces: ReadyFaces,
        sampler: Sampler,
        *,
        mirror: bool,
        views: Views | None,
        crop: str | None,
        rank: int,
        ranks: int,
    ) -> None:
        self.faces, self.sampler, self.mirror, self.rank, self.ranks = faces, sampler, mirror, rank, ranks
        self.views, self.crop = views, crop or faces.crop
        shard(sampler.indices(0), rank, ranks)  # an error for uneven shares here, before the workers start

    def settings(self) -> dict[str, int | str]:
        """The settings that determine the batches."""
        faces = {"crop": self.crop, "fingerprint": self.faces.fingerprint}
        views = {**self.views.settings(), "whole": fingerprint(self.faces.whole)} if self.views else {}
        return {**self.sampler.settings(), "mirror": self.mirror, **faces, **views}

    def __getitem__(self, step: int) -> _Loaded:
        chosen = shard(self.sampler.indices(step), self.rank, self.ranks).copy()
        pixels = torch.empty((len(chosen), *face_shape(self.faces.crop)), dtype=torch.uint8)
        rows, skipping = pixels.numpy(), Skipping(self.faces.missing, ADVICE)
        for place, index in enumerate(chosen):
            with skipping.reading(place):
                self.faces.read_into(int(index), rows[place])
        for place, stand_in in _stand_ins(set(skipping.unreadable), len(chosen)).items():
            rows[place], chosen[place] = rows[stand_in], chosen[stand_in]
        numbers = (
            np.zeros(len(chosen), np.int64) if self.views is None else self._change(rows, chosen, step, self.views)
        )
        if self.crop != self.faces.crop:
            pixels = torch.from_numpy(np.stack([as_crop(face, self.crop) for face in rows]))
            rows = pixels.numpy()
        if self.mirror:
            flips = shard(mirrored(self.sampler.seed, step, self.sampler.batch), self.rank, self.ranks)
            for place in np.flatnonzero(flips).tolist():
                rows[place] = cv2.flip(rows[place], 1)
        labels = torch.from_numpy(self.faces.labels[chosen])
        found = tuple(skipping.unreadable.values())
        return _Loaded(step, pixels, labels, torch.from_numpy(chosen), torch.from_numpy(numbers), found)

    def _change(self, rows: UInt8, chosen: Int64, step: int, views: Views) -> Int64:
        """Change the faces (B, H, W, 3) in place; returns the numbers of their views."""
        places = step * self.sampler.batch + shard(np.arange(self.sampler.batch), self.rank, self.ranks)
        numbers = [views.number(int(place), self.sampler.count) for place in places]
        origins = self.faces.places[chosen].tolist()
        for row, origin, number, place in zip(rows, origins, numbers, places.tolist(), strict=True):
            row[:] = views.lose_detail(views.view(row, origin, number), place)
        return np.array(numbers, np.int64)


def _stand_ins(broken: set[int], size: int) -> dict[int, int]:
    """The next readable place, cyclically, for each broken place of a batch; empty if all are broken."""
    whole = [place for place in range(size) if place not in broken]
    return {place: min(whole, key=lambda other: (other - place) % size) for place in broken} if whole else {}
