"""The published protocols, one a file; your own people, groups among them, and thresholds for stated rates."""

from sphereface.evaluation.calibrate import Calibration, calibrate, calibrate_features, write_calibration
from sphereface.evaluation.calibrate_model import calibrate_model
from sphereface.evaluation.folder import FolderResult, evaluate_folder
from sphereface.evaluation.group_report import GroupReport
from sphereface.evaluation.groups import evaluate_groups
from sphereface.evaluation.identification import Identification, identify
from sphereface.evaluation.ijb import IjbResult, evaluate_ijb
from sphereface.evaluation.lfw import evaluate_bin, evaluate_lfw
from sphereface.evaluation.megaface import MegaFaceResult, evaluate_megaface
from sphereface.evaluation.megaface_files import MegaFaceSet, load_megaface
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
from sphereface.evaluation.ytf import VideosResult, evaluate_ytf

__all__ = [
    "RULES",
    "Calibration",
    "FolderResult",
    "GroupReport",
    "Identification",
    "IjbResult",
    "MegaFaceResult",
    "MegaFaceSet",
    "PairsResult",
    "RuleName",
    "Verification",
    "VerificationReport",
    "VideosResult",
    "calibrate",
    "calibrate_features",
    "calibrate_model",
    "evaluate_bin",
    "evaluate_folder",
    "evaluate_groups",
    "evaluate_ijb",
    "evaluate_lfw",
    "evaluate_megaface",
    "evaluate_ytf",
    "identify",
    "load_megaface",
    "side_by_side",
    "verification_report",
    "verify_folds",
    "verify_held_out",
    "write_calibration",
]
