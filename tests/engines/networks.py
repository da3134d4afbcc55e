"""Small networks of ours made without torch, and a second, slower way to run them."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from safetensors.numpy import save

from sphereface.contract import STAGES, Architecture, Card


def write_network(
    path, *, units=(0, 0, 0, 0), channels=(2, 3, 4, 5), features=6, norm=None, last_relu=False, dtype=np.float32, **card
):
    """A `.safetensors` with random weights, called as torch calls those of create_model; returns its tensors."""
    rng = np.random.default_rng(0)
    tensors = {}

    def layer(prefix, place, inputs, width, bias):
        tensors[f"{prefix}.{place}.weight"] = rng.normal(size=(width, inputs, 3, 3)) / (3 * np.sqrt(inputs))
        if norm is None and bias:
            tensors[f"{prefix}.{place}.bias"] = rng.normal(size=width)
        if norm is not None:
            place += 1
            for part in ("weight", "bias", "running_mean"):
                tensors[f"{prefix}.{place}.{part}"] = rng.normal(size=width)
            tensors[f"{prefix}.{place}.running_var"] = rng.uniform(0.1, 2, width)
            tensors[f"{prefix}.{place}.num_batches_tracked"] = np.array(7)
        tensors[f"{prefix}.{place + 1}.weight"] = rng.uniform(-0.5, 1.5, width)
        return place + 2

    place, inputs = 0, 3
    for width, count in zip(channels, units, strict=True):
        place = layer("stages", place, inputs, width, bias=True)
        for _ in range(count):
            middle = layer(f"stages.{place}.body", 0, width, width, bias=False)
            layer(f"stages.{place}.body", middle, width, width, bias=False)
            place += 1
        inputs = width
    tensors["fc1.weight"] = rng.normal(size=(features, inputs * 42)) / 6
    tensors["fc1.bias"] = rng.normal(size=features)
    if norm == "batch-all":
        for part in ("weight", "bias", "running_mean"):
            tensors[f"fc1_norm.{part}"] = rng.normal(size=features)
        tensors["fc1_norm.running_var"] = rng.uniform(0.1, 2, features)
        tensors["fc1_norm.num_batches_tracked"] = np.array(7)
    stored = {name: value if value.dtype == np.int64 else value.astype(dtype) for name, value in tensors.items()}
    (name,) = [each for each, stages in STAGES.items() if stages == units]
    architecture = Architecture(name=name, features=features, norm=norm, last_relu=last_relu)
    path.write_bytes(save(stored, metadata=Card(architecture=architecture, **card).metadata()))
    return stored


def run_slowly(tensors, faces, *, last_relu=False):
    """What such a network computes, in float64, layer by layer as the paper draws it; batch norm stands by itself."""

    def sequence(x, prefix, stride):
        place = 0
        while True:
            here = f"{prefix}.{place}"
            if f"{here}.body.0.weight" in tensors:
                x = x + sequence(x, f"{here}.body", 1)
            elif f"{here}.running_mean" in tensors:
                gain, shift, mean, variance = (
                    tensors[f"{here}.{part}"].astype(float)[:, None, None]
                    for part in ("weight", "bias", "running_mean", "running_var")
                )
                x = (x - mean) / np.sqrt(variance + 1e-5) * gain + shift
            elif f"{here}.weight" not in tensors:
                return x
            elif tensors[f"{here}.weight"].ndim == 4:
                windows = sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3))
                x = np.einsum("nchwij,dcij->ndhw", windows[:, :, ::stride, ::stride], tensors[f"{here}.weight"])
                x = x + tensors.get(f"{here}.bias", np.zeros(x.shape[1]))[:, None, None]
            else:
                x = np.where(x > 0, x, tensors[f"{here}.weight"].astype(float)[:, None, None] * x)
            place += 1

    flat = sequence(np.asarray(faces, float), "stages", 2).reshape(len(faces), -1)
    features = flat @ tensors["fc1.weight"].T.astype(float) + tensors["fc1.bias"]
    if "fc1_norm.running_mean" in tensors:
        gain, shift, mean, variance = (
            tensors[f"fc1_norm.{part}"].astype(float) for part in ("weight", "bias", "running_mean", "running_var")
        )
        features = (features - mean) / np.sqrt(variance + 1e-5) * gain + shift
    return np.maximum(features, 0) if last_relu else features
