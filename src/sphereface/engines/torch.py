"""Our networks run by torch: for a device that onnxruntime has no part for, and to check the others against."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sphereface.contract import Card, read_card

Floats = NDArray[np.float32]


class TorchNetwork:
    """A network (N, 3, 112, 96) -> (N, D) from a `.safetensors` file."""

    def __init__(self, path: str | Path, *, threads: int | None = None, device: str = "cpu") -> None:
        try:
            import torch
        except ModuleNotFoundError as error:
            raise ImportError(
                "the engine torch needs torch, which is not installed; onnxruntime runs the same models without it",
                name=error.name,
            ) from error
        from sphereface.models import load_model
        from sphereface.models.spherefacenet import HEIGHT, WIDTH

        if threads is not None:
            torch.set_num_threads(threads)
        self._card, self.size, self._device = read_card(path), (HEIGHT, WIDTH), torch.device(device)
        self._net = load_model(path, device=self._device).float()
        self._net = self._net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def run(self, inputs: Floats) -> Floats:
        """Features of preprocessed faces."""
        import torch

        # TF32 would keep 10 bits of each number: features would differ from other engines' in the third digit.
        with torch.inference_mode(), torch.backends.cudnn.flags(allow_tf32=False):
            faces = torch.from_numpy(inputs).to(self._device, memory_format=torch.channels_last)
            return np.asarray(self._net(faces).cpu().numpy(), np.float32)

    def card(self) -> Card:
        """The file's card."""
        return self._card
