"""Speed of our 3x3 convolution and PReLU on CPUs: their backward passes against torch's."""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from sphereface.bench.timing import interleaved, machine
from sphereface.engines.torch import torch_threads
from sphereface.models.cpu.prelu import PReLU
from sphereface.models.cpu.winograd import Conv3x3
from sphereface.models.spherefacenet import HEIGHT, WIDTH, WIDTHS
from sphereface.progress import Say, mute
from sphereface.training.allocation import keep_freed_memory

BATCH, THREADS = 128, 2  # the paper's batch


def pairs(channels: int) -> dict[str, tuple[nn.Module, nn.Module]]:
    """Our layer and torch's, by name of the operation."""
    theirs = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
    return {
        "convolution": (Conv3x3(channels, channels, bias=False), theirs),
        "prelu": (PReLU(channels), nn.PReLU(channels)),
    }


def backward_pass(layer: nn.Module, shape: tuple[int, ...]) -> Callable[[], object]:
    """A function that computes the gradients of a layer's input and weights, after one forward pass; channels last."""
    torch.manual_seed(0)
    layer.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = torch.randn(shape).contiguous(memory_format=torch.channels_last).requires_grad_()
    y = layer(x)
    grad = torch.randn_like(y)
    return lambda: torch.autograd.grad(y, [x, *layer.parameters()], grad, retain_graph=True)


def bench_layers(
    *, repeats: int = 9, batch: int = BATCH, widths: Sequence[int] = WIDTHS, say: Say = mute
) -> dict[str, object]:
    """Seconds and ratios at the sizes of the deep networks' stages; `say` receives progress lines."""
    rows: list[dict[str, object]] = []
    with torch_threads(THREADS):
        keep_freed_memory()  # as `train` does
        for stage, channels in enumerate(widths, start=1):
            shape = (batch, channels, HEIGHT >> stage, WIDTH >> stage)
            for name, (ours, theirs) in pairs(channels).items():
                say(f"{name}, {channels} channels: {repeats} rounds")
                runs = {"ours": backward_pass(ours, shape), "torch": backward_pass(theirs, shape)}
                seconds = interleaved(runs, repeats=repeats, device="cpu")
                ratio = seconds["torch"] / seconds["ours"]
                rows.append({"layer": name, "input": list(shape), "seconds": seconds, "speedup": ratio})
        return {
            "what": "backward pass: gradients of input and weights, channels last, freed memory kept; "
            "medians of rounds in turns",
            "command": "sphereface bench layers --json",
            "repeats": repeats,
            **machine(),
            "rows": rows,
        }
