"""How runs and differences stand in the tables of our pages."""

from collections.abc import Sequence

import numpy as np

from sphereface.metrics import Paired


def mean_and_each(values: Sequence[float], form: str = "{:.2%}") -> str:
    """The mean over runs, then each of them: `90.00% (89.00%, 91.00%)`."""
    each = ", ".join(form.format(value) for value in values)
    return f"{form.format(float(np.mean(values)))} ({each})"


def difference_text(paired: Paired, *, unit: float = 100, form: str = "{:+.2f}") -> str:
    """A difference in points, its 95 % interval, its standard errors: `+3.00 [+2.00, +4.00], +6.0 SE`."""
    low, high = (form.format(unit * end) for end in paired.interval)
    return f"{form.format(unit * paired.difference)} [{low}, {high}], {paired.in_standard_errors:+.1f} SE"
