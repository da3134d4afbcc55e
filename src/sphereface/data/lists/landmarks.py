"""Landmarks in plain text: `path x1 y1 ... x5 y5` on each line, a line for each face."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sphereface.arrays import Float64, Floating
from sphereface.data.files.lines import finite_number, read_lines
from sphereface.data.files.writing import whole_file
from sphereface.data.names import checked
from sphereface.errors import UserError


def read_landmarks(path: str | Path) -> dict[str, Float64]:
    """The five points of each face of an image, (N, 5, 2), by path."""
    points: dict[str, list[list[float]]] = {}
    for line in read_lines(Path(path)):
        name, *fields = line.text.rstrip().rsplit(maxsplit=10)
        values = [value for value in map(finite_number, fields) if value is not None]
        if len(values) != 10:
            raise line.wrong("`path x1 y1 x2 y2 x3 y3 x4 y4 x5 y5`")
        points.setdefault(checked(name, line), []).append(values)
    return {name: np.array(faces, dtype=np.float64).reshape(-1, 5, 2) for name, faces in points.items()}


def write_landmarks(path: str | Path, landmarks: Mapping[str, Floating]) -> None:
    """Write what `read_landmarks` reads, each number in full: points (N, 5, 2), or (5, 2) for one face."""
    with whole_file(path) as file:
        for name, points in landmarks.items():
            if points.shape[-2:] != (5, 2) or not np.isfinite(points).all() or name != name.strip():
                raise UserError(f"{name!r} with landmarks {points.shape}; wanted finite points (N, 5, 2)")
            for face in points.reshape(-1, 10).tolist():
                file.write(f"{checked(name, path)} {' '.join(map(repr, face))}\n".encode())
