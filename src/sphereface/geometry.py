"""The angles of section 3 of the paper: psi, decision boundaries, margins, and the bounds on m.

Everything here is written with plain operators on cosines, so a NumPy array, a torch tensor and a float all work.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

from sphereface.errors import UserError

Number: TypeAlias = Any  # float, NumPy array or torch tensor: anything with arithmetic and "<"; results have its type


def chebyshev(cos: Number, m: int) -> Number:
    """cos(m theta) from cos(theta): T_m(c) = 2 c T_{m-1}(c) - T_{m-2}(c). The margin of equation 6 of the paper."""
    before, here = 0 * cos + 1, cos
    for _ in range(check_m(m) - 1):
        before, here = here, 2 * cos * here - before
    return here


def turning_points(m: int) -> tuple[float, ...]:
    """The cosines cos(j pi / m), j = 1..m-1, of the extrema of cos(m theta): they cut the half circle into m arcs."""
    return tuple(math.cos(j * math.pi / m) for j in range(1, check_m(m)))


def psi(cos: Number, m: int) -> Number:
    """psi(theta) = (-1)^k cos(m theta) - 2k on the k-th of m equal arcs, as a function of cos(theta). Equation 7.

    Continuous and strictly decreasing in theta, from 1 to 1 - 2m. k is the number of turning points above the cosine,
    which needs no acos: its gradient is infinite at +-1.
    """
    k = 0 * cos
    for turning_point in turning_points(m):
        k = k + (cos < turning_point)
    return (1 - 2 * (k % 2)) * chebyshev(cos, m) - 2 * k


class Arc(NamedTuple):
    """A range of angles, in radians."""

    start: float
    stop: float


def rising_arcs(m: int) -> list[Arc]:
    """The arcs beyond pi/m on which cos(m theta) grows with theta, so that equation 6 has a gradient of the wrong sign.

    On these arcs a feature lowers its loss by turning away from its class. psi has no such arc.
    """
    return [Arc(k * math.pi / m, (k + 1) * math.pi / m) for k in range(1, check_m(m), 2)]


def reward_angle(m: int) -> float:
    """The angle 2 pi / (m + 1) beyond which cos(m theta) > cos(theta): equation 6 makes the task easier there."""
    return math.pi if m == 1 else 2 * math.pi / (check_m(m) + 1)


class Acceptance(NamedTuple):
    """Distance of a feature into the region of each class: positive inside, zero on the decision boundary."""

    first: Any
    second: Any


BoundaryOf = Literal["softmax", "modified_softmax", "a_softmax"]


def decision_boundary(
    loss: BoundaryOf, x: Any, w1: Any, w2: Any, *, b1: float = 0.0, b2: float = 0.0, m: int = 4
) -> Acceptance:
    """Table 1 for two classes: the values, above 0 if accepted, of a feature x (..., D) for the first and second class.

    Softmax:          (w1 - w2) x + b1 - b2 = 0
    Modified softmax: |x| (cos theta_1 - cos theta_2) = 0
    A-Softmax:        |x| (cos m theta_1 - cos theta_2) = 0 for class 1, |x| (cos m theta_2 - cos theta_1) = 0 for class
    2, where psi stands for the table's cos m theta: they agree up to pi/m, and only psi separates the classes beyond.
    The first two have one boundary, so the second value is the negative of the first; A-Softmax has two with a gap.
    """
    if loss == "softmax":
        difference = (x * (w1 - w2)).sum(-1) + b1 - b2
        return Acceptance(difference, -difference)
    if loss not in ("modified_softmax", "a_softmax"):
        raise UserError(f"unknown decision boundary {loss!r}; choose one of softmax, modified_softmax, a_softmax")
    m = 1 if loss == "modified_softmax" else m
    length = (x * x).sum(-1) ** 0.5
    cos1 = (x * w1).sum(-1) / (length * (w1 * w1).sum(-1) ** 0.5)
    cos2 = (x * w2).sum(-1) / (length * (w2 * w2).sum(-1) ** 0.5)
    return Acceptance(length * (psi(cos1, m) - cos2), length * (psi(cos2, m) - cos1))


def angular_margin(theta12: Number, m: float) -> Number:
    """The free angle (m - 1) / (m + 1) theta12 between the regions of two classes with weights theta12 apart."""
    return (m - 1) / (m + 1) * theta12


def effective_m(theta12: float, m: int, lambda_: float) -> float:
    """The m of a pure A-Softmax with the same boundary as (lambda cos + psi) / (1 + lambda), for classes theta12 apart.

    With lambda = 5, m = 4 equals 1.87 for classes close together and 1.34 for classes far apart. The boundary lies at
    the theta_1 where that mixture equals cos(theta12 - theta_1).
    """

    def too_far(theta: float) -> bool:
        softened = (lambda_ * math.cos(theta) + psi(math.cos(theta), m)) / (1 + lambda_)
        return bool(softened < math.cos(theta12 - theta))

    return theta12 / first_true(too_far, 0.0, theta12) - 1


def minimal_m_binary() -> float:
    """The smallest real m at which any two classes satisfy the paper's criterion: 2 + sqrt 3.

    Computed from the criterion itself: the regions m theta_1 < theta_2 and m theta_2 < theta_1 are measured in the
    plane of the two weights, for angles up to pi, and m is raised until the largest angle within a class is at most the
    smallest angle between two classes.
    """
    angles = [math.pi * step / 24 for step in range(1, 25)]
    return first_true(lambda m: all(_criterion(m, [0.0, angle]) for angle in angles), 1.01, 10.0)


def minimal_m_uniform(k: int) -> float:
    """The smallest real m at which k classes, evenly spaced in the plane, satisfy the paper's criterion: 3."""
    if k < 2:
        raise UserError(f"k is {k}; wanted at least 2 classes, the least that have a margin")
    weights = [2 * math.pi * place / k for place in range(k)]
    return first_true(lambda m: _criterion(m, weights), 1.01, 10.0)


def _criterion(m: float, weights: list[float]) -> bool:
    """True if the largest angle within a class is at most the smallest between two; weights are plane directions."""
    extents = [(_reach(m, weights, own, -1), _reach(m, weights, own, +1)) for own in range(len(weights))]
    within = max(left + right for left, right in extents)
    order = sorted(range(len(weights)), key=weights.__getitem__)
    between = min(
        (weights[after] - weights[before]) % (2 * math.pi) - extents[before][1] - extents[after][0]
        for before, after in zip(order, order[1:] + order[:1], strict=True)
    )
    return min(within, math.pi) <= between + 1e-12


def _reach(m: float, weights: list[float], own: int, side: int) -> float:
    """The angle that a class's region, m theta_own < theta_other for every other, spans to one side of its weight."""

    def outside(turn: float) -> bool:
        direction = weights[own] + side * turn
        others = [_apart(direction, weight) for place, weight in enumerate(weights) if place != own]
        return m * turn >= min(others)

    return first_true(outside, 0.0, math.pi)


def _apart(a: float, b: float) -> float:
    """The angle between two directions of the plane, 0..pi."""
    turn = abs(a - b) % (2 * math.pi)
    return min(turn, 2 * math.pi - turn)


def first_true(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The point in [low, high] from which on a condition holds, by bisection."""
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def check_m(m: int) -> int:
    """Return m as an int; an error unless it is a whole number of at least 1."""
    if isinstance(m, bool) or not m >= 1 or m == math.inf or int(m) != m:
        raise UserError(f"m is {m!r}; A-Softmax takes a whole number of at least 1")
    return int(m)
