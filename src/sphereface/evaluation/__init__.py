"""The published protocols, one a file."""

from sphereface.evaluation.verification import RULES, Verification, verify_folds

__all__ = ["RULES", "Verification", "verify_folds"]
