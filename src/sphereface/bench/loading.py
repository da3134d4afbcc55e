"""Speed of loading against training: faces a second of the loader and of the smallest network."""

from collections.abc import Callable
from pathlib import Path

import torch

from sphereface.bench.timing import interleaved, machine
from sphereface.data.people import PeopleFolder
from sphereface.loading import FaceLoader, ReadyFaces, Shuffled, prepare
from sphereface.losses import create_loss
from sphereface.models import create_model
from sphereface.models.inputs import to_input
from sphereface.progress import Say, mute

MODEL = "sphereface4"  # the fastest to train, so the one that needs the fastest loading
LEARNING_RATE = 1e-3  # small, so that the loss stays finite on any faces


def load(faces: ReadyFaces, *, steps: int, batch: int, workers: int) -> Callable[[], object]:
    """One turn of the loader: start the workers, take every batch, end the workers."""

    def run() -> None:
        loader = FaceLoader(faces, Shuffled(len(faces), batch), steps=steps, workers=workers)
        delivered = sum(len(batch.labels) for batch in loader)
        assert delivered == steps * batch

    return run


def train(faces: ReadyFaces, *, steps: int, batch: int) -> Callable[[], object]:
    """One turn of training: forward, backward and optimizer step on a batch in memory."""
    torch.manual_seed(0)
    loaded = next(iter(FaceLoader(faces, Shuffled(len(faces), batch), steps=1)))
    images, labels = loaded.images, loaded.labels
    net = create_model(MODEL).to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    loss = create_loss("a_softmax", 512, len(faces.people)).train()
    optimizer = torch.optim.SGD([*net.parameters(), *loss.parameters()], lr=LEARNING_RATE, momentum=0.9)

    def run() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            loss(net(to_input(images)), labels).backward()
            optimizer.step()
            loss.project_()

    return run


def bench_loading(
    data: Path,
    *,
    workers: int = 2,
    batch: int = 64,
    repeats: int = 7,
    loading_steps: int = 128,
    training_steps: int = 4,
    say: Say = mute,
) -> dict[str, object]:
    """Faces a second of the loader, decoding and from memory, and of training; `say` receives progress lines.

    The loader's workers start and end within its turn, so that no batch is prepared during a turn of training.
    """
    say(f"scanning {data}")
    kept = prepare(PeopleFolder(data), workers=workers)
    files = prepare(PeopleFolder(data), cache_bytes=0, known=kept.scan)
    candidates = {
        "loading": load(files, steps=loading_steps, batch=batch, workers=workers),
        "training": train(files, steps=training_steps, batch=batch),
    }
    if kept.pixels is not None:
        candidates["loading_from_memory"] = load(kept, steps=loading_steps, batch=batch, workers=workers)
    say(f"{repeats} rounds of {', '.join(candidates)}")
    seconds = interleaved(candidates, repeats=repeats, device="cpu")
    steps = dict.fromkeys(candidates, loading_steps) | {"training": training_steps}
    rates = {name: steps[name] * batch / seconds[name] for name in candidates}
    return {
        "what": f"median faces a second; loading includes its workers' start and end; training is {MODEL} + a_softmax",
        "command": "python -m sphereface.bench loading DATA --json",
        "faces": len(files),
        "people": len(files.people),
        "workers": workers,
        "batch": batch,
        "repeats": repeats,
        **machine(),
        "faces_per_second": rates,
        "loading_to_training": rates["loading"] / rates["training"],
    }
