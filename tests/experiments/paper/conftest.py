"""A plan and sets small enough for tests, in place of those of the scale tiny."""

from pathlib import Path

import pytest

from sphereface.experiments.paper import material, plans
from sphereface.experiments.paper.setting import Setting


@pytest.fixture(scope="session")
def drawn_once(tmp_path_factory):
    return tmp_path_factory.mktemp("paper")


@pytest.fixture
def small_plan(monkeypatch):
    """The plan tiny with few steps, two rates to search, weights and folds; and fewer drawn people."""
    tiny = plans.PLANS["tiny"]
    plan = plans.Plan(
        tiny.base.with_steps(4).changed(batch=16), rates=(0.02, 0.05), weights={"center": (0.001, 0.01)},
        search_steps=2, held_out=4, folds=2, depths=(4, 10), far=1e-2, rounds=19,
    )  # fmt: skip
    monkeypatch.setitem(plans.PLANS, "tiny", plan)
    for name, people in {"TRAIN": 12, "LFW": 20}.items():
        monkeypatch.setattr(material, name, getattr(material, name)._replace(people=people))
    return plan


@pytest.fixture
def setting(drawn_once, tmp_path: Path) -> Setting:
    """A setting whose drawn faces are shared, and whose results are not."""
    return Setting(scale="tiny", runs=drawn_once / "runs", out=tmp_path / "out", jobs=1)
