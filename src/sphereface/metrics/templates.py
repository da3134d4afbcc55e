"""A person's template: the unit mean of the unit features of some photos."""

import numpy as np

from sphereface.arrays import Float32, Floating, Integers, unit_rows


def pool(units: Floating, owner: Integers, count: int) -> Float32:
    """The templates (count, D) of people from unit features (N, D); `owner` (N,) is the person of each, 0..count-1.

    Sums are in float64 and in the order of the rows; a person without photos has a template of zeros.
    """
    sums = np.zeros((count, units.shape[1]))
    np.add.at(sums, owner, units)
    return unit_rows(sums).astype(np.float32)
