"""Our networks run by torch: for a device that onnxruntime has no part for, and to check the others against."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from sphereface.arrays import Float32
from sphereface.zoo import ModelFile

if TYPE_CHECKING:
    from torch import nn


_counting = threading.Lock()


class TorchNetwork:
    """A network (N, 3, 112, 96) -> (N, D) from a `.safetensors` file.

    A number of `threads` is in force while it runs; torch's own is restored after each run. Networks with a number take
    turns, and a Python thread that starts during a run may inherit that run's number.
    """

    def __init__(self, file: ModelFile, *, threads: int | None = None, device: str = "cpu") -> None:
        try:
            import torch
        except ModuleNotFoundError as error:
            raise ImportError(
                "the engine torch needs torch, which is not installed; onnxruntime runs the same models without it",
                name=error.name,
            ) from error
        from sphereface.models.files import network_of
        from sphereface.models.spherefacenet import HEIGHT, WIDTH

        self.size, self._threads = (HEIGHT, WIDTH), threads
        self._net = network_of(file, device=torch.device(device)).float()
        self._net = self._net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def run(self, inputs: Float32) -> Float32:
        """Features of preprocessed faces."""
        with torch_threads(self._threads):
            return run_network(self._net, inputs)


def run_network(net: "nn.Module", inputs: Float32) -> Float32:
    """Features (N, D) of preprocessed faces (N, 3, H, W), by a network on its own device; its mode is the caller's."""
    import torch

    device = next(net.parameters()).device
    # TF32 would keep 10 bits of each number: features would differ from other engines' in the third digit.
    with torch.inference_mode(), torch.backends.cudnn.flags(allow_tf32=False):
        faces = torch.from_numpy(inputs).to(device, memory_format=torch.channels_last)
        return np.asarray(net(faces).float().cpu().numpy(), np.float32)


@contextmanager
def torch_threads(number: int | None) -> Iterator[None]:
    """Let torch compute with a number of threads for as long as the block runs; None leaves it as it is."""
    import torch

    if number is None:
        yield
        return
    with _counting:
        before = torch.get_num_threads()
        torch.set_num_threads(number)
        try:
            yield
        finally:
            torch.set_num_threads(before)
