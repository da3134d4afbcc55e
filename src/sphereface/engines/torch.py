"""Our networks in torch: for devices other than the cpu, and as the reference for other engines."""

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

    With `threads`, a run sets torch's number of threads and restores it afterwards. Such runs exclude one another, and
    a Python thread that starts during a run may inherit its number.
    """

    def __init__(self, file: ModelFile, *, threads: int | None = None, device: str = "cpu") -> None:
        try:
            import torch
        except ModuleNotFoundError as error:
            message = "the engine torch needs torch, which is not installed; use the engine onnxruntime"
            raise ImportError(message, name=error.name) from error
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
    """Features (N, D) of preprocessed faces (N, 3, H, W), on the network's device and in its current mode."""
    import torch

    device = next(net.parameters()).device
    # TF32 keeps 10 bits of each number: features would differ from those of other engines in the third digit.
    with torch.inference_mode(), torch.backends.cudnn.flags(allow_tf32=False):
        faces = torch.from_numpy(inputs).to(device, memory_format=torch.channels_last)
        return np.asarray(net(faces).float().cpu().numpy(), np.float32)


@contextmanager
def torch_threads(number: int | None) -> Iterator[None]:
    """Set torch's number of threads inside the block; None leaves it unchanged."""
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
