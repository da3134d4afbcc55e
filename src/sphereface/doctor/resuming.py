"""A run that was stopped and resumed, against one without interruption."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.doctor.devices import TF32, Precision, precisions
from sphereface.doctor.findings import Check, Measured
from sphereface.progress import mute
from sphereface.training.checkpoints.reading import Checkpoint, open_checkpoint
from sphereface.training.config import AnnealingConfig, TrainConfig
from sphereface.training.learner import build_learner
from sphereface.training.run import Outcome, Run
from sphereface.training.setting import CHECKPOINTS, Place, build_loader, claim, gather_faces
from sphereface.training.stopping import Stop

PEOPLE, PHOTOS = 6, 4
CONFIG = TrainConfig(
    model="sphereface4", width=0.1, features=16, batch=8, steps=12, milestones=(8,), lr=0.02, clip=5.0, ema=0.9,
    annealing=AnnealingConfig(gamma=0.5), loss_options={"m": 4}, checkpoint_every=6,
)  # fmt: skip
NOISE = 1e-2  # relative; a GPU sums in varying order, and the steps amplify that


def checks(device: torch.device, folder: Path) -> Iterator[Check]:
    """A run on synthetic faces in every precision of the device except TF32."""
    for how in precisions(device):
        if how is not TF32:
            yield Check(f"resume {how.name}", partial(resume_parity, device, how, folder))


def resume_parity(device: torch.device, how: Precision, folder: Path) -> Measured:
    """Train once without and once with a stop; the tensors of the last checkpoints must agree."""
    faces, config = folder / "faces", CONFIG.changed(precision=how.setting)
    if not faces.exists():
        SyntheticPeople(seed=0).write(faces, PEOPLE, PHOTOS)
    whole, parts = (folder / f"{how.name}-{name}" for name in ("whole", "parts"))
    outcomes = [
        run(config, Place(faces, whole, str(device), workers=0)),
        run(config, Place(faces, parts, str(device), workers=0), Stop(asked=True)),
        run(config, Place(faces, parts, str(device), workers=0, resume=True)),
    ]
    if outcomes != ["finished", "interrupted", "finished"]:
        raise RuntimeError(f"three runs ended as {', '.join(outcomes)}; wanted finished, interrupted, finished")
    found, wanted = (open_checkpoint(out / CHECKPOINTS / f"step-{CONFIG.steps:08d}") for out in (parts, whole))
    exact = device.type == "cpu" or torch.are_deterministic_algorithms_enabled()
    note = f"stopped at step {CONFIG.checkpoint_every} of {CONFIG.steps}" + (", bit for bit" if exact else "")
    return Measured(apart(found, wanted), 0.0 if exact else NOISE, note)


def run(config: TrainConfig, place: Place, stop: Stop | None = None) -> Outcome:
    """The steps of `train`, without log, report and model."""
    with torch.random.fork_rng(devices=[]):
        claim(config, place)
        ready, _ = gather_faces(config, place, mute)
        device = torch.device(place.device)
        learner = build_learner(config, len(ready.people), device)
        training = Run(config, place, learner, build_loader(config, place, ready, device), None, ready, mute)
        training.resume()
        return training.steps(stop or Stop())


def apart(found: Checkpoint, wanted: Checkpoint) -> float:
    """The largest difference between two checkpoints, relative to the largest number of its tensor."""
    a, b = tensors(found), tensors(wanted)
    if a.keys() != b.keys():
        raise RuntimeError(f"only one run has {', '.join(sorted(a.keys() ^ b.keys()))}; wanted the same tensors")
    return max(float((a[name] - b[name]).abs().max() / b[name].abs().max().clamp_min(1e-12)) for name in a)


def tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """All tensors of a run: weights, momentum, running mean, counters."""
    groups = {name: checkpoint.group(name) for name in checkpoint.manifest.groups}
    shared = {f"{name}/{key}": value for name, group in groups.items() for key, value in group.items()}
    rows = checkpoint.rows(0, checkpoint.manifest.classes)
    return {name: value.double() for name, value in {**shared, **rows}.items()}
