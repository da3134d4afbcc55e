"""A model as one file: its weights as safetensors, its card in the metadata. Nothing is ever unpickled."""

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

    The file appears whole or not at all: it is written beside its place, flushed to the disk, and moved there.
    """
    path = Path(path)
    if path.suffix != ".safetensors":
        raise UserError(f"{path}: a model file ends in .safetensors")
    net = unwrapped(net)
    card = (card or Card()).model_copy(update={"architecture": net.architecture})
    tensors = {key: value.detach().cpu().contiguous() for key, value in net.state_dict().items()}
    with whole_file(path) as file:
        file.write(save(tensors, metadata=card.metadata()))


def load_model(path: str | Path, *, device: str | torch.device = "cpu") -> SphereFaceNet:
    """Read a network that `save_model` wrote, ready for evaluation."""
    return network_of(ModelFile(path), device=device)


def network_of(file: ModelFile, *, device: str | torch.device = "cpu") -> SphereFaceNet:
    """The network of a `.safetensors` file, ready for evaluation."""
    if file.kind != ".safetensors":
        raise ModelFileError(f"{file.path}: wanted a .safetensors that save_model wrote")
    path, card = file.path, file.card
    if card.architecture is None or card.architecture.name not in STAGES:
        found = "no architecture" if card.architecture is None else f"architecture {card.architecture.name!r}"
        raise ModelFileError(f"{path}: its card names {found}; this version knows {', '.join(STAGES)}")
    try:
        tensors = load(file.content)
    except (SafetensorError, KeyError) as error:  # a KeyError: a type of numbers that torch does not have
        raise broken_safetensors(str(path), error) from error
    with torch.device("meta"):  # no memory and no random numbers for weights that are about to be replaced
        net = SphereFaceNet(card.architecture)
    types = {tensor.dtype for name, tensor in tensors.items() if not name.endswith("num_batches_tracked")}
    if len(types) != 1 or not types.pop().is_floating_point:
        raise ModelFileError(f"{path}: its weights are not of one floating-point type; save them with save_model")
    wanted = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
    found_shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for name in wanted.keys() | found_shapes.keys():
        if wanted.get(name) != found_shapes.get(name):
            raise ModelFileError(
                f"{path}: tensor {name!r} has shape {found_shapes.get(name)}; "
                f"{card.architecture.name} wants {wanted.get(name)}: weights and card do not belong together"
            )
    net.load_state_dict(tensors, assign=True)
    return net.to(device).eval()


def unwrapped(net: nn.Module) -> SphereFaceNet:
    """The network inside what torch.compile and DistributedDataParallel put around it."""
    while not isinstance(net, SphereFaceNet):
        inner = getattr(net, "_orig_mod", None) or getattr(net, "module", None)
        if not isinstance(inner, nn.Module):
            raise UserError(f"a {type(net).__name__} is no network of ours; wanted what create_model builds")
        net = inner
    return net
