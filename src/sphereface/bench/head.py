"""Cost of the loss: A-Softmax against linear + cross-entropy, and against pytorch-metric-learning."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec

import torch
from torch.nn import functional as F

from sphereface.bench.timing import interleaved, machine, peak_beyond_inputs
from sphereface.engines.torch import torch_threads
from sphereface.errors import UserError
from sphereface.losses import create_loss
from sphereface.progress import Say, mute

FEATURES, BATCH, THREADS = 512, 256, 2
CLASSES = (10_572, 85_742)  # CASIA-WebFace less three people; MS1MV2
MANY, CHUNK = 1_000_000, 65_536
PEER = "pytorch_metric_learning"


def prepare(candidate: str, classes: int, device: str = "cpu") -> Callable[[], object]:
    """A function that runs one candidate's forward and backward pass on its own inputs."""
    torch.manual_seed(0)
    features = torch.randn(BATCH, FEATURES, device=device).requires_grad_()
    labels = torch.randint(0, classes, (BATCH,), device=device)
    if candidate == "plain":
        weight = torch.nn.Parameter(torch.empty(classes, FEATURES, device=device).normal_(std=0.04))
        parameters, run = [weight], lambda: F.cross_entropy(F.linear(features, weight), labels)
    elif candidate == PEER:
        from pytorch_metric_learning.losses import SphereFaceLoss

        peer = SphereFaceLoss(num_classes=classes, embedding_size=FEATURES, margin=4, scale=1).to(device)
        parameters, run = list(peer.parameters()), lambda: peer(features, labels)
    else:
        chunk = CHUNK if candidate == "a_softmax chunked" else None
        loss = create_loss("a_softmax", FEATURES, classes, m=4, chunk=chunk).to(device)
        parameters, run = list(loss.parameters()), lambda: loss(features, labels)

    def forward_backward() -> None:
        for tensor in (features, *parameters):
            tensor.grad = None
        run().backward()  # type: ignore[no-untyped-call]

    return forward_backward


def bench_head(
    *, repeats: int = 9, classes: Sequence[int] = CLASSES, device: str = "cpu", memory: bool = True, say: Say = mute
) -> dict[str, object]:
    """Seconds, ratios and peak memory of forward + backward by number of classes; `say` receives progress lines."""
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device {device}; torch finds no CUDA device here: use cpu")
    names = ["plain", "a_softmax"] + ([PEER] if find_spec(PEER) else [])
    if PEER not in names:
        say("pytorch-metric-learning is not installed (pip install 'sphereface[peers]'); left out")
    rows: list[dict[str, object]] = []
    for count in classes:
        say(f"{count:,} classes: {repeats} rounds of {', '.join(names)}")
        with torch_threads(THREADS):
            runs = {name: prepare(name, count, device) for name in names}
            seconds = interleaved(runs, repeats=repeats, device=device)
        row: dict[str, object] = {
            "classes": count,
            "seconds": seconds,
            "ratio_to_plain": {name: value / seconds["plain"] for name, value in seconds.items()},
        }
        if memory and device == "cpu":
            say(f"{count:,} classes: peak memory")
            row["peak_megabytes"] = {name: peak_beyond_inputs(prepare, name, count) / 1e6 for name in names}
        rows.append(row)
    result: dict[str, object] = {
        "what": "forward + backward, float32, median seconds; peak memory beyond inputs, gradients included",
        "command": "python -m sphereface.bench head --json",
        "features": FEATURES,
        "batch": BATCH,
        "repeats": repeats,
        "device": device,
        **machine(),
        "threads": THREADS,
        "rows": rows,
    }
    if memory and device == "cpu":
        say(f"{MANY:,} classes in chunks of {CHUNK:,}: peak memory")
        gradient = MANY * FEATURES * 4
        peak = peak_beyond_inputs(prepare, "a_softmax chunked", MANY)
        result["chunked"] = {
            "classes": MANY,
            "chunk": CHUNK,
            "peak_megabytes_beyond_weights_and_gradient": (peak - gradient) / 1e6,
        }
    return result
