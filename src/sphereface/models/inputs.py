"""Conversion of uint8 faces to the input of a network."""

import torch
from torch import Tensor

from sphereface.arrays import UInt8


def to_input(faces: Tensor) -> Tensor:
    """Faces (N, 3, 112, 96) uint8 as network input: (pixel - 127.5) / 128."""
    return (faces.float() - 127.5) / 128


def to_tensor(faces: UInt8) -> Tensor:
    """Faces (N, 112, 96, 3) as a uint8 tensor (N, 3, 112, 96) on the same memory, so channels last."""
    return torch.from_numpy(faces).permute(0, 3, 1, 2)
