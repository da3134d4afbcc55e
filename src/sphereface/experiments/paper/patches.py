"""Patches of an ensemble: windows on aligned faces, a network for each, and which to take.

The paper shows its three patches in a figure only. The faces to train on are aligned to 112x96 already, so a patch is a
window on the aligned face, scaled to 112x96; the five windows are our choice. Patches are chosen one at a time, by the
true accept rate on people who are held out of training.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import cv2
import numpy as np

from sphereface.arrays import Float32, Image, Int64, UInt8
from sphereface.data.files.workers import mapping
from sphereface.data.files.writing import new_folder
from sphereface.data.formats.records import write_records
from sphereface.data.formats.sets import open_set
from sphereface.data.people import FaceSet
from sphereface.data.reading import read_face
from sphereface.embed.embedder import Embedder
from sphereface.embed.ensemble import joined
from sphereface.experiments.lfw_dev import Unseen
from sphereface.experiments.outcomes import DIGITS, Outcome, kept, outcome
from sphereface.experiments.paper import splits
from sphereface.experiments.paper.comparison import Found
from sphereface.experiments.paper.measures import lfw_of, possible
from sphereface.experiments.paper.runs import COMMAND, Run, Runs
from sphereface.experiments.trials import SEARCH_PHOTOS, Sets, run_trials
from sphereface.experiments.view1 import Measured
from sphereface.faces.images import encode_jpeg
from sphereface.faces.warp import Crop, as_crop
from sphereface.hashes import sha256_of
from sphereface.metrics import AllPairs, PeopleBootstrap
from sphereface.training.run import MODEL, is_finished
from sphereface.training.setting import Place
from sphereface.training.validation import hold_out

if TYPE_CHECKING:
    pass

WHOLE = "whole"
# Point p of the face lies at zoom * p + shift in the patch. No window shows more than the aligned face.
WINDOWS: dict[str, Crop] = {
    WHOLE: Crop(112, 96, 1.0, (0.0, 0.0)),
    "upper": Crop(112, 96, 1.6, (-28.5, -14.9)),  # forehead, eyes and nose, in the middle of the width
    "lower": Crop(112, 96, 1.6, (-28.5, -66.6)),  # eyes, nose, mouth and chin, down to the lower edge
    "left": Crop(112, 96, 1.6, (0.0, -59.7)),  # from the left edge of the image to the nose
    "right": Crop(112, 96, 1.6, (-57.0, -59.7)),  # from the nose to the right edge
}
PAPERS = 3  # patches of the paper's ensemble
FOLD_PEOPLE, FOLD_STEPS = 0.25, 0.5  # shares, for a plan without a search on held-out people
STATISTICS = ("accuracy", "tar", "accuracy_unit", "tar_unit")  # _unit: each feature at length one
Chosen = tuple[str, ...]  # names of patches


# The patches of a set of faces.


def through(face: Image, window: Crop) -> Image:
    """A face (112, 96, 3) as seen through a window."""
    matrix = np.array([[window.zoom, 0, window.shift[0]], [0, window.zoom, window.shift[1]]])
    size = (window.width, window.height)
    seen = cv2.warpAffine(face, matrix, size, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(seen, dtype=np.uint8)


def region(window: Crop) -> tuple[float, float, float, float]:
    """The first and last column and the first and last row of the face that a window shows."""
    left, top = (0.0 - window.shift[0]) / window.zoom, (0.0 - window.shift[1]) / window.zoom
    return left, left + (window.width - 1) / window.zoom, top, top + (window.height - 1) / window.zoom


@dataclass(frozen=True, eq=False)
class Windowed:
    """The faces of a set through a window, as JPEG of quality 95."""

    faces: FaceSet
    window: Crop

    @property
    def people(self) -> Sequence[str]:
        """The names of the set."""
        return self.faces.people

    @property
    def labels(self) -> Int64:
        """The labels of the set."""
        return self.faces.labels

    @property
    def paths(self) -> Sequence[str]:
        """The paths of the set."""
        return self.faces.paths

    def read(self, index: int) -> bytes:
        """One face through the window."""
        return encode_jpeg(through(read_face(self.faces, index, "112x96"), self.window))


def write_patch(faces: FaceSet, to: tuple[str, Path]) -> None:
    """Write the faces through a window as `train.rec` into a new folder, which appears complete or not at all."""
    name, folder = to
    with new_folder(folder) as made:
        write_records(made / "train.rec", Windowed(faces, WINDOWS[name]))


# The networks: for each patch one with each seed, and one for each fold of people to choose patches on.


class Network(NamedTuple):
    """A network for one patch, which does not learn from the people with the labels `held`."""

    patch: str
    run: Run
    held: tuple[int, ...] = ()


def final(runs: Runs, patch: str, seed: int) -> Network:
    """The network for a patch that is tested; that for the whole face is the A-Softmax network of the tables."""
    run = runs.of("a_softmax", seed)
    return Network(patch, run if patch == WHOLE else run._replace(split=patch, faces=identity(runs, patch)))


def of_fold(runs: Runs, patch: str, fold: int) -> Network:
    """A network for a patch that has not seen the people of a fold."""
    config = runs.of("a_softmax", fold).settings
    steps = runs.plan.search_steps or max(1, round(FOLD_STEPS * config.steps))
    held = tuple(folds_of(runs)[fold].tolist())
    names = sha256_of("\n".join(runs.known.people[label] for label in held))
    split = f"{patch}-fold{fold}"
    return Network(patch, Run(config.with_steps(steps), split, f"{identity(runs, patch)} without {names}"), held)


def identity(runs: Runs, patch: str) -> str:
    """A hash of the faces of a patch: of the set, and of the window on each face."""
    return sha256_of(f"{runs.hash} {WINDOWS[patch]}")


@lru_cache(maxsize=4)
def folds_of(runs: Runs) -> list[Int64]:
    """The labels of the people of each fold; nobody is in two of them."""
    known, plan = runs.known, runs.plan
    people = plan.held_out or max(2, round(FOLD_PEOPLE * len(known.people)))
    held = hold_out(known.labels, known.people, people=plan.folds * people).held
    return np.array_split(np.unique(known.labels[held]), plan.folds)


def networks(runs: Runs) -> tuple[list[Network], list[Network]]:
    """Those to choose patches with, and those to test."""
    choosing = [of_fold(runs, patch, fold) for patch in WINDOWS for fold in range(runs.plan.folds)]
    return choosing, [final(runs, patch, seed) for patch in WINDOWS for seed in runs.setting.seeds]


def needed(runs: Runs) -> dict[str, list[Run]]:
    """The runs of this experiment, by patch."""
    every = [each for some in networks(runs) for each in some]
    return {patch: [each.run for each in every if each.patch == patch] for patch in WINDOWS}


def place(runs: Runs, network: Network) -> Path:
    """The folder of a network's run."""
    return runs.setting.runs / runs.setting.scale / network.run.folder


def patch_folder(runs: Runs, patch: str) -> Path:
    """The folder of the faces through a window."""
    return runs.setting.runs / "patches" / f"{patch}-{identity(runs, patch)[:8]}"


def sets_of(runs: Runs, network: Network) -> Sets:
    """The faces that a network learns from."""
    if network.patch == WHOLE:
        sets, people = runs.sets, runs.known.people
    else:
        folder = patch_folder(runs, network.patch)
        sets, people = Sets((folder,)), open_set(folder).people
    return sets._replace(exclude=(*sets.exclude, *(people[label] for label in network.held)))


class SetsOfPatches(Sets):
    """The faces of several patches: every run learns from those of its own patch."""

    of_run: Mapping[str, Sets]  # by the name of its folder

    def place(self, out: Path, command: str, **more: Any) -> Place:
        """The place of a run in the folder `out`."""
        return self.of_run[out.name].place(out, command, **more)


def train(runs: Runs, wanted: Sequence[Network]) -> None:
    """Cut the faces of each patch, and train the networks that are not there, several at a time."""
    setting = runs.setting
    waiting = [each for each in wanted if not is_finished(place(runs, each))]
    patches = {each.patch: patch_folder(runs, each.patch) for each in waiting if each.patch != WHOLE}
    missing = [(patch, folder) for patch, folder in patches.items() if not folder.is_dir()]
    with mapping(min(setting.jobs, len(missing))) as each_of:
        for (patch, _), _ in zip(missing, each_of(partial(write_patch, runs.known), missing), strict=True):
            setting.say(f"patch {patch}: cut")
    sets = SetsOfPatches(())
    sets.of_run = {each.run.folder: sets_of(runs, each) for each in waiting}
    run_trials(
        [each.run for each in waiting], sets, setting.runs / setting.scale, command=COMMAND, jobs=setting.jobs,
        say=setting.say,
    )  # fmt: skip


def features_of(runs: Runs, network: Network, faces: UInt8) -> Float32:
    """The features of faces (N, 112, 96, 3) by the network of one patch."""
    window = WINDOWS[network.patch]
    return Embedder.load(place(runs, network) / MODEL).embed(np.stack([through(face, window) for face in faces]))


# The choice of patches.


def greedy(names: Sequence[str], score: Callable[[Chosen], float]) -> tuple[list[str], list[dict[str, float]]]:
    """Names in an order that adds the one with the highest score each time, and the scores of each step."""
    chosen: list[str] = []
    tried: list[dict[str, float]] = []
    while len(chosen) < len(names):
        scores = {name: score((*chosen, name)) for name in names if name not in chosen}
        chosen.append(max(scores, key=scores.__getitem__))
        tried.append(scores)
    return chosen, tried


def choose(runs: Runs) -> Outcome:
    """The order of patches by the mean TAR over folds, each on people whom its networks did not learn from."""
    known, labels = runs.known, np.asarray(runs.known.labels)
    features: list[dict[str, Float32]] = []
    people: list[Int64] = []
    for fold, held in enumerate(folds_of(runs)):
        rows = np.flatnonzero(np.isin(labels, held) & (splits.rank_in_person(known) < SEARCH_PHOTOS))
        faces = np.stack([read_face(known, row, "112x96") for row in rows.tolist()])
        features.append({patch: features_of(runs, of_fold(runs, patch, fold), faces) for patch in WINDOWS})
        people.append(np.unique(labels[rows], return_inverse=True)[1])

    def tar(some: Chosen) -> float:
        each = [
            AllPairs(concatenated([of[patch] for patch in some]), owners).tar_at_far(runs.plan.search_far)
            for of, owners in zip(features, people, strict=True)
        ]
        return float(np.mean(each))

    order, tried = greedy(tuple(WINDOWS), tar)
    return {"order": order, "tried": tried}


def concatenated(parts: Sequence[Float32]) -> Float32:
    """Features (N, D_i) side by side, each at its own length, as in the paper."""
    return np.concatenate(parts, axis=1)


# The test.


def measure(parts: Sequence[Float32], test: Unseen, *, far: float, rounds: int) -> Outcome:
    """Accuracy and TAR of an ensemble, also in each draw of people of a bootstrap.

    Features are concatenated at their own lengths, and (`_unit`) each at length one, as `embed.ensemble` does.
    """
    methods: dict[str, Callable[..., float]] = {}
    for end, features in (("", concatenated(parts)), ("_unit", joined(parts, "concatenate"))):
        measured = Measured(features, test)
        methods |= {f"accuracy{end}": measured.accuracy, f"tar{end}": partial(measured.all_pairs.tar_at_far, far)}
    bootstrap = PeopleBootstrap(int(test.people.max()) + 1, rounds=rounds)
    return {
        "statistics": {name: method() for name, method in methods.items()},
        "draws": {name: [round(method(drawn), DIGITS) for drawn in bootstrap] for name, method in methods.items()},
        "lengths": [round(float(np.median(np.linalg.norm(part, axis=1))), DIGITS) for part in parts],
    }


def file_of(runs: Runs, members: Sequence[Network], measure: str) -> Path:
    """The file of an outcome of some networks: named after a single run, or after the patches of several."""
    folders = [each.run.folder for each in members]
    names = "-".join(dict.fromkeys(each.patch for each in members))
    name = folders[0] if len(members) == 1 else f"ensemble-{names}-{sha256_of(' '.join(folders))[:8]}"
    return runs.setting.out / "runs" / runs.setting.scale / f"{name}.{measure}.json"


def about(members: Sequence[Network]) -> dict[str, object]:
    """The settings of an outcome."""
    return {"patches": [each.patch for each in members], "runs": [each.run.folder for each in members]}


def ensembles(order: Sequence[str]) -> list[Chosen]:
    """Each patch alone, and the first 2, 3, ... of the order."""
    return [*((patch,) for patch in WINDOWS), *(tuple(order[:count]) for count in range(2, len(order) + 1))]


def tested(runs: Runs, order: Sequence[str]) -> dict[Chosen, Found]:
    """The outcomes of all ensembles on LFW, one for each seed; trains the networks if one is missing."""
    setting, plan = runs.setting, runs.plan
    members = {
        (some, seed): [final(runs, patch, seed) for patch in some]
        for some in ensembles(order) for seed in setting.seeds
    }  # fmt: skip
    if not all(kept(file_of(runs, each, "patches")) for each in members.values()):
        train(runs, networks(runs)[1])
    test = lfw_of(setting).test

    @cache
    def features(patch: str, seed: int) -> Float32:
        return features_of(runs, final(runs, patch, seed), np.stack([as_crop(face, "112x96") for face in test.pixels]))

    def compute(some: Chosen, seed: int) -> Outcome:
        return measure([features(patch, seed) for patch in some], test, far=plan.far, rounds=plan.rounds)

    found: dict[Chosen, Found] = {some: [] for some, _ in members}
    for (some, seed), each in members.items():
        file = file_of(runs, each, "patches")
        found[some].append({"lfw": outcome(file, about(each), partial(compute, some, seed))})
    return found


def outcomes(runs: Runs) -> tuple[Outcome, dict[Chosen, Found]]:
    """The choice of patches, and the ensembles on LFW if its data are there; trains what has no outcome yet."""
    choosing, testing = networks(runs)
    on_lfw = bool(possible(runs.setting, "lfw"))
    choice = file_of(runs, choosing, "choice")
    if not kept(choice):
        train(runs, [*choosing, *(testing if on_lfw else [])])
    chosen = outcome(choice, about(choosing), partial(choose, runs))
    return chosen, tested(runs, chosen["order"]) if on_lfw else {}


# What is shown.
