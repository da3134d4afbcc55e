"""The numbers that the paper prints, by table; per cent unless said otherwise."""

from typing import NamedTuple

DEPTHS = (4, 10, 20, 36, 64)


class Pairs(NamedTuple):
    """Accuracy on LFW and YTF; None: not given."""

    lfw: float | None
    ytf: float | None


class MegaFace(NamedTuple):
    """Protocol, rank-1 identification with a million distractors, TAR at FAR 1e-6."""

    protocol: str
    rank_1: float
    tar: float


class System(NamedTuple):
    """A row of Table 4: a face recognition system of others."""

    name: str
    models: int
    data: str  # a star: private
    pairs: Pairs


# Table 3: effect of m, 64 layers.
TABLE_3 = {
    "softmax": Pairs(97.88, 93.1),
    "modified_softmax": Pairs(97.90, 93.2),  # m = 1
    "a_softmax_m2": Pairs(98.40, 93.8),
    "a_softmax_m3": Pairs(99.25, 94.4),
    "a_softmax": Pairs(99.42, 95.0),  # m = 4
}

# Table 4: losses with one 64-layer network on CASIA-WebFace, and systems of others.
TABLE_4 = {
    "softmax": Pairs(97.88, 93.1),
    "contrastive": Pairs(98.78, 93.5),
    "triplet": Pairs(98.70, 93.4),
    "l_softmax": Pairs(99.10, 94.0),
    "center": Pairs(99.05, 94.4),
    "a_softmax": Pairs(99.42, 95.0),
}
SYSTEMS = (
    System("DeepFace", 3, "4M*", Pairs(97.35, 91.4)),
    System("FaceNet", 1, "200M*", Pairs(99.65, 95.1)),
    System("Deep FR", 1, "2.6M", Pairs(98.95, 97.3)),
    System("DeepID2+", 1, "300K*", Pairs(98.70, None)),
    System("DeepID2+", 25, "300K*", Pairs(99.47, 93.2)),
    System("Baidu", 1, "1.3M*", Pairs(99.13, None)),
    System("Center Face", 1, "0.7M*", Pairs(99.28, 94.9)),
    System("Yi et al.", 1, "WebFace", Pairs(97.73, 92.2)),
    System("Ding et al.", 1, "WebFace", Pairs(98.43, None)),
    System("Liu et al.", 1, "WebFace", Pairs(98.71, None)),
)

# Table 5: MegaFace challenge 1, FaceScrub probes.
TABLE_5 = {
    "softmax": MegaFace("small", 54.855, 65.925),
    "contrastive": MegaFace("small", 65.219, 78.865),
    "triplet": MegaFace("small", 64.797, 78.322),
    "l_softmax": MegaFace("small", 67.128, 80.423),
    "center": MegaFace("small", 65.494, 80.146),
    "a_softmax": MegaFace("small", 72.729, 85.561),
    "ensemble": MegaFace("small", 75.766, 89.142),  # three patches
}
MEGAFACE_SYSTEMS = {
    "NTechLAB - facenx large": MegaFace("large", 73.300, 85.081),
    "Vocord - DeepVo1": MegaFace("large", 75.127, 67.318),
    "Deepsense - Large": MegaFace("large", 74.799, 87.764),
    "Shanghai Tech": MegaFace("large", 74.049, 86.369),
    "Google - FaceNet v8": MegaFace("large", 70.496, 86.473),
    "Beijing FaceAll_Norm_1600": MegaFace("large", 64.804, 67.118),
    "Beijing FaceAll_1600": MegaFace("large", 63.977, 63.960),
    "Deepsense - Small": MegaFace("small", 70.983, 82.851),
    "SIAT_MMLAB": MegaFace("small", 65.233, 76.720),
    "Barebones FR - cnn": MegaFace("small", 59.363, 59.036),
    "NTechLAB - facenx_small": MegaFace("small", 58.218, 66.366),
    "3DiVi Company - tdvm6": MegaFace("small", 33.705, 36.927),
}

# Appendix E: ablation on 4 layers: accuracy on LFW and angular Fisher score, by row.
ABLATION = {
    "A": (95.13, 0.3477), "B": (96.37, 0.2835), "C": (96.40, 0.2815), "D": (96.63, 0.2462), "E": (97.67, 0.2277),
    "F": (97.82, 0.1791), "G": (98.20, 0.1709),
}  # fmt: skip

# Appendix F: MegaFace by depth, A-Softmax m = 4.
MEGAFACE_DEPTH = {
    4: MegaFace("small", 57.529, 68.547),
    10: MegaFace("small", 65.335, 78.069),
    20: MegaFace("small", 69.623, 83.159),
    36: MegaFace("small", 71.257, 84.052),
    64: MegaFace("small", 72.729, 85.561),
}

# Figure 6 and its text: LFW and YTF by depth. The bars between 4 and 64 layers are drawn without numbers.
DEPTH_A_SOFTMAX = {4: Pairs(98.20, 93.4), 64: Pairs(99.42, 95.0)}
DEPTH_GAINS = (1.54, 1.91)  # of A-Softmax over softmax at all depths, by the text
DEPTH_SOFTMAX = {4: Pairs(96.60, 91.1), 64: Pairs(97.75, 93.1)}  # the text; Table 3 has 97.88 for 64 layers
