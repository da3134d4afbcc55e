"""The place of an experiment: its scale, data and folders."""

from dataclasses import dataclass, field
from pathlib import Path

from sphereface.choices import Scale
from sphereface.progress import Say, mute

SEEDS: dict[Scale, tuple[int, ...]] = {"tiny": (0,), "small": (0, 1, 2), "paper": (0,)}


@dataclass(frozen=True)
class Data:
    """The sets that were given; None: synthetic faces, and scikit-learn's digits."""

    faces: tuple[Path, ...] = ()  # people to train on
    lfw: Path | None = None
    ytf: Path | None = None
    megaface: Path | None = None
    mnist: Path | None = None


@dataclass(frozen=True)
class Setting:
    """What every experiment is given."""

    scale: Scale = "tiny"
    data: Data = field(default_factory=Data)
    runs: Path = Path("runs/reproduce")  # training runs and drawn faces; may be removed
    out: Path = Path("runs/reproduce/results")  # outcomes of runs, and what they are shown as
    jobs: int = 2  # runs at a time, which share the cores
    say: Say = mute

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of every comparison."""
        return SEEDS[self.scale]
