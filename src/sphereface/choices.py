"""Choices by name: the values that library functions and command-line options share, each list once.

Nothing is imported here, so that `sphereface --help` can list the choices without loading the library.
"""

from typing import Literal

# Models and features.
Engine = Literal["auto", "onnxruntime", "torch"]
FeatureRule = Literal["concatenate", "sum", "image"]  # image and mirror image, or the image alone

# Sets of faces.
Missing = Literal["fail", "skip"]  # images that are absent or cannot be read
SetFormat = Literal["folder", "rec", "tar", "zip", "list"]
Shape = Literal["folder", "lfw", "ytf", "megaface", "ijb"]  # of a synthetic set
Skin = Literal["light", "medium", "dark"]
Age = Literal["young", "middle", "old"]

# From photos to faces.
DetectorName = Literal["mtcnn", "yunet"]
Preset = Literal["paper", "fast"]
WhichFace = Literal["centre", "largest", "all"]  # of several in a photo
Template = Literal["sphereface", "matlab"]
Misses = Literal["skip", "centre", "fail"]  # photos without a face
ImageFormat = Literal["jpg", "png"]

# Protocols.
PairRule = Literal["authors", "insightface", "best"]  # where mean and threshold come from, what a tie is worth
Small = Literal["refuse", "leave-out"]  # groups that are too small to judge
FramePolicy = Literal["mean-feature", "mean-score", "max-score"]
IjbName = Literal["ijbb", "ijbc"]
Repeats = Literal["fail", "keep"]  # pairs that are listed twice
ProtocolSize = Literal["small", "large"]  # of MegaFace, by the number of training images
Weigh = Literal["people", "pairs"]
