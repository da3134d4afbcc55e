"""Does it compute here what it should? Checks for one machine, and one block of text to paste into an issue."""

from sphereface.doctor.examination import examine
from sphereface.doctor.findings import Examination, Finding

__all__ = ["Examination", "Finding", "examine"]
