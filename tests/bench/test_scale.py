"""The formulas of docs/guides/scale.md against what real processes hold and send."""

import re
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from sphereface import parallel
from sphereface.bench import scale
from sphereface.models import create_model

DOCS = (Path(__file__).parents[2] / "docs" / "guides" / "scale.md").read_text()


@pytest.fixture(scope="module")
def measured():
    said = []
    result = scale.bench_scale(classes=80_000, ranks=(2,), say=said.append)
    assert len(said) == 1
    return result


def test_a_shard_of_two_holds_little_more_than_half(measured):
    (memory,) = measured["memory"]
    assert memory["sharded_to_replicated"] <= 0.55
    for kind in ("sharded", "replicated"):
        assert memory[kind]["measured"] > memory[kind]["formula"]  # an optimizer step needs room on top
        assert memory[kind]["measured"] < 1.6 * memory[kind]["formula"]


def test_the_bytes_sent_are_those_of_the_formulas(measured):
    rows = measured["sent"]
    assert [(row["ranks"], row["classifier"]) for row in rows] == [(2, "sharded"), (2, "replicated")]
    for row in rows:
        formula, counted = row["formula"], row["counted"]
        if row["classifier"] == "sharded":
            assert counted["all_gather"] == formula["features"] + formula["labels"] + formula["partials"] // 2
            assert counted["exchange"] == formula["d_features"] + formula["partials"] // 2
        else:
            assert counted["all_reduce"] == formula["classifier"]
        if row["written"] is not None:
            headers = row["written"] - row["formula_total"]
            assert 0 <= headers < 10_000, row


def test_the_formulas_at_a_size_that_one_can_check_by_hand():
    setup = scale.Setup(ranks=4, classes=1000, batch=8, features=10, backbone=100)
    assert scale.classifier_bytes(setup) == dict.fromkeys(("weights", "gradients", "momentum"), 10_000) | {
        "logits": 8 * 250 * 4,
        "batch": 8 * (8 * 10 * 4),
    }
    assert scale.most_bytes(setup) == 4 * 10_000 + 8_000 + 2_560
    sent = scale.bytes_sent(setup)
    assert sent == {"backbone": 600, "features": 240, "labels": 48, "partials": 144, "d_features": 240}
    whole = scale.Setup(ranks=4, classes=1000, batch=8, features=10, backbone=100, sharded=False)
    assert scale.bytes_sent(whole) == {"backbone": 600, "classifier": 60_000}
    assert scale.classifier_bytes(whole)["logits"] == 2 * 1000 * 4
    assert scale.classifier_bytes(whole)["batch"] == 8 * (2 * 10 * 4)


def peak_of_a_large_batch(setup):
    torch.set_num_threads(1)
    return scale.classifier_peak(scale.Setup(**setup))


def test_a_large_batch_takes_what_the_formula_says_and_what_the_network_gave():
    """A batch of 32,768 with few classes: besides the formula, features and gradient of the process's own half."""
    setup = scale.Setup(2, 64, 32_768)
    own = 2 * setup.batch // 2 * setup.features * 4
    for peak in parallel.launch(peak_of_a_large_batch, 2, asdict(setup)):
        assert peak == pytest.approx(scale.most_bytes(setup) + own, rel=0.12)


def test_the_page_shows_the_table_that_the_formulas_make():
    assert scale.table() in DOCS


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("kind", scale.KINDS)
def test_the_measured_bytes_on_the_page_are_those_of_the_formulas_and_headers(ranks, kind):
    net = create_model("sphereface4", width=0.25, features=512)
    backbone = sum(parameter.numel() for parameter in net.parameters())
    setup = scale.Setup(ranks, 6_000, 96, 512, backbone, sharded=scale.KINDS[kind])
    shown = re.search(rf"^\| {ranks} \| {kind} \| ([\d,]+) \| ([\d,]+) \|$", DOCS, re.MULTILINE)
    formula, found = (int(number.replace(",", "")) for number in shown.groups())
    assert formula == sum(scale.bytes_sent(setup).values())
    assert 0 <= found - formula < 10_000
