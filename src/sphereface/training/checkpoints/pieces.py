"""The state of a run as named tensors and JSON for a checkpoint, and back: weights, optimizer, random numbers."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from pydantic import JsonValue, TypeAdapter, ValidationError
from torch import Tensor

from sphereface.errors import UserError
from sphereface.training.checkpoints.manifest import CheckpointError

FLAGS = frozenset({"foreach", "fused", "capturable", "differentiable"})  # implementation, not hyperparameters
_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)


@torch.no_grad()
def fill(into: Mapping[str, Tensor], found: Mapping[str, Tensor], *, source: object) -> None:
    """Copy saved tensors into those of a network or loss; a difference in name, shape or type raises before any copy.

    >>> fill(net.state_dict(), checkpoint.group("net"), source=checkpoint.path)
    """
    for name in sorted(into.keys() | found.keys()):
        if _kind(into.get(name)) != _kind(found.get(name)):
            raise CheckpointError(
                f"{source}: {name!r} is {_kind(found.get(name))}; wanted {_kind(into.get(name))}: "
                "resume with the model, loss and options of the run"
            )
    for name, tensor in into.items():
        tensor.copy_(found[name])


def _kind(tensor: Tensor | None) -> str:
    return "absent" if tensor is None else f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


class Packed(NamedTuple):
    """An optimizer's state."""

    shared: dict[str, Tensor]  # by "parameter/key"
    by_class: dict[str, Tensor]  # split by classes, as their parameters are
    settings: dict[str, JsonValue]


def pack_optimizer(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor], *, by_class: Collection[str] = ()
) -> Packed:
    """An optimizer's state by the names of its parameters; `by_class` names those that are split by classes."""
    names = _names(optimizer, parameters)
    states = {names[parameter]: state for parameter, state in optimizer.state.items()}
    entries = {f"{name}/{key}": value for name, state in states.items() for key, value in state.items()}
    tensors = {place: value for place, value in entries.items() if isinstance(value, Tensor)}
    split = {
        place: tensor
        for place, tensor in tensors.items()
        if (name := place.rpartition("/")[0]) in by_class and tensor.shape[:1] == parameters[name].shape[:1]
    }
    settings: dict[str, JsonValue] = {
        "groups": [_hyperparameters(group, names) for group in optimizer.param_groups],
        "shapes": {name: _shape(parameters[name], split=name in by_class) for name in names.values()},
        "tensors": {place: _shape(tensor, split=place in split) for place, tensor in tensors.items()},
        "values": {place: _json(value, place) for place, value in entries.items() if place not in tensors},
    }
    return Packed({place: tensor for place, tensor in tensors.items() if place not in split}, split, settings)


def unpack_optimizer(
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[str, Tensor],
    tensors: Mapping[str, Tensor],
    settings: Any,
    *,
    source: object,
) -> None:
    """Restore the optimizer state that `pack_optimizer` returned.

    `tensors` are the shared ones and this process's rows of the split ones, together. The order of the optimizer's
    parameters and the number of rows of split ones may differ from those at saving.
    """
    names = _names(optimizer, parameters)
    _agree("parameters", settings["shapes"], names.values(), source)
    _agree("tensors of the optimizer", settings["tensors"], tensors, source)
    for name, shape in settings["shapes"].items():
        _check_shape(name, parameters[name], shape, parameters[name], source)
    state: dict[str, dict[str, Any]] = {}
    for place, tensor in tensors.items():
        name, _, key = place.rpartition("/")
        _check_shape(place, tensor, settings["tensors"][place], parameters[name], source)
        state.setdefault(name, {})[key] = _laid_as(parameters[name], tensor)
    for place, value in settings["values"].items():
        name, _, key = place.rpartition("/")
        state.setdefault(name, {})[key] = value
    groups = [_restored(group, names, settings["groups"], source) for group in optimizer.param_groups]
    optimizer.load_state_dict({"state": state, "param_groups": groups})  # moves each tensor to its device


def pack_rng(device: str | torch.device = "cpu") -> dict[str, Tensor]:
    """The states of torch's random generators, on the CPU and on a CUDA device, as bytes."""
    device = torch.device(device)
    on_device = {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {}
    return {"cpu": torch.get_rng_state(), **on_device}


def unpack_rng(tensors: Mapping[str, Tensor], device: str | torch.device = "cpu", *, source: object) -> None:
    """Restore the states of torch's random generators; a device without a saved state keeps its own."""
    device = torch.device(device)
    try:
        torch.set_rng_state(tensors["cpu"])
        if device.type == "cuda" and "cuda" in tensors:
            torch.cuda.set_rng_state(tensors["cuda"], device)
    except (KeyError, TypeError, RuntimeError) as error:
        raise CheckpointError(f"{source}: no state of torch's random generators ({error})") from error


def _names(optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor]) -> dict[Tensor, str]:
    """Each parameter's name, in the optimizer's order."""
    known = {parameter: name for name, parameter in parameters.items()}
    order = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    nameless = [tuple(parameter.shape) for parameter in order if parameter not in known]
    if nameless:
        raise UserError(f"the optimizer has parameters without a name, the first of shape {nameless[0]}; name them all")
    return {parameter: known[parameter] for parameter in order}


def _hyperparameters(group: Mapping[str, Any], names: Mapping[Tensor, str]) -> JsonValue:
    others = {key: _json(value, key) for key, value in group.items() if key not in FLAGS | {"params"}}
    return {**others, "params": [names[parameter] for parameter in group["params"]]}


def _restored(
    group: Mapping[str, Any], names: Mapping[Tensor, str], saved: Sequence[Mapping[str, Any]], source: object
) -> dict[str, Any]:
    """A group of the optimizer with its saved hyperparameters."""
    members = [names[parameter] for parameter in group["params"]]
    had = next((other for other in saved if set(other["params"]) == set(members)), None)
    if had is None:
        raise CheckpointError(f"{source}: no optimizer group of exactly the parameters {', '.join(members)}")
    # JSON has no tuples, and some optimizers require them.
    values = {key: tuple(had[key]) if isinstance(group.get(key), tuple) else had[key] for key in had}
    return {**group, **values, "params": members}


def _shape(tensor: Tensor, *, split: bool) -> JsonValue:
    """A shape as JSON; None stands for the number of this process's classes."""
    return [None if split and place == 0 else size for place, size in enumerate(tensor.shape)]


def _check_shape(name: str, tensor: Tensor, saved: Sequence[int | None], parameter: Tensor, source: object) -> None:
    wanted = [len(parameter) if size is None else size for size in saved]
    if list(tensor.shape) != wanted:
        raise CheckpointError(f"{source}: {name!r} has shape {list(tensor.shape)}; wanted {wanted}, as it was saved")


def _laid_as(parameter: Tensor, tensor: Tensor) -> Tensor:
    """A copy of an optimizer's tensor in its parameter's memory format: another one makes every step slower."""
    if tensor.shape != parameter.shape:
        return tensor.clone()
    return torch.empty_like(parameter, dtype=tensor.dtype, requires_grad=False).copy_(tensor)


def _agree(what: str, saved: Collection[str], here: Collection[str], source: object) -> None:
    for name in sorted(set(saved) ^ set(here)):
        where = "only in the checkpoint" if name in saved else "not in the checkpoint"
        raise CheckpointError(f"{source}: {what} differ, {name!r} is {where}")


def _json(value: Any, place: str) -> JsonValue:
    try:
        return _JSON.validate_python(list(value) if isinstance(value, tuple) else value)
    except ValidationError as error:
        raise UserError(f"{place!r} is {value!r}; wanted a tensor, or a value that JSON can hold") from error
