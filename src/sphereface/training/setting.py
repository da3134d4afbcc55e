"""The start of a run: its folder, its faces, its validation, and its batches."""

import json
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from sphereface import parallel
from sphereface.choices import Missing
from sphereface.data.files.writing import whole_file
from sphereface.data.formats.sets import open_set
from sphereface.data.joined import JoinedSets
from sphereface.data.lists.exclude import read_exclude
from sphereface.data.lists.pairs import read_pairs
from sphereface.data.manifest import require_faces
from sphereface.data.people import FaceSet
from sphereface.errors import DataFormatError, UserError
from sphereface.loading import FaceLoader, PeoplePhotos, ReadyFaces, Sampler, Scan, Shuffled, prepare, without
from sphereface.loading.augment import Augmentation, Views
from sphereface.progress import Begin, Say
from sphereface.training.config import TrainConfig, read_config
from sphereface.training.learner import require_fitting
from sphereface.training.precision import precision_note
from sphereface.training.teaching import Targets, require_sets, require_teachable
from sphereface.training.telling.log import versions
from sphereface.training.validation import Validation, hold_out

CHECKPOINTS, CONFIG, SCAN = "checkpoints", "config.toml", "scan.json"


@dataclass(frozen=True)
class Place:
    """Paths, device and other settings that differ between machines, without effect on the result."""

    faces: Path | tuple[Path, ...]  # one set, or several
    out: Path
    device: str = "auto"
    workers: int = 2
    resume: bool = False
    init: Path | None = None
    exclude: Path | None = None
    pairs: Path | None = None  # to validate on, instead of held-out people
    pairs_faces: Path | None = None
    teacher: str | Path | None = None  # a name, a path or a URL
    unlabelled: tuple[Path, ...] = ()  # sets of faces without names, for a teacher
    targets: Path | None = None  # folder of the teacher's features; default: in `out`
    missing: Missing = "fail"
    tensorboard: bool = False
    report: bool = True
    command: str = ""

    @property
    def sets(self) -> tuple[Path, ...]:
        """The sets of named people."""
        return self.faces if isinstance(self.faces, tuple) else (self.faces,)


def choose_device(name: str) -> torch.device:
    """The device of a name, `auto` being CUDA where there is any; an absent device is an error with a way out."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type == "cuda":
            torch.cuda.get_device_properties(device)  # takes no memory there, also with several processes
        else:
            torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:  # torch raises either
        if torch.cuda.is_available():
            way_out = f"choose cpu, or one of {torch.cuda.device_count()} CUDA devices, from cuda:0 on"
        elif torch.version.cuda is None:
            way_out = "choose cpu, or install the build for your GPU from https://pytorch.org"
        else:
            way_out = "choose cpu, or check nvidia-smi and CUDA_VISIBLE_DEVICES"
        reason = textwrap.shorten(str(error).split(". ")[0].rstrip("."), 150)
        raise UserError(f"device is {name}; torch {torch.__version__} reports: {reason}; {way_out}") from error
    return device


def claim(config: TrainConfig, place: Place) -> None:
    """Prepare the run's folder: a new one, or that of the run to resume, with the same settings."""
    path = place.out / CONFIG
    precision_note(config, choose_device(place.device))  # an invalid run leaves no folder behind
    if place.init is not None:
        require_fitting(config, place.init)
    require_sets(config, place.unlabelled, place.teacher)
    if (place.out / CHECKPOINTS).is_dir() and not place.resume:
        raise UserError(f"{place.out} holds a run; --resume goes on with it, or choose another --out")
    if place.resume and path.is_file():
        had, wanted = read_config(path).model_dump(), config.model_dump()
        changed = [f"{name} was {had[name]!r}, is {wanted[name]!r}" for name in had if had[name] != wanted[name]]
        if changed:
            raise UserError(f"{place.out} is a run with other settings: {'; '.join(changed)}; resume with the same")
    parallel.barrier()
    if parallel.rank() == 0:
        place.out.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            file.write(config.toml().encode())
    parallel.barrier()


def gather_faces(config: TrainConfig, place: Place, say: Say) -> tuple[ReadyFaces, Validation | None]:
    """The faces to train on, and the validation."""
    alignment = config.alignment
    if place.teacher is not None:
        alignment = alignment.model_copy(update={"crop": require_teachable(config, place.teacher)})
    sets = {path: open_set(path) for path in (*place.sets, *place.unlabelled)}
    notes = [require_faces(path, faces, alignment) for path, faces in sets.items()]
    named = [sets[path] for path in place.sets]
    every = named[0] if len(named) == 1 else JoinedSets(named)
    for note in filter(None, [*notes, precision_note(config, choose_device(place.device))]):
        say(note)
    everything, missing = without(every, read_exclude(place.exclude) if place.exclude else ())
    if missing:
        say(f"{len(missing):,} names of the exclude list are not in the set, such as {missing[0]}")
    validation, held_out = None, set[str]()
    if place.pairs is not None:
        pairs, faces = read_pairs(place.pairs), place.pairs_faces or place.pairs.parent
        validation = Validation.of_pairs(pairs, faces, crop=config.crop, workers=place.workers, together=True)
    elif config.validation_people:
        held = hold_out(everything.labels, everything.people, people=config.validation_people, seed=config.seed).held
        validation = Validation.of_people(
            everything, held, crop=config.crop, seed=config.seed,
            missing=place.missing, workers=place.workers, together=True,
        )  # fmt: skip
        held_out = {everything.people[label] for label in set(everything.labels[held].tolist())}
    known = place.out / SCAN
    written = parallel.on_first(lambda: _read_scan(known).as_dict() if place.resume and known.is_file() else None)
    everybody: FaceSet = everything
    if place.unlabelled:
        everybody = JoinedSets([everything], unlabelled=[sets[path] for path in place.unlabelled])
    say(f"checking {len(everybody.paths):,} faces")
    ready = prepare(
        everybody, crop=alignment.crop, missing=place.missing, exclude=held_out, workers=place.workers,
        known=None if written is None else Scan.from_dict(written),
    )  # fmt: skip
    if place.pairs is not None and validation is not None:
        validation = _with_overlap(validation, ready, place.pairs, say)
    if ready.skipped:
        say(f"{len(ready.skipped):,} images cannot be read and are left out; {known} lists them")
    if validation is not None and validation.skipped:
        count, (path, reason) = len(validation.skipped), validation.skipped[0]
        say(f"{count:,} images to validate on cannot be read, such as {path} ({reason}); their pairs are left out")
    if parallel.rank() == 0:
        with whole_file(known) as file:
            file.write(json.dumps(ready.scan.as_dict(), indent=1).encode())
    return ready, validation


def _read_scan(path: Path) -> Scan:
    try:
        return Scan.from_dict(json.loads(path.read_bytes()))
    except (ValueError, TypeError, KeyError):
        raise DataFormatError(f"{path}: damaged; remove it to check the faces again") from None


def _with_overlap(validation: Validation, ready: ReadyFaces, pairs: Path, say: Say) -> Validation:
    """Describe how many people of a pair list are in the training set, by the names of their folders."""
    listed = {validation.faces.people[label].rpartition("/")[2] for label in set(validation.faces.labels.tolist())}
    both = sorted(listed & {person.rpartition("/")[2] for person in ready.people})
    if both:
        say(
            f"{len(both):,} of {len(listed):,} people of {pairs} are trained on too, such as {both[0]}: results "
            "on them are not open-set; --exclude leaves them out of training"
        )
    known = f"of whom {len(both):,} of {len(listed):,} are trained on" if both else "none of them trained on by name"
    return replace(validation, whose=f"people of {pairs.name}, {known}")


def build_loader(config: TrainConfig, place: Place, faces: ReadyFaces, device: torch.device) -> FaceLoader:
    """The batches of this process: shuffled faces, or several photos of each person."""
    sampler: Sampler = Shuffled(len(faces), config.batch, config.seed)
    if config.photos is not None:
        people = config.batch // config.photos
        sampler = PeoplePhotos(faces.labels, people=people, photos=config.photos, seed=config.seed, least=2)
    return FaceLoader(
        faces,
        sampler,
        steps=config.steps,
        mirror=config.mirror,
        views=build_views(config),
        crop=config.crop,
        workers=place.workers if faces.pixels is None else 0,  # faces in memory need no workers
        rank=parallel.rank(),
        ranks=parallel.ranks(),
        device=device,
    )


def build_views(config: TrainConfig) -> Views | None:
    """The random changes of faces: numbered views where a teacher embeds them, else a new one at each draw."""
    if config.teaching is None:
        return None if config.augmentation == Augmentation() else Views(config.augmentation, config.seed)
    return Views(config.augmentation, config.seed, config.teaching.views)


def build_targets(config: TrainConfig, place: Place, faces: ReadyFaces, begin: Begin) -> Targets | None:
    """The teacher's features of the faces; None for a run without a teacher."""
    views = build_views(config)
    if place.teacher is None or views is None:
        return None
    return Targets(place.targets or place.out / "targets", place.teacher, faces, views, begin=begin)


def circumstances(place: Place, device: torch.device) -> dict[str, Any]:
    """The fields of a start and of each resume in the log, which may differ between them."""
    return {"command": place.command, "versions": versions(device), "processes": parallel.ranks()}


def beginning(
    config: TrainConfig, place: Place, faces: ReadyFaces, validation: Validation | None, device: torch.device
) -> dict[str, Any]:
    """The first entry of a log: settings, command, versions, data."""
    sizes = {"faces": len(faces), "people": len(faces.people) - len(place.unlabelled)}
    if place.unlabelled:
        sizes["unlabelled"] = int((faces.labels >= sizes["people"]).sum())
    data = {"path": ", ".join(map(str, (*place.sets, *place.unlabelled))), "fingerprint": faces.fingerprint, **sizes}
    validated = validation and {
        "fingerprint": validation.fingerprint,
        "faces": len(validation.faces.paths),
        "pairs": len(validation.pairs.same),
    }
    return {"config": config.model_dump(), **circumstances(place, device), "data": data, "validation": validated}
