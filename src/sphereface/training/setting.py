"""What a run begins with: its folder, its faces, those to validate on, and the order of batches."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from sphereface import parallel
from sphereface.data.formats import open_set
from sphereface.data.lists import read_exclude
from sphereface.data.manifest import require_faces
from sphereface.data.pairs import read_pairs
from sphereface.data.writing import whole_file
from sphereface.loading import FaceLoader, PeoplePhotos, ReadyFaces, Sampler, Scan, Shuffled, prepare, without
from sphereface.training.config import TrainConfig, read_config
from sphereface.training.log import versions
from sphereface.training.precision import precision_note
from sphereface.training.validation import Validation, hold_out

CHECKPOINTS, CONFIG, SCAN = "checkpoints", "config.toml", "scan.json"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Place:
    """What changes from machine to machine, and nothing of the result."""

    data: Path
    out: Path
    device: str = "auto"
    workers: int = 2
    resume: bool = False
    init: Path | None = None
    exclude: Path | None = None
    pairs: Path | None = None  # to validate on, instead of held-out people
    pairs_root: Path | None = None
    on_unreadable: Literal["fail", "skip"] = "fail"
    tensorboard: bool = False
    command: str = ""


def choose_device(name: str) -> str:
    """The device of a name; `auto` is CUDA where there is any."""
    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name


def claim(config: TrainConfig, place: Place) -> None:
    """Take the run's folder: a new one, or the same run's to resume; its settings are written or compared."""
    path = place.out / CONFIG
    precision_note(config, torch.device(choose_device(place.device)))  # a run that makes no sense leaves no trace
    if (place.out / CHECKPOINTS).is_dir() and not place.resume:
        raise ValueError(f"{place.out} holds a run; --resume goes on with it, or choose another --out")
    if place.resume and path.is_file():
        had, wanted = read_config(path).model_dump(), config.model_dump()
        changed = [f"{name} was {had[name]!r}, is {wanted[name]!r}" for name in had if had[name] != wanted[name]]
        if changed:
            raise ValueError(f"{place.out} is a run with other settings: {'; '.join(changed)}; resume with the same")
    parallel.barrier()
    if parallel.rank() == 0:
        place.out.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            file.write(config.toml().encode())
    parallel.barrier()


def gather_faces(config: TrainConfig, place: Place, say: Say) -> tuple[ReadyFaces, Validation | None]:
    """The faces to learn from, and those to validate on."""
    every = open_set(place.data)
    device = torch.device(choose_device(place.device))
    for note in (require_faces(place.data, every, config.alignment), precision_note(config, device)):
        if note:
            say(note)
    everything, missing = without(every, read_exclude(place.exclude) if place.exclude else ())
    if missing:
        say(f"{len(missing):,} names of the exclude list are not in the set, such as {missing[0]}")
    validation, aside = None, set[str]()
    if place.pairs is not None:
        root = place.pairs_root or place.pairs.parent
        validation = Validation.of_pairs(read_pairs(place.pairs), root, crop=config.crop, workers=place.workers)
    elif config.validation_people:
        held = hold_out(everything.labels, everything.people, people=config.validation_people, seed=config.seed).held
        validation = Validation.of_people(
            everything, held, crop=config.crop, seed=config.seed,
            on_unreadable=place.on_unreadable, workers=place.workers,
        )  # fmt: skip
        aside = {everything.people[label] for label in set(everything.labels[held].tolist())}
    known = place.out / SCAN
    scan = Scan.from_dict(json.loads(known.read_text())) if place.resume and known.is_file() else None
    say(f"looking at {len(every.paths):,} faces")
    ready = prepare(
        everything, crop=config.crop, on_unreadable=place.on_unreadable, exclude=aside, workers=place.workers,
        known=scan,
    )  # fmt: skip
    if ready.skipped:
        say(f"{len(ready.skipped):,} images cannot be read and are left out; {known} lists them")
    if parallel.rank() == 0:
        with whole_file(known) as file:
            file.write(json.dumps(ready.scan.as_dict(), indent=1).encode())
    return ready, validation


def build_loader(config: TrainConfig, place: Place, faces: ReadyFaces, device: torch.device) -> FaceLoader:
    """The batches of this process; faces as they come, or several photos of each person."""
    sampler: Sampler = Shuffled(len(faces), config.batch, config.seed)
    if config.photos is not None:
        people = config.batch // config.photos
        sampler = PeoplePhotos(faces.labels, people=people, photos=config.photos, seed=config.seed, least=2)
    return FaceLoader(
        faces,
        sampler,
        steps=config.steps,
        mirror=config.mirror,
        workers=place.workers if faces.pixels is None else 0,  # from memory, workers only cost
        rank=parallel.rank(),
        ranks=parallel.ranks(),
        device=device,
    )


def beginning(
    config: TrainConfig, place: Place, faces: ReadyFaces, validation: Validation | None, device: torch.device
) -> dict[str, Any]:
    """What the log says of a run first: settings, command, versions, data."""
    return {
        "config": config.model_dump(),
        "command": place.command,
        "versions": versions(device),
        "processes": parallel.ranks(),
        "data": {
            "path": str(place.data),
            "fingerprint": faces.fingerprint,
            "faces": len(faces),
            "people": len(faces.people),
        },
        "validation": validation
        and {
            "fingerprint": validation.fingerprint,
            "faces": len(validation.faces.paths),
            "pairs": len(validation.pairs.same),
        },
    }
