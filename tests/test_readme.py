"""What the README shows is true."""

import json
import re
from pathlib import Path

import cv2
import pytest
from skimage import data as samples

from sphereface.contract import Threshold
from sphereface.engines.convert import convert
from sphereface.zoo import ModelFile
from sphereface.zoo.cards import ENTRIES
from sphereface.zoo.finding import find_installed
from tests.engines.networks import write_network

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


@pytest.mark.skipif(find_installed(ENTRIES["mini"]) is None, reason="sphereface-mini is not installed")
def test_the_examples_run_and_are_short(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    threshold = Threshold(score=0.5, far=1e-3, measured_on="some people")
    write_network(Path("model.safetensors"), thresholds=(threshold,))
    file = ModelFile("model.safetensors")
    Path("model.onnx").write_bytes(convert(file.content, file.card, source="model.safetensors"))
    for name in ("left.jpg", "right.jpg"):
        cv2.imwrite(name, cv2.cvtColor(samples.astronaut(), cv2.COLOR_RGB2BGR))
    names: dict[str, object] = {}
    for example in re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL):
        assert len(example.splitlines()) <= 14
        exec(compile(example, "README.md", "exec"), names)
    assert names["score"] == pytest.approx(1)
    assert names["same"]
    assert names["names"] == ["Eileen"]
    assert names["loss"].step == 5


def test_it_describes_what_exists():
    assert not re.search(r"\b(coming|on its way|planned|not yet|soon)\b", README)


@pytest.mark.parametrize("line", re.findall(r"^    (sphereface .*?)(?: {2,}#.*)?$", README, flags=re.MULTILINE))
def test_every_command_is_one_that_the_command_line_takes(line):
    import shlex

    import typer.main

    from sphereface.cli import app

    command, arguments = typer.main.get_command(app), shlex.split(line)[1:]
    while hasattr(command, "commands"):  # some verbs are made when they are asked for
        command = command.get_command(None, arguments.pop(0))
    command.make_context(line, arguments)  # which raises what a user would be told


def head() -> dict:
    return json.loads((ROOT / "results" / "head.json").read_text())


def test_the_numbers_of_the_readme_are_those_of_the_results():
    result = head()
    small, large = result["rows"]
    shown = re.search(r"\| A-Softmax, m = 4 \| ([\d.]+) x time \| ([\d.]+) x time, ([\d.]+) x memory", README)
    peak = large["peak_megabytes"]
    assert float(shown[1]) == round(small["ratio_to_plain"]["a_softmax"], 2)
    assert float(shown[2]) == round(large["ratio_to_plain"]["a_softmax"], 2)
    assert float(shown[3]) == round(peak["a_softmax"] / peak["plain"], 2)
    peer = re.search(r"SphereFaceLoss \| ([\d.]+) x time \| ([\d.]+) x time, ([\d.]+) x memory", README)
    assert float(peer[1]) == round(small["ratio_to_plain"]["pytorch_metric_learning"], 2)
    assert float(peer[2]) == round(large["ratio_to_plain"]["pytorch_metric_learning"], 2)
    assert float(peer[3]) == round(peak["pytorch_metric_learning"] / peak["plain"], 2)
    chunked = re.search(r"need (\d+) MB beyond", README)
    assert int(chunked[1]) == round(result["chunked"]["peak_megabytes_beyond_weights_and_gradient"])


@pytest.mark.parametrize(("classes", "limit"), [(10_572, 1.15), (85_742, 1.0)])
def test_the_kept_benchmark_holds_its_limits(classes, limit):
    (row,) = [row for row in head()["rows"] if row["classes"] == classes]
    assert row["ratio_to_plain"]["a_softmax"] <= limit
    assert row["peak_megabytes"]["a_softmax"] <= row["peak_megabytes"]["plain"]
    assert head()["chunked"]["peak_megabytes_beyond_weights_and_gradient"] < 400
    assert head()["repeats"] == 9


def test_every_loss_stands_in_the_table_of_modes_as_it_is():
    from sphereface.losses import LOSSES, MODES

    docs = (ROOT / "docs" / "reference" / "losses.md").read_text()
    rows = {
        row[0]: row[1:]
        for row in re.findall(r"^\| `(\w+)`.*?\| (yes|no) \| (yes|no) \| (yes|no) \|", docs, re.MULTILINE)
    }
    assert rows.keys() == LOSSES.keys()
    for name, cells in rows.items():
        assert [cell == "yes" for cell in cells] == [mode in MODES[name] for mode in ("fused", "chunked", "sampled")]
