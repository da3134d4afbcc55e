"""Fail unless every dependency is installed at the lowest version that pyproject.toml allows."""

import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
wrong = []
extras = project["optional-dependencies"]
for line in project["dependencies"] + extras["plot"] + extras["sface"] + extras["secure"]:
    wanted = Requirement(line)
    (lowest,) = (Version(each.version) for each in wanted.specifier if each.operator == ">=")
    installed = Version(version(wanted.name))
    if (installed.major, installed.minor, installed.micro) != (lowest.major, lowest.minor, lowest.micro):
        wrong.append(f"{line}, but {installed} is installed")
sys.exit("\n".join(wrong) or 0)
