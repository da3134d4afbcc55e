"""Table 2: counts of layers, parameters and multiply-adds, each derived a second way."""

import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from sphereface.contract import STAGES
from sphereface.experiments.paper import table2
from sphereface.models import create_model

WIDTHS = (64, 128, 256, 512)
MILLIONS = {"sphereface4": 12.56, "sphereface10": 15.22, "sphereface20": 22.67, "sphereface36": 32.77,
            "sphereface64": 48.19}  # fmt: skip


@pytest.fixture(scope="module")
def counted():
    return table2.count_networks()


def parameters_by_hand(units):
    total, channels = 21_504 * 512 + 512, 3
    for width, number in zip(WIDTHS, units, strict=True):
        total += 9 * channels * width + 2 * width  # with a bias, and a slope for each channel
        total += number * 2 * (9 * width * width + width)  # without a bias
        channels = width
    return total


@pytest.mark.parametrize("name", table2.NETWORKS)
def test_parameters_are_those_of_a_count_by_hand_and_of_the_whole_network(counted, name):
    found = table2.total(counted[name], "parameters")
    with torch.device("meta"):
        whole = sum(each.numel() for each in create_model(name).parameters())
    assert found == parameters_by_hand(STAGES[name]) == whole
    if name in MILLIONS:
        assert f"{found / 1e6:.2f}" == f"{MILLIONS[name]:.2f}"


@pytest.mark.parametrize("name", table2.NETWORKS)
def test_multiply_adds_are_half_of_the_operations_that_torch_counts(counted, name):
    with torch.device("meta"):
        net, face = create_model(name), torch.zeros(1, 3, 112, 96)
    with FlopCounterMode(display=False) as counter:
        net(face)
    assert table2.total(counted[name], "multiply_adds") == counter.get_total_flops() / 2


def test_a_unit_costs_the_same_in_every_stage_and_20_layers_take_1_75_billion(counted):
    assert f"{table2.total(counted['sphereface20'], 'multiply_adds') / 1e9:.2f}" == "1.75"
    for stage, width in enumerate(WIDTHS, start=1):
        one, none = counted["sphereface36"][f"Conv{stage}.x"], counted["sphereface4"][f"Conv{stage}.x"]
        unit = 2 * 9 * width**2 * (112 >> stage) * (96 >> stage)
        assert one.multiply_adds - none.multiply_adds == one.units * unit == one.units * 198_180_864


def test_the_number_in_a_name_counts_convolutions_but_the_released_network_has_62(counted):
    convolutions = {name: table2.total(parts, "convolutions") for name, parts in counted.items()}
    assert {f"sphereface{number}": number for number in (4, 10, 20, 36, 64)} | {table2.RELEASED: 62} == convolutions
    paper, released = table2.units_of(counted["sphereface64"]), table2.units_of(counted[table2.RELEASED])
    assert [a - b for a, b in zip(paper, released, strict=True)] == [0, 1, 0, 0]


def test_cells_are_those_of_the_printed_table(counted):
    table = table2.architecture_table(counted)
    columns = dict(zip(table.head, zip(*(row.cells for row in table.rows), strict=True), strict=True))
    assert columns["layer"] == ("Conv1.x", "Conv2.x", "Conv3.x", "Conv4.x", "FC1")
    assert columns["10-layer CNN"] == (
        "[3x3, 64]x1, S2", "[3x3, 128]x1, S2; [3x3, 128; 3x3, 128]x1", "[3x3, 256]x1, S2; [3x3, 256; 3x3, 256]x2",
        "[3x3, 512]x1, S2", "512",
    )  # fmt: skip
    assert columns["64-layer CNN"][2] == "[3x3, 256]x1, S2; [3x3, 256; 3x3, 256]x16"


def test_a_network_that_differs_from_the_printed_one_is_found(counted):
    other = dict(counted)
    other["sphereface20"] = counted["sphereface36"]
    times = dict.fromkeys(table2.NETWORKS, 1.0)
    assert table2.findings(counted, times)[0].startswith("5 of 5 networks")
    assert table2.findings(other, times)[0].startswith("4 of 5 networks")


def test_parts_are_counted_in_narrow_networks_with_batch_norm_too():
    net = create_model("sphereface10", width=0.125, features=32, norm="batch").eval()
    parts = table2.parts_of(net)
    assert table2.units_of(parts) == STAGES["sphereface10"]
    assert [part.shape for part in parts.values()] == [(8, 56, 48), (16, 28, 24), (32, 14, 12), (64, 7, 6), (32,)]
    assert table2.total(parts, "parameters") == sum(each.numel() for each in net.parameters())
    assert not net.stages[0]._forward_hooks


def test_the_time_of_a_face_is_that_of_a_pass_divided_by_its_faces(monkeypatch):
    monkeypatch.setattr(table2, "NETWORKS", {"sphereface4": "4-layer CNN"})
    seen = {}

    def timed(runs, *, repeats, device):
        seen.update({name: run().shape for name, run in runs.items()})
        return dict.fromkeys(runs, 6.0)

    monkeypatch.setattr(table2, "interleaved", timed)
    assert table2.seconds_per_face(3, 1) == {"sphereface4": 2.0}
    assert seen == {"sphereface4": (3, 512)}


def test_the_result_has_the_counts_as_derived_and_the_speed_as_measured(monkeypatch, setting):
    monkeypatch.setattr(table2, "seconds_per_face", lambda batch, rounds: dict.fromkeys(table2.NETWORKS, 0.25))
    result = table2.run(setting)
    stamps = {table.name: {row.stamp for row in table.rows} for table in result.tables}
    assert stamps == {"architectures": {"derived"}, "cost": {"derived"}, "speed": {"tiny"}}
    assert all(math.isclose(result.numbers[name]["images_per_second"], 4) for name in table2.NETWORKS)
    assert result.write(setting.out).name == "table2"
    assert (setting.out / "table2" / "cost.pdf").stat().st_size > 1_000
