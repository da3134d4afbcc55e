"""Synthetic people: any number of drawn faces, the same on every machine.

A face depends on (version, seed, person, photo) only, and on neither the order of drawing nor the number of processes.
Every fourth person resembles the one before. The difficulty was tuned with softmax alone
(docs/how-it-works/synthetic.md) and is fixed by VERSION: a change of any pixel needs a new version.
"""

import json
import math
import shutil
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np

from sphereface import __version__
from sphereface.arrays import Float64, Image, Int64
from sphereface.choices import Age, Skin
from sphereface.data.files.workers import mapping
from sphereface.data.manifest import SetManifest, write_manifest
from sphereface.data.synthetic.portrait import draw
from sphereface.data.synthetic.traits import Shot, Traits
from sphereface.errors import UserError
from sphereface.progress import Progress, silent

VERSION = 1

SKIN: dict[Skin, tuple[float, float]] = {"light": (0.0, 0.3), "medium": (0.35, 0.65), "dark": (0.7, 1.0)}
AGE: dict[Age, tuple[float, float]] = {"young": (0.0, 0.3), "middle": (0.35, 0.6), "old": (0.65, 1.0)}
LIKENESS = 0.85  # correlation of a person's traits with the resembled person's

SIGNATURE = "synthetic.json"  # the population of a folder
# Noise in the pixels defeats all but the simplest compression.
PNG = [cv2.IMWRITE_PNG_COMPRESSION, 1, cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_HUFFMAN_ONLY]
JPEG = [cv2.IMWRITE_JPEG_QUALITY, 95]


@dataclass(frozen=True)
class SyntheticPeople:
    """A population: `person(i)` are its traits, `face(i, j)` is a photo of them.

    `skin` and `age` restrict it to a group; None draws both over their whole range.
    """

    seed: int = 0
    skin: Skin | None = None
    age: Age | None = None

    @lru_cache(maxsize=4096)  # noqa: B019 - a population is three numbers, and a person's photos are drawn in a row
    def person(self, number: int) -> Traits:
        """The traits of one person."""
        values = self._vector(number)
        if number % 4 == 3:
            values = LIKENESS * self._vector(number - 1) + math.sqrt(1 - LIKENESS**2) * values
        traits = Traits(*np.clip(values, -2.5, 2.5).tolist())
        low, high = SKIN[self.skin] if self.skin else (0.0, 1.0)
        young, old = AGE[self.age] if self.age else (0.0, 1.0)
        skin, age = low + (high - low) * _uniform(traits.skin), young + (old - young) * _uniform(traits.age)
        return replace(traits, skin=skin, age=age)

    def face(self, person: int, photo: int) -> Image:
        """One aligned photo, (112, 96, 3) uint8 RGB."""
        traits = self.person(person)
        return draw(traits, take(traits, np.random.default_rng([VERSION, self.seed, person, photo, 1])))

    def faces(
        self, people: range, photos: int, *, workers: int = 1, progress: Progress = silent
    ) -> tuple[Image, Int64]:
        """All photos of some people (N, 112, 96, 3), and their labels (N,), 0 for the first person.

        `progress` gets the number of faces drawn, after each person.
        """
        images = []
        with mapping(workers, chunk=4) as run:
            for drawn in run(self._album, ((person, photos) for person in people)):
                images.append(drawn)
                progress(len(images) * photos, len(people) * photos)
        return np.concatenate(images), np.repeat(np.arange(len(people)), photos)

    def write(self, folder: Path, people: int, photos: int, *, workers: int = 1, progress: Progress = silent) -> None:
        """Write `folder/pNNNN/NNNN.png`, the same bytes for any number of workers.

        The folder must be new, empty, or from an earlier run of this population: nothing else is overwritten.
        """
        self._claim(folder)
        with mapping(workers, chunk=4) as run:
            for done, _ in enumerate(run(self._write_person, ((folder, person, photos) for person in range(people)))):
                progress((done + 1) * photos, people * photos)
        write_manifest(folder, SetManifest(made_by=f"sphereface {__version__} data synth"))

    def _claim(self, folder: Path) -> None:
        """Sign a folder for this population, or refuse one with other contents."""
        signature = json.dumps({"synthetic": VERSION, "seed": self.seed, "skin": self.skin, "age": self.age}) + "\n"
        signed = folder / SIGNATURE
        if folder.exists() and any(folder.iterdir()) and (not signed.is_file() or signed.read_text() != signature):
            raise UserError(f"{folder} holds something else than these synthetic people; choose a new or empty folder")
        folder.mkdir(parents=True, exist_ok=True)
        signed.write_text(signature)

    def _album(self, task: tuple[int, int]) -> Image:
        person, photos = task
        return np.stack([self.face(person, photo) for photo in range(photos)])

    def _write_person(self, task: tuple[Path, int, int]) -> None:
        folder, person, photos = task
        home, part = folder / f"p{person:04d}", folder / f".p{person:04d}.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for photo in range(photos):
            write_face(part / f"{photo:04d}.png", self.face(person, photo))
        shutil.rmtree(home, ignore_errors=True)
        part.replace(home)  # with all photos or not at all

    def _vector(self, number: int) -> Float64:
        return np.random.default_rng([VERSION, self.seed, number, 0]).standard_normal(Traits.count())


def write_face(path: Path, face: Image) -> None:
    """Write a face as `.png` or `.jpg`."""
    options = PNG if path.suffix == ".png" else JPEG
    _, coded = cv2.imencode(path.suffix, cv2.cvtColor(face, cv2.COLOR_RGB2BGR), options)
    path.write_bytes(coded.tobytes())


def _uniform(normal: float) -> float:
    """The quantile, 0 to 1, of a standard normal number."""
    return 0.5 * (1 + math.erf(normal / math.sqrt(2)))


def take(person: Traits, rng: np.random.Generator) -> Shot:
    """The random circumstances of one photo of a person."""
    tilt, side = rng.normal(-0.35, 0.35), rng.normal(0, 0.6)
    light = np.array([side, tilt, 1.0])
    light = 1.15 * light / np.linalg.norm(light)
    happy = rng.uniform()
    return Shot(
        yaw=float(np.clip(rng.normal(0, 0.32), -0.7, 0.7)),
        pitch=float(np.clip(rng.normal(0, 0.16), -0.35, 0.35)),
        shift=(rng.normal(0, 0.8), rng.normal(0, 0.8)),
        zoom=1 + rng.normal(0, 0.02),
        roll=rng.normal(0, 0.025),
        light=(light[0], light[1], light[2]),
        ambient=rng.uniform(0.35, 0.75),
        exposure=float(np.exp(rng.normal(0, 0.22))),
        tint=tuple(np.exp(rng.normal(0, 0.08, 3)).tolist()),
        smile=rng.uniform(0.3, 1.1) if happy > 0.45 else rng.uniform(-0.4, 0.3),
        mouth_open=max(0.0, rng.normal(0.0, 0.45)),
        brow_raise=rng.normal(0, 0.45),
        eye_open=float(np.clip(rng.normal(0.95, 0.2), 0.1, 1.3)),
        gaze=(rng.normal(0, 0.5), rng.normal(0, 0.5)),
        hair_change=rng.normal(0, 0.7),
        beard_change=rng.normal(0, 0.8),
        wears_glasses=bool(rng.uniform() < (0.75 if person.glasses > 0.9 else 0.07)),
        wears_hat=bool(rng.uniform() < 0.07),
        hand=float(rng.choice((-1.0, 1.0))) if rng.uniform() < 0.05 else 0.0,
        background=int(rng.integers(2**31)),
        blur=float(np.clip(rng.normal(0.6, 0.5), 0, 2.0)),
        noise=float(abs(rng.normal(0, 7))),
        quality=int(rng.integers(40, 96)),
    )
