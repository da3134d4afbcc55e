"""Table 2: the networks of 4 to 64 layers, read from the networks themselves, with what each of them costs.

Parameters are those of the network without the classifier. Multiply-adds are counted by hooks while one face passes
through: an output number of a convolution or of FC1 takes as many as it has weights; PReLUs, biases and additions are
not counted. Images per second are measured on this machine, without the mirror image.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from sphereface.bench.timing import interleaved, machine
from sphereface.choices import Scale
from sphereface.engines.torch import run_network
from sphereface.experiments.paper.published import DEPTHS
from sphereface.experiments.paper.result import Figure, Result, Row, Table
from sphereface.experiments.paper.setting import Setting
from sphereface.models import create_model
from sphereface.models.spherefacenet import HEIGHT, WIDTH, Residual, SphereFaceNet
from sphereface.reports.figures import COLOURS, INK, Picture, Theme, blank, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

RELEASED = "sphereface64_caffe"  # the authors' prototxt of 2018
NETWORKS = {**{f"sphereface{depth}": f"{depth}-layer CNN" for depth in DEPTHS}, RELEASED: "released 64-layer CNN"}
FC1 = "FC1"

# The residual units of Conv1.x to Conv4.x, typed from the paper's Table 2 to compare ours with.
PRINTED: dict[str, tuple[int, ...]] = {
    "sphereface4": (0, 0, 0, 0), "sphereface10": (0, 1, 2, 0), "sphereface20": (1, 2, 4, 1),
    "sphereface36": (2, 4, 8, 2), "sphereface64": (3, 8, 16, 3),
}  # fmt: skip


class Timing(NamedTuple):
    """Faces of a forward pass, and timed passes of each network."""

    batch: int
    rounds: int


TIMINGS: dict[Scale, Timing] = {"tiny": Timing(4, 3), "small": Timing(16, 9), "paper": Timing(64, 15)}


class Part(NamedTuple):
    """A row of Table 2 in one network."""

    shape: tuple[int, ...]  # of its output for one face
    convolutions: int
    units: int
    parameters: int
    multiply_adds: int


def parts_of(net: SphereFaceNet) -> dict[str, Part]:
    """The rows of Table 2 of a network, with the counts of each, from one face that passes through."""
    groups: dict[str, list[nn.Module]] = {}
    for layer in net.stages:
        if isinstance(layer, nn.Conv2d):  # each stage begins with one; all others are inside of units
            groups[f"Conv{len(groups) + 1}.x"] = []
        groups[list(groups)[-1]].append(layer)
    groups[FC1] = [net.fc1]
    multiply_adds, shapes = _pass_one_face(net)
    return {
        name: Part(
            shape=shapes[group[-1]],
            convolutions=sum(isinstance(layer, nn.Conv2d) for each in group for layer in each.modules()),
            units=sum(isinstance(layer, Residual) for layer in group),
            parameters=sum(parameter.numel() for layer in group for parameter in layer.parameters()),
            multiply_adds=sum(multiply_adds.get(layer, 0) for each in group for layer in each.modules()),
        )
        for name, group in groups.items()
    }


def _pass_one_face(net: SphereFaceNet) -> tuple[dict[nn.Module, int], dict[nn.Module, tuple[int, ...]]]:
    """The multiply-adds of each convolution and of FC1, and the shape that each module returns."""
    counts: dict[nn.Module, int] = {}
    shapes: dict[nn.Module, tuple[int, ...]] = {}

    def count(layer: nn.Module, _: Any, output: Tensor) -> None:
        shapes[layer] = tuple(output[0].shape)
        if isinstance(layer, nn.Conv2d | nn.Linear):
            counts[layer] = output[0].numel() * layer.weight[0].numel()

    hooks = [layer.register_forward_hook(count) for layer in net.modules()]
    try:
        net(torch.zeros(1, 3, HEIGHT, WIDTH, device=net.fc1.weight.device))
    finally:
        for hook in hooks:
            hook.remove()
    return counts, shapes


def count_networks() -> dict[str, dict[str, Part]]:
    """The parts of every network, by name."""
    with torch.device("meta"):  # shapes alone: no memory and no arithmetic
        return {name: parts_of(create_model(name)) for name in NETWORKS}


def seconds_per_face(batch: int, rounds: int) -> dict[str, float]:
    """The median time of a forward pass divided by its faces, networks in turns, as features are extracted."""
    faces = np.random.default_rng(0).uniform(-1, 1, (batch, 3, HEIGHT, WIDTH)).astype(np.float32)
    runs = {}
    for name in NETWORKS:
        torch.manual_seed(0)
        net = create_model(name).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        runs[name] = partial(run_network, net, faces)
    return {name: found / batch for name, found in interleaved(runs, repeats=rounds, device="cpu").items()}


def run(setting: Setting) -> Result:
    """The networks as in Table 2, their cost, their speed here, and all three against depth."""
    counted, timing = count_networks(), TIMINGS[setting.scale]
    setting.say(f"timing {len(NETWORKS)} networks")
    seconds, here = seconds_per_face(*timing), machine()
    note = (
        f"Batch {timing.batch}, median of {timing.rounds} passes in turns; {here['cpu']}, threads: {here['threads']}."
    )
    return Result(
        "table2",
        "The networks: layers, parameters, multiply-adds, images per second",
        setting.scale,
        findings=findings(counted, seconds),
        tables=[architecture_table(counted), cost_table(counted), speed_table(counted, seconds, setting.scale, note)],
        figures=[
            Figure("cost", draw_cost(counted, seconds), "Cost of a network against its number of layers; 64*: the "
                   "released network, which has 62 convolutions. Left and middle: counted; right: measured here.",
                   wide=True)
        ],
        numbers={
            name: {
                "units": units_of(parts), "convolutions": total(parts, "convolutions"),
                "parameters": total(parts, "parameters"), "multiply_adds": total(parts, "multiply_adds"),
                "images_per_second": 1 / seconds[name],
            }
            for name, parts in counted.items()
        } | {"timing": {**timing._asdict(), **here}},
    )  # fmt: skip


def total(parts: Mapping[str, Part], field: str) -> int:
    """A count over all parts of a network."""
    return sum(getattr(part, field) for part in parts.values())


def units_of(parts: Mapping[str, Part]) -> tuple[int, ...]:
    """The residual units of each stage."""
    return tuple(part.units for name, part in parts.items() if name != FC1)


def findings(counted: Mapping[str, Mapping[str, Part]], seconds: Mapping[str, float]) -> list[str]:
    """What was found, in sentences."""
    agree = [units_of(counted[name]) == PRINTED[name] for name in PRINTED]
    small, deep, released = counted["sphereface4"], counted["sphereface64"], counted[RELEASED]
    growth = {field: total(deep, field) / total(small, field) for field in ("parameters", "multiply_adds")}
    slower = seconds["sphereface64"] / seconds["sphereface4"]
    less = {field: total(deep, field) - total(released, field) for field in growth}
    convolutions = ", ".join(f"{total(counted[name], 'convolutions')}" for name in PRINTED)
    return [
        f"{sum(agree)} of {len(agree)} networks have the units that Table 2 prints. The number in a network's name "
        f"counts its convolutions ({convolutions}); FC1 is one layer more.",
        f"FC1 holds {small[FC1].parameters / 1e6:.2f} M parameters in every network: "
        f"{small[FC1].parameters / total(small, 'parameters'):.0%} of the {total(small, 'parameters') / 1e6:.2f} M of "
        f"4 layers, {deep[FC1].parameters / total(deep, 'parameters'):.0%} of the "
        f"{total(deep, 'parameters') / 1e6:.2f} M of 64 layers, but at most "
        f"{small[FC1].multiply_adds / total(small, 'multiply_adds'):.0%} of the multiply-adds.",
        f"From 4 to 64 layers parameters grow {growth['parameters']:.1f} times, multiply-adds "
        f"{growth['multiply_adds']:.1f} times ({total(small, 'multiply_adds') / 1e9:.2f} to "
        f"{total(deep, 'multiply_adds') / 1e9:.2f} GMAC an image), and an image takes {slower:.1f} times as long here.",
        f"The 64-layer network that the authors released has {total(released, 'convolutions')} convolutions, not 64: "
        f"one unit fewer in Conv2.x, {less['parameters'] / 1e6:.2f} M parameters and "
        f"{less['multiply_adds'] / 1e9:.2f} GMAC less.",
    ]


def architecture_table(counted: Mapping[str, Mapping[str, Part]]) -> Table:
    """Table 2 in the paper's own notation."""
    rows = []
    for name, first in counted["sphereface4"].items():
        cells = [_cell(name, parts[name]) for parts in counted.values()]
        rows.append(Row([name, "x".join(map(str, first.shape)), *cells], "derived"))
    return Table(
        "architectures", "The networks in the notation of Table 2", ["layer", "output", *NETWORKS.values()], rows,
        "S2: stride 2. Brackets with two convolutions are residual units. Read from the networks as built here.",
    )  # fmt: skip


def _cell(name: str, part: Part) -> str:
    if name == FC1:
        return f"{part.shape[0]}"
    one = f"3x3, {part.shape[0]}"
    return f"[{one}]x1, S2" + (f"; [{one}; {one}]x{part.units}" if part.units else "")


def cost_table(counted: Mapping[str, Mapping[str, Part]]) -> Table:
    """Layers, parameters and multiply-adds."""
    rows = [
        Row(
            [
                NETWORKS[name], "-".join(map(str, units_of(parts))), f"{total(parts, 'convolutions')}",
                f"{total(parts, 'parameters') / 1e6:.2f}", f"{parts[FC1].parameters / 1e6:.2f}",
                f"{total(parts, 'multiply_adds') / 1e9:.2f}",
            ],
            "derived",
        )
        for name, parts in counted.items()
    ]  # fmt: skip
    head = ["network", "units", "convolutions", "parameters, M", "of these FC1, M", "multiply-adds, G"]
    return Table("cost", "Layers, parameters and multiply-adds of an image", head, rows, "Without the classifier.")


def speed_table(
    counted: Mapping[str, Mapping[str, Part]], seconds: Mapping[str, float], scale: Scale, note: str
) -> Table:
    """Speed on this machine."""
    rows = [
        Row([NETWORKS[name], f"{1 / each:.1f}", f"{1000 * each:.1f}",
             f"{total(counted[name], 'multiply_adds') / 1e9 / each:.0f}"], scale)
        for name, each in seconds.items()
    ]  # fmt: skip
    head = ["network", "images per second", "ms an image", "GMAC per second"]
    return Table("speed", "Forward passes of the full networks on this machine", head, rows, note)


def draw_cost(counted: Mapping[str, Mapping[str, Part]], seconds: Mapping[str, float]) -> Picture:
    """Parameters and multiply-adds by part, and the time of an image, each against the number of layers."""

    def draw(theme: Theme) -> "Drawing":
        figure = blank(8.4, 3.3)
        left, middle, right = (figure.add_subplot(1, 3, place) for place in (1, 2, 3))
        _bars(left, "parameters, millions", _by_part(counted, "parameters", 1e6), theme)
        _bars(middle, "multiply-adds of an image, G", _by_part(counted, "multiply_adds", 1e9), theme)
        _bars(right, "time of an image here, ms", {TIME: [1000 * seconds[name] for name in counted]}, theme)
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
        return figure

    return picture(draw, "Parameters, multiply-adds and time of an image for 4, 10, 20, 36 and 64 layers", pdf=True)


TIME = "time"
PART_COLOURS = {FC1: COLOURS[0], **{f"Conv{stage}.x": COLOURS[stage] for stage in range(1, 5)}, TIME: COLOURS[5]}


def _by_part(counted: Mapping[str, Mapping[str, Part]], field: str, unit: float) -> dict[str, list[float]]:
    return {
        name: [getattr(parts[name], field) / unit for parts in counted.values()]
        for name in PART_COLOURS.keys() - {TIME}
    }  # fmt: skip


def _bars(axes: "Axes", title: str, heights: Mapping[str, Sequence[float]], theme: Theme) -> None:
    """Bars of all networks, stacked from parts, with their sums on top."""
    ticks = [*map(str, DEPTHS), "64*"]
    tops = np.zeros(len(ticks))
    for name, colour in PART_COLOURS.items():
        if name in heights:
            axes.bar(range(len(ticks)), heights[name], bottom=tops, color=colour, label=name, width=0.7)
            tops += heights[name]
    for place, top in enumerate(tops):
        axes.text(place, top, f"{top:.3g}", ha="center", va="bottom", fontsize=7.5, color=INK[theme])
    axes.set_title(title)
    axes.set_xticks(range(len(ticks)), ticks)
    axes.set_xlabel("layers")
    axes.grid(axis="y", alpha=0.2)
    axes.set_axisbelow(True)
    axes.margins(y=0.09)
