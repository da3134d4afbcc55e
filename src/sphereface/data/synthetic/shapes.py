"""Synthetic people in the shape of published sets, so that whole protocols can be run without any of them.

| shape | files |
|---|---|
| folder | `p0000/0000.png` |
| lfw | `p0000/p0000_0001.png`, with `pairs.txt`, `pairsDevTrain.txt`, `pairsDevTest.txt` |
| ytf | `p0000/0/0.1.png`: person, video, frame; with `splits.txt` |
| megaface | `probes/`, `distractors/`, the devkit's `templatelists/`, and `noise/` |
| ijb | `loose_crop/1.jpg` and `meta/`: templates, pairs, landmarks, galleries and probes |

What is drawn and listed depends on the population, the shape and the two counts alone. Frames of one video are one
scene of `SyntheticPeople` in which the head turns and nods slowly, the face moves a little and the alignment trembles;
light, clothes, background and grain stay.
"""

from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

import cv2
import numpy as np

from sphereface import __version__
from sphereface.arrays import Image
from sphereface.choices import IjbName, Shape
from sphereface.data.files.workers import mapping
from sphereface.data.files.writing import new_folder
from sphereface.data.manifest import SetManifest, write_manifest
from sphereface.data.synthetic.people import PNG, VERSION, SyntheticPeople, take
from sphereface.data.synthetic.portrait import draw
from sphereface.data.synthetic.shape_plans import Face, Plan, plan_ijb, plan_shape
from sphereface.progress import Progress, silent

JPEG = [cv2.IMWRITE_JPEG_QUALITY, 95]
SWAY = 40  # frames in which a head turns to and fro


def write_shape(
    population: SyntheticPeople,
    folder: str | Path,
    people: int,
    photos: int,
    *,
    shape: Shape = "folder",
    workers: int = 1,
    progress: Progress = silent,
) -> None:
    """Write synthetic people in the shape of a published set, the same bytes whatever the number of workers.

    `photos` are those of each person; for `ytf` the frames of each of three videos. `num_faces` says how many faces
    that makes. Every shape but `folder` wants a new or empty folder, which appears whole or not at all.
    """
    if shape == "folder":
        population.write(Path(folder), people, photos, workers=workers, progress=progress)
    else:
        _write(plan_shape(shape, people, photos, population.seed), population, folder, workers, progress)


def write_ijb(
    population: SyntheticPeople,
    folder: str | Path,
    people: int,
    photos: int,
    *,
    name: IjbName = "ijbc",
    workers: int = 1,
    progress: Progress = silent,
) -> None:
    """Write the shape `ijb` under the file names of IJB-B or IJB-C."""
    _write(plan_ijb(people, photos, population.seed, name=name), population, folder, workers, progress)


def num_faces(shape: Shape, people: int, photos: int) -> int:
    """How many faces a set of that shape holds."""
    return people * photos if shape == "folder" else len(plan_shape(shape, people, photos, seed=0).faces)


def frame(population: SyntheticPeople, person: int, scene: int, number: int) -> Image:
    """One frame of a video: the scene of a photo, a moment on; (112, 96, 3) uint8 RGB."""
    traits = population.person(person)
    shot = take(traits, np.random.default_rng([VERSION, population.seed, person, scene, 1]))
    video = np.random.default_rng([VERSION, population.seed, person, scene, 2])
    turn, nod, mood = np.sin(video.uniform(0, 2 * np.pi, 3) + 2 * np.pi * number / (SWAY * video.uniform(0.7, 1.3, 3)))
    tremble = np.random.default_rng([VERSION, population.seed, person, scene, 3, number]).standard_normal(6)
    moment = replace(
        shot,
        yaw=float(np.clip(shot.yaw + 0.12 * turn, -0.7, 0.7)),
        pitch=float(np.clip(shot.pitch + 0.06 * nod, -0.35, 0.35)),
        shift=(shot.shift[0] + 0.3 * tremble[0], shot.shift[1] + 0.3 * tremble[1]),
        roll=shot.roll + 0.006 * tremble[2],
        smile=shot.smile + 0.15 * mood,
        mouth_open=max(0.0, shot.mouth_open + 0.15 * tremble[3]),
        gaze=(shot.gaze[0] + 0.15 * tremble[4], shot.gaze[1] + 0.1 * tremble[5]),
    )
    return draw(traits, moment)


def _write(plan: Plan, population: SyntheticPeople, folder: str | Path, workers: int, progress: Progress) -> None:
    with new_folder(folder) as root:
        for place in sorted({str(Path(path).parent) for path in chain((face.path for face in plan.faces), plan.lists)}):
            (root / place).mkdir(parents=True, exist_ok=True)
        with mapping(workers, chunk=32) as run:
            for done, _ in enumerate(run(partial(_draw, population, root), plan.faces)):
                progress(done + 1, len(plan.faces))
        for path, write in plan.lists.items():
            write(root / path)
        for home in plan.homes:
            write_manifest(root / home, SetManifest(made_by=f"sphereface {__version__} data synth"))


def _draw(population: SyntheticPeople, root: Path, face: Face) -> None:
    if face.frame is None:
        pixels = population.face(face.person, face.photo)
    else:
        pixels = frame(population, face.person, face.photo, face.frame)
    path = root / face.path
    _, coded = cv2.imencode(
        path.suffix, cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), PNG if path.suffix == ".png" else JPEG
    )
    path.write_bytes(coded.tobytes())
