"""The faces of an experiment: those that were given, else synthetic ones that are drawn once."""

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from sphereface.choices import Shape
from sphereface.data.formats.sets import open_set
from sphereface.data.joined import JoinedSets
from sphereface.data.lists.pairs import read_pairs
from sphereface.data.people import FaceSet, PeopleFolder
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.data.synthetic.shapes import write_shape
from sphereface.errors import UserError
from sphereface.experiments.lfw_dev import ALIGNED, IN_LFW, VIEW_1, VIEW_2, Unseen, align_test, crop_of, gather_pairs
from sphereface.experiments.paper.setting import Setting
from sphereface.experiments.trials import Sets
from sphereface.loading import without
from sphereface.loading.subset import Subset

# People of CASIA-WebFace who are in the test sets; the authors' list leaves them out: 10,572 people of 10,575.
IN_TEST_SETS = ("0166921", "1056413", "1193098")


class Drawn(NamedTuple):
    """A synthetic set: people, photos of each, and a seed, so that sets share nobody."""

    people: int
    photos: int
    seed: int
    shape: Shape = "folder"


TRAIN = Drawn(60, 20, 0)
LFW = Drawn(60, 6, 1, "lfw")
YTF = Drawn(20, 4, 2, "ytf")
MEGAFACE = Drawn(12, 6, 3, "megaface")
FGNET = Drawn(8, 5, 4)


def drawn(setting: Setting, name: str, what: Drawn) -> Path:
    """The folder of a synthetic set, drawn on the first call."""
    folder = setting.runs / "drawn" / f"{name}-{what.people}x{what.photos}"
    if not (folder / "done").is_file():
        setting.say(f"drawing synthetic faces: {name}")
        population = SyntheticPeople(seed=what.seed)
        write_shape(population, folder / "faces", what.people, what.photos, shape=what.shape, workers=setting.jobs)
        (folder / "done").touch()
    return folder / "faces"


def training_sets(setting: Setting) -> Sets:
    """The sets to train on, and the people to leave out since they are in test sets."""
    given = setting.data.faces
    if not given:
        return Sets((drawn(setting, "train", TRAIN),))
    found: list[Path] = []
    exclude: tuple[str, ...] = IN_TEST_SETS
    for path in given:
        if (path / "train").is_dir() and (path / "more" / "labelled").is_dir():
            found += [path / "train", path / "more" / "labelled"]
            exclude += IN_LFW
        else:
            found.append(path)
    names = {name for path in found for name in people_in(path)}
    return Sets(tuple(found), tuple(name for name in exclude if name in names))


@lru_cache
def people_in(path: Path) -> frozenset[str]:
    """The names of the people of a set."""
    return frozenset(open_set(path).people)


def known_faces(sets: Sets) -> Subset:
    """The faces to train on, without the people who are left out."""
    opened = [open_set(path) for path in sets.faces]
    faces: FaceSet = opened[0] if len(opened) == 1 else JoinedSets(opened)
    return without(faces, sets.exclude)[0]


def lfw_test(setting: Setting) -> Unseen:
    """The test faces of LFW with its pairs: of view 2 if there is a list of it, else of view 1."""
    given = setting.data.lfw
    if given is None:
        faces = drawn(setting, "lfw", LFW)
        return gather_pairs(faces, _lists_in(faces))
    faces, lists = _lfw_places(given)
    if not _is_aligned(faces):
        setting.runs.mkdir(parents=True, exist_ok=True)
        faces = align_test(faces, setting.runs / ALIGNED, workers=setting.jobs, say=setting.say)
    return gather_pairs(faces, lists)


def _lfw_places(given: Path) -> tuple[Path, tuple[Path, ...]]:
    """The folder of LFW's faces, and the lists of view 2 or of view 1 in it or beside it."""
    if not given.is_dir():
        raise UserError(f"{given}: no such folder; wanted one with LFW's faces and its list of pairs")
    faces = given / "lfw-dev" if (given / "lfw-dev").is_dir() else given
    lists = _lists_in(given) or _lists_in(given.parent)
    if not lists:
        raise UserError(f"{given}: no {VIEW_2}, nor {' and '.join(VIEW_1)}, in it or beside it; wanted LFW's lists")
    return faces, lists


def _lists_in(folder: Path) -> tuple[Path, ...]:
    """The lists of view 2 in a folder, or those of view 1; empty if it has neither."""
    if (folder / VIEW_2).is_file():
        return (folder / VIEW_2,)
    found = tuple(folder / name for name in VIEW_1)
    return found if all(path.is_file() for path in found) else ()


def _is_aligned(folder: Path) -> bool:
    images = PeopleFolder(folder)
    return crop_of(images.read(0)) is not None


def described(setting: Setting, known: Subset) -> dict[str, str]:
    """What each set is and how large, for a plan; nothing is drawn or aligned."""
    sets, data = training_sets(setting), setting.data
    left = f", without {len(sets.exclude)} people of test sets ({', '.join(sets.exclude)})" if sets.exclude else ""
    where = ", ".join(str(path) for path in data.faces) or "synthetic"
    return {
        "faces": f"{where}: {len(known.people):,} people, {len(known.paths):,} faces{left}",
        "lfw": _lfw_lists(setting),
        **{name: _there(getattr(data, name), f"--{name}", bool(data.faces)) for name in ("ytf", "megaface")},
    }


def _lfw_lists(setting: Setting) -> str:
    given = setting.data.lfw
    if given is None:
        return "not given (--lfw)" if setting.data.faces else "synthetic"
    _, lists = _lfw_places(given)
    return f"{given}: " + ", ".join(f"{path.name} with {len(read_pairs(path)):,} pairs" for path in lists)


def _there(path: Path | None, option: str, is_real: bool) -> str:
    if path is None:
        return f"not given ({option})" if is_real else "synthetic"
    if not path.is_dir():
        raise UserError(f"{path}: no such folder; {option} wants one")
    return str(path)


def ytf_folder(setting: Setting) -> Path | None:
    """The folder of YTF; None if other sets were given, but not this one."""
    return setting.data.ytf or _synthetic(setting, lambda: drawn(setting, "ytf", YTF))


def megaface_folder(setting: Setting) -> Path | None:
    """The folder of MegaFace; None if other sets were given, but not this one."""
    return setting.data.megaface or _synthetic(setting, lambda: _with_fgnet(setting))


def _with_fgnet(setting: Setting) -> Path:
    """A synthetic MegaFace with a second set of probes, other people, in FGNet's place."""
    folder = drawn(setting, "megaface", MEGAFACE)
    listing = folder / "templatelists" / "fgnet_features_list.json"
    if not listing.is_file():
        probes = drawn(setting, "fgnet", FGNET)
        paths = PeopleFolder(probes).paths
        if not (folder / "fgnet").exists():
            (folder / "fgnet").symlink_to(probes.resolve(), target_is_directory=True)
        listing.write_text(json.dumps({"path": list(paths), "id": [path.split("/")[0] for path in paths]}))
    return folder


def _synthetic(setting: Setting, draw: Callable[[], Path]) -> Path | None:
    """Synthetic faces test networks of synthetic people only: of real ones they say nothing."""
    return None if setting.data.faces else draw()
