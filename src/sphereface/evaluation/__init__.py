"""Published protocols, tests on your own people and on groups of them, and thresholds for stated error rates."""

from sphereface.choices import PairRule
from sphereface.evaluation.calibration.files import write_calibration
from sphereface.evaluation.calibration.measure import calibrate, calibrate_features
from sphereface.evaluation.calibration.model import calibrate_model
from sphereface.evaluation.calibration.result import Calibration
from sphereface.evaluation.groups.compare import evaluate_groups
from sphereface.evaluation.groups.result import GroupReport
from sphereface.evaluation.protocols.folder import FolderResult, evaluate_folder
from sphereface.evaluation.protocols.ijb import IjbResult, evaluate_ijb
from sphereface.evaluation.protocols.lfw import evaluate_lfw
from sphereface.evaluation.protocols.megaface import MegaFaceResult, evaluate_megaface
from sphereface.evaluation.protocols.megaface_files import MegaFaceSet, load_megaface
from sphereface.evaluation.protocols.ytf import VideosResult, evaluate_ytf
from sphereface.evaluation.rules.identification import Identification, identify
from sphereface.evaluation.rules.pairs import PairsResult
from sphereface.evaluation.rules.verification import (
    RULES,
    Verification,
    VerificationReport,
    side_by_side,
    verification_report,
    verify_folds,
    verify_held_out,
)

__all__ = [
    "RULES", "Calibration", "FolderResult", "GroupReport", "Identification", "IjbResult", "MegaFaceResult",
    "MegaFaceSet", "PairRule", "PairsResult", "Verification", "VerificationReport", "VideosResult", "calibrate",
    "calibrate_features", "calibrate_model", "evaluate_folder", "evaluate_groups", "evaluate_ijb", "evaluate_lfw",
    "evaluate_megaface", "evaluate_ytf", "identify", "load_megaface", "side_by_side", "verification_report",
    "verify_folds", "verify_held_out", "write_calibration",
]  # fmt: skip
