"""The contents of a set in a published shape: its faces with their names, and its lists.

They depend on the seed and the two counts alone; nothing is drawn here.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np

from sphereface.choices import IjbName, Shape
from sphereface.data.files.writing import write_lines
from sphereface.data.lists.ijb import GALLERIES
from sphereface.data.lists.megaface import MegaFaceImage, write_megaface
from sphereface.data.lists.pairs import FOLDS, Pair, write_pairs
from sphereface.data.lists.videos import VideoPair, write_video_pairs
from sphereface.data.synthetic.people import VERSION
from sphereface.errors import UserError
from sphereface.faces.warp import targets

Writer = Callable[[Path], None]

LFW_PAIRS, DEV_PAIRS, YTF_PAIRS = 300, 1100, 250  # of each kind in a fold, in DevTrain, in a split; as published
DEV_FOLDS = 7  # with the people of DevTrain; the other three have those of DevTest
VIDEOS = 3  # of each person, so that each gives three same pairs
STRANGERS = 10  # distractors for each person among the probes
NOISE = 20  # one image of 20 shows another person than its list says
IMPOSTORS = 50  # other people to compare each template of an IJB gallery with


class Face(NamedTuple):
    """One image to draw: a photo of a person, or a frame of the video around that photo."""

    path: str
    person: int
    photo: int
    frame: int | None = None


@dataclass(frozen=True)
class Plan:
    """The contents of a set: faces, lists of them, and the folders that get a manifest."""

    faces: tuple[Face, ...]
    lists: Mapping[str, Writer]
    homes: tuple[str, ...] = (".",)


def plan_shape(shape: Shape, people: int, photos: int, seed: int, *, name: IjbName = "ijbc") -> Plan:
    """The contents of a set of that shape, for `ijb` with the file names of `name`; too small a set is an error."""
    if shape not in LEAST:
        raise UserError(f"unknown shape {shape!r}; choose one of {', '.join(get_args(Shape))}")
    if name not in GALLERIES:
        raise UserError(f"unknown set {name!r}; choose one of {', '.join(GALLERIES)}")
    least_people, least_photos, reason = LEAST[shape]
    if people < least_people or photos < least_photos:
        wanted = f"shape {shape} wants at least {least_people} and {least_photos}: {reason}"
        raise UserError(f"{people} people with {photos} photos each; {wanted}")
    return _ijb(people, photos, seed, name) if shape == "ijb" else PLANS[shape](people, photos, seed)


class _Choice(NamedTuple):
    """A pair of photos, each given by person and photo."""

    left: tuple[int, int]
    right: tuple[int, int]
    same: bool


def _balanced(groups: list[range], photos: int, most: int, seed: int) -> Iterator[list[_Choice]]:
    """Random pairs of each group of people, as many same as different ones, none twice; groups have equal counts.

    Same pairs come first, as in LFW's lists.
    """
    least = min(map(len, groups))
    count = min(most, least * math.comb(photos, 2), math.comb(least, 2) * photos**2)
    for number, group in enumerate(groups):
        rng = np.random.default_rng([VERSION, seed, number, 4])
        pairs = []
        for place in rng.choice(len(group) * math.comb(photos, 2), count, replace=False).tolist():
            person, (i, j) = group[place // math.comb(photos, 2)], _two(place % math.comb(photos, 2))
            pairs.append(_Choice((person, i), (person, j), True))
        for place in rng.choice(math.comb(len(group), 2) * photos**2, count, replace=False).tolist():
            (a, b), (i, j) = _two(place // photos**2), divmod(place % photos**2, photos)
            pairs.append(_Choice((group[a], i), (group[b], j), False))
        yield pairs


def _two(place: int) -> tuple[int, int]:
    """The pair a < b at a place in the list (0, 1), (0, 2), (1, 2), (0, 3), ..."""
    b = (1 + math.isqrt(1 + 8 * place)) // 2
    return place - b * (b - 1) // 2, b


def _folds(people: int) -> list[range]:
    """People in ten folds of neighbours: every fourth resembles the one before, and can be paired with them."""
    edges = [fold * people // FOLDS for fold in range(FOLDS + 1)]
    return [range(first, last) for first, last in pairwise(edges)]


def _lfw(people: int, photos: int, seed: int) -> Plan:
    def name(person: int, photo: int, suffix: str) -> str:
        return f"p{person:04d}/p{person:04d}_{photo + 1:04d}.{suffix}"

    def listed(groups: list[range], most: int) -> list[Pair]:
        return [
            Pair(name(*pair.left, "jpg"), name(*pair.right, "jpg"), pair.same, fold)
            for fold, pairs in enumerate(_balanced(groups, photos, most, seed))
            for pair in pairs
        ]

    folds = _folds(people)
    edge = folds[DEV_FOLDS].start
    return Plan(
        tuple(Face(name(person, photo, "png"), person, photo) for person in range(people) for photo in range(photos)),
        {
            "pairs.txt": partial(write_pairs, pairs=listed(folds, LFW_PAIRS), layout="view2"),
            "pairsDevTrain.txt": partial(write_pairs, pairs=listed([range(edge)], DEV_PAIRS), layout="view1"),
            "pairsDevTest.txt": partial(write_pairs, pairs=listed([range(edge, people)], DEV_PAIRS), layout="view1"),
        },
    )


def _ytf(people: int, frames: int, seed: int) -> Plan:
    def name(person: int, video: int) -> str:
        return f"p{person:04d}/{video}"

    pairs = [
        VideoPair(split + 1, name(*pair.left), name(*pair.right), pair.same)
        for split, chosen in enumerate(_balanced(_folds(people), VIDEOS, YTF_PAIRS, seed))
        for pair in chosen
    ]
    return Plan(
        tuple(
            # Numbers without leading zeros, as in the published set: their sorted order is not that of time.
            Face(f"{name(person, video)}/{video}.{number + 1}.png", person, video, number)
            for person in range(people)
            for video in range(VIDEOS)
            for number in range(frames)
        ),
        {"splits.txt": partial(write_video_pairs, pairs=pairs)},
    )


def _megaface(people: int, photos: int, seed: int) -> Plan:
    """Every twentieth probe shows a stranger, every twentieth distractor one of the people among the probes."""
    del seed  # nothing is random here
    strangers = range(people, people * (1 + STRANGERS))
    probes: list[Face] = []
    distractors: list[Face] = []
    for number in range(people * photos):
        person, photo = divmod(number, photos)
        shown = (strangers.stop + number, 0) if _is_noise(number) else (person, photo)
        probes.append(Face(f"p{person:04d}/{photo:04d}.png", *shown))
    for number, stranger in enumerate(strangers):
        shown = (number % people, photos + number) if _is_noise(number) else (stranger, 0)
        distractors.append(Face(f"p{stranger:04d}/0000.png", *shown))
    lists: dict[str, Writer] = {"templatelists/facescrub_features_list.json": _megaface_list(probes)}
    sizes = [10**power for power in range(1, 7) if 10**power < len(distractors)] + [len(distractors)]
    for size in sizes:
        lists[f"templatelists/megaface_features_list.json_{size}_1"] = _megaface_list(distractors[:size])
    for name, faces in (("facescrub", probes), ("megaface", distractors)):
        noise = [face.path for number, face in enumerate(faces) if _is_noise(number)]
        lists[f"noise/{name}_noises.txt"] = partial(write_lines, lines=noise)
    placed = [face._replace(path=f"probes/{face.path}") for face in probes]
    placed += [face._replace(path=f"distractors/{face.path}") for face in distractors]
    return Plan(tuple(placed), lists, (".", "probes", "distractors"))


def _is_noise(number: int) -> bool:
    return number % NOISE == NOISE // 2


def _megaface_list(faces: list[Face]) -> Writer:
    """A list in the order of file names, which is that of features made by `sphereface embed`."""
    paths = sorted(face.path for face in faces)
    return partial(write_megaface, images=[MegaFaceImage(path, path.split("/")[0]) for path in paths])


def _ijb(people: int, photos: int, seed: int, name: IjbName) -> Plan:
    """Each person has a gallery template of stills, a probe template of one still, and one of a video's frames.

    Half of the people are in the first gallery, half in the second, and all among the probes: for each gallery half of
    the probes are of unknown people.
    """
    rng = np.random.default_rng([VERSION, seed, 5])
    faces: list[Face] = []
    media: list[str] = []
    points: list[str] = []
    homes = (*(f"gallery_{gallery}" for gallery in GALLERIES[name]), "probe_mixed")
    lists: dict[str, list[str]] = {home: [] for home in homes}
    landmarks = " ".join(f"{number:.4f}" for number in targets().ravel().tolist())  # the faces are aligned already
    medium = 0
    for person in range(people):
        for kind, scenes in enumerate(_ijb_templates(photos)):
            home = "probe_mixed" if kind else f"gallery_{GALLERIES[name][2 * person // people]}"
            for photo, number in scenes:
                medium += not number  # the frames of a video are one medium
                path = f"{len(faces) + 1}.jpg"
                faces.append(Face(f"loose_crop/{path}", person, photo, number))
                media.append(f"{path} {_template(person, kind)} {medium}")
                points.append(f"{path} {landmarks} {rng.uniform(0.9, 1):.4f}")
                lists[home].append(f"{_template(person, kind)},{person + 1},img/{path}")
    files = {
        "face_tid_mid.txt": media,
        "name_5pts_score.txt": points,
        "template_pair_label.txt": list(_ijb_pairs(people)),
        **{f"1N_{home}.csv": ["TEMPLATE_ID,SUBJECT_ID,FILENAME", *rows] for home, rows in lists.items()},
    }
    writers = {f"meta/{name}_{file}": partial(write_lines, lines=lines) for file, lines in files.items()}
    return Plan(tuple(faces), writers, (".", "loose_crop"))


def _ijb_templates(photos: int) -> tuple[list[tuple[int, int | None]], ...]:
    """A person's three templates: (photo, None), or (photo, frame) of a video."""
    stills = photos // 3
    video = stills + 1
    return [(still, None) for still in range(stills)], [(stills, None)], [(video, k) for k in range(photos - video)]


def _template(person: int, kind: int) -> int:
    return 3 * person + kind + 1


def _ijb_pairs(people: int) -> Iterator[str]:
    """Each gallery template with the probes of its own person, and with those of the next people."""
    for person in range(people):
        for step in range(min(people, 1 + IMPOSTORS)):
            for kind in (1, 2):
                yield f"{_template(person, 0)} {_template((person + step) % people, kind)} {step == 0:d}"


PLANS: dict[Shape, Callable[[int, int, int], Plan]] = {"lfw": _lfw, "ytf": _ytf, "megaface": _megaface}
LEAST: dict[Shape, tuple[int, int, str]] = {  # people, photos, and why
    "lfw": (20, 2, "two people in each of ten folds, and two photos to compare"),
    "ytf": (20, 1, "two people in each of ten splits"),
    "megaface": (2, 6, "one probe in twenty is noise, and some of each person should not be"),
    "ijb": (2, 4, "a person in each gallery; a still there, another still and two frames among the probes"),
}
