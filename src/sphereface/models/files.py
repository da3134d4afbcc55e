"""A model as one file: its weights as safetensors, its card in the metadata; pickle is not used."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn

from sphereface.contract import Card, broken_safetensors
from sphereface.data.files.writing import whole_file
from sphereface.errors import ModelFileError, UserError
from sphereface.models.spherefacenet import STAGES, SphereFaceNet
from sphereface.zoo import ModelFile


def save_model(net: nn.Module, path: str | Path, card: Card | None = None) -> None:
    """Write a network and its card to one `.safetensors` file; the architecture in the card is taken from the network.

    The file is written atomically: to a temporary name beside it, flushed to the disk, then renamed.
    """
    path = Path(path)
    if path.suffix != ".safetensors":
        raise UserError(f"{path}: wanted a name that ends in .safetensors for a model file")
    net = unwrapped(net)
    card = (card or Card()).model_copy(update={"architecture": net.architecture})
    tensors = {key: value.detach().cpu().contiguous() for key, value in net.state_dict().items()}
    with whole_file(path) as file:
        file.write(save(tensors, metadata=card.metadata()))


def load_model(path: str | Path, *, device: str | torch.device = "cpu") -> SphereFaceNet:
    """Load a network that `save_model` wrote, in evaluation mode."""
    return network_of(ModelFile(path), device=device)


def network_of(file: ModelFile, *, device: str | torch.device = "cpu") -> SphereFaceNet:
    """The network of a `.safetensors` file, in evaluation mode."""
    if file.kind != ".safetensors":
        raise ModelFileError(f"{file.path}: wanted a .safetensors file of save_model")
    path, card = file.path, file.card
    if card.architecture is None or card.architecture.name not in STAGES:
        found = "no architecture" if card.architecture is None else f"architecture {card.architecture.name!r}"
        raise ModelFileError(f"{path}: its card has {found}; this version takes {', '.join(STAGES)}")
    try:
        tensors = load(file.content)
    except (SafetensorError, KeyError) as error:  # a KeyError: a number type that torch does not have
        raise broken_safetensors(str(path), error) from error
    with torch.device("meta"):  # no memory and no random numbers for weights that are replaced below
        net = SphereFaceNet(card.architecture)
    types = {tensor.dtype for name, tensor in tensors.items() if not name.endswith("num_batches_tracked")}
    if len(types) != 1 or not types.pop().is_floating_point:
        raise ModelFileError(f"{path}: its weights are not of one floating-point type; save them with save_model")
    wanted = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
    found_shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for name in wanted.keys() | found_shapes.keys():
        if wanted.get(name) != found_shapes.get(name):
            came = f"tensor {name!r} has shape {found_shapes.get(name)}"
            needed = f"{card.architecture.name} wants {wanted.get(name)}"
            raise ModelFileError(f"{path}: {came}; {needed}: weights and card do not belong together")
    net.load_state_dict(tensors, assign=True)
    return net.to(device).eval()


def unwrapped(net: nn.Module) -> SphereFaceNet:
    """The network inside the wrappers of torch.compile and DistributedDataParallel."""
    while not isinstance(net, SphereFaceNet):
        inner = getattr(net, "_orig_mod", None) or getattr(net, "module", None)
        if not isinstance(inner, nn.Module):
            raise UserError(f"network is a {type(net).__name__}; wanted a SphereFaceNet of create_model")
        net = inner
    return net
