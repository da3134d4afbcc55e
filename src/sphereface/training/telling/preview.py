"""The preview of a schedule as one page: rate, lambda and effective margin over the steps."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sphereface.errors import UserError
from sphereface.geometry import angular_margin, effective_m
from sphereface.reports import figures
from sphereface.reports.figures import Line, Panel
from sphereface.reports.html import Report
from sphereface.training.telling.report import NO_PICTURES, ROWS, can_draw

NEAR, RIGHT_ANGLE, OPPOSITE = 1e-2, math.pi / 2, math.pi  # angles between two classes


class Planned(NamedTuple):
    """A schedule at one step; margins are effective ones, at the lambda of that step."""

    step: int  # the first is 1
    lr: float
    lambda_: float | None = None
    near: float | None = None  # effective m between two classes close together
    right_angle: float | None = None  # two classes 90 degrees apart, as most are
    opposite: float | None = None
    margin: float | None = None  # angle left between two classes 90 degrees apart, in degrees


def plan(lr: Sequence[float], lambdas: Sequence[float] | None, m: int | None, places: Iterable[int]) -> list[Planned]:
    """A schedule at some places; lr and lambdas have one value a step.

    The target logit of A-Softmax is (lambda cos(theta) + psi(theta)) / (1 + lambda). Between two classes with weights
    theta12 apart, it meets the other class's cos(theta12 - theta) at an angle theta_1; a pure A-Softmax has its
    boundary at theta12 / (m + 1). So the effective margin is m' = theta12 / theta_1 - 1 (`geometry.effective_m`). It is
    m where lambda is 0, falls to 1 as lambda grows, and tends to sqrt((lambda + m^2) / (lambda + 1)) for classes close
    together.
    """
    if not lr:
        raise UserError("a schedule of 0 steps; wanted at least 1")
    if lambdas is not None and len(lambdas) != len(lr):
        raise UserError(f"{len(lr):,} rates and {len(lambdas):,} lambdas; wanted one of either for each step")
    rows = []
    for place in places:
        row = Planned(place + 1, float(lr[place]), None if lambdas is None else float(lambdas[place]))
        if m is not None:
            angles = NEAR, RIGHT_ANGLE, OPPOSITE
            near, right, opposite = (effective_m(angle, m, row.lambda_ or 0.0) for angle in angles)
            margin = math.degrees(angular_margin(RIGHT_ANGLE, right))
            row = row._replace(near=near, right_angle=right, opposite=opposite, margin=margin)
        rows.append(row)
    return rows


def turning_places(lr: Sequence[float], lambdas: Sequence[float] | None) -> list[int]:
    """The places of a schedule for the table: start, end, quarters, falls of the rate, and lambda's minimum."""
    last = len(lr) - 1
    falls = [place + 1 for place, (before, after) in enumerate(pairwise(lr)) if after < 0.6 * before]
    ends = [] if lambdas is None else [int(np.argmin(lambdas))]
    return sorted({0, last // 100, last // 10, last // 4, last // 2, 3 * last // 4, last, *falls[:ROWS], *ends})


def preview(lr: Sequence[float], lambdas: Sequence[float] | None = None, m: int | None = None) -> Report:
    """A page with rate, lambda and effective margin of each step of a schedule.

    `lambdas` is None for losses without annealing, `m` for losses without a multiple of the angle as margin.

    >>> preview([config.lr_at(step) for step in range(config.steps)], lambdas, m=4).write(Path("preview.html"))
    """
    rows = plan(lr, lambdas, m, turning_places(lr, lambdas))
    page = Report("Preview of the schedule", f"{len(lr):,} steps, before training")
    if can_draw():
        panels = _preview_panels(lr, lambdas, m)
        says = f"Over the steps: {', '.join(panel.title for panel in panels)}"
        page.figure(figures.over_steps(panels, says=says), "The schedule, step by step.")
    else:
        page.text(NO_PICTURES, note=True)
    if m is not None:
        page.text(
            f"While lambda is above 0, m = {m} acts like a smaller one: the m of a pure A-Softmax with the same "
            "boundary. It depends on the angle between two classes: close together, at a right angle, as most are, or "
            "opposite. The free angle is the margin between two classes at a right angle."
        )
    heads = (
        "step",
        "learning rate",
        "lambda",
        "acts like m: close",
        "at 90\u00b0",
        "at 180\u00b0",
        "free angle at 90\u00b0",
    )
    shown = [column for column in range(len(heads)) if rows[0][column] is not None]
    page.table(
        [heads[column] for column in shown],
        [[f"{row.step:,}", *(f"{row[column]:.4g}" for column in shown[1:])] for row in rows],
    )
    return page


def _preview_panels(lr: Sequence[float], lambdas: Sequence[float] | None, m: int | None) -> list[Panel]:
    steps = range(1, len(lr) + 1)
    panels = [Panel("learning rate", [Line("lr", steps, lr)], logarithmic=True)]
    if lambdas is not None:
        panels.append(Panel("lambda", [Line("lambda", steps, lambdas)], logarithmic=True))
    if m is not None:
        # Dense at the start, where lambda falls fast; few enough to be computed at once.
        dense = [np.linspace(0, len(lr) - 1, 150), np.geomspace(1, len(lr), 100) - 1]
        rows = plan(lr, lambdas, m, np.unique(np.concatenate(dense).round().astype(int)).tolist())
        at = [row.step for row in rows]
        lines = [
            Line("close classes", at, [row.near for row in rows]),
            Line("90 degrees apart", at, [row.right_angle for row in rows]),
            Line("opposite", at, [row.opposite for row in rows]),
        ]
        panels.append(Panel(f"m = {m} acts like", lines))
    return panels
