"""The layers of a model: the modules that are gathered, reduced and timed as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

_LISTS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)


def layers_of(model: nn.Module) -> dict[str, nn.Module]:
    """Return the layers by name, in the order of the model: blocks of its lists, and what stands beside them.

    A module without a list inside is one layer, unless it is the model itself.
    """
    found: dict[str, nn.Module] = {}
    seen: set[int] = set()
    for name, module in _layers(model, "", top=True):
        if id(module) not in seen:  # one block may stand in a model under several names
            seen.add(id(module))
            found[name] = module
    return found or {"model": model}


def unwrapped(module: nn.Module) -> nn.Module:
    """Return the model inside what DDP, DataParallel and torch.compile make of it."""
    name = "_orig_mod"  # torch.compile's
    while True:
        if isinstance(module, (DistributedDataParallel, DataParallel)):
            module = module.module
        elif isinstance(inner := module._modules.get(name), nn.Module):
            module = inner
        else:
            return module


def _layers(module: nn.Module, name: str, *, top: bool = False) -> Iterator[tuple[str, nn.Module]]:
    if next(module.parameters(), None) is None:
        return
    within = _has_list(module)
    children = list(module.named_children())
    if children and (top or isinstance(module, _LISTS) or (within and _holds_blocks(module))):
        for child_name, child in children:
            inner = f"{name}.{child_name}" if name else child_name
            yield from _layers(child, inner, top=top and _is_wrapped(child, children))
    else:
        yield name or "model", module


def _is_wrapped(child: nn.Module, children: Sequence[tuple[str, nn.Module]]) -> bool:
    """Return whether a module is all there is of the one around it, and made of others."""
    owners = [each for _, each in children if next(each.parameters(), None) is not None]
    return owners == [child] and (_has_list(child) or not child._parameters)


def _has_list(module: nn.Module) -> bool:
    return any(isinstance(inner, _LISTS) for inner in module.modules())


def _holds_blocks(module: nn.Module) -> bool:
    """Return whether a module is a stack of blocks rather than one block that uses a small list inside."""
    return (
        any(
            isinstance(child, _LISTS)
            and any(next(one.parameters(), None) is not None for one in child.children())
            for child in module.children()
        )
        and len(list(module.modules())) > _LARGEST_BLOCK
    )


_LARGEST_BLOCK = 40  # modules: a block of attention has some twenty


def own_parameters(model: nn.Module, layers: dict[str, nn.Module]) -> dict[str, list[nn.Parameter]]:
    """Return the parameters of each layer, each once, and under the name `model` those that no layer has."""
    seen: set[int] = set()
    found: dict[str, list[nn.Parameter]] = {}
    for name, module in layers.items():
        found[name] = [one for one in module.parameters() if id(one) not in seen]
        seen.update(id(one) for one in found[name])
    rest = [one for one in model.parameters() if id(one) not in seen]
    if rest:
        found["model"] = [*found.get("model", []), *rest]
    return found


def sharded_apart(model: nn.Module) -> dict[str, nn.Module]:
    """Return the layers that can be sharded by themselves; parameters that layers share are left to the model."""
    layers = {name: layer for name, layer in layers_of(model).items() if layer is not model}
    owners = Counter(id(one) for layer in layers.values() for one in layer.parameters())
    return {
        name: layer
        for name, layer in layers.items()
        if all(owners[id(one)] == 1 for one in layer.parameters())
    }


def bytes_of(parameters: list[nn.Parameter], *, trained: bool = False) -> int:
    """Return the bytes of parameters; `trained`, of those that get a gradient."""
    return sum(one.numel() * one.element_size() for one in parameters if one.requires_grad or not trained)


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """Yield the tensors in what a module takes or gives."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors_in(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors_in(one)
    elif hasattr(value, "__dataclass_fields__"):
        yield from tensors_in(vars(value))
