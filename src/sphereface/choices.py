"""Choices that functions and command-line options share; imports only typing, so that `sphereface --help` is fast."""

from typing import Literal

# Models and features.
Engine = Literal["auto", "onnxruntime", "torch"]
FeatureRule = Literal["concatenate", "sum", "image"]  # of image and mirror image, or of the image only

# Sets of faces.
Missing = Literal["fail", "skip"]  # missing or unreadable images
SetFormat = Literal["folder", "rec", "tar", "zip", "list"]
Shape = Literal["folder", "lfw", "ytf", "megaface", "ijb"]  # of a synthetic set
Skin = Literal["light", "medium", "dark"]
Age = Literal["young", "middle", "old"]

# From photos to faces.
DetectorName = Literal["mtcnn", "yunet", "fast"]  # fast: yunet
Preset = Literal["paper", "fast"]
WhichFace = Literal["centre", "largest", "all"]  # of several faces in a photo
Template = Literal["sphereface", "matlab"]
Misses = Literal["skip", "centre", "fail"]  # photos without a face
ImageFormat = Literal["jpg", "png"]

# Protocols.
PairRule = Literal["authors", "insightface", "best"]  # sources of mean and threshold, score of a tie
Small = Literal["refuse", "leave-out"]  # groups that are too small for an error rate
FramePolicy = Literal["mean-feature", "mean-score", "max-score"]
IjbName = Literal["ijbb", "ijbc"]
Repeats = Literal["fail", "keep"]  # pairs that are listed twice
ProtocolSize = Literal["small", "large"]  # of MegaFace, by the number of training images
Weigh = Literal["people", "pairs"]
Part = Literal["labels", "students", "model"]  # of `reproduce mini`
ClassWeights = Literal["free", "teacher"]  # of a student's classifier: learned, or the teacher's mean of each person
Scale = Literal["tiny", "small", "paper"]  # of an experiment: seconds, hours, the paper's
