"""The examples of docs/api.md run, and every name of the front door has one."""

import re
from pathlib import Path

import cv2
import pytest
from skimage import data as samples

import sphereface
from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.data.synthetic.shapes import write_shape
from sphereface.embed.embedder import Embedder
from sphereface.embed.run import embed_set
from tests.engines.networks import write_network

PAGE = (Path(__file__).parents[1] / "docs" / "api.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_every_name_of_the_front_door_has_an_example():
    imported = {name for names in re.findall(r"from sphereface import (.*)", PAGE) for name in names.split(", ")}
    assert set(sphereface.__all__) - {"__version__"} == imported & set(sphereface.__all__)


@pytest.mark.filterwarnings("ignore")
def test_the_examples_run_in_their_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cv2.imwrite("me.jpg", cv2.cvtColor(samples.astronaut(), cv2.COLOR_RGB2BGR))
    for folder, people, photos in (("folder", 8, 3), ("lfw", 20, 2), ("ytf", 20, 2), ("ijb", 8, 6)):
        write_shape(SyntheticPeople(seed=2), Path(folder), people, photos, shape=folder)
    Path("folder").rename("faces")
    write_network(Path("model.safetensors"))
    embed_set("faces", "features", Embedder.load("model.safetensors"))
    names: dict[str, object] = {}
    for number, example in enumerate(EXAMPLES):
        assert len(example.splitlines()) <= 8, example
        exec(compile(example, f"docs/api.md, example {number + 1}", "exec"), names)
    assert names["trained"].outcome == "finished"
