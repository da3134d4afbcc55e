"""Synthetic people in the shape of published sets, so that protocols run without the real ones.

| shape | files |
|---|---|
| folder | `p0000/0000.png` |
| lfw | `p0000/p0000_0001.png`, with `pairs.txt`, `pairsDevTrain.txt`, `pairsDevTest.txt` |
| ytf | `p0000/0/0.1.png`: person, video, frame; with `splits.txt` |
| megaface | `probes/`, `distractors/`, the devkit's `templatelists/`, and `noise/` |
| ijb | `loose_crop/1.jpg` and `meta/`: templates, pairs, landmarks, galleries and probes |

Images and lists depend on the population, the shape and the two counts alone. The frames of a video are one photo of
`SyntheticPeople` in which the head turns and nods slowly, the face moves a little and the alignment varies; light,
clothes, background and noise stay.
"""

from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from sphereface import __version__
from sphereface.arrays import Image
from sphereface.choices import IjbName, Shape
from sphereface.data.files.workers import mapping
from sphereface.data.files.writing import new_folder
from sphereface.data.manifest import SetManifest, write_manifest
from sphereface.data.synthetic.people import VERSION, SyntheticPeople, take, write_face
from sphereface.data.synthetic.portrait import draw
from sphereface.data.synthetic.shape_plans import Face, plan_shape
from sphereface.progress import Progress, silent

SWAY = 40  # frames in which a head turns back and forth


def write_shape(
    population: SyntheticPeople,
    folder: str | Path,
    people: int,
    photos: int,
    *,
    shape: Shape = "folder",
    name: IjbName = "ijbc",
    workers: int = 1,
    progress: Progress = silent,
) -> None:
    """Write synthetic people in the shape of a published set, the same bytes for any number of workers.

    `photos` is the number of photos of each person, or for `ytf` of frames in each of three videos; `num_faces` gives
    the total. `name` chooses the file names of IJB-B or IJB-C. Every shape but `folder` needs a new or empty folder,
    which appears complete or not at all.
    """
    if shape == "folder":
        population.write(Path(folder), people, photos, workers=workers, progress=progress)
        return
    plan = plan_shape(shape, people, photos, population.seed, name=name)
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


write_ijb = partial(write_shape, shape="ijb")
"""Write the shape `ijb` with the file names of IJB-C, or with `name="ijbb"` those of IJB-B."""


def num_faces(shape: Shape, people: int, photos: int) -> int:
    """The number of faces in a set of that shape."""
    return people * photos if shape == "folder" else len(plan_shape(shape, people, photos, seed=0).faces)


def frame(population: SyntheticPeople, person: int, scene: int, number: int) -> Image:
    """One frame of a video, a photo varied over time; (112, 96, 3) uint8 RGB."""
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


def _draw(population: SyntheticPeople, root: Path, face: Face) -> None:
    if face.frame is None:
        pixels = population.face(face.person, face.photo)
    else:
        pixels = frame(population, face.person, face.photo, face.frame)
    write_face(root / face.path, pixels)
