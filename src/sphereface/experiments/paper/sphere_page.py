"""The interactive page of Figure 5: one HTML file with all features along training, and nothing from outside."""

import base64
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files

import numpy as np

from sphereface.arrays import Float64, Floating, unit_rows
from sphereface.experiments.paper.toy import Trained

TEMPLATE = "sphere.html"
FINEST = 32_767  # unit vectors are kept as 16-bit numbers: an angle is right to 0.003 degrees


def sphere_page(runs: Mapping[int, Trained], *, view: Float64, colours: Sequence[str], about: str) -> str:
    """The page of watched runs by m, with the same photos in all; `view` (3, 3) is the first rotation, row by row."""
    first = next(iter(runs.values()))
    content = {
        "steps": first.steps.tolist(),
        "photos": np.bincount(first.labels[first.shown]).tolist(),
        "colours": list(colours),
        "view": np.round(view, 5).ravel().tolist(),
        "about": about,
        "runs": {
            str(m): {"points": quantised(run.history), "weights": quantised(run.weights)} for m, run in runs.items()
        },
    }
    text = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")  # no end of a script inside of it
    template = files("sphereface.experiments.paper").joinpath(TEMPLATE).read_text("utf-8")
    return template.replace(">DATA<", f">{text}<")


def quantised(rows: Floating) -> str:
    """Directions of features (..., 3) as base64 of little-endian 16-bit numbers."""
    unit = unit_rows(rows.reshape(-1, rows.shape[-1]))
    return base64.b64encode(np.round(unit * FINEST).astype("<i2").tobytes()).decode()
