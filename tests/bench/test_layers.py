"""A small version of the benchmark of layers."""

import pytest
import torch
from torch import nn

from sphereface.bench import layers
from sphereface.models.cpu.prelu import PReLU
from sphereface.models.cpu.winograd import Conv3x3


def test_every_layer_is_measured_at_every_stage_against_torchs():
    rows = layers.bench_layers(repeats=1, batch=1, widths=(2, 3, 4, 5))["rows"]
    assert [row["layer"] for row in rows] == 4 * ["convolution", "prelu"]
    assert [row["input"] for row in rows[::2]] == [[1, 2, 56, 48], [1, 3, 28, 24], [1, 4, 14, 12], [1, 5, 7, 6]]
    for row in rows:
        assert row["speedup"] == pytest.approx(row["seconds"]["torch"] / row["seconds"]["ours"])


def test_the_two_of_a_pair_compute_the_same():
    for ours, theirs in layers.pairs(64).values():
        assert isinstance(ours, PReLU | Conv3x3)
        assert type(theirs) in (nn.PReLU, nn.Conv2d)
        theirs.load_state_dict(ours.state_dict())
        for own, other in zip(*(layers.backward_pass(layer, (2, 64, 4, 6))() for layer in (ours, theirs)), strict=True):
            torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-4)
