"""Tiny faces, a recipe that is done with them in a second, and runs of it."""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sphereface.data.synthetic.people import SyntheticPeople
from sphereface.training.config import AnnealingConfig, TrainConfig
from sphereface.training.run import train
from sphereface.training.setting import Place

TINY = TrainConfig(
    model="sphereface4", width=0.05, features=16, batch=12, steps=24, milestones=(16,), lr=0.02, clip=5.0,
    annealing=AnnealingConfig(gamma=0.5), loss_options={"m": 3}, checkpoint_every=5, keep=2,
)  # fmt: skip


@pytest.fixture(scope="session")
def faces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faces") / "faces"
    SyntheticPeople(seed=1).write(folder, 8, 5)
    return folder


@pytest.fixture(scope="session")
def whole(faces, tmp_path_factory):
    """A run without interruption."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert run(faces, out).outcome == "finished"
    return out


def run(faces, out, config=TINY, **options):
    """Train in this process."""
    return train(config, Place(faces, out, workers=0, device="cpu", **options), say=lambda _: None)


def arguments(faces, out, *more, config=TINY):
    """The command line's arguments for the same run; its recipe is written beside the run's folder."""
    recipe = Path(out).with_suffix(".toml")
    recipe.write_text(config.toml())
    given = {"--data": faces, "--out": out, "--recipe": recipe, "--workers": 0, "--device": "cpu"}
    return ["train", *(str(part) for pair in given.items() for part in pair), *more]


def command(faces, out, *more, config=TINY):
    """The same as a command."""
    return [sys.executable, "-m", "sphereface", *arguments(faces, out, *more, config=config)]


def weights(out: Path):
    return load_file(out / "model.safetensors")


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@contextmanager
def small_disk(folder: Path, size: str):
    """A disk of its own under a folder; where none can be mounted, the test is skipped."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.fixture
def without_matplotlib(monkeypatch):
    """As where it is not installed."""
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
