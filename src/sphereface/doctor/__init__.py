"""Checks of the computations on one machine, with a block of text to paste into an issue."""

from sphereface.doctor.examination import examine
from sphereface.doctor.findings import Examination, Finding

__all__ = ["Examination", "Finding", "examine"]
