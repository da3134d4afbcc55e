"""MegaFace's curves as files in the devkit's format, one for each number of distractors."""

import re
from pathlib import Path

import numpy as np

from sphereface.arrays import Float64
from sphereface.data.lists.devkit import write_curves
from sphereface.evaluation.protocols.megaface import FARS, MegaFaceResult
from sphereface.metrics.upper_tail import UpperTail

POINTS = 100_000  # of an ROC in a file: some 4 MB


def write_megaface_curves(result: MegaFaceResult, folder: str | Path) -> tuple[Path, ...]:
    """Write CMC and ROC of each size: `cmc_FaceScrub_megaface_1000000.json`, and `..._cleaned.json` without noise."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    probes = re.sub(r"[^A-Za-z0-9-]+", "-", result.probe_set).strip("-") or "probes"
    written = []
    for ending, sizes in (("", result.raw), ("_cleaned", result.cleaned or ())):
        for at_size in sizes:
            far, tar = staircase(at_size.verification)
            path = folder / f"cmc_{probes}_megaface_{at_size.size}{ending}.json"
            write_curves(path, at_size.cmc.tolist(), far.tolist(), tar.tolist())
            written.append(path)
    return tuple(written)


def staircase(tail: UpperTail, *, most: int = POINTS) -> tuple[Float64, Float64]:
    """False and true accept rates at the corners of the exact curve, and at the last known rate.

    TAR at a FAR is that of the last point with at most this FAR: it is constant between corners, so the corners hold
    the whole curve. Of more than `most` corners, those are kept that decide `most` rates, evenly spaced in their
    logarithm, and the printed rates: the curve stays exact at these rates, and every kept point is a corner.
    """
    curve = tail.roc()
    highest = np.append(curve.far[1:] != curve.far[:-1], True)  # TAR of each FAR
    far, tar = curve.far[highest], curve.tar[highest]
    last = 1.0 if tail.is_whole else (len(tail.negatives) - 1) / tail.total
    if last > far[-1]:
        far, tar = np.append(far, last), np.append(tar, tar[-1])
    if len(far) > most:
        rates = np.concatenate([[0, last], np.geomspace(1 / tail.total, last, most), FARS])
        decide = np.searchsorted(far, rates * (1 + 1e-12), side="right") - 1
        kept = np.unique(decide)
        far, tar = far[kept], tar[kept]
    return far, tar
