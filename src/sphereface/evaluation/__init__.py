"""The published protocols, one a file."""

from sphereface.evaluation.lfw import evaluate_bin, evaluate_lfw
from sphereface.evaluation.pairs import PairsResult
from sphereface.evaluation.verification import (
    RULES,
    RuleName,
    Verification,
    VerificationReport,
    side_by_side,
    verification_report,
    verify_folds,
    verify_held_out,
)

__all__ = [
    "RULES",
    "PairsResult",
    "RuleName",
    "Verification",
    "VerificationReport",
    "evaluate_bin",
    "evaluate_lfw",
    "side_by_side",
    "verification_report",
    "verify_folds",
    "verify_held_out",
]
